# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts about ranks as processes, which source it.
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
has_mpirun() { command -v mpirun >/dev/null; }
has_mpirun || echo "# no mpirun here: \`make deps\` installs it; its part is skipped"
# For a script that lets the mpi plugin run: in MODE=asan no search for leaks. Open MPI 4 does not free everything at its end,
# and LeakSanitizer cannot name libraries that are already unloaded.
allow_leaks() { export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"; }
# A PATH without mpirun.
mkdir "$dir/bin"
for tool in sh env cat; do ln -s "$(command -v $tool)" "$dir/bin/"; done

# What a run may leave behind: shm_before at the begin of the script, shm_left prints what was not there then.
shm_before() { ls -A /dev/shm >"$dir/shm.before" 2>/dev/null; }
shm_left() { ls -A /dev/shm 2>/dev/null | comm -13 "$dir/shm.before" - | grep -i ttrun; }
test_nothing_is_left() { # no folder of a run, no temporary file
    [ -z "$(find "$TMPDIR" -mindepth 1 | tee "$dir/err")" ]
    ok no_temporary_file_is_left
    shm_left >"$dir/err"
    [ $? -ne 0 ]
    ok no_shared_memory_is_left
}

# How ranks are started: under mpirun where it is, and by ttrun itself.
ways="own"
has_mpirun && ways="mpirun own"
# processes WAY FOLDER OPTION...: as train
processes() {
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    waits_for "the end of $folder"
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}

# Long runs, and how they end.
long="--training.steps 1000000 --metrics.log_freq 1"
program=$(readlink -f "$TTRUN")
# ranks FOLDER: the processes that are ranks of this run. The folder is this script's own, so they are nobody else's.
ranks() { pgrep -f "^$program train .*--dump_folder $1 " | sort -n; }
# rank_of FOLDER RANK: the process of this rank
rank_of() {
    for process in $(ranks "$1"); do
        tr '\0' '\n' <"/proc/$process/environ" | grep -q "^\(TTRUN_RANK\|OMPI_COMM_WORLD_RANK\)=$2\$" && echo "$process"
    done
}
no_rank() { [ -z "$(ranks "$1")" ]; }
launches() { # WAY FOLDER OPTION...: a long run in the background as $pid
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    : >"$folder.out" 2>"$folder.err"
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
}
launch() { launches "$@" && until_true has_lines "$folder/metrics.jsonl" 2; } # the same, until two steps are logged
ends() { # STATUS: $pid, and no rank of $folder outlives it
    waits_for "the end of $folder with status $1"
    wait "$pid" 2>/dev/null
    rc=$?
    cp "$folder.err" "$dir/err"
    [ $rc -eq "$1" ] && until_gone no_rank "$folder"
}

# One rank of two is killed, or stops answering: all end, by one line that names it.
test_killed_ranks() { # WAY OPTION...
    started=$1
    shift
    for k in 1 2; do
        launch "$started" "$dir/$started-kill$k" --nproc 2 --checkpoint.interval 1000000 "$@"
        kill -9 "$(ranks "$folder" | sed -n "${k}p")"
        ends 1 && one_line "$dir/err" && grep -q '^ttrun: rank [01] was lost at [a-z_]* number [0-9]*: ' "$dir/err"
        ok "${started}_killed_rank_$k""_ends_all_with_one_line"
    done
}
# hang RANK WAY FOLDER OPTION...: a run of two ranks in which RANK stands still for ever before its second step, by SIGSTOP; its
# process is $victim. The limit of one second begins after the first step, and only the other rank is on its way then: whoever
# is slow, no other is named. Nothing else waits for a grace time that must not end early, so those are short.
hang() {
    hanging=$1
    shift
    gate 2
    # shellcheck disable=SC2086
    TTRUN_PATIENCE=0.05 launches "$@" $gated --nproc 2 --comm.init_timeout_seconds 1000000 --comm.train_timeout_seconds 1
    until_true has_come 0 && until_true has_come 1 && victim=$(process_of "$hanging") && still "$victim" && let_go
}
test_hanging_rank() { # WAY OPTION...
    started=$1
    shift
    hang 1 "$started" "$dir/$started-hang" "$@"
    ends 1
    good=$?
    kill -9 "$victim" 2>/dev/null
    [ $good -eq 0 ] && one_line "$dir/err" && grep -q '^ttrun: rank 0: .* number [0-9]* waited 1 s .*ranks that did not arrive: 1; the last calls of each rank are in ' "$dir/err"
    ok "${started}_rank_that_hangs_is_named"
}
