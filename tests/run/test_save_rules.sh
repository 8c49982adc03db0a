#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# When a run saves and what it keeps, beyond test_saving.sh: only at the end, never, snapshots, weights alone as another dtype, and what
# checkpoints and the log say. A save that does not get on.
. "$(dirname "$0")/lib.sh"
two="--nproc 2 --comm.backend local --training.local_batch_size 2"
steps_of() { (cd "$1/checkpoint" && echo step-*); }
of_trainer() { tr -d '\n' <"$1/trainer.json" | sed -n 's/.*"'"$2"'": *\([^,}]*\).*/\1/p'; }

# ---- when ----
for ranks in "" "$two"; do
    rm -rf "$dir/end"
    train "$dir/end" --checkpoint.interval -1 $ranks
    [ $rc -eq 0 ] && [ "$(steps_of "$dir/end")" = step-10 ] || break
done
[ $rc -eq 0 ] && [ "$(steps_of "$dir/end")" = step-10 ]
ok interval_of_minus_one_saves_the_last_step_alone
train "$dir/end_s" --checkpoint.interval -1 --checkpoint.interval_type seconds --training.steps 4
[ $rc -eq 0 ] && [ "$(steps_of "$dir/end_s")" = step-4 ]
ok so_it_does_by_seconds
train "$dir/end_e" --checkpoint.interval -1 --checkpoint.interval_type epochs --training.steps 4
[ $rc -eq 0 ] && [ "$(steps_of "$dir/end_e")" = step-4 ]
ok and_by_epochs
train "$dir/end" --checkpoint.interval null --training.steps 12
[ $rc -eq 0 ] && grep -q 'resumed from .*/step-10, next is step 11 (loaded in [0-9.]* s)' "$dir/err" && [ "$(steps_of "$dir/end")" = step-10 ]
ok interval_null_resumes_and_saves_none
train "$dir/t" --checkpoint.interval 0
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.interval: expected 1 or more, or -1, got 0' "$dir/err"
ok interval_of_zero_is_refused
train "$dir/t" --checkpoint.interval null --checkpoint.last_save_in_hf true
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'last_save_in_hf: nothing is saved while checkpoint.interval is null; -1 saves the last step alone' "$dir/err"
ok an_export_needs_a_save
train "$dir/case" --checkpoint.async_mode ASYNC_with_pinned_Mem --training.steps 2
[ $rc -eq 0 ] && grep -q 'checkpoint.async_mode: "ASYNC_with_pinned_Mem" is taken as "async_with_pinned_mem"' "$dir/err" &&
    [ "$(grep -c 'async_with_pinned_mem is the same as async: a thread of each rank, not a process' "$dir/err")" -eq 1 ] && [ "$(steps_of "$dir/case")" = step-2 ]
ok async_mode_in_any_case_and_pinned_is_said_to_be_async
train "$dir/t" --checkpoint.async_mode Asynk
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.async_mode: expected one of disabled, async, async_with_pinned_mem, got "Asynk"' "$dir/err"
ok another_async_mode_is_refused

# ---- snapshots: interval 4 and snapshots every 2: at 2 and 6, of which the newest is kept ----
for ranks in "" "$two"; do
    rm -rf "$dir/snap"
    train "$dir/snap" --checkpoint.interval 4 --checkpoint.snapshot_interval 2 --checkpoint.keep_latest_k 2 --training.steps 11 $ranks
    [ $rc -eq 0 ] && [ "$(steps_of "$dir/snap")" = "step-10 step-11 step-8" ] || break
    [ "$(of_trainer "$dir/snap/checkpoint/step-10" snapshot)" = true ] && [ -z "$(of_trainer "$dir/snap/checkpoint/step-8" snapshot)" ] || break
    [ "$(grep -c 'saved .*/step-[0-9]* in' "$dir/err")" -eq 6 ] || break
done
[ $rc -eq 0 ] && [ "$(grep -o 'removed .*/step-[0-9]* (.*)' "$dir/err" | sed 's/.*step-/step-/' | tr '\n' ';')" = "step-2 (a newer snapshot is there);step-6 (a newer snapshot is there);step-4 (checkpoint.keep_latest_k);" ]
ok snapshots_between_checkpoints_and_the_newest_is_kept
train "$dir/snap" --checkpoint.interval 4 --checkpoint.snapshot_interval 2 --checkpoint.keep_latest_k 2 --training.steps 13 --checkpoint.load_step 10
[ $rc -eq 0 ] && grep -q 'resumed from .*/step-10' "$dir/err" && [ "$(steps_of "$dir/snap")" = "step-10 step-12 step-13" ]
ok a_snapshot_is_resumed_from
train "$dir/one_kept" --checkpoint.interval 2 --checkpoint.keep_latest_k 1 --training.steps 5 $two && [ $rc -eq 0 ] && [ "$(steps_of "$dir/one_kept")" = step-5 ] &&
    train "$dir/one_kept" --checkpoint.interval 2 --checkpoint.keep_latest_k 1 --training.steps 8 --checkpoint.async_mode disabled
[ $rc -eq 0 ] && grep -q 'resumed from .*/step-5' "$dir/err" && [ "$(steps_of "$dir/one_kept")" = step-8 ]
ok one_checkpoint_is_kept
idle() { # KEYS WHY OPTION...: a line says that these keys do nothing
    keys=$1 why=$2
    shift 2
    rm -rf "$dir/idle"
    train "$dir/idle" --training.steps 1 "$@" && [ $rc -eq 0 ] || return 1
    if [ -z "$keys" ]; then ! grep -q 'nothing is saved, because' "$dir/err"; else grep -q "W job. $keys: nothing is saved, because $why" "$dir/err"; fi
}
ck=--checkpoint
idle checkpoint.snapshot_interval 'checkpoint.load_only is true' $ck.load_only true $ck.snapshot_interval 1 && idle checkpoint.snapshot_interval 'checkpoint.interval is null' $ck.interval null $ck.snapshot_interval 2 &&
    idle 'checkpoint.snapshot_interval, checkpoint.enable_first_step_checkpoint' 'checkpoint.enable is false' $ck.enable false $ck.enable_first_step_checkpoint true $ck.snapshot_interval 1 &&
    idle '' '' $ck.enable false && idle '' '' $ck.snapshot_interval 2
ok keys_of_saves_that_do_not_happen_are_told
for key in "last_save_in_hf true" "hf_interval 2"; do
    train "$dir/load_only" $ck.load_only true $ck.$key
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q "$ck.${key% *}: nothing is saved while checkpoint.load_only is true" "$dir/err" || break
done
[ $rc -eq 2 ]
ok exports_of_what_is_not_saved_are_refused
train "$dir/idle" --metrics.save_for_all_ranks true --training.steps 2 && grep -q 'W job. metrics.save_for_all_ranks does nothing' "$dir/err" &&
    train "$dir/idle" --metrics.save_for_all_ranks true --metrics.enable_tensorboard true --training.steps 3 && ! grep -q 'save_for_all_ranks' "$dir/err"
ok save_for_all_ranks_without_tensorboard_is_told
train "$dir/no_seed" $ck.create_seed_checkpoint true $ck.enable false
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.create_seed_checkpoint: nothing is saved: checkpoint.enable is false' "$dir/err" && ! [ -e "$dir/no_seed" ]
ok a_seed_that_is_not_saved_is_refused_at_once
echo '{"ttrun"' >"$dir/one_kept/run.json"
train "$dir/one_kept" --training.steps 9
[ $rc -eq 0 ] && grep -q 'W train. .*one_kept/run.json.*: the list of the run.s earlier starts is lost, and' "$dir/err"
ok a_damaged_run_json_is_told
train "$dir/nan" --optimizer.lr 1e30 --training.steps 9 --checkpoint.interval 100
[ $rc -eq 3 ] && grep -q 'is \(NaN\|inf[a-z]*\|-inf[a-z]*\); lower optimizer.lr, .*; no checkpoint is there yet$' "$dir/err" && train "$dir/nan2" --training.steps 2 && train "$dir/nan2" --training.steps 9 --optimizer.lr 1e30 --checkpoint.interval 100
[ $rc -eq 3 ] && grep -q '; the checkpoint step-2 is good$' "$dir/err"
ok a_nan_says_which_checkpoint_is_good
train "$dir/by_hand" --checkpoint.interval 4 --checkpoint.snapshot_interval 5 --checkpoint.keep_every 5 --training.steps 11
[ $rc -eq 0 ] && [ "$(steps_of "$dir/by_hand")" = "step-10 step-11 step-4 step-5 step-8" ]
ok keep_every_keeps_snapshots_too

# ---- weights alone ----
weights() { # FOLDER OPTION...
    train "$@" --checkpoint.last_save_model_only true
}
weights "$dir/f32"
[ $rc -eq 0 ] && grep -q 'saved .*/step-5 in ' "$dir/err" && grep -q 'saved .*/step-10, weights only in ' "$dir/err" && ! grep -q '"BF16"' "$dir/f32/checkpoint/step-10/trainer.json"
ok the_log_says_weights_only
for ranks in "" "--checkpoint.async_mode disabled" "$two"; do
    for t in bfloat16:BF16:bf16 float16:F16:f16; do
        long=${t%%:*} short=${t##*:}
        name=$(echo "$t" | cut -d: -f2)
        rm -rf "$dir/cast" "$dir/hf_cast" "$dir/hf_f32"
        weights "$dir/cast" --checkpoint.export_dtype "$long" $ranks
        [ $rc -eq 0 ] && grep -q "saved .*/step-10, weights only, as $short in " "$dir/err" && grep -q '"dtype":"F32"' "$dir/cast/checkpoint/step-5/trainer.json" &&
            ! grep -q '"dtype":"F32"' "$dir/cast/checkpoint/step-10/trainer.json" && grep -q "\"dtype\":\"$name\"" "$dir/cast/checkpoint/step-10/trainer.json" &&
            "$TTRUN" ckpt verify "$dir/cast/checkpoint/step-10" >"$dir/out" || { rc=99 && break 2; }
        case $ranks in --nproc*) continue ;; esac
        # the values are those that an export of the f32 weights has
        ttrun ckpt export --to hf --type "$short" "$dir/f32/checkpoint/step-10" "$dir/hf_f32" >"$dir/out" 2>&1 &&
            ttrun ckpt export --to hf --type "$short" "$dir/cast/checkpoint/step-10" "$dir/hf_cast" >"$dir/out" 2>&1 &&
            cmp "$dir/hf_f32/model.safetensors" "$dir/hf_cast/model.safetensors" || { rc=99 && break 2; }
    done
done
[ $rc -eq 0 ]
ok export_dtype_is_that_of_the_last_weights
train "$dir/from_cast" --training.steps 2 --checkpoint.initial_load_path "$dir/cast/checkpoint/step-10"
[ $rc -eq 0 ] && grep -q 'weights: .*/step-10, loaded in [0-9.]* s' "$dir/err"
ok they_are_weights_to_start_from
train "$dir/cast" --training.steps 12
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "step 10 was saved without the optimizer's states (checkpoint.last_save_model_only), so the run cannot go on from there to step 12: " "$dir/err"
ok and_no_state_to_resume_from
for ranks in "" "$two"; do train "$dir/cast" $ranks && [ $rc -eq 0 ] && grep -q 'nothing to do: step 10 of 10 is done already' "$dir/err" || break; done
[ $rc -eq 0 ] && train "$dir/cast" --training.steps 12 --checkpoint.exclude_from_loading '["optimizer"]' && [ $rc -eq 0 ] && [ -e "$dir/cast/checkpoint/step-12" ]
ok a_run_that_ended_so_is_done
train "$dir/t" --checkpoint.export_dtype int8
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.export_dtype: expected one of auto, float32, bfloat16, float16, got "int8"' "$dir/err"
ok export_dtype_of_int8_is_refused

# ---- what a checkpoint knows of the run before it ----
history() { tr -d '\n' <"$1/trainer.json" | sed -n 's/.*"history":{"step":\[\([0-9,]*\)\],"loss":\[\([^]]*\)\].*/\1 \2/p'; }
train "$dir/whole" --metrics.log_freq 2
train "$dir/parts" --metrics.log_freq 2 --training.steps 5
before=$(of_trainer "$dir/parts/checkpoint/step-5" train_seconds)
train "$dir/parts" --metrics.log_freq 2
[ $rc -eq 0 ] && [ "$(history "$dir/parts/checkpoint/step-5" | cut -d' ' -f1)" = 1,2,4,5 ] && [ "$(history "$dir/whole/checkpoint/step-10" | cut -d' ' -f1)" = 1,2,4,6,8,10 ]
ok the_losses_that_were_logged_are_in_the_checkpoint
# the unbroken run has no line for step 5; all others are equal
losses_of() { history "$1" | awk '{ n = split($1, s, ","); split($2, l, ","); for (i = 1; i <= n; i++) if (s[i] != 5) print s[i], l[i] }'; }
[ "$(losses_of "$dir/parts/checkpoint/step-10")" = "$(losses_of "$dir/whole/checkpoint/step-10")" ] && [ "$(history "$dir/parts/checkpoint/step-10" | cut -d' ' -f1)" = 1,2,4,5,6,8,10 ]
ok they_go_on_after_a_resume
after=$(of_trainer "$dir/parts/checkpoint/step-10" train_seconds)
told=$(sed -n '$s/.*"train":\([0-9.e+-]*\).*/\1/p' "$dir/parts/metrics.jsonl")
awk -v a="$before" -v b="$after" -v t="$told" 'BEGIN { exit !(a > 0 && b > a && t > a && t <= b) }'
ok seconds_of_all_starts_are_counted_together

# ---- the job in it is read again: by an export, by generate ----
train "$dir/groups" --training.steps 2 --optimizer.param_groups '[{"match": "tag:norm", "weight_decay": 0.0}]'
[ $rc -eq 0 ] && ttrun ckpt export --to dcp "$dir/groups" "$dir/groups_dcp" >"$dir/out" 2>"$dir/err" && [ -s "$dir/groups_dcp/.metadata" ]
ok a_job_with_param_groups_is_read_from_its_checkpoint

# ---- a save that does not get on ----
# The limits are those of a clock that the test moves (clock.c), when the save stands still.
limit="--checkpoint.interval 2 --checkpoint.save_timeout_seconds 30 --comm.train_timeout_seconds 1000000"
later=0
passes() { # half a minute
    later=$((later + 35))
    echo $later >"$dir/clock"
}
if preload stall && preload clock; then
    says_so() { grep -q "$1" "$f.err"; }
    stalled() { # LINES OPTION...: the save of step 4 does not get on, until the log has said so by each of these lines
        lines=$1 f=$dir/stall
        shift
        rm -rf "$f" "$dir/stalled"
        export TTRUN_PATIENCE=20 # graces are longer than the steps of the clock
        LD_PRELOAD="$(sanitizer) $dir/stall.so $dir/clock.so" CLOCK=$dir/clock STALL=step-4.tmp/shard STALLED=$dir/stalled start "$f" $limit "$@"
        until_true test -e "$dir/stalled"
        for line in $lines; do
            waits_for "$line in $f.err"
            until says_so "$line" || has_ended $pid; do
                passes
                sleep 0.05
            done
        done
        wait $pid
        rc=$?
        pid=
        export TTRUN_PATIENCE="$patience"
        cp "$f.err" "$dir/err"
    }
    patience=${TTRUN_PATIENCE:-1}
    for ranks in "" "--checkpoint.async_mode disabled" "$two" "--nproc 2 --comm.backend shm --training.local_batch_size 2"; do
        stalled 'the.save.of.step.4.has' $ranks
        [ $rc -eq 1 ] && [ "$(grep -c 'the save of step 4 has not got on for 30 s (checkpoint.save_timeout_seconds)' "$dir/err")" -eq 1 ] &&
            [ "$(newest "$dir/stall/checkpoint")" = 2 ] || { rc=99 && break; }
    done
    [ $rc -eq 1 ]
    ok a_save_that_does_not_get_on_ends_the_run
    for ranks in "$two" ""; do
        stalled 'step.6.is.not.saved the.save.of.step.4.has' --checkpoint.on_error continue $ranks
        [ $rc -eq 1 ] && [ "$(grep -c 'step 6 is not saved: that of step 4 has not got on for 30 s .*; training goes on' "$dir/err")" -eq 1 ] &&
            ! grep -q 'step 8 is not saved' "$dir/err" && [ "$(value "$dir/stall/metrics.jsonl" step)" = 10 ] && grep -q '^ttrun: .*the save of step 4 has not got on' "$dir/err" ||
            { rc=99 && break; }
    done
    [ $rc -eq 1 ]
    ok or_training_goes_on_as_configured
    train "$dir/stall" $limit
    [ $rc -eq 0 ] && grep -q 'resumed from .*/step-2' "$dir/err" && [ "$(hash_of "$dir/stall/checkpoint/step-10")" = "$(hash_of "$dir/whole/checkpoint/step-10")" ] &&
        [ -z "$(find "$dir/stall" -name '*.tmp')" ]
    ok the_next_start_goes_on_from_the_step_before
fi
# Each of the two commands says its process and the one that it started, and then does not end by itself.
after="echo \$\$ >>'$dir/commands'; sleep 1717 & echo \$! >>'$dir/commands'; wait"
: >"$dir/commands"
preload clock
LD_PRELOAD="$(sanitizer) $dir/clock.so" CLOCK=$dir/clock start "$dir/hang" --checkpoint.after_save "$after" --checkpoint.save_timeout_seconds 30
for n in 2 4; do
    until_true has_lines "$dir/commands" $n && passes && until_true has_ended "$(sed -n ${n}p "$dir/commands")"
done
wait $pid
rc=$?
pid=
cp "$dir/hang.err" "$dir/err"
all_ended() { for one in $(cat "$dir/commands"); do has_ended "$one" || return 1; done; }
[ $rc -eq 0 ] && [ "$(grep -c "step [0-9]* is saved, but checkpoint.after_save failed: checkpoint.save_timeout_seconds: '.*' had not ended after 30 s and was killed" "$dir/err")" -eq 2 ] &&
    all_ended
ok after_save_is_ended_with_what_it_started
exit $failed
