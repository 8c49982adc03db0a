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
exit $failed
