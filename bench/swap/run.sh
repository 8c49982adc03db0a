#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long the loop stands still when other converters take over: 16 swaps per run of the debug model
# (6.2 M parameters), 2 × 256 tokens per step.
#   RUNS=5 bench/swap/run.sh                after `make`
#   OTHER=DIR RUNS=5 bench/swap/run.sh      in turns with another checkout that is built
set -u
cd "$(dirname "$0")/../.." || exit 1
runs=${RUNS:-5}
other=${OTHER:+$(cd "$OTHER" && pwd)} || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-swap.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cat docs/*.md README.md >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "debugmodel" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run", "metrics": { "log_freq": 1 },
  "training": { "local_batch_size": 2, "seq_len": 256, "steps": 52 }, "checkpoint": { "interval": 1000 } }
JOB
list() { # NAME: on and off eight times, every third step
    awk -v name="$1" 'BEGIN { printf "["; for (i = 0; i < 8; i++) printf "%s{\"name\":\"%s\",\"from_step\":%d,\"to_step\":%d}", i ? "," : "", name, 3 + 6 * i, 6 + 6 * i; print "]" }'
}
middle() { sort -n | awk '{ x[NR] = $1 } END { if (!NR) { print "- - -"; exit } printf "%.1f %.1f %.1f\n", x[1], x[int((NR + 1) / 2)], x[NR] }'; }
measure() { # TREE CONVERTER FILE OPTION...
    tree=$1 name=$2 file=$3
    shift 3
    rm -rf "$work/run"
    "$tree/ttrun" train "$work/job.json" --resume never --converters "$(list "$name")" "$@" 2>&1 |
        sed -n 's/.* the loop stood still for \([0-9.]*\) ms.*/\1/p' >>"$file"
}
echo "| swap | tree | stands still, ms: least | median | most | swaps |"
echo "|---|---|---|---|---|---|"
while read -r what name options; do
    rm -f "$work"/still*
    for i in $(seq "$runs"); do
        for tree in . $other; do
            if [ "$tree" = . ]; then file=$work/still; else file=$work/still-other; fi
            measure "$tree" "$name" "$file" $options
        done
    done
    for file in "$work/still" ${other:+"$work/still-other"}; do
        case $file in *-other) tree=$other ;; *) tree=this ;; esac
        middle <"$file" | { read -r least median most; echo "| $(echo "$what" | tr _ ' ') | $tree | $least | $median | $most | $(wc -l <"$file") |"; }
    done
done <<RUNS
same_states,_1_rank,_2_threads float8 --backend.threads 2
more_states,_1_rank,_2_threads lora --backend.threads 2
same_states,_FSDP_2,_processes float8 --backend.threads 1 --nproc 2 --comm.backend shm --parallelism.data_parallel_shard_degree 2
same_states,_FSDP_2,_threads float8 --backend.threads 1 --nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2
RUNS
