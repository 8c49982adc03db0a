#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long from starting the process to the end of step 1: the debug model (6.2 M parameters), local batch 1, 64 tokens.
#   RUNS=20 bench/startup/run.sh      after `make`
set -u
cd "$(dirname "$0")/../.." || exit 1
runs=${RUNS:-20}
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
echo "| to the end of step 1, ms: median of $runs | least | most | to the end of the process, median |"
echo "|---|---|---|---|"
build/bench/startup "$runs" 'step:  1' ./ttrun --plugin-dir ./plugins "$work/job.json" --resume never
