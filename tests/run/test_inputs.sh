#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inputs that a loader declares (f32 and i32 per token, f32 per sample) and a loss reads: equal losses on every mesh.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/plugins"
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$SRC/tests/run/inputs.c" "-L$BUILD" -lttrun -lm -o "$dir/plugins/inputs.so" 2>"$dir/err"
ok plugin_with_inputs_builds
sed 's|"dataloader": {[^}]*}|"dataloader": { "name": "weighted" }, "loss": { "name": "weighted_loss" }, "comm": { "backend": "local" }|
     s|"checkpoint": {[^}]*}|"checkpoint": { "enable": false }|; s|"steps": 10|"steps": 4|; s|"n_layers": 2|"n_layers": 4|' "$dir/job.json" >"$dir/inputs.json"
job=$dir/inputs.json
go() { # NAME OPTION...: losses to $dir/NAME.loss
    name=$1
    shift
    train "$dir/$name" --plugin-dir "$dir/plugins" "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$name/metrics.jsonl" >"$dir/$name.loss" && [ "$(wc -l <"$dir/$name.loss")" -ge 3 ]
}
same() { # A B: to 2e-6 of the loss
    awk 'NR == FNR {a[$1] = $2; next} {d = $2 - a[$1]; if (d < 0) d = -d; if (!($1 in a) || d > 2e-6 * $2) bad = 1; n++} END {exit bad || n < 3}' \
        "$dir/$1.loss" "$dir/$2.loss"
}
p=--parallelism
go one
ok inputs_on_one_rank
while read -r name options; do
    go "$name" $options && same one "$name"
    ok "$name"
done <<MESHES
fsdp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2
ddp2 --training.local_batch_size 2 $p.data_parallel_replicate_degree 2
tp2 $p.tensor_parallel_degree 2
cp2 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 1
fsdp2_tp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
fsdp2_cp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2 $p.context_parallel_degree 2
MESHES
# the auxiliary loss is a mean over micro-batches: these are each other's equals
go micro --training.local_batch_size 1 --training.global_batch_size 4 && go pp_micro $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4 && same micro pp_micro
ok pipeline_of_micro_batches
for way in allgather ring; do
    go "cp_$way" --training.local_batch_size 1 --training.global_batch_size 4 $p.context_parallel_degree 2 $p.context_parallel_rotate_method $way && same micro "cp_$way"
    ok "lines_cut_over_ranks_$way"
done

# a weight of one is no weight; validation and mixtures carry inputs
go flat --loss.name weighted_plain --dataloader.flat 1 && go plain --loss.name cross_entropy --dataloader.flat 1 && cmp -s "$dir/flat.loss" "$dir/plain.loss"
ok loss_weights_of_one_change_no_bit

# cross_entropy divides by the sum of weights: 0 and 1 are a mask, a factor of all weights changes nothing
by='--loss.name cross_entropy --loss.weights loss_weight'
go zeros $by --dataloader.flat 2 && go masked --loss.name cross_entropy --dataloader.flat 3 && cmp -s "$dir/zeros.loss" "$dir/masked.loss" &&
    ! cmp -s "$dir/zeros.loss" "$dir/plain.loss"
ok weights_of_0_and_1_are_masks
go half $by --dataloader.flat 4 && cmp -s "$dir/half.loss" "$dir/plain.loss" && go samples --loss.name cross_entropy --loss.weights reward --dataloader.flat 4 &&
    cmp -s "$dir/samples.loss" "$dir/plain.loss"
ok a_factor_of_all_weights_changes_nothing
go weighed $by
ok weights_on_one_rank
! cmp -s "$dir/weighed.loss" "$dir/plain.loss"
ok weights_change_the_loss
while read -r mesh options; do
    go "weighed_$mesh" $by $options && same weighed "weighed_$mesh"
    ok "weights_$mesh"
done <<MESHES
fsdp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2
tp2_cp2 $p.tensor_parallel_degree 2 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
micro --training.local_batch_size 1 --training.global_batch_size 4
MESHES
for weights in document_weights document_root_weights; do
    go "$weights" --loss.name cross_entropy --loss.weights $weights && go "${weights}_micro" --loss.name cross_entropy --loss.weights $weights \
        --training.local_batch_size 1 --training.global_batch_size 4 $p.data_parallel_shard_degree 2 && same "$weights" "${weights}_micro" && ! same "$weights" plain
    ok "$weights"
done
go weighed_valid $by --optimizer.lr 0 --training.steps 1 --training.local_batch_size 64 --validation.enable true --validation.freq 1 \
    --validation.dataloader '{"name": "weighted"}' --validation.local_batch_size 5 --metrics.log_freq 1
loss=$(sed -n 's/.*"validation":{"loss":\([0-9.]*\),.*/\1/p' "$dir/weighed_valid/metrics.jsonl")
train "$dir/weighed_valid1" --plugin-dir "$dir/plugins" $by --optimizer.lr 0 --training.steps 1 --training.local_batch_size 64
near "$loss" "$(losses "$dir/weighed_valid1/metrics.jsonl" | cut -d' ' -f2)" 5e-6
ok validation_has_the_weights
go below $by --dataloader.flat 5
[ "$rc" -ne 0 ] && grep -q 'loss_weight at position [0-9]* is -1; a loss weight is a finite number of at least 0' "$dir/err"
ok a_weight_below_0_is_an_error
go unknown $by --loss.weights other
[ "$rc" -eq 2 ] && grep -q 'loss.weights: the dataloader has no input "other"' "$dir/err"
ok unknown_weights_are_an_error
go whole $by --loss.weights side
[ "$rc" -eq 2 ] && grep -q 'loss.weights: the dataloader.s input "side" is i32; loss weights are f32' "$dir/err"
ok weights_of_another_dtype_are_an_error
go valid --validation.enable true --validation.freq 2 --validation.dataloader '{"name": "weighted"}' && grep -q '"validation":\|"validation/loss"\|validation' "$dir/valid/metrics.jsonl"
ok validation_reads_the_inputs
go mixed --dataloader.mixture '[{"name": "weighted"}, {"name": "weighted", "weight": 2}]'
ok mixture_of_equal_inputs
go unequal --dataloader.mixture "[{\"name\": \"weighted\"}, {\"name\": \"text\", \"path\": \"$dir/text.txt\"}]"
[ "$rc" -eq 2 ] && grep -q 'dataloader: its sources weighted and text declare different inputs' "$dir/err"
ok mixture_of_different_inputs_is_an_error
go unknown --loss.input loss_weights
[ "$rc" -eq 2 ] && grep -q 'there is no input "loss_weights": the dataloader gives ids, labels, pos, seg, token_index, loss_weight, side, reward' "$dir/err"
ok unknown_input_is_an_error_that_lists_the_inputs
go text --dataloader.name text --dataloader.path "$dir/text.txt"
[ "$rc" -eq 2 ] && grep -q 'there is no input "loss_weight": the dataloader gives ids, labels, pos, seg, token_index$' "$dir/err"
ok loader_without_the_input_is_an_error
go held --validation.enable true --validation.dataloader "{\"name\": \"text\", \"path\": \"$dir/text.txt\"}"
[ "$rc" -eq 2 ] && grep -q 'text does not declare the same inputs as the dataloader weighted' "$dir/err"
ok validation_without_the_inputs_is_an_error
ttrun data show "$job" --plugin-dir "$dir/plugins" --json >"$dir/out" 2>"$dir/err" && grep -q '"loss_weight":\[[0-9.,]*\],"side":\[[012,]*\],"reward":\[0.[0-9]*\]' "$dir/out"
ok data_show_prints_the_inputs
ttrun plugins check "$dir/plugins/inputs.so" >"$dir/out" 2>"$dir/err" && grep -q 'also gives loss_weight (f32 per token), side (i32 per token), reward (f32 per sample)' "$dir/out" &&
    grep -q 'loss weighted_plain: .*FSDP 2' "$dir/out"
ok plugins_check_lists_the_inputs
exit $failed
