#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# training.clip_norm_type and clip_grad of a group: every mesh clips as one rank does. Their values are PyTorch's in
# tests/oracle/test_oracle.c.
. "$(dirname "$0")/lib.sh"
base="--training.steps 4 --checkpoint.enable false --backend.blas own --comm.backend local --resume never --training.max_norm 0.1"
numbers() { sed 's/.*"loss":\([-0-9.e]*\).*"grad_norm":\([-0-9.e]*\).*/\1 \2/' "$1/metrics.jsonl"; }
# close FILE FILE: the same numbers, to 2e-6 of each
close() { paste -d ' ' "$1" "$2" | awk '{ for (i = 1; i <= 2; i++) { d = $i - $(i + 2); if (d < 0) d = -d; if (d > 2e-6 * $i) exit 1 } n++ } END { exit n < 4 }'; }
free='--optimizer.param_groups [{"match":"embed","clip_grad":false}]'
for order in 1 inf 3 0.5 free; do
    [ "$order" = free ] && what=$free || what="--training.clip_norm_type $order"
    train "$dir/one" $base $what
    [ "$rc" -eq 0 ] && numbers "$dir/one" >"$dir/want" && [ "$(wc -l <"$dir/want")" -eq 4 ]
    ok "norm_${order}_of_one_rank"
    train "$dir/fsdp" $base $what --nproc 2 --training.local_batch_size 2
    [ "$rc" -eq 0 ] && numbers "$dir/fsdp" >"$dir/got" && close "$dir/want" "$dir/got"
    ok "norm_${order}_of_fsdp_2"
    train "$dir/tp" $base $what --nproc 2 --parallelism.tensor_parallel_degree 2
    [ "$rc" -eq 0 ] && numbers "$dir/tp" >"$dir/got" && close "$dir/want" "$dir/got"
    ok "norm_${order}_of_tp_2"
    train "$dir/pp" $base $what --nproc 4 --parallelism.pipeline_parallel_degree 2 --parallelism.tensor_parallel_degree 2
    [ "$rc" -eq 0 ] && numbers "$dir/pp" >"$dir/got" && close "$dir/want" "$dir/got"
    ok "norm_${order}_of_pp_2_tp_2"
    train "$dir/sums" $base $what --training.local_batch_size 2 --training.global_batch_size 4
    [ "$rc" -eq 0 ] && numbers "$dir/sums" >"$dir/got" && close "$dir/want" "$dir/got"
    ok "norm_${order}_of_accumulated_gradients"
done
train "$dir/two" $base --training.clip_norm_type 2
numbers "$dir/two" >"$dir/want"
train "$dir/plain" $base
numbers "$dir/plain" | cmp -s - "$dir/want"
ok norm_2_is_the_default
# What is not clipped is not finite: the step is skipped all the same.
train "$dir/hot" $base $free --optimizer.lr 1e30 --training.skip_nonfinite true
[ "$rc" -eq 0 ] && grep -q 'is skipped' "$dir/err"
ok gradients_that_are_not_clipped_must_be_finite
for bad in two '"inf' null; do
    train "$dir/bad" $base --training.clip_norm_type "$bad"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'training.clip_norm_type' "$dir/err"
    ok "norm_type_$(echo "$bad" | tr -dc 'a-z0-9-')_is_refused"
done
exit $failed
