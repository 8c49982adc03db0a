#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stopping, resuming and saving: signals, second starts, failures while a run goes on.
. "$(dirname "$0")/lib.sh"
long="--training.steps 1000000 --metrics.log_freq 1"

# ---- a folder has one run; the second start waits for it, here half a second ----
start "$dir/live" $long --checkpoint.interval 1000000
live=$pid
until_true has_lines "$dir/live/metrics.jsonl" 1
kill -STOP $live # it lives, and leaves the cores to the others
TTRUN_PATIENCE=0.1 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/live" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && grep -q "is locked by process $live; waiting 0.5 s" "$dir/err" && grep -q "^ttrun: .*process $live " "$dir/err" && one_line "$dir/err"
ok second_start_names_the_running_process
kill -9 $live
wait $live 2>/dev/null
start "$dir/live" --training.steps 3
wait $pid
ok after_kill_9_the_folder_is_free

# ---- N steps are k steps and the rest ----
train "$dir/whole"
hash_of "$dir/whole/checkpoint/step-10" >"$dir/whole.sum"
losses "$dir/whole/metrics.jsonl" >"$dir/whole.losses"
train "$dir/parts" --training.steps 4
[ "$rc" -eq 0 ] && train "$dir/parts" --backend.threads 2
[ "$rc" -eq 0 ] && hash_of "$dir/parts/checkpoint/step-10" | cmp -s - "$dir/whole.sum" &&
    losses "$dir/parts/metrics.jsonl" | cmp -s - "$dir/whole.losses"
ok resume_is_bitwise_with_other_threads
grep -q 'resumed from .*/step-4, next is step 5' "$dir/err" && grep -q 'training.steps: 4 → 10' "$dir/err" &&
    grep -q 'backend.threads: 1 → 2' "$dir/err"
ok resume_says_what_differs
train "$dir/sync" --checkpoint.async_mode disabled
hash_of "$dir/sync/checkpoint/step-10" | cmp -s - "$dir/whole.sum"
ok synchronous_saves_write_the_same
half="--training.dtype bfloat16 --training.mixed_precision_param bfloat16 --parallelism.data_parallel_shard_degree 2
    --training.local_batch_size 2 --comm.backend local"
train "$dir/half_whole" $half
train "$dir/half" $half --training.steps 5
train "$dir/half" $half
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/half/checkpoint/step-10")" = "$(hash_of "$dir/half_whole/checkpoint/step-10")" ]
ok resume_of_bf16_parameters_is_bitwise
train "$dir/mesh" --training.steps 5
train "$dir/mesh" --parallelism.data_parallel_shard_degree 2 --parallelism.tensor_parallel_degree 2 --comm.backend local
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/mesh/metrics.jsonl")" -eq 10 ] &&
    "$TTRUN" ckpt verify "$dir/mesh/checkpoint/step-10" >"$dir/out" && grep -q complete "$dir/out"
ok resume_on_another_mesh
train "$dir/mesh4" --parallelism.data_parallel_shard_degree 2 --parallelism.tensor_parallel_degree 2 \
    --comm.backend local --training.local_batch_size 2 --training.steps 5
train "$dir/mesh4" # back on one rank, the same global batch
losses "$dir/mesh4/metrics.jsonl" | paste -d ' ' - "$dir/whole.losses" |
    awk '{d = $2 - $4; n += (d < 0 ? -d : d) < 2e-4 * $4 && $1 == $3} END {exit n != 10}'
ok resume_from_another_mesh_to_rounding

# ---- done already; starting over ----
cp "$dir/whole/metrics.jsonl" "$dir/before.jsonl"
train "$dir/whole"
[ "$rc" -eq 0 ] && grep -q 'done already' "$dir/err" && cmp -s "$dir/before.jsonl" "$dir/whole/metrics.jsonl"
ok finished_run_runs_no_step
train "$dir/whole" --resume never --training.steps 2
[ "$rc" -eq 0 ] && [ "$(newest "$dir/whole/checkpoint")" = 2 ] && [ -d "$dir/whole/before-1/checkpoint/step-10" ] &&
    [ "$(wc -l <"$dir/whole/metrics.jsonl")" -eq 2 ]
ok starting_over_sets_checkpoints_aside
train "$dir/parts" --checkpoint.load_step 4 --training.steps 6
[ "$rc" -eq 0 ] && grep -q 'next is step 5' "$dir/err" && [ "$(wc -l <"$dir/parts/metrics.jsonl")" -eq 6 ]
ok load_step_goes_back
train "$dir/few" --checkpoint.interval 1 --checkpoint.keep_latest_k 3
[ "$(cd "$dir/few/checkpoint" && echo step-*)" = "step-10 step-8 step-9" ]
ok keep_latest_k_keeps_k
train "$dir/weights" --checkpoint.last_save_model_only true
grep -aq 'optimizer.state' "$dir/weights/checkpoint/step-5/"*.safetensors &&
    ! grep -aq 'optimizer.state' "$dir/weights/checkpoint/step-10/"*.safetensors
ok last_save_model_only_saves_weights_only
train "$dir/weights" --training.steps 12
[ "$rc" -eq 2 ] && grep -q 'optimizer' "$dir/err" && one_line "$dir/err"
ok a_step_with_weights_only_is_not_resumed_from
train "$dir/from" --training.steps 1 --checkpoint.initial_load_path "$dir/weights/checkpoint/step-10"
first=$(losses "$dir/from/metrics.jsonl" | cut -d ' ' -f 2)
[ "$rc" -eq 0 ] && near "$first" 2.9 0.5
ok initial_load_path_takes_weights
grep -q 'other arguments' "$dir/err" && rc=1
[ "$rc" -eq 0 ] && ! grep -q 'not of this model' "$dir/err"
ok initial_load_path_of_the_same_model_logs_no_difference
train "$dir/untied" --training.steps 1 --model.args.tie_embeddings false
train "$dir/tied" --training.steps 1 --model.args.tie_embeddings true --checkpoint.initial_load_path "$dir/untied/checkpoint/step-1"
[ "$rc" -eq 0 ] && grep -q 'untied/checkpoint/step-1: 1 tensor not of this model ignored: lm_head.weight$' "$dir/err" &&
    grep -q 'W train\] the weights belong to a model with other arguments: model.args.tie_embeddings: false → true' "$dir/err"
ok tied_model_from_untied_weights_is_a_warning
train "$dir/more" --training.steps 1 --model.args.n_layers 3 --checkpoint.initial_load_path "$dir/untied/checkpoint/step-1"
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "no tensor 'model.layers.2.*, and 8 more of the model's are not there" "$dir/err"
ok weights_that_lack_layers_are_named
train "$dir/fewer" --training.steps 1 --model.args.n_layers 1 --checkpoint.initial_load_path "$dir/untied/checkpoint/step-1"
[ "$rc" -eq 0 ] && grep -q '9 tensors not of this model ignored: model.layers.1.*, model.layers.1.self_attn.v_proj.weight$' "$dir/err"
ok layers_that_the_model_lacks_are_named
train "$dir/zero" --training.steps 0
[ "$rc" -eq 0 ] && ! [ -s "$dir/out" ]
ok zero_steps_are_not_an_error
train "$dir/none" --checkpoint.enable false
[ "$rc" -eq 0 ] && ! [ -e "$dir/none/checkpoint" ]
ok checkpoint_disabled_writes_none

# ---- signals ----
stop_and_go_on() { # SIGNAL
    start "$dir/s$1" $long --checkpoint.interval 1000000
    until_true has_lines "$dir/s$1/metrics.jsonl" 20
    kill -"$1" $pid
    wait $pid
    rc=$?
    step=$(newest "$dir/s$1/checkpoint")
    [ $rc -eq 4 ] && [ "${step:-0}" -ge 20 ] && [ "$(value "$dir/s$1/metrics.jsonl" step)" = "$step" ] &&
        grep -q "stopped by SIG$1 after step $step, saved" "$dir/s$1.err"
}
stop_and_go_on TERM
ok sigterm_saves_and_ends_with_4
steps=$((step + 3))
train "$dir/sTERM" --training.steps $steps
train "$dir/straight" --training.steps $steps
[ "$(hash_of "$dir/sTERM/checkpoint/step-$steps")" = "$(hash_of "$dir/straight/checkpoint/step-$steps")" ]
ok resume_after_sigterm_is_bitwise
stop_and_go_on INT
ok sigint_saves_and_ends_with_4
start "$dir/unsaved" $long --checkpoint.enable false
until_true has_lines "$dir/unsaved/metrics.jsonl" 5
kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 4 ] && grep -q 'stopped by SIGTERM after step [0-9]*$' "$dir/unsaved.err" && ! [ -e "$dir/unsaved/checkpoint" ]
ok sigterm_without_checkpoints_saves_nothing
start "$dir/ranks" $long --checkpoint.interval 1000000 --comm.backend local --nproc 2
until_true has_lines "$dir/ranks/metrics.jsonl" 5
kill -TERM $pid
wait $pid
rc=$?
step=$(newest "$dir/ranks/checkpoint")
[ $rc -eq 4 ] && [ -n "$step" ] && "$TTRUN" ckpt verify "$dir/ranks/checkpoint/step-$step" >"$dir/out"
ok sigterm_saves_with_two_ranks
gate 2 backward
TTRUN_PATIENCE=0.01 start "$dir/twice" $gated $long
stands && stop_twice $pid
wait $pid
rc=$?
[ $rc -eq 4 ] && [ -z "$(newest "$dir/twice/checkpoint")" ] &&
    [ "$(grep -c '^ttrun: stopped at once by a second SIGTERM; ' "$dir/twice.err")" -eq 1 ]
ok second_signal_ends_at_once
start "$dir/both" $long --training.local_batch_size 256
until_true has_lines "$dir/both/metrics.jsonl" 1
kill -STOP $pid && until_true is_stopped $pid # so that both are there at once, however late they are handled
kill -TERM $pid
kill -HUP $pid
kill -CONT $pid
wait $pid
rc=$?
[ $rc -eq 4 ] && [ -n "$(newest "$dir/both/checkpoint")" ]
ok one_stop_that_arrives_twice_saves
stop_and_go_on HUP
ok sighup_saves_and_ends_with_4
(
    trap '' HUP
    exec "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/nohup" $long >"$dir/nohup.out" 2>"$dir/nohup.err"
) &
pid=$!
until_true has_lines "$dir/nohup/metrics.jsonl" 5
kill -HUP $pid
lines=$(wc -l <"$dir/nohup/metrics.jsonl")
until_true has_lines "$dir/nohup/metrics.jsonl" $((lines + 20)) && kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 4 ]
ok ignored_sighup_stays_ignored
start "$dir/usr" $long --checkpoint.interval 1000000
until_true has_lines "$dir/usr/metrics.jsonl" 5
kill -USR1 $pid
saved() { [ -n "$(newest "$dir/usr/checkpoint")" ]; }
until_true saved && lines=$(wc -l <"$dir/usr/metrics.jsonl") && until_true has_lines "$dir/usr/metrics.jsonl" $((lines + 20))
ok sigusr1_saves_and_continues
kill -9 $pid
wait $pid 2>/dev/null

# ---- kill -9 while saving ----
bad=
for k in 1 2 3 4 5 6 7 8 9 10; do
    before=$(newest "$dir/killed/checkpoint")
    lines=0
    [ -e "$dir/killed/metrics.jsonl" ] && lines=$(wc -l <"$dir/killed/metrics.jsonl")
    start "$dir/killed" $long --checkpoint.interval 1 --checkpoint.keep_latest_k 2
    until_true has_lines "$dir/killed/metrics.jsonl" $((lines + 2 * k))
    kill -9 $pid
    wait $pid 2>/dev/null
    step=$(newest "$dir/killed/checkpoint")
    [ -z "$before" ] || grep -q "resumed from .*/step-$before," "$dir/killed.err" || bad="$bad $k: not from step $before;"
    [ -z "$step" ] || "$TTRUN" ckpt verify "$dir/killed/checkpoint/step-$step" >"$dir/out" || bad="$bad $k: $step is damaged;"
done
steps=$((step + 3))
train "$dir/killed" --training.steps $steps --checkpoint.interval 1000000
train "$dir/alive" --training.steps $steps --checkpoint.interval 1000000
[ -z "$bad" ] && [ "$(hash_of "$dir/killed/checkpoint/step-$steps")" = "$(hash_of "$dir/alive/checkpoint/step-$steps")" ] &&
    losses "$dir/alive/metrics.jsonl" >"$dir/alive.losses" && losses "$dir/killed/metrics.jsonl" | cmp -s - "$dir/alive.losses"
ok "kill_9_ten_times_loses_nothing$bad"

# ---- saving fails ----
(
    trap '' XFSZ # a file of more than 100 KiB cannot be written: the writer's error, not ours
    ulimit -f 100
    train "$dir/full" --training.steps 100000
    echo "$rc" >"$dir/full.rc"
    cp "$dir/err" "$dir/full.err"
)
[ "$(cat "$dir/full.rc")" -eq 1 ] && one_line "$dir/full.err" && grep -q '^ttrun: checkpoint of step 5: .*step-5.tmp' "$dir/full.err" &&
    ! [ -e "$dir/full/checkpoint/step-5.tmp" ]
ok failing_metrics_writer_ends_the_run
(
    trap '' XFSZ
    ulimit -f 100
    train "$dir/full2" --training.steps 100000 --comm.backend local --nproc 2
    echo "$rc" >"$dir/full2.rc"
    cp "$dir/err" "$dir/full2.err"
)
[ "$(cat "$dir/full2.rc")" -eq 1 ] && one_line "$dir/full2.err" && grep -q '^ttrun: rank [01]: checkpoint of step 5: .*step-5.tmp' "$dir/full2.err"
ok failing_metrics_writer_ends_two_ranks
start "$dir/gone" $long --checkpoint.interval 1000000
until_true has_lines "$dir/gone/metrics.jsonl" 5
rm -r "$dir/gone/checkpoint" && echo "in the way" >"$dir/gone/checkpoint"
kill -USR1 $pid
wait $pid
rc=$?
[ $rc -eq 1 ] && one_line "$dir/gone.err" && grep -q '^ttrun: .*gone/checkpoint' "$dir/gone.err"
ok replaced_checkpoint_folder_ends_the_run
exit $failed
