#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A start that is refused before step 1 leaves nothing that it has made: no folder of the run, no lock files, no folder of checkpoints.
# What was there before stays as it was, and a start that waits for the lock of such a folder makes the folder again.
. "$(dirname "$0")/lib.sh"
none="--dataloader.path $dir/none.txt"
# refused FOLDER WORDS OPTION…
refused() {
    folder=$1 words=$2
    shift 2
    train "$folder" "$@"
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -qF -- "$words" "$dir/err"
}
refused "$dir/new/deep/run" none.txt $none && ! [ -e "$dir/new" ]
ok missing_data_leave_no_folder
mkdir "$dir/all" && refused "$dir/all/run/" none.txt $none && "$TTRUN" runs "$dir/all" >"$dir/out" 2>>"$dir/err" && grep -q '^no runs below' "$dir/out" && [ -d "$dir/all" ]
ok and_no_run
refused "$dir/new" ' GiB' --training.local_batch_size 16384 --training.seq_len 16384 --model.args.dim 4096 --model.args.hidden_dim 8192 && ! [ -e "$dir/new" ]
ok a_plan_that_is_too_large_leaves_no_folder
refused "$dir/new" none.txt $none --checkpoint.enable false && ! [ -e "$dir/new" ]
ok nothing_without_checkpoints
refused "$dir/new" none.txt $none --checkpoint.folder "$dir/else/where" && ! [ -e "$dir/new" ] && ! [ -e "$dir/else" ]
ok nothing_in_a_folder_of_checkpoints_elsewhere
p=--parallelism.data_parallel_shard_degree
refused "$dir/new" none.txt $none $p 2 --comm.backend local && ! [ -e "$dir/new" ]
ok nothing_of_rank_threads
refused "$dir/new" none.txt $none $p 2 --nproc 2 && ! [ -e "$dir/new" ]
ok nothing_of_processes
for n in 0 -1 1e7 x 20x; do
    TTRUN_PATIENCE=$n refused "$dir/new" "TTRUN_PATIENCE: expected a number from 1e-6 to 1e6, got \"$n\"" && ! [ -e "$dir/new" ] || break
done
[ "$n" = 20x ] && [ $rc -eq 2 ]
ok a_patience_that_is_no_number

# ---- what was there before ----
mkdir "$dir/there" && refused "$dir/there" none.txt $none && [ -d "$dir/there" ] && [ -z "$(ls -A "$dir/there")" ]
ok an_empty_folder_stays_and_is_empty
mkdir "$dir/there/checkpoint" "$dir/saves" && refused "$dir/there" none.txt $none --checkpoint.folder "$dir/saves" &&
    [ "$(find "$dir/there" "$dir/saves" | sort | tr '\n' ' ')" = "$dir/saves $dir/there $dir/there/checkpoint " ]
ok so_do_empty_folders_in_it_and_of_checkpoints
rmdir "$dir/there/checkpoint" && echo note >"$dir/there/note.txt" && refused "$dir/there" none.txt $none && [ "$(ls -A "$dir/there")" = note.txt ]
ok so_does_a_file_of_others
# killed before step 1: its lock file is of an earlier start
mkdir "$dir/killed" && echo 1 >"$dir/killed/.lock" && refused "$dir/killed" none.txt $none && [ "$(ls -A "$dir/killed")" = .lock ]
ok so_does_the_lock_file_of_an_earlier_start
train "$dir/run" --training.steps 3
find "$dir/run" | sort >"$dir/before" && refused "$dir/run" none.txt $none --training.steps 5 && find "$dir/run" | sort | cmp -s - "$dir/before" && "$TTRUN" ckpt verify "$dir/run" >"$dir/out" 2>>"$dir/err"
ok so_does_a_run
train "$dir/run" --training.steps 5
[ $rc -eq 0 ] && grep -q 'resumed from .*step-3' "$dir/err"
ok and_it_goes_on

# ---- another start ----
if command -v flock >/dev/null 2>&1; then
    mkdir "$dir/waits" && : >"$dir/waits/.lock"
    # shellcheck disable=SC2016
    DIR=$dir flock "$dir/waits/.lock" sh -c 'echo held >"$DIR/held"; until grep -q "is locked by" "$DIR/waits.err" 2>/dev/null; do sleep 0.02; done; rm -r "$DIR/waits"' &
    holder=$!
    until_true [ -e "$dir/held" ]
    start "$dir/waits" --training.steps 2
    wait "$holder"
    wait "$pid"
    rc=$?
    [ $rc -eq 0 ] && [ -d "$dir/waits/checkpoint/step-2" ]
    ok a_start_that_waits_makes_the_folder_again
else
    skip a_start_that_waits_makes_the_folder_again "no flock(1) here"
fi
train "$dir/busy" --training.steps 1 --checkpoint.folder "$dir/shared"
start "$dir/live" --training.steps 100000000 --checkpoint.folder "$dir/shared" --checkpoint.interval 100000000 --resume never
until_true grep -q '"step"' "$dir/live/metrics.jsonl"
TTRUN_PATIENCE=0.01 train "$dir/new" --checkpoint.folder "$dir/shared" # for the other run to end
[ $rc -eq 2 ] && grep -q "process $pid is training in this folder" "$dir/err" && ! [ -e "$dir/new" ] && [ -e "$dir/shared/.lock.saves" ] && kill -0 "$pid"
ok what_another_run_holds_stays
kill -9 "$pid"
wait "$pid" 2>/dev/null
exit $failed
