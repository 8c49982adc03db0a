#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The folder of a run: which run may use it, and what happens to files of an earlier run.
. "$(dirname "$0")/lib.sh"
long="--training.steps 1000000 --checkpoint.interval 20 --checkpoint.keep_latest_k 2 --metrics.log_freq 1"
ends() { # of the run just waited for: one line, about the folder
    [ $rc -eq 1 ] && one_line "$1.err" && grep -q '^ttrun: .*is not the file that this run locked' "$1.err"
}
saved() { [ -n "$(newest "$1/checkpoint")" ]; }

# ---- the folder of a live run goes ----
start "$dir/removed" $long
until_true saved "$dir/removed"
until_true rm -rf "$dir/removed"
wait $pid
rc=$?
ends "$dir/removed"
ok run_whose_folder_is_removed_ends
if preload stall; then # the folder goes while a file of a checkpoint is written
    LD_PRELOAD="$(sanitizer) $dir/stall.so" STALL=step-20.tmp/shard STALLED=$dir/stalled start "$dir/written" $long
    until_true test -e "$dir/stalled"
    until_true rm -rf "$dir/written"
    rm "$dir/stalled"
    wait $pid
    rc=$?
    ends "$dir/written"
    ok run_whose_folder_is_removed_while_it_saves_ends
fi
start "$dir/moved" $long --nproc 2 --comm.backend local
until_true saved "$dir/moved"
mv "$dir/moved" "$dir/elsewhere"
train "$dir/moved" --training.steps 6
[ "$rc" -eq 0 ] && wait $pid
rc=$?
ends "$dir/moved" && [ "$(newest "$dir/moved/checkpoint")" = 6 ] && [ "$(value "$dir/moved/metrics.jsonl" step)" = 6 ]
ok run_whose_folder_is_moved_leaves_the_new_one_alone
start "$dir/unlocked" $long
until_true saved "$dir/unlocked"
rm "$dir/unlocked/.lock"
wait $pid
rc=$?
ends "$dir/unlocked"
ok run_whose_lock_file_is_removed_ends
gate 3
start "$dir/nosave" $gated --training.steps 5 --checkpoint.enable false
stands && rm -rf "$dir/nosave"
let_go
wait $pid
rc=$?
ends "$dir/nosave"
ok run_without_checkpoints_reports_a_lost_folder_at_the_end

# ---- files that a run keeps open are its own: none is written through a link ----
echo "my notes" >"$dir/notes"
as_link() { # FILE OPTION…: a run finds a link, a second name or a folder in the place of FILE
    for kind in link name folder; do
        rm -rf "$dir/linked" && cp -a "$dir/before" "$dir/linked" && rm -f "$dir/linked/$1"
        mkdir -p "$(dirname "$dir/linked/$1")"
        case $kind in
        link) ln -s "$dir/notes" "$dir/linked/$1" ;;
        name) ln "$dir/notes" "$dir/linked/$1" ;;
        folder) mkdir "$dir/linked/$1" ;;
        esac
        file=$1
        shift
        train "$dir/linked" "$@"
        { [ $rc -eq 2 ] && one_line "$dir/err" && grep -q "^ttrun: .*$file \(is a symbolic link\|has a second name (a hard link)\|is not a regular file\), so nothing is written to it" "$dir/err" &&
            [ "$(cat "$dir/notes")" = "my notes" ] && [ "$(stat -c %a "$dir/notes")" = "$mode" ]; } || echo "$file $kind: $rc"
        set -- "$file" "$@"
    done
}
mode=$(stat -c %a "$dir/notes")
train "$dir/before" --training.steps 3
{
    as_link .lock
    as_link metrics.jsonl
    as_link checkpoint/.lock.saves
    as_link .lock.ranks --nproc 2 --comm.backend local
    as_link wandb/id --metrics.sinks '[{"name":"wandb","project":"mine"}]'
} >"$dir/wrong"
! [ -s "$dir/wrong" ]
ok files_of_a_run_are_not_written_through_links

# ---- one folder of checkpoints, two dump_folders ----
start "$dir/first" $long --checkpoint.folder "$dir/shared"
first=$pid
until_true has_lines "$dir/first/metrics.jsonl" 1
kill -STOP $first
TTRUN_PATIENCE=0.01 train "$dir/second" --checkpoint.folder "$dir/shared" # for the other run to end
[ "$rc" -eq 2 ] && one_line "$dir/err" &&
    grep -q "^ttrun: .*shared/.lock.saves: process $first is training in this folder; .*another checkpoint.folder" "$dir/err"
ok two_runs_do_not_share_a_checkpoint_folder
kill -9 $first
wait $first 2>/dev/null
train "$dir/second" --checkpoint.folder "$dir/shared" --resume never
[ "$rc" -eq 0 ]
ok checkpoint_folder_is_free_after_a_kill

# ---- starting over: all of the run before goes to before-N ----
hf="--checkpoint.last_save_in_hf true --metrics.enable_tensorboard true"
train "$dir/over" $hf
before=$(hash_of "$dir/over/hf/step-10")
cp "$dir/over/metrics.jsonl" "$dir/over.metrics"
train "$dir/over" $hf --resume never --training.seed 5 --training.steps 6
[ "$rc" -eq 0 ] && cmp -s "$dir/over.metrics" "$dir/over/before-1/metrics.jsonl" && [ "$(newest "$dir/over/before-1/checkpoint")" = 10 ] &&
    [ "$(hash_of "$dir/over/before-1/hf/latest")" = "$before" ] && [ -e "$dir/over/before-1/run.json" ] &&
    [ "$(find "$dir/over/before-1/tb" -type f | wc -l)" -eq 1 ] &&
    grep -q 'resume never: the run before this one is now in .*over/before-1: checkpoints, hf, metrics.jsonl, tb' "$dir/err"
ok resume_never_sets_all_of_a_run_aside
[ "$(newest "$dir/over/checkpoint")" = 6 ] && [ "$(wc -l <"$dir/over/metrics.jsonl")" -eq 6 ] && [ "$(find "$dir/over/tb" -type f | wc -l)" -eq 1 ] &&
    [ "$(readlink "$dir/over/hf/latest")" = step-6 ] && ! [ -e "$dir/over/hf/step-10" ]
ok after_resume_never_the_folder_has_only_the_new_run
train "$dir/over" $hf --resume never --checkpoint.folder "$dir/far"
train "$dir/over" $hf --resume never --checkpoint.folder "$dir/far" --training.steps 3
[ "$rc" -eq 0 ] && [ -e "$dir/over/before-3/metrics.jsonl" ] && [ "$(newest "$dir/far.before-3")" = 10 ] && [ "$(newest "$dir/far")" = 3 ] &&
    grep -q 'checkpoints in .*far.before-3' "$dir/err"
ok checkpoints_elsewhere_are_set_aside_there
train "$dir/again" --checkpoint.enable false --training.steps 4
train "$dir/again" --checkpoint.enable false --training.steps 3
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/again/before-1/metrics.jsonl")" -eq 4 ] && [ "$(wc -l <"$dir/again/metrics.jsonl")" -eq 3 ]
ok start_at_step_0_keeps_the_metrics_of_the_run_before
train "$dir/again" --training.steps 4
train "$dir/again" --training.steps 6
[ "$rc" -eq 0 ] && ! [ -e "$dir/again/before-3" ] && [ "$(wc -l <"$dir/again/metrics.jsonl")" -eq 6 ]
ok resumed_run_continues_its_files

# ---- hf/step-N of another run is none of this one's ----
train "$dir/other" --checkpoint.last_save_in_hf true
before=$(hash_of "$dir/other/hf/step-10")
train "$dir/other" --resume never --training.seed 5
mkdir -p "$dir/other/hf" && cp -a "$dir/other/before-1/hf/." "$dir/other/hf/" # as if it had not been set aside
train "$dir/other" --training.seed 5 --checkpoint.last_save_in_hf true
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/other/hf/step-10")" != "$before" ]
ok export_of_another_run_is_written_again
written=$(stat -c %Y.%i "$dir/other/hf/step-10/model.safetensors")
rm "$dir/other/hf/latest"
train "$dir/other" --training.seed 5 --checkpoint.last_save_in_hf true
[ "$rc" -eq 0 ] && [ "$(stat -c %Y.%i "$dir/other/hf/step-10/model.safetensors")" = "$written" ] && [ "$(readlink "$dir/other/hf/latest")" = step-10 ]
ok export_of_this_run_is_kept_and_linked

# ---- load_step: back, and on from there ----
back="--checkpoint.interval 5 --checkpoint.keep_latest_k 0 --checkpoint.last_save_in_hf true"
train "$dir/back" $back --training.steps 30
branch="--checkpoint.load_step 10 --optimizer.lr 0.003"
train "$dir/back" $back $branch --training.steps 17
[ "$rc" -eq 0 ] && [ "$(newest "$dir/back/checkpoint")" = 17 ] && [ "$(newest "$dir/back/before-1/checkpoint")" = 30 ] &&
    [ -e "$dir/back/before-1/checkpoint/step-15" ] && ! [ -e "$dir/back/before-1/checkpoint/step-10" ] &&
    [ "$(wc -l <"$dir/back/before-1/metrics.jsonl")" -eq 30 ] && [ -e "$dir/back/before-1/hf/step-30" ] &&
    [ "$(readlink "$dir/back/hf/latest")" = step-17 ] &&
    grep -q 'load_step: the steps after 10, which this run discards, are now in .*before-1' "$dir/err"
ok load_step_sets_later_steps_aside
train "$dir/back" $back --training.steps 20 --optimizer.lr 0.003
[ "$rc" -eq 0 ] && grep -q 'resumed from .*/step-17, next is step 18' "$dir/err" && [ "$(wc -l <"$dir/back/metrics.jsonl")" -eq 20 ]
ok next_start_continues_from_the_branch
train "$dir/crash" --training.steps 6 --checkpoint.interval 3
train "$dir/crash" --training.steps 8 --checkpoint.interval 1 --checkpoint.load_step 3
train "$dir/crash" --training.steps 9 --checkpoint.interval 1 --checkpoint.load_step 3 --backend.threads 2
[ "$rc" -eq 0 ] && grep -q 'this job has already continued from there to step 8' "$dir/err" && grep -q 'next is step 9' "$dir/err" &&
    [ "$(newest "$dir/crash/checkpoint")" = 9 ] && [ "$(newest "$dir/crash/before-1/checkpoint")" = 6 ] && ! [ -e "$dir/crash/before-2" ]
ok restart_with_load_step_continues_from_its_branch
train "$dir/crash" --training.steps 5 --checkpoint.interval 1 --checkpoint.load_step 3 --optimizer.lr 0.003
[ "$rc" -eq 0 ] && grep -q 'next is step 4' "$dir/err" && [ "$(newest "$dir/crash/checkpoint")" = 5 ] && [ "$(newest "$dir/crash/before-2/checkpoint")" = 9 ]
ok another_job_with_that_load_step_goes_back

# ---- what a killed run left ----
train "$dir/left" --checkpoint.last_save_in_hf true
mkdir "$dir/left/checkpoint/step-7.tmp" "$dir/left/checkpoint/step-3.purged.tmp" "$dir/left/hf/step-4.tmp"
mv "$dir/left/checkpoint/step-5" "$dir/left/checkpoint/step-5.old-1" # killed between two renames
: >"$dir/left/run.json.tmp.123.0"
train "$dir/left" --checkpoint.last_save_in_hf true
[ "$rc" -eq 0 ] && [ "$(cd "$dir/left/checkpoint" && echo *)" = "step-10 step-5" ] && [ "$(cd "$dir/left/hf" && echo *)" = "latest step-10" ] &&
    ! [ -e "$dir/left/run.json.tmp.123.0" ]
ok leftovers_are_cleared_at_the_start
exit $failed
