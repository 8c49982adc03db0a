#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokens/s of whole training steps (forward, backward, clip, AdamW; fp32) beside PyTorch on the same models and threads.
#   bench/train/run.sh                          ours alone
#   TTRUN_VENV=DIR bench/train/run.sh           with DIR/bin/python's PyTorch, in turns: ours, eager, ours, eager, …
#   ROUNDS=3 STEPS=6 THREADS=2 MODELS="debugmodel llama34m" MODES="eager compile"
set -u
cd "$(dirname "$0")/../.." || exit 1
rounds=${ROUNDS:-3} steps=${STEPS:-6} threads=${THREADS:-2}
models=${MODELS:-debugmodel llama34m} modes=${MODES:-eager}
python=${TTRUN_VENV:+$TTRUN_VENV/bin/python}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-train.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# The bytes of the headers: ids below 262, whatever the vocabulary; the cost is the same.
args() {
    case $1 in
    debugmodel) echo '"dim": 256, "n_layers": 6, "n_heads": 16, "hidden_dim": 768, "vocab_size": 2048' ;;
    llama34m) echo '"dim": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 4, "hidden_dim": 1536, "vocab_size": 8192' ;;
    *) echo "bench/train: no model \"$1\" (debugmodel, llama34m)" >&2; return 1 ;;
    esac
}
batch() { case $1 in debugmodel) echo 1 2048 ;; *) echo 8 512 ;; esac; }
ours() { # MODEL: tokens/s of each step after the first
    a=$(args "$1") || exit 1
    set -- "$1" $(batch "$1")
    cat >"$work/job.json" <<JOB
{ "model": { "args": { $a } }, "dataloader": { "path": ["/usr/include/*.h", "/usr/include/linux/*.h"] },
  "training": { "local_batch_size": $2, "seq_len": $3, "steps": $steps }, "dump_folder": "$work/run",
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "enable": false },
  "backend": { "threads": $threads } }
JOB
    ./ttrun -q --plugin-dir ./plugins "$work/job.json" --resume never || exit 1
    sed -n '2,$s/.*"tps_global":\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl"
}
# glibc's defaults cost PyTorch 12-16 %: this is the honest peer.
peer() { # MODEL MODE
    env MALLOC_MMAP_THRESHOLD_=17179869184 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 \
        GLIBC_TUNABLES=glibc.malloc.hugetlb=1 OMP_NUM_THREADS="$threads" \
        "$python" bench/train/peer.py "$1" "$2" "$steps" "$threads"
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {if (NR) printf "%d", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }
spread() { sort -n "$1" | awk 'NR == 1 {a = $1} {b = $1} END {if (NR) printf "%d-%d", a, b}'; }

echo "| model | who | tokens/s, median | spread | ours ÷ theirs |"
echo "|---|---|---|---|---|"
for m in $models; do
    for r in $(seq "$rounds"); do
        ours "$m" >>"$work/$m.ours" || exit 1
        [ -n "$python" ] && for mode in $modes; do peer "$m" "$mode" >>"$work/$m.$mode" || exit 1; done
    done
    mine=$(median "$work/$m.ours")
    echo "| $m | ttrun | $mine | $(spread "$work/$m.ours") | |"
    [ -n "$python" ] && for mode in $modes; do
        theirs=$(median "$work/$m.$mode")
        echo "| | PyTorch $mode | $theirs | $(spread "$work/$m.$mode") | $(awk -v a="$mine" -v b="$theirs" 'BEGIN {printf "%.2f", a / b}') |"
    done
done
exit 0
