#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One SIGTERM, SIGINT or SIGHUP to any process of a job at any moment: the run saves if it can and exits with status 4.
# EARLY=60 tries more moments, SEED=7 others: a moment is a system call of the program (stop_tool.c).
. "$(dirname "$0")/processes.sh"
all="local one $ways"
patience=${TTRUN_PATIENCE:-1}
echo "# SEED=$SEED"
# begin WAY FOLDER OPTION...: in the background as $pid
begin() {
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in
    own) path=$dir/bin && set -- --comm.backend shm --nproc 2 "$@" ;;
    local) set -- --comm.backend local --nproc 2 "$@" ;;
    mpirun) set -- --nproc 2 "$@" ;;
    esac
    # shellcheck disable=SC2086
    : >"$folder.out" 2>"$folder.err"
    PATH=$path ${under-} "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long --checkpoint.interval 1000000 "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
}
begun() { until_true has_lines "$folder/metrics.jsonl" 2; }
everyone() { pgrep -f -- "--dump_folder $folder "; } # launcher, mpirun and ranks
stops() { [ "$(grep -c 'stopped by SIG[A-Z0-9]* ' "$folder.err")" -eq 1 ]; }
saved() { [ -n "$(newest "$folder/checkpoint")" ]; }

for way in $all; do
    begin $way "$dir/$way-all"
    begun && kill -TERM $(everyone)
    ends 4 && saved && stops
    ok "${way}_sigterm_to_every_process_saves"
done

# ---- at any moment: no run goes on, none is a failure ----
handles() { grep -q '^SigCgt:.*[4-7c-f]...$' "/proc/$1/status"; } # SIGTERM, as soon as the program does anything
case $BUILD in */asan) export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" ;; esac # it cannot look under a tracer
# calls WAY: the number of moments in the first two steps
calls() {
    under="$tool 0 first"
    begin "$1" "$dir/calls-$1" --training.steps 2
    wait $pid
    cat "$folder.out"
}
early() { # NUMBER WAY MOMENT WHOM
    under="$tool $3 $4"
    begin "$2" "$dir/early-$1"
    ends 4 && stops || echo "$1: $2 at system call $3, to $4: status $rc, $(grep -v ' I ' "$folder.err")" >>"$dir/early.bad"
    rm -rf "$folder"
}
n=${EARLY:-20}
: >"$dir/early.bad"
tool=$BUILD/tests/run/stop_tool
number=0
for way in $all; do calls $way >"$dir/calls.$way"; done
echo "# moments: $(cd "$dir" && tail -qn 1 calls.* | tr '\n' ' ')"
while [ $number -lt "$n" ]; do
    for way in $all; do
        [ $number -lt "$n" ] || break
        number=$((number + 1))
        draw 32749
        moment=$((1 + $(tail -n 1 "$dir/calls.$way") * drawn / 32749))
        draw 2
        if [ $drawn -eq 0 ]; then whom=first; else whom=every; fi
        (early $number $way $moment $whom) &
        [ $((number % 4)) -ne 0 ] || wait
    done
done
wait
under= pid=
cp "$dir/early.bad" "$dir/err"
! [ -s "$dir/early.bad" ]
ok "sigterm_at_${n}_early_moments_stops"

# ---- an mpirun that hangs ----
if has_mpirun; then
    # The second signal comes when the save, for which the first one asked, is complete. Under this patience the launcher itself
    # ends an mpirun that outlives its ranks only after 20 s.
    export TTRUN_PATIENCE=2
    begin mpirun "$dir/hangs"
    begun && still "$(pgrep -P $pid)" && kill -TERM $pid && until_true saved && stop_twice $pid
    ends 4 && saved
    ok second_sigterm_ends_a_hanging_mpirun
    export TTRUN_PATIENCE="$patience"
    begin mpirun "$dir/theirs"
    begun && kill -INT "$(pgrep -P $pid)"
    ends 4 && saved && stops
    ok sigint_to_mpirun_alone_saves
    ("$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/piped" --nproc 2 --training.steps 300 2>&1
        echo $? >"$dir/piped.rc") | head -n 1 >"$dir/out"
    rc=$(cat "$dir/piped.rc")
    [ "$rc" -eq 0 ] && [ "$(newest "$dir/piped/checkpoint")" = 300 ]
    ok run_continues_if_its_reader_exits
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    folder=$dir/by-hand
    gate 3
    # shellcheck disable=SC2086
    : >"$folder.out" 2>"$folder.err"
    mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $gated $long --checkpoint.interval 1000000 >"$folder.out" 2>"$folder.err" &
    pid=$!
    stands 0 1 && kill -USR2 $pid && kill -USR2 $pid
    let_go
    ends 4 && stops && ! grep -q 'at once by a second' "$folder.err"
    [ $rc -eq 4 ] && saved && stops
    ok sigusr2_to_an_mpirun_of_the_user_saves
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
mkdir "$dir/hung"
printf '#!/bin/sh\nexec sleep 1000\n' >"$dir/hung/mpirun"
chmod +x "$dir/hung/mpirun"
PATH=$dir/hung:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/never" --comm.init_timeout_seconds 1 >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: mpirun started no rank (within comm.init_timeout_seconds, 1)' "$dir/err"
ok mpirun_that_starts_no_rank_is_given_up
folder=$dir/never
: >"$folder.out" 2>"$folder.err"
PATH=$dir/hung:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$folder" >"$folder.out" 2>"$folder.err" &
pid=$!
sleeps() { grep -q '^Name:.sleep$' "/proc/$(pgrep -P $pid)/status"; } # mpirun is there, and starts nobody
until_true sleeps
kill -TERM $pid
ends 4 && stops
ok mpirun_that_starts_no_rank_is_stopped

# Ranks on other machines do not connect: mpirun, which has children then, passes the stop on, and what a rank ended with is no failure of mpirun.
mkdir "$dir/elsewhere"
cat >"$dir/elsewhere/mpirun" <<'MPIRUN'
#!/bin/sh
[ -z "${ELSEWHERE-}" ] || { echo "ttrun: from elsewhere" >&2 && exit "$ELSEWHERE"; }
trap 'kill $! && : >"$0.asked" && exit 4' USR2
sleep 1000 &
: >"$0.there"
wait
MPIRUN
chmod +x "$dir/elsewhere/mpirun"
folder=$dir/far
: >"$folder.out" 2>"$folder.err"
TTRUN_PATIENCE=0.01 PATH=$dir/elsewhere:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$folder" >"$folder.out" 2>"$folder.err" &
pid=$!
until_true [ -e "$dir/elsewhere/mpirun.there" ]
kill -TERM $pid
ends 4 && stops && [ -e "$dir/elsewhere/mpirun.asked" ]
ok ranks_elsewhere_are_asked_to_stop
for status in 2 3 5; do
    ELSEWHERE=$status PATH=$dir/elsewhere:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$folder" >"$dir/out" 2>"$dir/err"
    echo $? "$(grep -c '^ttrun: ' "$dir/err") $(grep -c 'mpirun started no rank (status 5)' "$dir/err")"
done >"$dir/statuses"
[ "$(cat "$dir/statuses")" = '2 1 0
3 1 0
1 2 1' ]
ok statuses_from_elsewhere_are_kept

# mpirun kills the other ranks a second after one has ended with a status: rank 0, which says the line, may not be there by then.
mkdir "$dir/alone"
cat >"$dir/alone/mpirun" <<'MPIRUN'
#!/bin/sh
shift 2
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 exec "$@"
MPIRUN
chmod +x "$dir/alone/mpirun"
folder=$dir/lone
: >"$folder.out" 2>"$folder.err"
TTRUN_PATIENCE=0.1 PATH=$dir/alone:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$folder" >"$folder.out" 2>"$folder.err" &
pid=$!
trains() { handles "$(pgrep -P $pid)"; }
until_true trains
kill -TERM $pid
ends 4 && stops
ok stop_without_rank_0_is_one_line

# ---- ranks that say nothing ----
for way in $ways; do
    # No rank can say that it lost another one: they are stopped. mpirun would let them go on when it sees the first end, so it is
    # stopped too until both have ended.
    export $hasty
    begin $way "$dir/$way-abort"
    begun && zero=$(rank_of "$folder" 0) one=$(rank_of "$folder" 1)
    case $way in
    own) held=$one how='SIGABRT' && still $one && kill -ABRT "$zero" ;;
    mpirun) how='SIGKILL' && held=$(pgrep -P $pid) && still "$held" "$zero" "$one" && kill -KILL "$zero" "$one" && until_true has_ended "$zero" &&
        until_true has_ended "$one" && kill -CONT "$held" ;;
    esac
    ends 1 && one_line "$dir/err" && grep -q "^ttrun: the ranks died silently, the first by $how" "$dir/err"
    ok "${way}_crash_of_all_ranks_is_one_line"
    gate 3 before 0 # so that the first signal cannot end it
    for whom in every_process the_launcher one_rank; do
        # shellcheck disable=SC2086
        begin $way "$dir/$way-twice-$whom" $gated
        stands && still "$(rank_of "$folder" 1)"
        case $whom in
        every_process) stop_twice $(everyone) ;;
        the_launcher) still "$standing" && stop_twice $pid ;;
        one_rank) stop_twice "$standing" ;;
        esac
        ends 4 && [ "$(grep -c 'stopped at once by a second SIGTERM' "$dir/err")" -eq 1 ] && ! grep -q lost "$dir/err"
        ok "${way}_second_sigterm_to_${whom}_ends_at_once"
    done
    let_go
    export TTRUN_PATIENCE="$patience"
done
pid=

# ---- ranks that wait for each other, started by another launcher ----
torch() { # RANK OPTION...
    rank=$1
    shift
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$dir exec "$TTRUN" "$job" \
        --plugin-dir "$PLUGINS" --dump_folder "$dir/torch" "$@" >"$dir/torch$rank.out" 2>"$dir/torch$rank.err"
}
# has_socket PID FLAGS STATE: the process has such a socket; field 7 of /proc/net/unix is the inode that /proc/PID/fd names
has_socket() {
    ls -l "/proc/$1/fd" | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' >"$dir/sockets"
    awk -v flags="$2" -v state="$3" 'NR == FNR {own[$1] = 1; next} $4 == flags && $6 == state && $7 in own {found = 1} END {exit !found}' "$dir/sockets" /proc/net/unix
}
listens() { has_socket "$1" 00010000 01; } # for the other ranks; the flag is __SO_ACCEPTCON
connected() { has_socket "$1" 00000000 03; }
torch 0 &
first=$!
until_true listens $first && kill -STOP $first && until_true is_stopped $first
torch 1 --comm.init_timeout_seconds 1 &
wait $!
rc=$?
cp "$dir/torch1.err" "$dir/err"
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q 'did not answer rank 1 within 1 s (comm.init_timeout_seconds)' "$dir/err"
ok rank_that_does_not_answer_is_given_up
TTRUN_PATIENCE=0.05 torch 1 & # how long it waits for the other one after the signal
pid=$! folder=$dir/torch1
until_true handles $pid && until_true connected $pid
kill -TERM $pid
wait $pid
rc=$?
pid=
[ $rc -eq 4 ]
ok sigterm_ends_waiting_for_a_rank
kill -TERM $first # and is known to the other, once that comes
kill -CONT $first
torch 1 &
wait $!
rc=$?
wait $first && rc=0
cp "$dir/torch0.err" "$dir/err"
[ $rc -eq 4 ] && [ "$(grep -c 'stopped by SIGTERM before step 1' "$dir/err")" -eq 1 ]
ok signal_to_one_rank_before_step_1_stops_all

# ---- during validation ----
# A sample of the validation stands still until every process has its signal, which it handles before it goes on.
validate="--validation.enable true --validation.freq 3 --validation.steps -1 $gated_data"
for way in one own; do
    gate 8 sample
    # shellcheck disable=SC2086
    begin $way "$dir/$way-valid" $validate
    stands && kill -TERM $(everyone)
    let_go
    ends 4
    [ $rc -eq 4 ] && [ "$(newest "$folder/checkpoint")" = 3 ] && ! grep -q validation "$folder/metrics.jsonl"
    ok "${way}_sigterm_is_seen_during_validation"
    train "$folder" $validate --training.steps 3
    [ "$rc" -eq 0 ] && [ "$(grep -c '^{"step":3,.*"validation"' "$folder/metrics.jsonl")" -eq 1 ] && train "$folder" $validate --training.steps 3 &&
        [ "$(wc -l <"$folder/metrics.jsonl")" -eq 4 ]
    ok "${way}_validation_that_was_cut_short_is_made_up_for"
    [ $way != one ] || cp "$folder/metrics.jsonl" "$dir/one-valid.jsonl"
done
train "$dir/whole-valid" $validate --training.steps 3
grep validation "$dir/whole-valid/metrics.jsonl" | sed 's/.*"validation"/"validation"/; s/"wall".*//' >"$dir/a"
grep validation "$dir/one-valid.jsonl" | sed 's/.*"validation"/"validation"/; s/"wall".*//' | cmp -s - "$dir/a" && [ -s "$dir/a" ]
ok interrupted_validation_is_repeated_with_the_same_loss
exit $failed
