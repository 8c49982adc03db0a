#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long from starting the process to the end of step 1: the debug model (6.2 M parameters), local batch 1, 64 tokens.
#   RUNS=20 bench/startup/run.sh                after `make`
#   OTHER=DIR ROUNDS=9 bench/startup/run.sh     in turns with another checkout that is built, RUNS per turn; and `ttrun plan`
set -u
cd "$(dirname "$0")/../.." || exit 1
runs=${RUNS:-20} rounds=${ROUNDS:-9}
other=${OTHER:+$(cd "$OTHER" && pwd)} || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-startup.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p build/bench
${CC:-gcc} -std=c11 -O2 -Wall -Wextra bench/startup/startup.c -o build/bench/startup || exit 1
# Data of its own: the time to read a corpus is the corpus's.
cat docs/*.md README.md >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "debugmodel" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run",
  "training": { "local_batch_size": 1, "seq_len": 64, "steps": 1 }, "checkpoint": { "enable": false } }
JOB
middle() { # TREE train|fsdp|plan: the median in ms
    case $2 in
    train) set -- "$1" 'step:  1' --resume never ;;
    fsdp) set -- "$1" 'step:  1' --resume never --nproc 2 --parallelism.data_parallel_shard_degree 2 --backend.threads 1 ;;
    plan) set -- "$1" '' plan ;;
    esac
    tree=$1 mark=$2
    shift 2
    build/bench/startup "$runs" "$mark" "$tree/ttrun" --plugin-dir "$tree/plugins" "$@" "$work/job.json" 2>&1 >"$work/out" |
        head -3 >&2
    cut -d'|' -f2 "$work/out"
}
if [ -n "$other" ]; then
    for i in $(seq "$rounds"); do
        for k in train fsdp plan; do
            if [ $((i % 2)) -eq 1 ]; then
                ours=$(middle . $k) theirs=$(middle "$other" $k)
            else
                theirs=$(middle "$other" $k) ours=$(middle . $k)
            fi
            echo "$k|$ours|$theirs" >>"$work/turns"
        done
    done
    echo "| ms, medians of $runs | this | OTHER | OTHER ÷ this: median | least | most | rounds |"
    echo "|---|---|---|---|---|---|---|"
    sed "s/^train/to the end of step 1/; s/^fsdp/the same, FSDP 2/; s/^plan/ttrun plan/" "$work/turns" |
        awk -v less=1 -f bench/ratios.awk
    exit
fi
echo "| to the end of step 1, ms: median of $runs | least | most | to the end of the process, median |"
echo "|---|---|---|---|"
build/bench/startup "$runs" 'step:  1' ./ttrun --plugin-dir ./plugins "$work/job.json" --resume never
