#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun ctl: each command on a running job, one rank, threads and processes; and clients that no ttrun would be.
. "$(dirname "$0")/processes.sh"
tool=$BUILD/tests/run/ctl_tool
forever="--training.steps 100000000 --checkpoint.interval 100000000"
valid="--validation.enable true --validation.freq 100000000 --validation.dataloader.path [\"$dir/text.txt\"]"
ctl() { # FOLDER WORD...: streams to $dir/out and $dir/err, status in $rc
    "$TTRUN" ctl "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
answers() { grep -Eq "$1" "$dir/out" && [ "$(wc -l <"$dir/out")" -eq 1 ] && ! [ -s "$dir/err" ]; }
refuses() { [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "$1" "$dir/err" && ! [ -s "$dir/out" ]; }
up() { until_true has_lines "$folder/metrics.jsonl" 3; }
quiet() { # 20 more steps, and not a line; lines from before may come late through mpirun
    lines=$(wc -l <"$folder.err") steps=$(wc -l <"$folder/metrics.jsonl")
    until_true has_lines "$folder/metrics.jsonl" $((steps + 20)) && [ "$(wc -l <"$folder.err")" -eq "$lines" ]
}
fds() { ls "/proc/$pid/fd" | wc -l; }
settled() { # the run has closed what the last client had; else a number that is too large lets a fault pass, and nothing fails
    before=$(fds)
    sleep 0.3
    [ "$(fds)" -eq "$before" ]
}
lr_of() { sed -n "s/^{\"step\":$2,.*\"lr\":\([^,]*\),.*/\1/p" "$1/metrics.jsonl"; }

# ---- errors before there is a run ----
bad=
ctl "$dir/none" status && refuses 'no such folder' || bad="$bad none"
mkdir "$dir/plain"
ctl "$dir/plain" status && refuses 'not the folder of a run' || bad="$bad plain"
train "$dir/done"
ctl "$dir/done" status && refuses 'no job is training there' || bad="$bad done"
ctl "$dir/done" && refuses 'usage: ttrun ctl RUN_DIR ...; see ttrun ctl --help' || bad="$bad usage"
ctl "$dir/done" sav && refuses 'did you mean save' || bad="$bad typo"
for v in abc -1x 1e999 '' nan inf 'x' 'x-1' 0x10; do
    ctl "$dir/done" lr "$v" && refuses 'lr: \|takes\|unknown option\|no option' || bad="$bad lr-$v"
done
ctl "$dir/done" log loud && refuses 'log: expected error, warn, info or debug' || bad="$bad log"
ctl "$dir/done" save now && refuses 'save: takes no value' || bad="$bad value"
ctl "$dir/done" save --json && refuses 'only status' || bad="$bad json"
[ -z "$bad" ] && ! [ -e "$dir/done/.ctl" ]
ok "ctl_errors_are_one_line $bad"

# ---- every command, each way to run ranks ----
for way in one local $ways; do
    folder=$dir/$way
    path=$PATH
    case $way in
    one) set -- ;;
    local) set -- --comm.backend local --nproc 2 ;;
    own) path=$dir/bin && set -- --comm.backend shm --nproc 2 ;;
    mpirun) set -- --nproc 2 ;;
    esac
    : >"$folder.out" 2>"$folder.err"
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $forever $valid "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
    bad=
    up || bad="$bad start"
    [ "$(stat -c %F%a "$folder/.ctl")" = socket600 ] || bad="$bad mode"
    ctl "$folder" status --json && [ "$(value "$dir/out" steps)" = 100000000 ] && [ "$(value "$dir/out" step)" -ge 2 ] &&
        [ "$(value "$dir/out" state)" = training ] && [ "$(value "$dir/out" tps)" != null ] && grep -q '"converters":\[\]' "$dir/out" || bad="$bad status"
    loss=$(value "$dir/out" loss) step=$(value "$dir/out" step)
    until_true grep -q "^{\"step\":$step," "$folder/metrics.jsonl" # the line may come a moment after the answer
    [ "$(sed -n "s/^{\"step\":$step,.*\"loss\":\([^,]*\),.*/\1/p" "$folder/metrics.jsonl")" = "$loss" ] || bad="$bad loss"
    ctl "$folder" status && grep -q '^step  *[0-9,]* / 100,000,000, epoch ' "$dir/out" && grep -q "^run  *$folder$" "$dir/out" || bad="$bad table"
    ctl "$folder" save && answers "^saved $folder/checkpoint/step-[0-9]+$" && "$TTRUN" ckpt verify "$(sed 's/^saved //' "$dir/out")" >/dev/null || bad="$bad save"
    ctl "$folder" validate && answers '^step [0-9]*: validation loss [0-9.]* over [0-9]* tokens$' && until_true grep -q '"validation"' "$folder/metrics.jsonl" || bad="$bad validate"
    ctl "$folder" lr x0.5 && answers '^optimizer.lr is 0.005 from step [0-9]* on, was 0.01$' || bad="$bad factor"
    from=$(sed 's/.*from step \([0-9]*\) on.*/\1/' "$dir/out")
    until_true grep -q "^{\"step\":$from," "$folder/metrics.jsonl"
    [ "$(lr_of "$folder" "$from")" = 0.005 ] && [ "$(lr_of "$folder" $((from - 1)))" = 0.01 ] || bad="$bad step"
    ctl "$folder" lr 3e-4 && answers '^optimizer.lr is 0.0003 from step [0-9]* on, was 0.005$' && [ "$(value "$folder/run.json" ctl.lr)" = 0.0003 ] || bad="$bad rate"
    ctl "$folder" log warn && answers '^the log level is warn from step [0-9]* on$' || bad="$bad log"
    until_true quiet || bad="$bad quiet"
    n=$(wc -l <"$folder.err")
    ctl "$folder" log info && until_true has_lines "$folder.err" $((n + 2)) || bad="$bad loud"
    ctl "$folder" profile && answers "^step [0-9]*: $folder/profile/step-[0-9]*.json$" && [ -s "$(sed 's/.*: //' "$dir/out")" ] || bad="$bad profile"
    [ "$(ls "$folder/profile" | grep -c step-)" -eq 1 ] || bad="$bad profiles"
    ctl "$folder" stop && answers '^stopped by ttrun ctl after step [0-9]*, saved$' || bad="$bad stop"
    last=$(sed 's/.*step \([0-9]*\),.*/\1/' "$dir/out")
    ends 4 && [ "$(newest "$folder/checkpoint")" = "$last" ] && [ "$(grep -c 'stopped by ttrun ctl' "$folder.err")" -eq 1 ] || bad="$bad end"
    [ -e "$folder/.ctl" ] && bad="$bad left"
    [ -z "$bad" ]
    ok "${way}_ctl_commands $bad"
done

# ---- a rate that was set survives, unless the job has a new one ----
bad=
folder=$dir/one
last=$(newest "$folder/checkpoint")
train "$folder" $valid --training.steps $((last + 1)) && [ "$(lr_of "$folder" $((last + 1)))" = 0.0003 ] && grep -q 'optimizer.lr stays 0.0003, as ttrun ctl has set it' "$dir/err" &&
    [ "$(value "$folder/run.json" ctl.lr)" = 0.0003 ] || bad="$bad stays"
train "$folder" $valid --training.steps $((last + 2)) --optimizer.lr 0.02 && [ "$(lr_of "$folder" $((last + 2)))" = 0.02 ] && grep -q "is the job's new one, 0.02" "$dir/err" &&
    ! grep -q '"ctl"' "$folder/run.json" || bad="$bad new"
train "$folder" $valid --training.steps $((last + 3)) --optimizer.lr 0.02 && [ "$(lr_of "$folder" $((last + 3)))" = 0.02 ] && ! grep -q 'ttrun ctl' "$dir/err" || bad="$bad gone"
[ -z "$bad" ]
ok "ctl_rate_is_in_checkpoints $bad"

# ---- what a run without these cannot do ----
start "$dir/bare" --training.steps 100000000 --checkpoint.enable false --optimizer.lr 10 --lr_scheduler.warmup_steps 90000000
bad=
up
ctl "$folder" save && refuses 'checkpoint.enable is false' || bad="$bad save"
ctl "$folder" validate && refuses 'validation.enable is false' || bad="$bad validate"
ctl "$folder" lr x1e308 && refuses 'not be finite' || bad="$bad finite"
ctl "$folder" lr 0.5x && answers '^optimizer.lr is 5 ' && ctl "$folder" lr job && answers '^optimizer.lr is 10 ' || bad="$bad job"
[ -z "$bad" ]
ok "ctl_refuses_what_the_run_has_not $bad"

# ---- clients that no ttrun would be ----
bad=
until_true settled
"$tool" "$folder" garbage 300 || bad="$bad garbage"
"$tool" "$folder" huge 20000000 >"$dir/out" && grep -q '^-1 a command has at most 262144 bytes' "$dir/out" || bad="$bad huge"
printf 'sav\0e\n' | "$tool" "$folder" raw >"$dir/out" && grep -q '^-1 .*byte 0' "$dir/out" || bad="$bad nul"
printf '\033[31mx\n' | "$tool" "$folder" raw >"$dir/out" && grep -q '^-1 .*no command of ctl' "$dir/out" || bad="$bad escape"
"$tool" "$folder" drop 200 || bad="$bad drop"
mkfifo "$dir/hold"
"$tool" "$folder" half 1000 <"$dir/hold" >"$dir/made" &
holder=$!
exec 7>"$dir/hold"
until_true grep -q 1000 "$dir/made" || bad="$bad made"
ctl "$folder" status --json && [ "$(value "$dir/out" state)" = training ] || bad="$bad held"
ctl "$folder" log info && answers '^the log level' || bad="$bad held-log"
exec 7>&-
wait $holder
flat() { [ "$(fds)" -le "$before" ]; }
until_true flat || bad="$bad descriptors"
chmod 711 "$dir" # so that another user comes as far as the socket, unless a folder above is closed
closed=
at=$dir
while [ "$at" != / ]; do
    case $(stat -c %a "$at") in *[1357]) ;; *) closed="$at is closed" ;; esac
    at=$(dirname "$at")
done
if [ -z "$closed" ]; then
    "$tool" "$folder" other >"$dir/out"
    grep -q 'Permission denied\|skip' "$dir/out" || bad="$bad other"
    chmod 666 "$folder/.ctl" && "$tool" "$folder" other >"$dir/out"
    grep -q '^-1 this run belongs to another user\|skip' "$dir/out" || bad="$bad other-$(cat "$dir/out")"
fi
kill -0 $pid && ctl "$folder" stop && answers '^stopped by ttrun ctl after step [0-9]*$' || bad="$bad stop"
ends 4 || bad="$bad end"
[ -z "$bad" ]
ok "ctl_survives_hostile_clients $bad"

# ---- long paths, a socket left by kill -9, a folder that takes none ----
bad=
long=$dir/a-folder-with-a-name-of-many-bytes
i=0
while [ $i -lt 4 ]; do long=$long/a-folder-with-a-name-of-many-bytes i=$((i + 1)); done
mkdir -p "$long"
for round in killed again; do
    start "$long/run" $forever
    up && ctl "$folder" status && grep -q "^run  *$long/run$" "$dir/out" || bad="$bad $round"
    if [ $round = killed ]; then
        kill -9 $pid
        wait $pid 2>/dev/null
        [ -S "$folder/.ctl" ] || bad="$bad stale"
        ctl "$folder" status && refuses 'no job is training there' || bad="$bad dead"
        rm "$folder/metrics.jsonl"
    fi
done
ctl "$folder" stop && ends 4 && ! [ -e "$folder/.ctl" ] || bad="$bad stop"
mkdir -p "$dir/taken/.ctl"
start "$dir/taken" $forever
up && grep -q 'W train.*taken/.ctl: .*; ttrun ctl cannot reach this run' "$folder.err" || bad="$bad taken"
ctl "$folder" status && refuses 'is training there, but takes no commands' || bad="$bad none"
kill -TERM $pid
ends 4 || bad="$bad term"
[ -z "$bad" ]
ok "ctl_socket_of_any_folder $bad"
exit $failed
