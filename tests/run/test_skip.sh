#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Steps that update nothing: training.max_grad_norm_skip and training.skip_nonfinite.
. "$(dirname "$0")/lib.sh"
p=--parallelism
skipped() { sed -n 's/.*step \([0-9]*\) is skipped: .*/\1/p' "$dir/err" | tr '\n' ' '; }
differ() { "$TTRUN" ckpt diff "$1/checkpoint/step-$2" "$1/checkpoint/step-$3" >"$dir/out" 2>&1; }
norm="--training.max_grad_norm_skip 1.05 --backend.blas own"

# ---- a limit on the norm ----
train "$dir/one" $norm --checkpoint.interval 1 --checkpoint.keep_latest_k 0
one=$(skipped)
[ "$rc" -eq 0 ] && [ "$one" = "4 6 7 8 9 10 " ] && grep -q 'step 4 is skipped: grad_norm is 1.078[0-9]*, and training.max_grad_norm_skip is 1.05' "$dir/err" &&
    grep -q 'step:  4 .*  skipped$' "$dir/err" && grep -q '^{"step":4,.*"skipped":true,"n_steps_skipped":1[,}]' "$dir/one/metrics.jsonl" &&
    [ "$(grep -c '"skipped":true' "$dir/one/metrics.jsonl")" -eq 6 ] && grep -q '^{"step":10,.*"n_steps_skipped":6[,}]' "$dir/one/metrics.jsonl"
ok steps_of_large_norms_are_skipped_and_counted
train "$dir/rare" $norm --metrics.log_freq 5
[ "$rc" -eq 0 ] && grep -q 'step:  5 .*  skipped: an earlier step$' "$dir/err" && grep -q 'step: 10 .*  skipped$' "$dir/err"
ok a_line_says_which_step_was_skipped
differ "$dir/one" 3 4
[ "$(grep -c '^optimizer.skipped_steps' "$dir/out")" -eq 1 ] && ! grep -q 'model\.\|exp_avg' "$dir/out" && ! differ "$dir/one" 4 5 && grep -q 'model\.' "$dir/out"
ok a_skipped_step_changes_no_parameter_and_no_state
# Averages of the weights do not count it either
train "$dir/ema" $norm --training.ema_decay 0.9 --checkpoint.interval 1 --checkpoint.keep_latest_k 0 --training.steps 5
differ "$dir/ema" 3 4
[ "$rc" -eq 0 ] && [ "$(grep -c '^optimizer.skipped_steps' "$dir/out")" -eq 1 ] && ! grep -q 'ema' "$dir/out" && ! differ "$dir/ema" 4 5 && grep -q '\.ema' "$dir/out"
ok averages_wait_too
# The updates that are made are those of a run without the skipped batches: 3 steps, then the batch of step 5
train "$dir/parts" --backend.blas own $norm --training.steps 3 --checkpoint.interval 3 && train "$dir/parts" --backend.blas own $norm
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/parts/checkpoint/step-10")" = "$(hash_of "$dir/one/checkpoint/step-10")" ]
ok resumed_between_them_has_the_same_bits
train "$dir/off" --backend.blas own && train "$dir/never" --backend.blas own --training.max_grad_norm_skip 100 --training.skip_nonfinite true
[ "$rc" -eq 0 ] && [ "$(losses "$dir/off/metrics.jsonl")" = "$(losses "$dir/never/metrics.jsonl")" ] && ! grep -q skipped "$dir/off/metrics.jsonl"
ok a_limit_that_is_not_reached_changes_no_bit

# ---- every mesh skips the same steps ----
two="--nproc 2 --comm.backend local"
for mesh in "$p.data_parallel_shard_degree 2 --training.local_batch_size 2" "$p.tensor_parallel_degree 2" "$p.context_parallel_degree 2" \
    "$p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 2" "$p.data_parallel_replicate_degree 2 --training.local_batch_size 2" \
    "$p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.pipeline_parallel_microbatches 4 --model.args.n_layers 4"; do
    case $mesh in *ZBV*) train "$dir/four" $norm --model.args.n_layers 4 && one=$(skipped) && cp "$dir/four/metrics.jsonl" "$dir/one/" ;; esac
    rm -rf "$dir/mesh"
    # shellcheck disable=SC2086
    train "$dir/mesh" $norm $two $mesh
    losses "$dir/one/metrics.jsonl" >"$dir/a" && losses "$dir/mesh/metrics.jsonl" | paste -d' ' - "$dir/a" |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4) bad = 1; n++ } END { exit bad || n != 10 }' && [ "$rc" -eq 0 ] && [ "$(skipped)" = "$one" ] && [ -n "$one" ]
    ok "same_steps_$(echo "$mesh" | sed 's/--parallelism\.//; s/_parallel.*degree//; s/ .*schedule/_/; s/ .*//')"
done

# ---- numbers that are not finite ----
# float16 with a fixed scale that some steps overflow
f16="--training.mixed_precision_param float16 --training.loss_scale_window 0 --backend.blas own"
nan="--training.loss_scale 4194304 --training.skip_nonfinite true --training.steps 20"
for ranks in "" "$two $p.data_parallel_shard_degree 2 --training.local_batch_size 2" "$two $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 2"; do
    rm -rf "$dir/nan"
    # shellcheck disable=SC2086
    train "$dir/nan" $f16 $nan $ranks --checkpoint.interval 1 --checkpoint.keep_latest_k 0
    n=$(skipped | wc -w) last=$(skipped | awk '{ print $NF }')
    [ "$rc" -eq 0 ] && [ "$n" -ge 1 ] && [ "$n" -lt 10 ] && grep -q "step $last is skipped: grad_norm is [NI]" "$dir/err" &&
        ! differ "$dir/nan" $((last - 1)) "$last" && ! grep -q 'model\.\|exp_avg' "$dir/out" || break
done
[ "$rc" -eq 0 ] && [ "$n" -ge 1 ] && [ "$(value "$dir/nan/metrics.jsonl" loss | cut -d. -f1)" -le 2 ] && "$TTRUN" ckpt verify "$dir/nan/checkpoint/step-20" >"$dir/out"
ok steps_that_are_not_finite_are_skipped_and_it_learns
train "$dir/all" $f16 --training.loss_scale 1152921504606846976 --training.skip_nonfinite true --training.steps 200 --checkpoint.interval 1000
[ "$rc" -eq 3 ] && [ "$(skipped | wc -w)" -eq 100 ] && grep -q '^ttrun: step 100: 100 steps in a row were skipped; ' "$dir/err"
ok a_hundred_in_a_row_end_the_run
train "$dir/stop" $f16 --training.loss_scale 1152921504606846976
[ "$rc" -eq 3 ] && [ -z "$(skipped)" ] && grep -q '^ttrun: step 1: grad_norm is' "$dir/err"
ok without_the_key_the_first_ends_it
train "$dir/both" --training.mixed_precision_param float16 --training.max_grad_norm_skip 1.05 --training.steps 6
[ "$rc" -eq 0 ] && [ -n "$(skipped)" ] && [ "$(grep -c '"loss_scale":65536' "$dir/both/metrics.jsonl")" -eq 6 ]
ok a_large_norm_does_not_change_the_loss_scale
exit $failed
