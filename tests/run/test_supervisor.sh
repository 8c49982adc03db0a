#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun --max-restarts: ranks that die, hang or fail are started again from the newest checkpoint, and the curve is that of the unbroken
# run; other ends are not repeated; nothing outlives the supervisor.
. "$(dirname "$0")/processes.sh"
export TMPDIR="$dir/tmp" XDG_CACHE_HOME="$dir/cache"
mkdir -p "$TMPDIR" "$XDG_CACHE_HOME"
shm_before
patience=${TTRUN_PATIENCE:-1}
echo "# SEED=$SEED"
# supervise FOLDER RESTARTS OPTION...: as start
supervise() {
    folder=$1 restarts=$2
    shift 2
    start "$folder" --max-restarts "$restarts" "$@"
}
said() { grep -q "$1" "$folder.err"; }
times_said() { [ "$(grep -c "$1" "$folder.err")" -ge "$2" ]; }
running() { until_true has_lines "$folder/metrics.jsonl" "$1"; }
saved_past() { newest "$folder/checkpoint" | awk -v n="$1" '{good = $1 >= n} END {exit !good}'; }
# killed PIDS: by SIGKILL; waits for the next start
killed() {
    before=$(grep -c '; restart ' "$folder.err")
    kill -9 $1 && until_true times_said '; restart ' $((before + 1))
}
kill_rank() { killed "$(rank_of "$folder" "$1")"; }
# A rank that is drawn stands before the step $at, so the others wait for it in a collective. kill_it: it is killed, as soon as a
# step from $1 on is saved.
gate_of() { # RANKS STEP RANGE: the step is drawn from STEP to STEP + RANGE - 1
    draw "$3"
    at=$(($2 + drawn))
    draw "$1"
    who=$drawn
    gate "$at" before "$who"
}
kill_it() { stands "$who" && { [ -z "${1-}" ] || step_on "$who" saved_past "$1"; } && killed "$standing"; }
# the lines that are no log, progress or supervisor's
errors() { grep -v '^\[r[0-9]* +\|^train *[0-9]*%  ' "$dir/err"; }
unique_steps() { [ -z "$(losses "$1/metrics.jsonl" | cut -d ' ' -f 1 | sort | uniq -d)" ]; }
start_of() { value "$folder/run.json" "starts.$1"; }

# ---- a killed rank ----
four="--nproc 4 --training.local_batch_size 1 --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2 --comm.backend shm"
gate_of 4 31 50
export TORCHELASTIC_ERROR_FILE="$dir/error.json"
supervise "$dir/four" 5 $four $gated --training.steps 120 --checkpoint.interval 20
kill_it 20
gate_of 4 $((at + 2)) 20
until_true said 'is done .* s after the failure'
sed -n 's/.*supervisor\] \(step [0-9]* is done .*\)/# \1/p' "$folder.err"
kill_it
let_go
ends 0
good=$?
[ $good -eq 0 ] && [ ! -e "$TORCHELASTIC_ERROR_FILE" ]
ok what_was_recovered_from_is_in_no_error_file
unset TORCHELASTIC_ERROR_FILE
train "$dir/whole" $four --training.steps 120 --checkpoint.interval 20
folder=$dir/four
losses "$dir/whole/metrics.jsonl" >"$dir/a"
[ $good -eq 0 ] && [ $rc -eq 0 ] && [ "$(grep -c 'resumed from .*/step-' "$folder.err")" -eq 2 ] && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(wc -l <"$dir/a")" -eq 120 ] &&
    [ "$(hash_of "$folder/checkpoint/step-120")" = "$(hash_of "$dir/whole/checkpoint/step-120")" ]
ok two_killed_ranks_of_four_change_no_bit
grep -q 'W supervisor\] rank [0-3] (process [0-9]*) was ended by SIGKILL (9), out of memory?; restart 1 of 5 from step [0-9]*$' "$folder.err" &&
    grep -q 'W supervisor\] rank .*; restart [12] of 5 from step [0-9]*0$' "$folder.err" && [ "$(grep -c ' W ' "$folder.err")" -eq 2 ] &&
    cp "$folder.err" "$dir/err" && [ -z "$(errors)" ]
ok a_restart_is_one_line
start_of 1.restart.cause | grep -q '^rank [0-3] (process [0-9]*) was ended by SIGKILL' && [ "$(start_of 1.restart.number)" = 1 ] && [ "$(start_of 1.restart.of)" = 5 ] &&
    [ "$(start_of 1.from_step)" -gt 0 ] && [ "$(start_of 2.status)" = "done" ] && ! start_of 0.restart >"$dir/out"
ok run_json_lists_restarts_and_causes

# --resume never begins anew once. The ranks of one process are threads.
gate 31 before 0
supervise "$dir/whole" 1 $gated --resume never --comm.backend local --nproc 2 --training.local_batch_size 2 --training.steps 60 --checkpoint.interval 20
stands && said 'the run before this one is now in' && step_on 0 saved_past 20 && killed "$standing"
let_go
ends 0 && unique_steps "$folder" && [ "$(losses "$folder/metrics.jsonl" | wc -l)" -eq 60 ] && [ "$(start_of 1.from_step)" -gt 0 ] &&
    [ -d "$(echo "$folder"/before-*)" ] && grep -q 'the process of the ranks was ended by SIGKILL' "$dir/err"
ok rank_threads_restart_and_resume_never_holds_once

# ---- copies in the supervisor's memory: no disk ----
no_disk="--checkpoint.interval 1000000 --checkpoint.peer_copy_interval 7"
gate_of 4 31 50
supervise "$dir/copies" 5 $four $gated --training.steps 120 $no_disk
kill_it
gate_of 4 $((at + 2)) 20
until_true said 'is done .* s after the failure'
sed -n 's/.*supervisor\] \(step [0-9]* is done .*\)/# from a copy: \1/p' "$folder.err"
kill_it
let_go
ends 0 && losses "$dir/four/metrics.jsonl" >"$dir/a" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" &&
    [ "$(hash_of "$folder/checkpoint/step-120")" = "$(hash_of "$dir/four/checkpoint/step-120")" ] && [ "$(cd "$folder/checkpoint" && echo step-*)" = step-120 ]
ok restarts_from_copies_change_no_bit
from=$(sed -n 's/.*; restart 1 of 5 from step \([0-9]*\)$/\1/p' "$dir/err" | head -n 1)
[ $((from % 7)) -eq 0 ] && [ "$from" -gt 0 ] && grep -q "resumed from the supervisor's copy of step $from, next is step $((from + 1))" "$dir/err" &&
    [ "$(start_of 1.from_step)" -eq "$from" ]
ok the_newest_copy_is_taken
local="--comm.backend local --nproc 2 --training.local_batch_size 2"
gate 21 before 1
supervise "$dir/local-copies" 5 $local $gated --training.steps 60 $no_disk --activation_checkpoint.mode full --training.skip_nonfinite true
stands 1 && killed "$standing"
let_go
ends 0
good=$?
train "$dir/local-whole" $local --training.steps 60 $no_disk --activation_checkpoint.mode full --training.skip_nonfinite true
folder=$dir/local-copies
losses "$dir/local-whole/metrics.jsonl" >"$dir/a"
[ $good -eq 0 ] && grep -q "resumed from the supervisor's copy" "$folder.err" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(wc -l <"$dir/a")" -eq 60 ] &&
    grep -q 'W checkpoint\] checkpoint.peer_copy_interval has no effect: copies belong to a supervisor' "$dir/err"
ok rank_threads_have_copies
# A copy says where the frozen parameters are that steps leave out, and which they were.
train "$dir/base" --training.steps 2 --checkpoint.interval 1
base=$dir/base/checkpoint/step-1
leaves_out() { ! grep -q '^"lm_head.weight":' "$folder/checkpoint/step-16/trainer.json"; }
for how in kept replaced; do
    gate 10 before 1
    supervise "$dir/base-$how" 5 --nproc 2 --comm.backend shm $gated --training.steps 18 --checkpoint.interval 16 --checkpoint.peer_copy_interval 1 \
        --checkpoint.save_frozen false --checkpoint.initial_load_path "$base" --training.trainable '["tag:norm"]'
    stands 1
    [ $how = kept ] || { rm -r "$base" && mv "$dir/base/checkpoint/step-2" "$base"; }
    killed "$standing"
    let_go
    ends 0 && grep -q "resumed from the supervisor's copy of step [89]," "$dir/err" && case $how in
        kept) leaves_out && grep -q '"initial_identity"' "$folder/checkpoint/step-16/trainer.json" ;;
        replaced) ! leaves_out && grep -q 'checkpoint.save_frozen: from here on .* no longer where they were' "$dir/err" ;;
        esac
    ok "a_copy_knows_the_base_that_was_$how"
done
# Copies that were damaged are noticed, and the checkpoint is taken.
gate 62 before 0
supervise "$dir/flip" 5 --nproc 2 --comm.backend shm $gated $long --checkpoint.interval 20 --checkpoint.peer_copy_interval 3
stands && step_on 0 saved_past 40
all=$(ranks "$folder")
still $all
for fd in $(find /proc/$pid/fd -lname '/memfd:copies*'); do
    size=$(stat -L -c %s "$fd")
    for at in 4096 $(((size + 4096) / 2)); do
        printf 'damaged!' | dd of="$fd" bs=1 seek=$((at + 64)) conv=notrunc 2>/dev/null
    done
done
killed "$all"
let_go
until_true said 'is done .* after the failure'
kill -INT $pid
ends 4 && grep -q 'resumed from .*/checkpoint/step-[0-9]*0, ' "$dir/err" && ! grep -q "resumed from the supervisor's" "$dir/err" && unique_steps "$folder"
ok damaged_copies_are_not_taken

# Another program takes over while copies are made; its states are those of the checkpoint.
gate 71 before 1
supervise "$dir/swap" 5 --nproc 2 --comm.backend shm $gated --training.steps 80 --checkpoint.interval 20 --checkpoint.peer_copy_interval 1 \
    --converters '[{"name": "float8", "recipe": "tensorwise", "from_step": 10}]'
stands 1 && step_on 1 saved_past 40 && killed "$standing"
let_go
ends 0 && grep -q 'resumed from .*/checkpoint/step-[0-9]*0, ' "$dir/err" && unique_steps "$folder" && [ "$(losses "$folder/metrics.jsonl" | wc -l)" -eq 80 ]
ok copies_stop_where_converters_change
# ---- the budget ----
supervise "$dir/budget" 1 --nproc 2 $long --checkpoint.interval 1000000
running 2
kill_rank 0
until_true said 'is done'
kill -9 "$(rank_of "$folder" 1)"
ends 1 && [ "$(errors | wc -l)" -eq 1 ] &&
    errors | grep -q '^ttrun: rank 0 (process [0-9]*) was ended by SIGKILL (9), out of memory?; given up after 1 restart, between which fewer than 100 steps were saved; the last failure: rank 1 '
ok a_crash_loop_ends_with_the_first_cause
supervise "$dir/refill" 1 --nproc 2 $long --checkpoint.interval 50
until_true saved_past 100 && kill_rank 0
from=$(sed -n 's/.*; restart 1 of 1 from step \([0-9]*\)$/\1/p' "$folder.err")
until_true saved_past $((from + 100)) && kill_rank 1 && until_true said 'is done' && kill -INT $pid
ends 4 && [ "$(grep -c '; restart 1 of 1 from step' "$dir/err")" -eq 2 ] && [ -z "$(errors)" ] && unique_steps "$folder"
ok saved_steps_refill_the_budget

# ---- ends that are not repeated ----
supervise "$dir/typo" 5 --nproc 2 --training.stpes 3
ends 2 && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'training.stpes: unknown key' "$dir/err"
ok a_wrong_job_is_not_restarted
supervise "$dir/no-data" 5 --nproc 2 --dataloader.path '["absent.txt"]'
ends 2 && [ "$(errors | wc -l)" -eq 1 ] && ! grep -q '; restart ' "$dir/err" && errors | grep -q 'absent.txt'
ok data_that_is_not_there_is_not_looked_for_again
supervise "$dir/nan" 5 --nproc 2 --optimizer.lr 1e38
ends 3 && [ "$(errors | wc -l)" -eq 1 ] && ! grep -q '; restart ' "$dir/err"
ok a_nan_is_not_restarted
supervise "$dir/stop" 5 --nproc 2 $long --checkpoint.interval 1000000
running 2
saved() { [ -n "$(newest "$folder/checkpoint")" ]; }
kill -USR1 $pid && until_true saved && kill -TERM $pid
ends 4 && grep -q "stopped by SIGTERM after step $(newest "$folder/checkpoint"), saved" "$dir/err" && ! grep -q '; restart ' "$dir/err"
ok signals_save_and_stop_and_are_not_restarted
export $hasty
supervise "$dir/twice" 5 --nproc 2 $long
running 2
still $(ranks "$folder") # the first cannot end them, and they do not notice each other's end
stop_twice $pid
export TTRUN_PATIENCE="$patience"
ends 4 && [ -z "$(errors)" ] && [ "$(grep -c 'stopped at once by a second SIGTERM' "$dir/err")" -eq 1 ] && ! grep -q '; restart ' "$dir/err"
ok two_signals_stop_at_once

# ---- a hang ----
# The limit of a second holds from the second step on, and only rank 0 is on its way then. The next start reads the job again,
# and has no such limit.
limit() { # SECONDS
    echo "{\"extends\": \"job.json\", \"comm\": {\"backend\": \"shm\", \"train_timeout_seconds\": $1}}" >"$dir/limit.new" && mv "$dir/limit.new" "$dir/limit.json"
}
train "$dir/hang" --nproc 2 --comm.backend shm --training.steps 10
first=$job job=$dir/limit.json
limit 1
gate 12
supervise "$dir/hang" 2 --nproc 2 $gated $long --checkpoint.interval 10
stands 0 1
victim=$standing
still "$victim" && limit 1000000 && let_go
until_true said 'is done .* after the failure' && has_ended "$victim" && kill -TERM $pid
job=$first
ends 4 && grep -q 'W supervisor\] rank 0: .* waited 1 s .*ranks that did not arrive: 1; .*restart 1 of 2 from step [0-9]*0$' "$dir/err" && unique_steps "$folder"
ok a_rank_that_hangs_is_replaced

# ---- the supervisor dies ----
supervise "$dir/orphans" 5 $four $long --checkpoint.interval 10
until_true saved_past 10
kill -9 $pid
until_gone no_rank "$folder"
good=$?
wait $pid 2>/dev/null
from=$(newest "$folder/checkpoint")
supervise "$folder" 5 $four --training.steps $((from + 20)) --checkpoint.interval 10
ends 0 && [ $good -eq 0 ] && grep -q "resumed from .*step-$from, " "$dir/err" && unique_steps "$folder" && [ "$(value "$folder/metrics.jsonl" step)" -eq $((from + 20)) ]
ok a_killed_supervisor_takes_all_ranks_and_the_next_start_goes_on

# ---- as many ranks as there are ----
case $BUILD in */asan | */tsan) elastic= ;; *) elastic=yes ;; esac # a sanitizer's own functions stand before those of cores.c
if [ -n "$elastic" ] && preload cores; then
    elastic="--nproc 1:2 --comm.backend shm --training.local_batch_size 2"
    export CORES="$dir/cores"
    echo 2 >"$CORES"
    # with_cores: as supervise, on a machine with as many cores as the file says
    with_cores() { LD_PRELOAD=$dir/cores.so supervise "$@"; }
    gate 25 before 0
    with_cores "$dir/elastic" 5 $elastic $gated --training.steps 60 --checkpoint.interval 20 --optimizer.lr 0.0001
    stands && step_on 0 saved_past 20
    echo 1 >"$CORES"
    killed "$standing"
    let_go
    ends 0
    good=$?
    train "$dir/elastic-whole" --nproc 2 --comm.backend shm --training.local_batch_size 2 --training.steps 60 --checkpoint.interval 20 --optimizer.lr 0.0001
    folder=$dir/elastic
    [ $good -eq 0 ] && [ $rc -eq 0 ] && [ "$(start_of 0.world)" = 2 ] && [ "$(start_of 1.world)" = 1 ] &&
        grep -q '; restart 1 of 5 from step [0-9]*, with 1 of 2 ranks (data_parallel_replicate 1, data_parallel_shard 1)$' "$folder.err"
    ok a_restart_takes_the_cores_that_are_left
    losses "$folder/metrics.jsonl" >"$dir/a"
    losses "$dir/elastic-whole/metrics.jsonl" | paste -d ' ' - "$dir/a" |
        awk '{d = $2 - $4; d = d < 0 ? -d : d; if (d > most) most = d; n += $1 == $3 && d < 1e-5 * $2} END {print "# largest difference of the losses: " most; exit n != 60}'
    ok fewer_ranks_have_the_same_curve

    # Two starts that end before a step is done: one rank fewer.
    cat >"$dir/wait.sh" <<'WAIT'
echo x >>"$1/asked"
while [ ! -e "$1/go" ]; do sleep 0.05; done
echo "$1/whole"
WAIT
    asked() { [ "$(wc -l <"$dir/asked")" -ge "$1" ]; }
    echo 2 >"$CORES"
    export TTRUN_PATIENCE=1 # how long rank 0 has, which waits for its command and does not end by itself
    with_cores "$dir/early" 5 $elastic --training.steps 5 --checkpoint.initial_load_command "sh $dir/wait.sh $dir"
    until_true asked 1 && kill_rank 1 && until_true asked 2 && kill_rank 1 && touch "$dir/go"
    ends 0 && grep -q '; restart 1 of 5 from step 0$' "$dir/err" && grep -q '; restart 2 of 5 from step 0, with 1 of 2 ranks' "$dir/err" && [ "$(start_of 0.world)" = 1 ]
    ok starts_that_end_early_go_on_with_fewer_ranks
    export TTRUN_PATIENCE="$patience"
else
    echo "# a sanitizer: --nproc MIN:MAX is not tested"
fi

# ---- usage ----
refused() { # PATTERN WORD...
    pattern=$1
    shift
    ttrun "$job" --dump_folder "$dir/refused" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q -- "$pattern" "$dir/err"
}
refused '--max-restarts: expected 0 to 1000000, got "x"' --max-restarts x && refused '--nproc: expected 1 to 4096, or a range like 2:8' --nproc 3:2 --max-restarts 1 &&
    refused '--nproc 1:2: a range needs --max-restarts' --nproc 1:2 &&
    refused 'no mesh of 1 to 3 ranks keeps pp 1 × cp 1 × tp 4' --nproc 1:3 --max-restarts 1 --parallelism.tensor_parallel_degree 4 &&
    refused 'divides the global batch of 5 samples' --nproc 2:3 --max-restarts 1 --training.global_batch_size 5 --training.local_batch_size 5
ok wrong_options_are_refused
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 refused '--max-restarts: torchrun has started this rank' --max-restarts 1
ok ranks_of_another_launcher_are_not_supervised
if [ -e "$PLUGINS/comms/mpi.so" ]; then
    refused '--max-restarts: comm.backend mpi needs mpirun' --max-restarts 1 --nproc 2 --comm.backend mpi
    ok mpi_is_not_supervised
fi

# ---- nothing is left ----
test_nothing_is_left
exit $failed
