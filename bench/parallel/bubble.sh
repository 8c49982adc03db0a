#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A pipeline's bubble, by schedule and ranks: as planned; with what the parts of a traced step took, replayed in virtual time
# (for ranks that outnumber the cores); and on the clock (where each rank has a core of its own). Medians of the rounds.
#   bench/parallel/bubble.sh               after `make`; for the clock's column on an idle machine
#   ROUNDS=3 STEPS=6 SEQ=256 BATCH=8 RANKS="2 3 4" SCHEDULES="1F1B GPipe …" FLAVOR=debugmodel
set -u
cd "$(dirname "$0")/../.." || exit 1
rounds=${ROUNDS:-3} steps=${STEPS:-6} batch=${BATCH:-8} seq=${SEQ:-256}
schedules=${SCHEDULES:-1F1B GPipe Interleaved1F1B LoopedBFS InterleavedZeroBubble ZBVZeroBubble DualPipeV}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-bubble.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cat docs/*.md core/*/*.[ch] >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "${FLAVOR:-debugmodel}" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run",
  "training": { "local_batch_size": $batch, "seq_len": $seq, "steps": $steps },
  "parallelism": { "pipeline_parallel_microbatches": $batch }, "checkpoint": { "enable": false },
  "profiling": { "enable": true, "profile_freq": 2 }, "metrics": { "enable_tensorboard": false }, "backend": { "threads": 1 } }
JOB
median() { sort -n | awk '{v[NR] = $1} END {printf "%.1f", 100 * v[int((NR + 1) / 2)]}'; }
echo "| ranks | schedule | planned, % | replayed, % | on the clock, % |"
echo "|---|---|---|---|---|"
for ranks in ${RANKS:-2 3 4}; do
    for schedule in $schedules; do
        : >"$work/all"
        i=0
        while [ $i -lt "$rounds" ]; do
            rm -rf "$work/run"
            ./ttrun -q --plugin-dir ./plugins "$work/job.json" --resume never --comm.backend local \
                --parallelism.pipeline_parallel_degree "$ranks" --parallelism.pipeline_parallel_schedule "$schedule" \
                >/dev/null 2>"$work/err" || {
                cat "$work/err" >&2
                exit 1
            }
            head -n 1 "$work/run/profile/ops.jsonl" >>"$work/all"
            i=$((i + 1))
        done
        column() { sed -n "s/.*\"$1\":\([-0-9.]*\).*/\1/p" "$work/all" | median; }
        clock=$(column measured)
        [ "$ranks" -gt "$(nproc)" ] && clock="(more ranks than cores)"
        echo "| $ranks | $schedule | $(column planned) | $(column replayed) | $clock |"
    done
done
