#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Validation counts every sample once, on any mesh and with any batch size.
. "$(dirname "$0")/lib.sh"
head -c 421 "$dir/text.txt" >"$dir/valid.txt" # with bos and eos 423 tokens: 13 samples of 32
alone="--optimizer.lr 0 --checkpoint.enable false --training.steps 1 --validation.enable true --validation.freq 1
    --comm.backend local"
path="[\"$dir/valid.txt\"]"
loss_of() { sed -n 's/.*"validation":{"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
tokens_of() { sed -n 's/.*"validation":{"loss":[^,]*,"tokens":\([0-9]*\)}.*/\1/p' "$1/metrics.jsonl"; }
validate() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" $alone --validation.dataloader.path "$path" "$@"
    [ "$rc" -eq 0 ]
}
validate one --training.local_batch_size 13 && [ "$(tokens_of "$dir/one")" = 416 ]
ok every_sample_counts_once
whole=$(loss_of "$dir/one")
for batch in 1 2 4 8 16; do
    validate "batch$batch" --training.local_batch_size $batch && [ "$(tokens_of "$dir/batch$batch")" = 416 ] &&
        near "$(loss_of "$dir/batch$batch")" "$whole" 2e-6
    ok "validation_does_not_depend_on_the_batch_$batch"
done
same() { # NAME OPTION...
    validate "$@" && [ "$(tokens_of "$dir/$1")" = 416 ] && near "$(loss_of "$dir/$1")" "$whole" 2e-6
    ok "validation_does_not_depend_on_the_mesh_$1"
}
same fsdp2 --nproc 2
same fsdp4 --nproc 4 --training.local_batch_size 8
same tp2 --nproc 2 --parallelism.tensor_parallel_degree 2
same cp2 --nproc 2 --parallelism.context_parallel_degree 2
same pp2 --nproc 2 --parallelism.pipeline_parallel_degree 2
same pp2_dp2 --nproc 4 --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 8
# two batches are as many samples with a pipeline, which cuts each into micro-batches
validate two --validation.steps 2 && [ "$(tokens_of "$dir/two")" = 256 ]
ok validation_steps_are_batches
validate two_pp --validation.steps 2 --nproc 2 --parallelism.pipeline_parallel_degree 2 &&
    [ "$(tokens_of "$dir/two_pp")" = 256 ] && near "$(loss_of "$dir/two_pp")" "$(loss_of "$dir/two")" 2e-6
ok validation_steps_are_batches_with_a_pipeline
validate many --validation.steps 100 && [ "$(loss_of "$dir/many")" = "$(loss_of "$dir/batch4")" ]
ok more_batches_than_the_data_has_use_every_sample

# ---- several data sets with names, a batch and a length of their own, and before the first step ----
head -c 1400 "$dir/text.txt" | tail -c 900 >"$dir/other.txt"
sets="{\"wiki\": {\"path\": [\"$dir/valid.txt\"]}, \"code-1\": {\"path\": [\"$dir/other.txt\"]}}"
number() { sed -n 's|.*"validation":{.*"'"$2"'":\([0-9.]*\)[,}].*|\1|p' "$dir/$1/metrics.jsonl" | tail -n 1; } # NAME KEY
named() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" $alone --validation.datasets "$sets" "$@"
    [ "$rc" -eq 0 ]
}
validate other --validation.dataloader.path "[\"$dir/other.txt\"]" --training.local_batch_size 3
other=$(loss_of "$dir/other") n=$(tokens_of "$dir/other")
named sets && near "$(number sets wiki/loss)" "$whole" 2e-6 && near "$(number sets code-1/loss)" "$other" 2e-6 && [ "$(number sets wiki/tokens)" = 416 ] &&
    [ "$(number sets code-1/tokens)" = "$n" ] && grep -q 'validate step:  1  loss: .*  wiki:  [0-9.]*  code-1: ' "$dir/err"
ok sets_have_the_losses_of_each_alone
all=$(awk -v a="$whole" -v b="$other" -v n="$n" 'BEGIN {printf "%.9f", (416 * a + n * b) / (416 + n)}')
near "$(loss_of "$dir/sets" | sed 's/,.*//')" "$all" 2e-6
ok the_loss_of_all_sets_is_that_of_their_tokens
validate longer --training.seq_len 48 && long=$(loss_of "$dir/longer") && validate length --validation.seq_len 48 --validation.local_batch_size 5 &&
    [ "$(tokens_of "$dir/length")" = "$(tokens_of "$dir/longer")" ] && near "$(loss_of "$dir/length")" "$long" 2e-6 && ! near "$long" "$whole" 1e-5
ok validation_has_a_batch_and_a_length_of_its_own
p=--parallelism
while read -r mesh options; do
    named "$mesh" --validation.local_batch_size 3 --validation.seq_len 48 $options && near "$(number "$mesh" wiki/loss)" "$long" 2e-6
    ok "length_of_its_$mesh"
done <<MESHES
own_fsdp2 --nproc 2
own_cp2 --nproc 2 $p.context_parallel_degree 2
cut_cp2 --nproc 2 $p.context_parallel_degree 2 --training.local_batch_size 1 --training.seq_len 288
own_tp2 --nproc 2 $p.tensor_parallel_degree 2
own_pp2 --nproc 2 $p.pipeline_parallel_degree 2
MESHES
first() { # NAME OPTION...: trains three steps
    name=$1
    shift
    train "$dir/$name" --training.steps 3 --checkpoint.interval 3 --comm.backend local --validation.enable true --validation.freq 100 \
        --validation.dataloader.path "$path" "$@"
    [ "$rc" -eq 0 ]
}
first start --validation.at_start true && [ "$(head -n 1 "$dir/start/metrics.jsonl" | cut -c1-9)" = '{"step":0' ] &&
    near "$(loss_of "$dir/start" | head -n 1)" "$whole" 2e-6 && [ "$(grep -c validation "$dir/start/metrics.jsonl")" = 2 ] &&
    first later && [ "$(grep -c validation "$dir/later/metrics.jsonl")" = 1 ] &&
    [ "$(losses "$dir/start/metrics.jsonl" | grep -v '^0 ')" = "$(losses "$dir/later/metrics.jsonl")" ]
ok validation_before_the_first_step_changes_no_bit
train "$dir/start" --training.steps 4 --comm.backend local --validation.enable true --validation.at_start true --validation.dataloader.path "$path"
[ "$rc" -eq 0 ] && [ "$(grep -c '"step":0' "$dir/start/metrics.jsonl")" = 1 ] && [ "$(grep -c validation "$dir/start/metrics.jsonl")" = 3 ]
ok a_run_that_goes_on_has_no_first_validation
refused() { # NAME MESSAGE OPTION...
    name=$1 message=$2
    shift 2
    train "$dir/refused_$name" --validation.enable true "$@"
    [ "$rc" -eq 2 ] && grep -q "$message" "$dir/err" && one_line "$dir/err"
    ok "$name"
}
refused sets_beside_a_dataloader 'validation.datasets is set too' --validation.datasets "$sets" --validation.dataloader.path "$path"
refused a_set_without_a_name 'a data set.s name is 1 to 40 of' --validation.datasets "{\"a b\": {\"path\": $path}}"
refused a_set_with_an_unknown_key 'validation.datasets.wiki.paht: unknown key' --validation.datasets "{\"wiki\": {\"paht\": $path}}"
refused sets_of_another_type 'validation.datasets: expected an object' --validation.datasets '["a"]'
refused no_set 'validation.enable: needs data of its own' --validation.datasets '{}'
exit $failed
