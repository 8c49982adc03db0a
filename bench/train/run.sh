#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokens/s of whole training steps (forward, backward, clip, AdamW; fp32), ours alone; with PyTorch and llm.c: make bench-peers.
#   ROUNDS=3 STEPS=6 THREADS=2 MODELS="debugmodel llama34m gpt2_64 gpt2_256" bench/train/run.sh
#   OTHER=DIR bench/train/run.sh      in turns with another checkout that is built
set -u
cd "$(dirname "$0")/../.." || exit 1
other=${OTHER:+$(cd "$OTHER" && pwd)} || exit 1
rounds=${ROUNDS:-3} steps=${STEPS:-6} threads=${THREADS:-2}
models=${MODELS:-debugmodel llama34m gpt2_64 gpt2_256}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-train.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# SPEC BATCH SEQ ARGS. The data are the bytes of the headers: ids below 262, whatever the vocabulary; the cost is the same.
gpt2='"dim": 768, "n_layers": 12, "n_heads": 12, "vocab_size": 50257, "n_positions": 1024'
what() {
    case $1 in
    debugmodel) echo 'llama3 1 2048 "dim": 256, "n_layers": 6, "n_heads": 16, "hidden_dim": 768, "vocab_size": 2048' ;;
    llama34m) echo 'llama3 8 512 "dim": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 4, "hidden_dim": 1536, "vocab_size": 8192' ;;
    gpt2_64) echo "gpt2 4 64 $gpt2" ;;
    gpt2_256) echo "gpt2 4 256 $gpt2" ;;
    *) echo "bench/train: no model \"$1\" (debugmodel, llama34m, gpt2_64, gpt2_256)" >&2; return 1 ;;
    esac
}
once() { # MODEL TREE: tokens/s, MFU and GiB of each step after the first
    line=$(what "$1") || exit 1
    spec=${line%% *} line=${line#* } batch=${line%% *} line=${line#* } seq=${line%% *} args=${line#* }
    cat >"$work/job.json" <<JOB
{ "spec": "$spec", "model": { "args": { $args } }, "dataloader": { "path": ["/usr/include/*.h", "/usr/include/linux/*.h"] },
  "tokenizer": { "name": "byte" }, "training": { "local_batch_size": $batch, "seq_len": $seq, "steps": $steps },
  "dump_folder": "$work/run", "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "enable": false },
  "backend": { "threads": $threads } }
JOB
    rm -rf "$work/run"
    "$2/ttrun" -q --plugin-dir "$2/plugins" "$work/job.json" --resume never || exit 1
    sed -n '2,$s/.*"tps_global":\([0-9.]*\).*"mfu":\([0-9.]*\),"mem_gib":\([0-9.]*\).*/\1 \2 \3/p' "$work/run/metrics.jsonl"
}

middle() { # MODEL TREE: the median of the steps' tokens/s
    once "$1" "$2" >"$work/steps" || exit 1
    sort -n "$work/steps" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}

if [ -n "$other" ]; then
    for i in $(seq "$rounds"); do
        for m in $models; do
            if [ $((i % 2)) -eq 1 ]; then
                ours=$(middle "$m" .) && theirs=$(middle "$m" "$other") || exit 1
            else
                theirs=$(middle "$m" "$other") && ours=$(middle "$m" .) || exit 1
            fi
            echo "$m|$ours|$theirs" >>"$work/turns"
        done
    done
    echo "| model | tokens/s | of OTHER | ratio: median | least | most | rounds |"
    echo "|---|---|---|---|---|---|---|"
    awk -f bench/ratios.awk "$work/turns"
    exit
fi
echo "| model | tokens/s, median | spread | of the FMA peak | peak memory |"
echo "|---|---|---|---|---|"
for m in $models; do
    for _ in $(seq "$rounds"); do once "$m" . >>"$work/$m" || exit 1; done
    sort -n "$work/$m" | awk -v m="$m" '{v[NR] = $1; f[NR] = $2; if ($3 > g) g = $3}
        END {k = int((NR + 1) / 2); printf "| %s | %d | %d–%d | %.1f %% | %.2f GiB |\n", m, v[k], v[1], v[NR], 100 * f[k], g}'
done
