#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# When a run saves, what it keeps, what it runs after a save, and what it does when a save fails.
. "$(dirname "$0")/lib.sh"
two="--nproc 2 --comm.backend local --training.local_batch_size 2"
saved() { [ -n "$(newest "$1/checkpoint")" ]; }
steps_of() { (cd "$1/checkpoint" && echo step-*); }

# ---- when ----
train "$dir/first" --checkpoint.enable_first_step_checkpoint true
[ $rc -eq 0 ] && [ "$(steps_of "$dir/first")" = "step-1 step-10 step-5" ]
ok first_step_is_saved
# the clock says when: after some step, the same one on all ranks
job_end="--training.steps 1000000 --checkpoint.interval_type seconds --checkpoint.interval 1"
for ranks in "" "$two"; do
    rm -rf "$dir/clock"
    start "$dir/clock" $job_end $ranks
    until_true saved "$dir/clock"
    kill -TERM $pid
    wait $pid
    rc=$?
    [ $rc -eq 4 ] && [ -n "$(newest "$dir/clock/checkpoint")" ] || break
done
[ $rc -eq 4 ] && "$TTRUN" ckpt verify "$dir/clock/checkpoint/step-$(newest "$dir/clock/checkpoint")" >"$dir/out"
ok seconds_save_on_one_and_two_ranks
train "$dir/hour" --checkpoint.interval_type seconds --checkpoint.interval 36000
[ $rc -eq 0 ] && [ "$(steps_of "$dir/hour")" = step-10 ]
ok last_step_is_saved_before_the_seconds_are_over

# ---- what stays ----
train "$dir/snap" --checkpoint.interval 1 --checkpoint.keep_latest_k 2 --checkpoint.keep_every 4
[ $rc -eq 0 ] && [ "$(steps_of "$dir/snap")" = "step-10 step-4 step-8 step-9" ]
ok keep_every_keeps_snapshots
train "$dir/snap" --training.steps 12 --checkpoint.load_only true
[ $rc -eq 0 ] && grep -q 'resumed from .*step-10' "$dir/err" && [ "$(steps_of "$dir/snap")" = "step-10 step-4 step-8 step-9" ] &&
    [ "$(value "$dir/snap/metrics.jsonl" step)" = 12 ]
ok load_only_resumes_and_saves_none

# 3 checkpoints fit, of which one is a snapshot; the one just saved stays even where none fits
size=$(cat "$dir"/snap/checkpoint/step-9/* | wc -c)
limit=$(awk "BEGIN { print 3.5e-9 * $size }")
train "$dir/gb" --checkpoint.interval 1 --checkpoint.keep_every 4 --checkpoint.keep_gb "$limit" --training.steps 7
[ $rc -eq 0 ] && [ "$(steps_of "$dir/gb")" = "step-4 step-6 step-7" ] && train "$dir/gb" --checkpoint.keep_gb 1e-9 --checkpoint.interval 100
[ $rc -eq 0 ] && [ "$(steps_of "$dir/gb")" = "step-10" ]
ok keep_gb_removes_the_oldest_but_no_snapshot
# run.json lists what is there: NAME
listed() {
    tr -d '\n' <"$dir/exports/run.json" | sed 's/.*"'"$1"'": *\[//; s/\].*//' | tr '{' '\n' | sed -n 's/.*"path":"\([^"]*\)".*"bytes":\([0-9]*\).*/\1 \2/p'
}
for ranks in "" "$two"; do
    rm -rf "$dir/exports"
    train "$dir/exports" --checkpoint.interval 4 --checkpoint.keep_latest_k 3 --checkpoint.hf_interval 3 --checkpoint.hf_keep 2 $ranks
    [ $rc -eq 0 ] && [ "$(steps_of "$dir/exports")" = "step-10 step-8 step-9" ] && [ "$(cd "$dir/exports/hf" && echo *)" = "latest step-10 step-9" ] &&
        [ "$(readlink "$dir/exports/hf/latest")" = step-10 ] && [ "$(listed exports | cut -d' ' -f1 | tr '\n' ' ')" = "hf/step-9 hf/step-10 " ] &&
        [ "$(listed checkpoints | cut -d' ' -f1 | tr '\n' ' ')" = "checkpoint/step-8 checkpoint/step-9 checkpoint/step-10 " ] || break
done
ok hf_interval_exports_and_keeps_the_newest
listed checkpoints | while read -r path bytes; do [ "$(cat "$dir/exports/$path"/* | wc -c)" -eq "$bytes" ] || exit 1; done
ok run_json_lists_checkpoints_with_their_bytes
ttrun ckpt export --to hf "$dir/exports/checkpoint/step-9" "$dir/by_hand" >"$dir/out" 2>"$dir/err"
cmp "$dir/exports/hf/step-9/model.safetensors" "$dir/by_hand/model.safetensors" >"$dir/out"
ok hf_interval_writes_weights_of_its_step
# a folder takes the name of the link, for root too
mkdir -p "$dir/blocked/hf/latest"
train "$dir/blocked" --checkpoint.hf_interval 3
[ $rc -eq 1 ] && [ "$(grep -c 'step [369] is saved, but not for Hugging Face (checkpoint.hf_interval): .*/hf/latest' "$dir/err")" -eq 3 ] &&
    [ "$(newest "$dir/blocked/checkpoint")" = 10 ] && grep -q '^ttrun: checkpoint.hf_interval: .*/hf/latest' "$dir/err"
ok an_export_that_fails_is_a_line_and_an_error_at_the_end
train "$dir/no_export" --checkpoint.hf_interval 3 --checkpoint.enable false
[ $rc -eq 2 ] && one_line "$dir/err" && grep -qF 'checkpoint.hf_interval: nothing is saved' "$dir/err"
ok hf_interval_needs_checkpoints

# ---- saved, then validated ----
valid="--validation.enable true --validation.freq 4 --validation.dataloader.path [\"$dir/text.txt\"] --checkpoint.interval 4"
count_of() { grep -c "^{\"step\":$2,.*\"validation\"" "$dir/$1/metrics.jsonl"; }
due() { grep -c '"validation_due":true' "$dir/$1/checkpoint/step-$2/trainer.json"; }
for ranks in "" "$two"; do
    rm -rf "$dir/valid" "$dir/killed"
    train "$dir/valid" $valid $ranks
    [ $rc -eq 0 ] && [ "$(count_of valid 4) $(count_of valid 8) $(count_of valid 10)" = "1 1 1" ] && [ "$(due valid 4) $(due valid 8) $(due valid 10)" = "0 0 0" ] || break
    # killed while it validates after step 4: the step is there, and the next start validates first
    awk '{ for (i = 0; i < 2000; i++) print }' "$dir/text.txt" >"$dir/long.txt"
    start "$dir/killed" $valid --validation.dataloader.path "[\"$dir/long.txt\"]" $ranks
    until_true [ -e "$dir/killed/checkpoint/step-4/trainer.json" ]
    kill -9 $pid
    wait $pid 2>/dev/null
    [ "$(count_of killed 4) $(due killed 4)" = "0 1" ] || break
    train "$dir/killed" $valid $ranks
    [ $rc -eq 0 ] && [ "$(count_of killed 4) $(count_of killed 8)" = "1 1" ] && [ "$(due killed 4)" = 0 ] &&
        [ "$(losses "$dir/killed/metrics.jsonl")" = "$(losses "$dir/valid/metrics.jsonl")" ] || break
done
[ $rc -eq 0 ] && [ "$(count_of killed 4) $(count_of killed 8)" = "1 1" ] && [ "$(losses "$dir/killed/metrics.jsonl")" = "$(losses "$dir/valid/metrics.jsonl")" ]
ok steps_are_saved_before_they_are_validated
# killed after the record and before the checkpoint says so: the record is not there twice
sed -i 's/^{"xxh3_128":.*/{/; s/"step":/"validation_due":true,"step":/' "$dir/killed/checkpoint/step-10/trainer.json"
train "$dir/killed" $valid --metrics.sinks '[{"name": "jsonl"}, {"name": "csv"}]'
train "$dir/killed" $valid --training.steps 12 --metrics.sinks '[{"name": "jsonl"}, {"name": "csv"}]'
sed -i 's/^{"xxh3_128":.*/{/; s/"step":/"validation_due":true,"step":/' "$dir/killed/checkpoint/step-12/trainer.json"
train "$dir/killed" $valid --training.steps 12 --metrics.sinks '[{"name": "jsonl"}, {"name": "csv"}]'
[ $rc -eq 0 ] && [ "$(count_of killed 10) $(count_of killed 12)" = "1 1" ] && [ "$(grep -c '^12,' "$dir/killed/metrics.csv")" -eq 2 ] && [ "$(due killed 12)" = 0 ]
ok a_validation_is_recorded_once
train "$dir/weights" $valid --checkpoint.last_save_model_only true
[ $rc -eq 0 ] && [ "$(due weights 10)" = 0 ] && ! grep -q 'optimizer.state' "$dir/weights/checkpoint/step-10/trainer.json" &&
    grep -q 'optimizer.state' "$dir/weights/checkpoint/step-8/trainer.json"
ok weights_alone_are_saved_after_the_last_validation

# ---- commands ----
cat >"$dir/upload.sh" <<'SH'
step=$1
shift
echo "$(basename "$step") $# files" >>"$LIST"
for f; do [ -s "$f" ] || echo "no $f" >>"$LIST"; done
ls "$(dirname "$step")" | grep -c . >>"$LIST"
SH
for ranks in "" "$two"; do
    rm -rf "$dir/list" "$dir/hook"
    LIST=$dir/list train "$dir/hook" --checkpoint.after_save "sh '$dir/upload.sh' \"\$@\"" --checkpoint.interval 4 --checkpoint.keep_latest_k 2 $ranks
    files=$(ls "$dir/hook/checkpoint/step-10" | wc -l)
    printf 'step-4 %d files\n1\nstep-8 %d files\n2\nstep-10 %d files\n3\n' "$files" "$files" "$files" | cmp - "$dir/list" || rc=99
done
[ $rc -eq 0 ] && [ "$files" -eq 3 ] && [ "$(steps_of "$dir/hook")" = "step-10 step-8" ]
ok after_save_gets_path_and_files_before_older_ones_go
train "$dir/bad" --checkpoint.after_save 'echo nothing; exit 7'
[ $rc -eq 0 ] && [ "$(grep -c "step [0-9]* is saved, but checkpoint.after_save failed: 'echo nothing; exit 7' ended with status 7" "$dir/err")" -eq 2 ] &&
    ! grep -q nothing "$dir/out"
ok failing_after_save_is_a_line
train "$dir/fetched" --training.steps 1 --checkpoint.initial_load_command "echo downloading; echo '$dir/first/checkpoint/step-10'" $two
train "$dir/named" --training.steps 1 --checkpoint.initial_load_path "$dir/first/checkpoint/step-10" $two
[ $rc -eq 0 ] && [ "$(losses "$dir/fetched/metrics.jsonl")" = "$(losses "$dir/named/metrics.jsonl")" ] &&
    [ -n "$(losses "$dir/named/metrics.jsonl")" ]
ok initial_load_command_names_the_folder
train "$dir/nothing" --training.steps 1 --checkpoint.initial_load_command "exit 3" $two
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "checkpoint.initial_load_command.*'exit 3' ended with status 3" "$dir/err"
ok failing_initial_load_command_is_a_line
train "$dir/nothing" --training.steps 1 --checkpoint.initial_load_command "true"
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "its last line must be the path of a folder" "$dir/err"
ok silent_initial_load_command_is_a_line

# ---- saves that fail ----
case $BUILD in
*/asan) preload=$(cc -print-file-name=libasan.so) ;;
*/tsan) preload=$(cc -print-file-name=libtsan.so) ;;
*) preload= ;;
esac
if preload full; then
    # The disk is full at steps 4 and 6 (FULL is a part of a path), and has room at 2, 8 and 10
    survives() { # SHARD OPTION...
        shard=$1
        shift
        rm -rf "$dir/full"
        LD_PRELOAD="$preload $dir/full.so" FULL="$shard" train "$dir/full" --checkpoint.interval 2 --checkpoint.on_error continue "$@"
    }
    for ranks in "" "--checkpoint.async_mode disabled" "$two" "--nproc 2 --comm.backend shm --training.local_batch_size 2"; do
        survives step-4.tmp/ $ranks
        [ $rc -eq 0 ] && [ "$(steps_of "$dir/full")" = "step-10 step-2 step-6 step-8" ] &&
            [ "$(grep -c 'step 4 is not saved: .*No space left.*training goes on' "$dir/err")" -eq 1 ] &&
            grep -q 'step 6: saves succeed again' "$dir/err" && [ "$(wc -l <"$dir/full/metrics.jsonl")" -eq 10 ] || break
    done
    [ "$(steps_of "$dir/full")" = "step-10 step-2 step-6 step-8" ]
    ok on_error_continue_goes_on_and_saves_later
    survives shard-0
    [ $rc -eq 1 ] && [ "$(grep -c 'is not saved: .*training goes on' "$dir/err")" -eq 1 ] && [ -z "$(ls "$dir/full/checkpoint")" ] &&
        grep -q '^ttrun: the last checkpoint, of step 10, is not saved: .*No space left' "$dir/err" &&
        [ "$(wc -l <"$dir/full/metrics.jsonl")" -eq 10 ]
    ok on_error_continue_says_it_once_and_fails_at_the_end
fi
exit $failed
