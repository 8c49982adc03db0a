#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long after a rank's kill the next step is finished: the debug model on four ranks under a supervisor, one of which gets SIGKILL; with a
# checkpoint every ten steps, and with copies of the states in the supervisor's memory and no checkpoint at all; in turns. The clock is the
# supervisor's, from when it notices the loss.
#   ROUNDS=9 bench/restart/run.sh     after `make`; TMPDIR says on which disk
set -u
cd "$(dirname "$0")/../.." || exit 1
rounds=${ROUNDS:-9}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ttrun-restart.XXXXXX") || exit 1
pid=
trap 'if [ -n "$pid" ]; then kill -INT "$pid" 2>/dev/null; wait "$pid"; fi; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cat docs/*.md README.md >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "debugmodel" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run", "metrics": { "log_freq": 1 },
  "training": { "local_batch_size": 1, "global_batch_size": 4, "seq_len": 128, "steps": 100000 },
  "parallelism": { "data_parallel_shard_degree": 4 } }
JOB
failed() {
    echo "$1:" >&2
    tail -n 20 "$work/log" >&2
    exit 1
}
# until_said TEXT: the run has said so; 60 s at most
until_said() {
    tries=0
    until grep -q "$1" "$work/log"; do
        tries=$((tries + 1))
        kill -0 "$pid" 2>/dev/null && [ $tries -lt 1200 ] || failed "the run did not say '$1'"
        sleep 0.05
    done
}
# once KIND FROM OPTION...: one kill, after which the run goes on from what FROM says; its seconds are added to the file KIND
once() {
    kind=$1 from=$2
    shift 2
    rm -rf "$work/run"
    : >"$work/log"
    ./ttrun "$work/job.json" --max-restarts 5 --nproc 4 "$@" >"$work/log" 2>&1 &
    pid=$!
    until_said 'step: *1[3-9] '
    [ "$kind" = copies ] || until_said 'saved .*step-10 '
    kill -KILL "$(pgrep -P "$pid" | sort -n | tail -n 1)" # ranks are the supervisor's children
    until_said ' s after the failure'
    grep -q "resumed from $from" "$work/log" || failed "the run did not go on from $from"
    sed -n 's/.*step [0-9]* is done \([0-9.]*\) s after the failure.*/\1/p' "$work/log" | head -n 1 >>"$work/$kind"
    kill -INT "$pid"
    wait "$pid"
    pid=
}
middle() { sort -g | awk '{ x[NR] = $1 } END { printf "%.2f | %.2f | %.2f\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'; }
for _ in $(seq "$rounds"); do
    once checkpoints '.*/step-[0-9]*0,' --checkpoint.interval 10
    once copies "the supervisor's copy" --checkpoint.interval 1000000 --checkpoint.peer_copy_interval 2
done
echo "$(nproc) cores, $rounds rounds, load $(cut -d' ' -f1 /proc/loadavg) at the end"
echo
echo "| the states come from | s to the end of the next step: median | least | most | target |"
echo "|---|---|---|---|---|"
echo "| the checkpoint of every tenth step | $(middle <"$work/checkpoints") | 3 |"
echo "| copies of every second step (\`checkpoint.peer_copy_interval\`) | $(middle <"$work/copies") | 1 |"
