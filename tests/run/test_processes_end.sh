#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What happens to the other ranks if one rank or the launcher ends. KILLS=50 repeats the last test more often.
. "$(dirname "$0")/processes.sh"
shm_before
for way in $ways; do
    launch $way "$dir/$way-term" --nproc 2 --checkpoint.interval 1000000
    kill -TERM $pid
    ends 4 && step=$(newest "$folder/checkpoint") && [ "$(value "$folder/metrics.jsonl" step)" = "$step" ] &&
        grep -q "stopped by SIGTERM after step $step, saved" "$dir/err" && [ "$(grep -c 'stopped by' "$dir/err")" -eq 1 ]
    ok "${way}_sigterm_saves_and_ends_with_4"
    launch $way "$dir/$way-usr" --nproc 2 --checkpoint.interval 1000000
    kill -USR1 $pid
    saved() { [ -n "$(newest "$folder/checkpoint")" ]; }
    until_true saved && kill -INT $pid && ends 4
    ok "${way}_sigusr1_saves_and_goes_on"
    test_killed_ranks $way
    test_hanging_rank $way
    launch $way "$dir/$way-launcher" --nproc 2
    kill -9 $pid
    ends 137
    ok "${way}_killed_launcher_leaves_no_orphan"
    processes $way "$dir/$way-nan" --nproc 2 --optimizer.lr 1e38
    [ "$rc" -eq 3 ] && one_line "$dir/err"
    ok "${way}_nan_ends_with_3"
    launch $way "$dir/$way-gone" --nproc 2 --checkpoint.interval 1000000
    mv "$folder/checkpoint" "$folder/moved" # it is there and held from the start on
    echo "in the way" >"$folder/checkpoint"
    kill -USR1 $pid
    ends 1 && one_line "$dir/err" && grep -q '^ttrun: rank 0: .*gone/checkpoint' "$dir/err"
    ok "${way}_failure_of_one_rank_ends_all_with_its_line"
done
if has_mpirun; then
    launch mpirun "$dir/mpirun-killed" --nproc 2
    kill -9 "$(pgrep -P $pid)"
    ends 1 && one_line "$dir/err" && grep -q 'mpirun was ended by SIGKILL' "$dir/err"
    ok ranks_end_when_mpirun_is_killed
fi
(
    trap '' XFSZ
    ulimit -S -f 100
    processes own "$dir/full" --nproc 2 --training.steps 100000
    echo "$rc" >"$dir/full.rc"
    cp "$dir/err" "$dir/full.err"
)
[ "$(cat "$dir/full.rc")" -eq 1 ] && one_line "$dir/full.err" && grep -q '^ttrun: rank [01]: checkpoint of step 5: .*step-5.tmp' "$dir/full.err"
ok failing_metrics_writer_is_named_with_its_rank
launch own "$dir/held" --nproc 2
held=$pid
TTRUN_PATIENCE=0.01 processes own "$dir/held" --nproc 2 # how long it waits for the holder
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'process [0-9]* is training in this folder' "$dir/err"
ok second_start_on_a_live_folder_names_the_holder
kill -9 $held
wait $held 2>/dev/null

# ---- kill -9 while saving, and again at once: never two writers, never half a checkpoint ----
bad=
starts=${KILLS:-4}
k=0
way=${ways%% *}
folder=$dir/killed
while [ $k -lt "$starts" ]; do
    k=$((k + 1))
    before=$(newest "$folder/checkpoint")
    lines=0
    [ -e "$folder/metrics.jsonl" ] && lines=$(wc -l <"$folder/metrics.jsonl")
    path=$PATH
    set -- --nproc 2 --checkpoint.interval 1 --checkpoint.keep_latest_k 2
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    : >"$folder.out" 2>"$folder.err"
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
    until_true has_lines "$folder/metrics.jsonl" $((lines + 1 + k % 7)) || bad="$bad $k: no steps;"
    case $way in
    mpirun) kill -9 "$(pgrep -P $pid)" ;; # mpirun itself; the next start comes at once
    own) kill -9 $pid ;;
    esac
    # A rank that dies a little later may complete one more checkpoint after $before was looked up.
    from=$(sed -n 's/.*resumed from .*\/step-\([0-9]*\),.*/\1/p' "$folder.err")
    [ -z "$before" ] || [ "${from:-0}" -ge "$before" ] || bad="$bad $k: from step ${from:-none}, not $before;"
done
wait 2>/dev/null
step=$(newest "$folder/checkpoint")
"$TTRUN" ckpt verify "$folder/checkpoint/step-$step" >"$dir/out" || bad="$bad step $step is damaged;"
steps=$((step + 3))
processes "$way" "$folder" --nproc 2 --training.steps $steps --checkpoint.interval 1000000
train "$dir/alive" --comm.backend local --nproc 2 --training.steps $steps --checkpoint.interval 1000000
[ -z "$bad" ] && [ "$(hash_of "$folder/checkpoint/step-$steps")" = "$(hash_of "$dir/alive/checkpoint/step-$steps")" ] &&
    losses "$dir/alive/metrics.jsonl" >"$dir/a" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a"
ok "kill_9_of_the_launcher_${starts}_times_loses_nothing$bad"
! shm_left >"$dir/err"
ok nothing_stays_in_dev_shm
exit $failed
