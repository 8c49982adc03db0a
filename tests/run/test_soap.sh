#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The optimizer soap: the bits of one rank on ranks that add in the same order, its curve on every mesh (a stack's matrices are shared out among ranks, with their states), the same bits for any threads and across
# resumes, checkpoints that another mesh opens, and the first update, which only makes the bases.
. "$(dirname "$0")/lib.sh"
p=--parallelism
l=--training.local_batch_size
soap="--optimizer.name soap --optimizer.lr 0.003 --optimizer.precondition_frequency 3 --lr_scheduler.name constant"
loss_at() { losses "$1/metrics.jsonl" | sed -n "s/^$2 //p"; }
equal() { "$TTRUN" ckpt diff "$1/checkpoint/step-$3" "$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"; }
shape() { grep -o "\"optimizer.state.$2\":{\"dtype\":\"F32\",\"shape\":\[[0-9,]*\]" "$1/trainer.json" | sed 's/.*\[//; s/\]//'; }

train "$dir/one" $soap --checkpoint.interval 5 && [ "$rc" -eq 0 ]
ok trains
awk -v a="$(loss_at "$dir/one" 1)" -v b="$(loss_at "$dir/one" 10)" 'BEGIN {exit !(b < a - 0.1)}'
ok learns
[ "$(loss_at "$dir/one" 1)" != "$(loss_at "$dir/one" 3)" ] && train "$dir/first" $soap --training.steps 1 && train "$dir/none" --training.steps 1 --optimizer.name sgd --optimizer.lr 0 &&
    "$TTRUN" ckpt diff "$dir/first/checkpoint/step-1" "$dir/none/checkpoint/step-1" 2>&1 | grep 'model\.' | grep -vq optimizer
[ $? -ne 0 ]
ok the_first_update_keeps_the_weights
for threads in 1 3; do
    train "$dir/threads$threads" $soap --backend.threads $threads && [ "$rc" -eq 0 ] && equal "$dir/one" "$dir/threads$threads" 10
    ok "bitwise_threads_$threads"
done
train "$dir/poison" $soap --debug.poison true && [ "$rc" -eq 0 ] && equal "$dir/one" "$dir/poison" 10
ok bitwise_poison
train "$dir/half" $soap --training.steps 5 && train "$dir/half" $soap && grep -q 'resumed from .*step-5' "$dir/err" && equal "$dir/one" "$dir/half" 10
ok resumed_bitwise
train "$dir/bf16" $soap --optimizer.state_dtype bfloat16 && [ "$rc" -eq 0 ] && near "$(loss_at "$dir/bf16" 10)" "$(loss_at "$dir/one" 10)" 0.02 && train "$dir/eight" $soap --optimizer.state_dtype dynamic8 && [ "$rc" -eq 0 ]
ok with_states_of_few_bits
train "$dir/sides" $soap --optimizer.max_precond_dim 40 && [ "$rc" -eq 0 ] && ! [ "$(loss_at "$dir/sides" 10)" = "$(loss_at "$dir/one" 10)" ]
ok large_sides_are_left_out

batch="--training.local_batch_size 8 --training.global_batch_size 8 --comm.backend local --checkpoint.interval 5"
# Two ranks by FSDP add what one rank adds over two micro-batches: nothing but the order of sums makes a mesh another.
train "$dir/parts" $soap $batch $l 4 && train "$dir/sharded" $soap $batch $l 4 $p.data_parallel_shard_degree 2 && equal "$dir/parts" "$dir/sharded" 10
ok two_ranks_have_the_bits_of_two_micro_batches
# Other orders, without what makes a full step of a rounding (docs/numerics.md, SOAP): a larger eps. Losses then differ by 4e-6
# after ten steps; those with and without preconditioners by 0.2.
batch="$batch --optimizer.eps 1e-3"
train "$dir/whole" $soap $batch && [ "$rc" -eq 0 ]
ok whole_trains
while read -r mesh options; do
    train "$dir/$mesh" $soap $batch $options
    [ "$rc" -eq 0 ] && near "$(loss_at "$dir/$mesh" 10)" "$(loss_at "$dir/whole" 10)" 2e-5
    ok "as_one_rank_on_$mesh"
done <<MESHES
fsdp2 $l 4 $p.data_parallel_shard_degree 2
fsdp4 $l 2 $p.data_parallel_shard_degree 4
tp2 $p.tensor_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
fsdp2_tp2 $l 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
MESHES
# the matrices of experts have one more dim; beside two micro-batches, which add as two ranks do
# by products whose order of summation is the same on each machine: the first updates of experts with few tokens are steep
experts="--backend.blas own --backend.f32_products fma --spec qwen3_moe --model.args.dim 32 --model.args.n_layers 2 --model.args.n_heads 4 --model.args.n_kv_heads 2 --model.args.head_dim 8 --model.args.num_experts 6 --model.args.num_experts_per_tok 2 --model.args.moe_intermediate_size 16"
train "$dir/experts" $soap $batch $l 4 $experts && [ "$rc" -eq 0 ] && train "$dir/experts2" $soap $batch $l 4 $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 $experts &&
    [ "$rc" -eq 0 ] && near "$(loss_at "$dir/experts2" 10)" "$(loss_at "$dir/experts" 10)" 2e-6
ok experts
# a checkpoint of two ranks by FSDP goes on on one, and one of one rank on four
mkdir -p "$dir/to_one/checkpoint" "$dir/to_four/checkpoint"
cp -r "$dir/fsdp2/checkpoint/step-5" "$dir/to_one/checkpoint/" && train "$dir/to_one" $soap $batch && grep -q 'resumed from .*step-5' "$dir/err" && near "$(loss_at "$dir/to_one" 10)" "$(loss_at "$dir/whole" 10)" 2e-5
ok states_move_from_two_ranks_to_one
cp -r "$dir/whole/checkpoint/step-5" "$dir/to_four/checkpoint/" && train "$dir/to_four" $soap $batch $l 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 && grep -q 'resumed from .*step-5' "$dir/err" &&
    near "$(loss_at "$dir/to_four" 10)" "$(loss_at "$dir/whole" 10)" 2e-5
ok states_move_from_one_rank_to_four
exit $failed
