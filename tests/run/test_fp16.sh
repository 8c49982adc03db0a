#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# float16 with a loss scale (training.mixed_precision_param float16): near f32, the scale's rule, skipped steps, resumes, meshes, refusals.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/plugins/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/plugins/backends/"
mine="--plugin-dir $dir/plugins"
f16="--training.mixed_precision_param float16"
p=--parallelism

equal() { # A B STEP: every tensor of the two checkpoints
    "$TTRUN" ckpt diff "$1/checkpoint/step-$3" "$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"
}
scales() { sed -n 's/.*"loss_scale":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
skipped() { sed -n 's/.*step \([0-9]*\): gradients overflow in float16.*/\1/p' "$dir/err" | tr '\n' ' '; }

train "$dir/f32" && train "$dir/plain" $f16
[ "$rc" -eq 0 ] && near "$(value "$dir/f32/metrics.jsonl" loss)" "$(value "$dir/plain/metrics.jsonl" loss)" 2e-3 &&
    near "$(value "$dir/f32/metrics.jsonl" grad_norm)" "$(value "$dir/plain/metrics.jsonl" grad_norm)" 1e-2 && ! equal "$dir/f32" "$dir/plain" 10
ok ten_steps_are_near_those_of_f32
[ "$(scales "$dir/plain")" = "$(printf '65536 %.0s' 1 2 3 4 5 6 7 8 9 10)" ] && ! grep -q loss_scale "$dir/f32/metrics.jsonl"
ok the_scale_is_a_metric_with_float16_alone
train "$dir/no_clip" $f16 --training.max_norm 0 && train "$dir/no_clip32" --training.max_norm 0
near "$(value "$dir/no_clip/metrics.jsonl" loss)" "$(value "$dir/no_clip32/metrics.jsonl" loss)" 2e-3
ok gradients_are_divided_by_the_scale_without_clipping_too

# ---- the rule: halved after an overflow, doubled after a window ----
train "$dir/window" $f16 --training.loss_scale 256 --training.loss_scale_window 3
[ "$(scales "$dir/window")" = "256 256 256 512 512 512 1024 1024 1024 2048 " ]
ok doubled_after_three_steps
train "$dir/static" $f16 --training.loss_scale 256 --training.loss_scale_window 0
[ "$(scales "$dir/static")" = "$(printf '256 %.0s' 1 2 3 4 5 6 7 8 9 10)" ]
ok window_0_never_changes_it
big="--training.loss_scale 1099511627776"
train "$dir/big" $f16 $big --training.steps 40 --checkpoint.interval 2 --checkpoint.keep_latest_k 0
n=$(skipped | wc -w)
awk -v s="$(scales "$dir/big")" 'BEGIN { split(s, a, " "); n = 1; while (a[n + 1] == a[n] / 2) n++; exit !(n > 8 && a[n + 1] == a[n]) }' &&
    [ "$rc" -eq 0 ] && [ "$n" -ge 8 ] && grep -q '"grad_norm":null' "$dir/big/metrics.jsonl"
ok halved_after_each_overflow
step2=$dir/big/checkpoint/step-2
[ "$n" -gt 4 ] && "$TTRUN" ckpt diff "$step2" "$dir/big/checkpoint/step-4" >"$dir/out" 2>"$dir/err"
[ "$(grep -c 'model\.' "$dir/out")" -eq 0 ] && grep -q 'optimizer.loss_scale' "$dir/out"
ok a_skipped_step_changes_no_parameter_and_no_state
[ "$(value "$dir/big/metrics.jsonl" loss | cut -d. -f1)" -le 2 ]
ok it_learns_after_skipped_steps
train "$dir/stop" $f16 $big --training.loss_scale_window 0
[ "$rc" -ne 0 ] && [ "$(grep -c 'grad_norm is' "$dir/err")" -eq 1 ]
ok an_overflow_with_a_fixed_scale_is_an_error

# ---- debug.detect_nan: an overflow is named where nothing handles it ----
nan="--debug.detect_nan true"
while read -r name options; do
    set -- $f16 --training.loss_scale 17179869184 --checkpoint.interval 10 $options
    train "$dir/nan_$name" "$@" && [ -n "$(skipped)" ] && train "$dir/nan_$name-1" "$@" $nan && [ "$rc" -eq 0 ] && equal "$dir/nan_$name" "$dir/nan_$name-1" 10
    ok "detect_nan_passes_handled_overflows_$name"
done <<END
one
chunked_head --model.args.vocab_size 40000 --training.local_batch_size 1
accumulated --training.local_batch_size 1
fsdp $p.data_parallel_shard_degree 2
tp $p.tensor_parallel_degree 2
pipeline $p.pipeline_parallel_degree 2
END
train "$dir/nan_fixed" $f16 $big --training.loss_scale_window 0 $nan
[ "$rc" -eq 3 ] && one_line "$dir/err" && grep -q 'debug.detect_nan: step 1, rank 0, ' "$dir/err"
ok detect_nan_names_an_overflow_of_a_fixed_scale
# the least scale handles nothing; the loss is finite, and gradients are not
train "$dir/nan_least" $f16 --training.loss_scale 1 --optimizer.lr 1e5 --training.max_norm 0 $nan
[ "$rc" -eq 3 ] && one_line "$dir/err" && grep -q 'debug.detect_nan: step [0-9]*, rank 0, ' "$dir/err"
ok detect_nan_names_an_overflow_at_the_least_scale

# ---- resumes ----
late="$f16 $big --training.loss_scale_window 4"
train "$dir/whole" $late --training.steps 36 --checkpoint.interval 36
for steps in 3 7 29 36; do train "$dir/parts" $late --training.steps $steps --checkpoint.interval 36; done
[ "$rc" -eq 0 ] && equal "$dir/whole" "$dir/parts" 36
ok bitwise_resumed
cp -r "$dir/f32" "$dir/from_f32"
train "$dir/from_f32" $f16 --training.steps 12
[ "$rc" -eq 0 ] && [ "$(scales "$dir/from_f32")" != "" ]
ok resumes_from_f32
train "$dir/from_f32" --training.steps 14
[ "$rc" -eq 0 ]
ok and_goes_back_to_it
ttrun ckpt export --to hf "$dir/plain" "$dir/hf" >"$dir/out" 2>"$dir/err" && ! grep -q loss_scale "$dir/hf"/*.safetensors && grep -q loss_scale "$dir/plain/checkpoint/step-10"/*.safetensors
ok an_export_lacks_the_scale

# ---- meshes ----
same() { # NAME OPTION…
    name=$1
    shift
    train "$dir/$name" $mine $late --training.steps 36 "$@"
    [ "$rc" -eq 0 ] && equal "$dir/whole" "$dir/$name" 36
    ok "bitwise_$name"
}
same threads --backend.threads 3
same unfused --debug.disable_fusion true
same recompute --activation_checkpoint.mode full
like() { # NAME OPTION…: the same scales, and a loss as near as another order of sums allows
    name=$1
    shift
    train "$dir/$name" $mine $late --training.steps 36 --comm.backend local "$@"
    [ "$rc" -eq 0 ] && [ "$(scales "$dir/whole")" = "$(scales "$dir/$name")" ] &&
        near "$(value "$dir/whole/metrics.jsonl" loss)" "$(value "$dir/$name/metrics.jsonl" loss)" 0.05
    ok "like_one_rank_$name"
}
like fsdp_2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2
like ddp_2 $p.data_parallel_replicate_degree 2 --training.local_batch_size 2
like tp_2 $p.tensor_parallel_degree 2
like cp_2 $p.context_parallel_degree 2
like pp_2 $p.pipeline_parallel_degree 2
four="--model.args.n_layers 4"
train "$dir/whole4" $late --training.steps 36 $four && mv "$dir/whole" "$dir/whole2" && mv "$dir/whole4" "$dir/whole"
like stages_4_on_2_ranks $four $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule Interleaved1F1B
like zbv $four $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
like accumulation $four --training.local_batch_size 2 --training.global_batch_size 4
# Of a scale that is soon right, since these backends are slow.
soon="$f16 --training.loss_scale 16777216 --training.loss_scale_window 4 --training.steps 8 --checkpoint.interval 8"
for backend in reference far; do
    train "$dir/$backend" $mine $soon --backend.name $backend
    [ "$rc" -eq 0 ] && [ "$(skipped | wc -w)" -ge 2 ] && [ "$(skipped | wc -w)" -lt 7 ]
    ok "runs_on_$backend"
done
equal "$dir/reference" "$dir/far" 8
ok far_has_the_bits_of_the_reference
train "$dir/lag" $mine $soon --backend.name far --metrics.lag 1
[ "$rc" -eq 0 ] && equal "$dir/far" "$dir/lag" 8
ok late_numbers_change_no_bit

# ---- refusals ----
train "$dir/odd" $f16 --training.loss_scale 1000
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'training.loss_scale: 1000 is not a power of two.*use 512' "$dir/err"
ok a_scale_is_a_power_of_two
exit $failed
