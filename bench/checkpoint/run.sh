#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Durable saves and loads of GPT-2 124M with AdamW states, beside PyTorch's where it is; and what saving costs a run.
#   ROUNDS=5 TTRUN_VENV=DIR bench/checkpoint/run.sh     after `make`; without TTRUN_VENV only ttrun and dd are measured
# WIDTH=256 measures a smaller model; TMPDIR says on which disk; STEPS=12 how long the runs are; RUN_ONLY=1 leaves out the first part.
set -eu
cd "$(dirname "$0")/../.."
build=build/release
mkdir -p $build/bench
work=$(mktemp -d "${TMPDIR:-/var/tmp}/ttrun-checkpoint.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -z "${RUN_ONLY:-}" ]; then
    ${CC:-gcc} -std=c11 -O2 -Wall -Wextra -Iinclude -Icore -Ilib -Itools -I. -pthread -rdynamic bench/checkpoint/checkpoint.c $build/libttrun_core.a \
        -ljansson -lltdl -lzstd -lz -lpcre2-8 -lutf8proc -levent_core -lm -ldl -o $build/bench/checkpoint
    python=python3
    [ -z "${TTRUN_VENV:-}" ] || python=$TTRUN_VENV/bin/python
    "$python" -W ignore bench/checkpoint/peers.py $build/bench/checkpoint "$work/peers" "${ROUNDS:-5}" "${WIDTH:-768}"
    rm -rf "$work/peers"
fi
# What a run pays: no save, one save in the middle, a save every step; in turns.
cat docs/*.md README.md >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "name": "gpt2", "flavor": "${FLAVOR:-124M}" }, "dataloader": { "path": ["text.txt"] }, "metrics": { "log_freq": 1 },
  "training": { "local_batch_size": ${BATCH:-8}, "seq_len": 256, "steps": ${STEPS:-12} }, "checkpoint": { "keep_latest_k": 2 } }
JOB
measure() { # NAME true|false: of each step from the third on the seconds from the step before, and for how long the loop stood still
    rm -rf "$work/run"
    ./ttrun "$work/job.json" --dump_folder "$work/run" --checkpoint.interval 1 --checkpoint.enable "$2" >"$work/out" 2>&1 ||
        { cat "$work/out" >&2; exit 1; }
    sed -n 's/.*"time_s":\([0-9.e+-]*\),.*"checkpoint":\([0-9.e+-]*\)[,}].*/\1 \2/p' "$work/run/metrics.jsonl" |
        awk -v name="$1" 'NR > 2 { print name, $1 + $2, $2 }' >>"$work/steps"
}
middle() { sort -g | awk '{ x[NR] = $1 } END { printf "%.4f\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2 }'; }
of() { awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$work/steps" | middle; }
for _ in $(seq "${RUN_ROUNDS:-3}"); do
    measure none false
    measure every true
done
echo
echo "| GPT-2 ${FLAVOR:-124M}, ${BATCH:-8} x 256 tokens per step | s per step, median | of it the loop stands still for the save |"
echo "|---|---|---|"
echo "| no saves | $(of none 2) | 0 |"
echo "| a save every step | $(of every 2) | $(of every 3) |"
