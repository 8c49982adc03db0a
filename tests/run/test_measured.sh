#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measured steps: norms by layer and parameter, attention's largest logits, the check of weights and gradients, and the z-loss:
# every mesh has one rank's numbers, other steps and the training itself have the same bits as without. The values are those of
# PyTorch in tests/oracle, those of attention_max those of the reference backend in tests/ops.
. "$(dirname "$0")/lib.sh"
base="--training.steps 3 --checkpoint.enable false --backend.blas own --comm.backend local --resume never"
all="--metrics.norms param --metrics.attention_max_logits true --debug.health_check_freq 2 --loss.z_loss 0.01"
groups="grad_norms weight_norms weight_rms update_ratios attention_max_logits"
# members FOLDER STEP: a line "group name value" per measured number
members() {
    for group in $groups; do
        sed -n "s|^{\"step\":$2,.*\"$group\":{\([^}]*\)}.*|\1|p" "$dir/$1/metrics.jsonl" 2>/dev/null | tr ',' '\n' | sed "s|\"\(.*\)\":\(.*\)|$group \1 \2|"
    done
    for key in weight_norm z_loss loss; do
        sed -n "s|^{\"step\":$2,.*\"$key\":\([-0-9.e]*\)[,}].*|$key - \1|p" "$dir/$1/metrics.jsonl" 2>/dev/null
    done
}
# alike FILE FILE: the same names, and numbers within 2e-5 of each
alike() { [ -s "$1" ] && paste -d ' ' "$1" "$2" | awk '$1 != $4 || $2 != $5 || $3 == "" { exit 1 } { d = $3 - $6; m = $3 < 0 ? -$3 : $3; if (d < 0) d = -d; if (d > 2e-5 * m + 1e-7) exit 1 }'; }
train "$dir/one" $base $all
for step in 1 2 3; do members one $step; done >"$dir/want"
[ "$rc" -eq 0 ] && [ "$(grep -c '^grad_norms ' "$dir/want")" -eq 63 ] && [ "$(grep -c '^update_ratios ' "$dir/want")" -eq 63 ] &&
    [ "$(grep -c '^attention_max_logits ' "$dir/want")" -eq 6 ] && [ "$(grep -c '^z_loss ' "$dir/want")" -eq 3 ]
ok one_rank_has_every_number
p=--parallelism
while read -r name options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $base $all $options
    for step in 1 2 3; do members "$name" $step; done >"$dir/got"
    [ "$rc" -eq 0 ] && alike "$dir/want" "$dir/got"
    ok "one_ranks_numbers_$name"
done <<LIST
accumulation --training.local_batch_size 1 --training.global_batch_size 4
fsdp --nproc 2 --training.local_batch_size 2
hsdp $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 1
tp $p.tensor_parallel_degree 2
tp_over_kv_heads $p.tensor_parallel_degree 4
ring $p.context_parallel_degree 2 $p.context_parallel_rotate_method alltoall
ulysses $p.context_parallel_degree 2 $p.context_parallel_rotate_method ulysses
gathered $p.context_parallel_degree 2 $p.context_parallel_rotate_method allgather
pp $p.pipeline_parallel_degree 2
pp_and_tp $p.pipeline_parallel_degree 2 $p.tensor_parallel_degree 2
zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.pipeline_parallel_microbatches 2 --model.args.n_layers 2 --model.args.tie_embeddings false
recomputed --activation_checkpoint.mode full
poisoned --debug.poison true
offloaded --training.enable_cpu_offload true
LIST

# ---- what they are ----
train "$dir/layers" $base --metrics.norms layer --training.max_norm 0.01
squares() { sed -n "s|^{\"step\":$2,.*\"grad_norms\":{\([^}]*\)}.*|\1|p" "$dir/$1/metrics.jsonl" | tr ',' '\n' | awk -F: '{ s += $2 * $2 } END { print sqrt(s) }'; }
[ "$rc" -eq 0 ] && near "$(squares layers 3)" "$(value "$dir/layers/metrics.jsonl" grad_norm)" 1e-4 &&
    [ "$(sed -n 's|^{"step":3,.*"grad_norms":{\([^}]*\)}.*|\1|p' "$dir/layers/metrics.jsonl" | tr ',' '\n' | wc -l)" -eq 5 ] &&
    grep -q '"grad_norms":{[^}]*"model.layers.1":' "$dir/layers/metrics.jsonl"
ok layers_add_up_to_grad_norm
train "$dir/step" $base --metrics.norms param --optimizer.name sgd --optimizer.momentum 0 --optimizer.weight_decay 0 --optimizer.lr 0.5 --training.max_norm 0
# with sgd the change is lr times the gradient
ratio() { members step 2 | awk -v n="$1" '$2 == n { v[$1] = $3 } END { print v["update_ratios"] - 0.5 * v["grad_norms"] / v["weight_norms"] }'; }
[ "$rc" -eq 0 ] && near "$(ratio model.norm.weight)" 0 1e-6 && near "$(ratio lm_head.weight)" 0 1e-6
ok ratio_is_of_the_change
# Muon's orthogonalization makes rounding a thousand times larger, so rows are summed in one order for any number of them (docs/numerics.md): no AMX.
base="$base --backend.f32_products fma"
for optimizer in muon lion schedule_free; do
    train "$dir/$optimizer" $base $all --optimizer.name $optimizer
    members $optimizer 3 >"$dir/want_$optimizer"
    train "$dir/mesh" $base $all --optimizer.name $optimizer --nproc 2 --training.local_batch_size 2
    members mesh 3 >"$dir/got"
    [ "$rc" -eq 0 ] && [ "$(grep -c '^update_ratios ' "$dir/got")" -eq 21 ] && alike "$dir/want_$optimizer" "$dir/got"
    ok "numbers_of_$optimizer"
done
train "$dir/half" $base $all --training.mixed_precision_param bfloat16 && [ "$(members half 3 | grep -c '^attention_max_logits ')" -eq 2 ]
ok bfloat16_has_them

# ---- when ----
train "$dir/off" $base --loss.z_loss 0.01
losses "$dir/off/metrics.jsonl" >"$dir/a" && losses "$dir/one/metrics.jsonl" >"$dir/b"
[ "$rc" -eq 0 ] && cmp -s "$dir/a" "$dir/b" && ! grep -q 'grad_norms\|weight_norm\|attention_max' "$dir/off/metrics.jsonl"
ok training_has_the_same_bits
train "$dir/freq" $base --training.steps 10 --metrics.norms layer --metrics.norms_freq 4 --debug.health_check_freq 3
[ "$rc" -eq 0 ] && [ "$(grep '"grad_norms"' "$dir/freq/metrics.jsonl" | sed 's/{"step":\([0-9]*\),.*/\1/' | tr '\n' ' ')" = "1 4 8 10 " ]
ok norms_freq_chooses_steps
ttrun plan "$job" $all --json >"$dir/with" 2>"$dir/err" && ttrun plan "$job" --loss.z_loss 0.01 --json >"$dir/without" 2>"$dir/err" &&
    [ "$(value "$dir/with" bytes_per_rank.work)" -le $(($(value "$dir/without" bytes_per_rank.work) * 11 / 10)) ]
ok they_need_little_memory

# ---- the check ----
train "$dir/healthy" $base --debug.health_check_freq 2
[ "$(grep -c 'health.*step [123]: no NaN, Inf or element beyond 65504; zeros: ' "$dir/err")" -eq 3 ]
ok healthy_weights_give_a_line
train "$dir/sick" $base --debug.health_check_freq 1 --optimizer.lr 1e6 --optimizer.name sgd --training.max_norm 0 --debug.health_check_policy stop
[ "$rc" -eq 3 ] && grep -q 'step [0-9]*: .* of [0-9]* parameters\{0,1\} have .*, most in .* elements).*debug.health_check_policy stop' "$dir/err"
ok sick_weights_stop_the_run
train "$dir/warned" $base --debug.health_check_freq 1 --optimizer.lr 1e30 --training.skip_nonfinite true --debug.health_check_policy warn
[ "$rc" -eq 0 ] && grep -q 'W health.*of [0-9]* parameters have' "$dir/err"
ok warnings_let_it_go_on
for bad in '--metrics.norms all' '--metrics.norms_freq 0' '--debug.health_check_policy die' '--loss.z_loss -1'; do
    # shellcheck disable=SC2086
    train "$dir/bad" $base $bad
    [ "$rc" -eq 2 ] && one_line "$dir/err"
    ok "refused_$(echo "$bad" | tr -dc 'a-z_')"
done
exit $failed
