#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The update with optimizer states in f32 and in bf16 (optimizer.state_dtype), in turns: milliseconds of a step's update, and bytes.
#   bench/train/states.sh            a minute on 2 idle cores
#   ROUNDS=9 STEPS=10 THREADS=1 bench/train/states.sh
set -eu
cd "$(dirname "$0")/../.."
rounds=${ROUNDS:-7} steps=${STEPS:-8} threads=${THREADS:-2}
: "${BUILD:=build/release}"
ttrun=$BUILD/ttrun
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# 70 million parameters and few tokens, so that the states do not fit into a cache
cat >"$dir/job.json" <<JOB
{ "spec": "llama3", "model": { "flavor": "debugmodel", "args": { "dim": 1024, "n_layers": 4, "n_heads": 16, "n_kv_heads": 16, "hidden_dim": 4096, "vocab_size": 300 } },
  "dataloader": { "name": "text", "path": ["$PWD/README.md"] },
  "training": { "local_batch_size": 1, "seq_len": 16, "steps": $((steps + 1)) },
  "metrics": { "log_freq": 1, "enable_tensorboard": false, "enable_progress_bar": false },
  "checkpoint": { "enable": false }, "backend": { "threads": $threads } }
JOB
median() { sort -n | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
i=0
while [ $i -lt "$rounds" ]; do
    for dtype in float32 bfloat16; do
        rm -rf "$dir/run"
        "$ttrun" "$dir/job.json" --plugin-dir "$BUILD/plugins" --dump_folder "$dir/run" -q --resume never --optimizer.state_dtype $dtype >"$dir/out" 2>&1 || {
            cat "$dir/out" >&2
            exit 1
        }
        sed 1d "$dir/run/metrics.jsonl" | sed -n 's/.*"optimizer":\([0-9.e+-]*\).*/\1/p' | median | awk '{print 1000 * $1}' >>"$dir/$dtype"
    done
    i=$((i + 1))
done
for dtype in float32 bfloat16; do
    bytes=$("$ttrun" plan "$dir/job.json" --plugin-dir "$BUILD/plugins" --json --optimizer.state_dtype $dtype 2>/dev/null | sed 's/.*"state":\([0-9]*\).*/\1/')
    echo "$dtype  update $(median <"$dir/$dtype") ms (of $rounds processes, $(sort -n "$dir/$dtype" | head -n 1)-$(sort -n "$dir/$dtype" | tail -n 1)); state $((bytes >> 20)) MiB"
done
paste "$dir/float32" "$dir/bfloat16" | awk '{print $1 / $2}' | median | sed 's/^/float32 ÷ bfloat16, median of the rounds: /'
