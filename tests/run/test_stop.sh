#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One SIGTERM, SIGINT or SIGHUP to any process of a job at any moment: the run saves if it can and exits with status 4.
# EARLY=60 tries more moments, SEED=7 others.
. "$(dirname "$0")/processes.sh"
all="local one $ways"
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
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long --checkpoint.interval 1000000 "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
}
begun() { until_true has_lines "$folder/metrics.jsonl" 2; }
everyone() { pgrep -f -- "--dump_folder $folder "; } # launcher, mpirun and ranks
stops() { [ "$(grep -c 'stopped by SIG[A-Z0-9]* ' "$folder.err")" -eq 1 ]; }
saved() { [ -n "$(newest "$folder/checkpoint")" ]; }

for way in $all; do
    begin $way "$dir/$way-all"
    begun && kill -TERM $(everyone)
    ends_within 60 4 && saved && stops
    ok "${way}_sigterm_to_every_process_saves"
done

# ---- at any moment: no run goes on, none is a failure ----
handles() { grep -q '^SigCgt:.*[4-7c-f]...$' "/proc/$1/status"; } # SIGTERM, as soon as the program does anything
early() { # NUMBER WAY SECONDS WHOM
    begin "$2" "$dir/early-$1"
    until_true handles $pid
    sleep "$3"
    case $4 in
    launcher) kill -TERM $pid ;;
    every) kill -TERM $(everyone) ;;
    esac 2>/dev/null
    ends_within 60 4 && stops || echo "$1: $2 after $3 s, to $4: status $rc, $(grep -v ' I ' "$folder.err")" >>"$dir/early.bad"
    rm -rf "$folder"
}
n=${EARLY:-20}
: >"$dir/early.bad"
awk -v n="$n" -v seed="${SEED:-1}" -v ways="mpirun own mpirun local one" 'BEGIN {
    srand(seed)
    split(ways, way, " ")
    for (i = 1; i <= n; i++) printf "%d %s %.3f %s\n", i, way[1 + i % 5], 0.6 * rand(), i % 2 ? "launcher" : "every"
}' >"$dir/moments"
while read -r number way seconds whom; do
    has_mpirun || [ "$way" != mpirun ] || way=own
    (early "$number" "$way" "$seconds" "$whom") &
    [ $((number % 4)) -ne 0 ] || wait
done <"$dir/moments"
wait
cp "$dir/early.bad" "$dir/err"
! [ -s "$dir/early.bad" ]
ok "sigterm_at_${n}_early_moments_stops"

# ---- an mpirun that hangs ----
if has_mpirun; then
    begin mpirun "$dir/hangs"
    begun && kill -STOP "$(pgrep -P $pid)" && kill -TERM $pid && sleep 0.6 && kill -TERM $pid
    ends_within 3 4 && saved
    ok second_sigterm_ends_a_hanging_mpirun
    begin mpirun "$dir/theirs"
    begun && kill -INT "$(pgrep -P $pid)"
    ends_within 60 4 && saved && stops
    ok sigint_to_mpirun_alone_saves
    ("$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/piped" --nproc 2 --training.steps 300 2>&1
        echo $? >"$dir/piped.rc") | head -n 1 >"$dir/out"
    rc=$(cat "$dir/piped.rc")
    [ "$rc" -eq 0 ] && [ "$(newest "$dir/piped/checkpoint")" = 300 ]
    ok run_continues_if_its_reader_exits
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    folder=$dir/by-hand
    mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long --checkpoint.interval 1000000 >"$folder.out" 2>"$folder.err" &
    pid=$!
    begun && kill -USR2 $pid && sleep 0.01 && kill -USR2 $pid
    ends_within 60 4 && saved && stops
    ok sigusr2_to_an_mpirun_of_the_user_saves
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
mkdir "$dir/hung"
printf '#!/bin/sh\nexec sleep 1000\n' >"$dir/hung/mpirun"
chmod +x "$dir/hung/mpirun"
PATH=$dir/hung:$PATH "$timeout" 300 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/never" --comm.init_timeout_seconds 1 >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: mpirun started no rank (within comm.init_timeout_seconds, 1)' "$dir/err"
ok mpirun_that_starts_no_rank_is_given_up
folder=$dir/never
PATH=$dir/hung:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$folder" >"$folder.out" 2>"$folder.err" &
pid=$!
until_true handles $pid && sleep 0.3
kill -TERM $pid
ends_within 3 4 && stops
ok mpirun_that_starts_no_rank_is_stopped

# ---- ranks that say nothing ----
for way in $ways; do
    begin $way "$dir/$way-abort"
    begun && kill -ABRT $(ranks "$folder")
    ends_within 60 1 && one_line "$dir/err" && grep -q '^ttrun: the ranks died silently, the first by SIGABRT' "$dir/err"
    ok "${way}_crash_of_all_ranks_is_one_line"
    begin $way "$dir/$way-twice"
    begun && kill -STOP "$(ranks "$folder" | tail -n 1)" && kill -TERM $(everyone) && sleep 0.6 && kill -TERM $(everyone)
    ends_within 3 4 && [ "$(grep -c 'stopped at once by a second SIGTERM' "$dir/err")" -eq 1 ] && ! grep -q lost "$dir/err"
    ok "${way}_second_sigterm_to_every_process_ends_at_once"
done

# ---- ranks that wait for each other, started by another launcher ----
torch() { # RANK OPTION...
    rank=$1
    shift
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=stop$$ exec "$TTRUN" "$job" \
        --plugin-dir "$PLUGINS" --dump_folder "$dir/torch" "$@" >"$dir/torch$rank.out" 2>"$dir/torch$rank.err"
}
# Does the process listen for the other ranks? The flag is __SO_ACCEPTCON; field 7 is the inode that /proc/PID/fd names.
listens() {
    ls -l "/proc/$1/fd" | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' >"$dir/sockets"
    awk 'NR == FNR {own[$1] = 1; next} $4 == "00010000" && $8 ~ /^@ttrun-/ && $7 in own {found = 1} END {exit !found}' "$dir/sockets" /proc/net/unix
}
is_stopped() { grep -q '^State:.T' "/proc/$1/status"; }
torch 0 &
first=$!
until_true listens $first && kill -STOP $first && until_true is_stopped $first
torch 1 --comm.init_timeout_seconds 1 &
wait $!
rc=$?
cp "$dir/torch1.err" "$dir/err"
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q 'did not answer rank 1 within 1 s (comm.init_timeout_seconds)' "$dir/err"
ok rank_that_does_not_answer_is_given_up
torch 1 &
pid=$! folder=$dir/torch1
until_true handles $pid && sleep 0.2
kill -TERM $pid
wait $pid
rc=$?
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
for k in 1 2 3 4 5 6 7 8; do cat "$dir/text.txt"; done >"$dir/long.txt"
validate="--validation.enable true --validation.freq 3 --validation.steps -1 --validation.dataloader.path [\"$dir/long.txt\"]"
for way in one own; do
    begin $way "$dir/$way-valid" $validate
    until_true has_lines "$folder/metrics.jsonl" 3 && kill -TERM $pid
    ends_within 60 4 && [ "$(newest "$folder/checkpoint")" = 3 ] && ! grep -q validation "$folder/metrics.jsonl"
    ok "${way}_sigterm_is_seen_during_validation"
    train "$folder" $validate --training.steps 3
    [ "$rc" -eq 0 ] && [ "$(grep -c '^{"step":3,.*"validation"' "$folder/metrics.jsonl")" -eq 1 ] && train "$folder" $validate --training.steps 3 &&
        [ "$(wc -l <"$folder/metrics.jsonl")" -eq 4 ]
    ok "${way}_validation_that_was_cut_short_is_made_up_for"
done
train "$dir/whole-valid" $validate --training.steps 3
grep validation "$dir/whole-valid/metrics.jsonl" | sed 's/.*"validation"/"validation"/; s/"wall".*//' >"$dir/a"
grep validation "$dir/one-valid/metrics.jsonl" | sed 's/.*"validation"/"validation"/; s/"wall".*//' | cmp -s - "$dir/a" && [ -s "$dir/a" ]
ok interrupted_validation_is_repeated_with_the_same_loss
exit $failed
