# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder, which source it: a tiny model, runs of it, and functions that look into their files.
. "$(dirname "$0")/../script.sh"
json="$BUILD/tests/run/json_tool"
[ -x "$json" ] || { echo "not ok: there is no $json: make build/release/tests/run/json_tool, or make tests" && exit 1; }

i=0
while [ $i -lt 400 ]; do
    echo "line $i of a text that a small model can learn by heart, $((i * i)) and $((i * 7 % 13)) times."
    i=$((i + 1))
done >"$dir/text.txt"
cat >"$dir/job.json" <<'JOB'
{
  "spec": "llama3",
  "model": { "flavor": "debugmodel",
             "args": { "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262 } },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.01 },
  "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 4, "seq_len": 32, "steps": 10 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false },
  "checkpoint": { "interval": 5 },
  "backend": { "threads": 1 }
}
JOB

job=$dir/job.json

ttrun() { "$TTRUN" "$@" --plugin-dir "$PLUGINS"; }
# train FOLDER OPTION...: the job ($job) in a folder of its own; streams to $dir/out and $dir/err, status in $rc
train() {
    folder=$1
    shift
    waits_for "the end of $folder"
    ttrun "$job" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# The value at a path of the LAST object of a file of JSON lines, or of the one object: value FILE KEY [STEP]
value() { "$json" "$@"; }
# losses FILE: prints one line "step loss" per step
losses() { sed -n 's/^{"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\),.*/\1 \2/p' "$1"; }
# without_times METRICS.jsonl: its lines without what differs from run to run
without_times() { sed 's/"\(tps\|tps_global\|samples_per_s\|tflops\|mfu\|mem_gib\|time_s\|wall\)":[^,}]*,\{0,1\}//g; s/"time":{[^}]*},\{0,1\}//' "$1"; }
# preload NAME [FOLDER]: makes $dir/NAME.so of tests/run/NAME.c, whose functions take the place of libc's
preload() { cc -std=c11 -O1 -fno-builtin -shared -fPIC -o "$dir/$1.so" "$SRC/tests/${2:-run}/$1.c" -ldl -lpthread; }
# sanitizer: its library, which must come before a preloaded one; empty in a build without
sanitizer() {
    case $BUILD in
    */asan) cc -print-file-name=libasan.so ;;
    */tsan) cc -print-file-name=libtsan.so ;;
    esac
}
# Ends a script whose functions would come behind a sanitizer's own.
without_sanitizers() { case $BUILD in */asan | */tsan) skip "$(basename "$0" .sh)" "a sanitizer's own functions stand before those of this test" && exit 0 ;; esac; }
hash_of() { cat "$1"/*.safetensors | cksum; }
near() { # A B TOLERANCE
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN {d = a - b; exit !(a != "" && b != "" && (d < 0 ? -d : d) <= t)}'
}
# start FOLDER OPTION...: the same in the background; its process is $pid
start() {
    folder=$1
    shift
    : >"$folder.out" 2>"$folder.err" # at once: a wait must not see the text of an earlier run
    "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
}
# waits_for WORD...: what the runner prints if it ends this script
waits_for() { echo "$*" >"${TT_AWAITED:-/dev/null}"; }
# has_ended PID: also one whose end nobody has waited for yet
has_ended() { ! read -r stat_line <"/proc/$1/stat" || case $stat_line in *') Z '*) ;; *) false ;; esac; } 2>/dev/null
# run_is_over: the run in the background ($pid, if it is set) has ended, so nothing more comes from it
run_is_over() { [ -n "${pid-}" ] && has_ended "$pid"; }
# until_true COMMAND...: waits until it is true. Fails if the run in the background has ended and it is not true then. There is
# no other limit: the runner has one, and prints what was awaited.
until_true() {
    waits_for "$@"
    until "$@" 2>/dev/null; do
        ! run_is_over || { "$@" 2>/dev/null && break; } || return 1
        sleep 0.02 # between two looks
    done
}
# until_gone COMMAND...: the same for what may become true after the run has ended, for example that no rank is left
until_gone() {
    waits_for "$@"
    until "$@" 2>/dev/null; do sleep 0.02; done
}
has_lines() { [ "$(wc -l <"$1")" -ge "$2" ]; }
# besides the log, and the progress that a run of more than some seconds reports
one_line() { [ "$(grep -cv '^\[r[0-9]* +\|^train *[0-9]*%  ' "$1")" -eq 1 ]; }
# still PID...: stops these processes by SIGSTOP, and waits until they stand
still() {
    kill -STOP "$@" || return 1
    for still; do until_true is_stopped "$still" || return 1; done
}
is_stopped() { read -r stat_line <"/proc/$1/stat" && case $stat_line in *') T '*) ;; *) false ;; esac; } # by SIGSTOP
# stop_twice PID...: SIGTERM until $pid has ended. Two within TT_STOP_TWICE_NS are one stop, so a run that is to be stopped twice is
# started under $hasty, where that time is shorter than the sleep; however late a signal is handled, another one follows.
# No other grace time may matter in such a run: ranks that could notice something are stopped by SIGSTOP.
hasty="TTRUN_PATIENCE=0.01"
stop_twice() {
    waits_for "the end of $pid after two signals"
    until has_ended "$pid"; do
        kill -TERM "$@" 2>/dev/null
        sleep 0.1
    done
}

# ---- a run that stands still (gate.c) ----
# A run with the options $gated stands still where the test says, so that what the test does next meets it there:
#     gate 5                before the start: each rank stands before step 5
#     start "$dir/run" $gated ...
#     stands 0 1            waits until ranks 0 and 1 stand; without a number rank 0
#     let_go                the run goes on; or "gate 9": it goes on and stands before step 9
# gate STEP [POINT [RANK]]: RANK (-1: each) stands at POINT (start, before, backward, after, saved, validated; for the dataloader
# "gate" sample) of STEP or of the first one after it. What is not closed lets all pass.
gates=$dir/gate
gated="--plugin-dir $gates/plugins --hooks [{\"name\":\"gate\",\"folder\":\"$gates\"}]"
gated_data="--plugin-dir $gates/plugins --validation.dataloader.name gate --validation.dataloader.folder $gates"
make_gate() {
    [ -e "$gates/plugins/hooks/gate.so" ] && return
    mkdir -p "$gates/plugins/hooks" && cc -std=c11 -Wall -Wextra -Werror -shared -fPIC "-I$SRC/include" "$SRC/tests/run/gate.c" -o "$gates/plugins/hooks/gate.so"
}
gate() {
    make_gate || return 1
    rm -f "$gates"/stands.* # before the gate moves: a rank may come to the new place at once
    echo "${2:-before} $1 ${3:--1}" >"$gates/at.part" && mv "$gates/at.part" "$gates/at"
}
let_go() { rm -f "$gates/at" "$gates"/stands.*; }
has_come() { # RANK: it stands where the gate is now
    read -r gate_point gate_at _ <"$gates/at" && read -r come_point come_at come_pid <"$gates/stands.$1" && [ "$come_point" = "$gate_point" ] &&
        [ "$come_at" -ge "$gate_at" ] && ! has_ended "$come_pid"
}
process_of() { cut -d ' ' -f 3 "$gates/stands.$1"; } # RANK, which stands
# The announcements are taken: the next `stands` waits for those of the next start, or of the next gate. The process of the last
# one of these ranks is $standing.
stands() {
    [ $# -gt 0 ] || set -- 0
    for gate_rank; do until_true has_come "$gate_rank" && standing=$(process_of "$gate_rank") || return 1; done
    for gate_rank; do rm -f "$gates/stands.$gate_rank"; done
}
# step_on RANK COMMAND...: lets the run, in which RANK stands before a step, do one step after the other until the command is true,
# for example until a save in the background is complete; RANK stands again after that.
step_on() {
    stepping=$1
    shift
    until "$@" 2>/dev/null; do
        read -r gate_point gate_at gate_of <"$gates/at" && gate $((gate_at + 1)) "$gate_point" "$gate_of" && stands "$stepping" || return 1
    done
}

# draw N: $drawn is a number from 0 to N - 1; the draws of a script are those of SEED (1), which it prints
: "${SEED:=1}"
draw() {
    draws=$(((${draws:-$SEED} * 1103515245 + 12345) & 2147483647))
    drawn=$((draws / 65536 % $1))
}
newest() { "$TTRUN" ckpt ls "$1" 2>/dev/null | tail -n 1 | sed 's/^step-\([0-9]*\) .*/\1/'; }
