#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tokens/s of whole training steps (forward, backward, clip, AdamW; fp32) of mixtures of experts with about 30 M active parameters, beside transformers:
# with experts in turn (forced balance) and with the choices of a router that has learned from real text; and two ranks of ep beside one with two threads.
#   TTRUN_VENV=DIR bench/moe/run.sh                 DIR: a virtual environment with torch and transformers; without it ours alone
#   ROUNDS=3 STEPS=6 LEARN=200 MODELS="8 64" BATCH=4 SEQ=512 bench/moe/run.sh
#   PEERS="eager:eager grouped_mm:compile" …        EXPERTS_IMPLEMENTATION:MODE of transformers
#   REPLICAS="1 2" …                                two ranks of ep also with so many replicas of the most loaded experts, where the router is the learned one
set -u
cd "$(dirname "$0")/../.." || exit 1
rounds=${ROUNDS:-3} steps=${STEPS:-6} learn=${LEARN:-200} models=${MODELS:-8 64} batch=${BATCH:-4} seq=${SEQ:-512}
peers=${PEERS:-eager:eager grouped_mm:eager eager:compile grouped_mm:compile}
python=${TTRUN_VENV:+$TTRUN_VENV/bin/python}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-moe.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

job() { # EXPERTS: 2 of 8 experts of width 1024, or 8 of 64 of width 256, per token
    if [ "$1" = 8 ]; then of="2" width=1024; else of="8" width=256; fi
    cat <<JOB
{ "spec": "qwen3_moe", "model": { "args": { "dim": 512, "n_layers": 6, "n_heads": 8, "n_kv_heads": 4, "head_dim": 64, "vocab_size": 8192, "num_experts": $1,
    "num_experts_per_tok": $of, "moe_intermediate_size": $width, "output_router_logits": true, "norm_topk_prob": true } },
  "dataloader": { "path": ["/usr/include/*.h", "/usr/include/linux/*.h"] }, "tokenizer": { "name": "byte" },
  "optimizer": { "lr": 0.0006 }, "training": { "local_batch_size": $batch, "seq_len": $seq, "steps": $steps },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "comm": { "backend": "local" }, "backend": { "threads": 2 } }
JOB
}
die() {
    cat "$work/err" >&2
    exit 1
}
middle() { # the median of the numbers of stdin
    sort -n | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'
}
ours() { # EXPERTS FORCED OPTION...: the median of a process's steps after the first
    e=$1 forced=$2
    shift 2
    ./ttrun -q "$work/$e.json" --dump_folder "$work/run" --resume never --checkpoint.enable false --checkpoint.initial_load_path "$work/learned$e" \
        --debug.moe_force_load_balance "$forced" "$@" 2>"$work/err" || die
    sed -n '2,$s/.*"tps_global":\([0-9.]*\).*/\1/p' "$work/run/metrics.jsonl" | middle
    rm -rf "$work/run"
}
over_ranks() { # EXPERTS FORCED REPLICAS: on two ranks with a thread each
    ours "$1" "$2" --nproc 2 --backend.threads 1 --parallelism.data_parallel_shard_degree 2 --parallelism.expert_parallel_degree 2 \
        --training.local_batch_size $((batch / 2)) --training.global_batch_size "$batch" --parallelism.expert_replicas "$3"
}
theirs() { # EXPERTS FORCED IMPLEMENTATION:MODE
    "$python" bench/moe/peer.py "$work/hf$1" "${3%:*}" "${3#*:}" "$2" "$steps" 2 "$batch" $seq 2>"$work/err" | middle
}
note() { # EXPERTS FORCED WHO NUMBER
    echo "$1 $2 $3 $4" >>"$work/all"
    echo "    $1 experts, forced balance $2: $3 $4" >&2
}

for e in $models; do
    job "$e" >"$work/$e.json"
    # The router learns with one sample per step, from the same text.
    ./ttrun -q "$work/$e.json" --dump_folder "$work/learned$e" --training.local_batch_size 1 --training.steps "$learn" 2>"$work/err" || die
    sed -n '$s/.*"experts":{"max_over_mean":\([0-9.]*\),"entropy":\([0-9.]*\).*/\1 \2/p' "$work/learned$e/metrics.jsonl" >"$work/load$e"
    [ -z "$python" ] || ./ttrun ckpt export --to hf "$work/learned$e" "$work/hf$e" >/dev/null 2>"$work/err" || die
done
for _ in $(seq "$rounds"); do
    for e in $models; do
        for forced in true false; do
            v=$(ours "$e" "$forced") || exit 1
            note "$e" "$forced" ttrun "$v"
            for p in ${python:+$peers}; do
                v=$(theirs "$e" "$forced" "$p")
                if [ -n "$v" ]; then note "$e" "$forced" "$p" "$v"; else tail -n 1 "$work/err" >&2; fi
            done
            v=$(over_ranks "$e" "$forced" 0) || exit 1
            note "$e" "$forced" ttrun:ep2 "$v"
            [ "$forced" = false ] || continue
            for r in ${REPLICAS:-}; do
                v=$(over_ranks "$e" "$forced" "$r") || exit 1
                note "$e" "$forced" "ttrun:ep2:replicas=$r" "$v"
            done
        done
    done
done
echo "$(uname -m), $(nproc) cores; batch $batch × $seq; the router learned for $learn steps; $rounds rounds of $steps steps; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for e in $models; do echo "learned load, $e experts: busiest over the mean $(cut -d' ' -f1 "$work/load$e"), entropy $(cut -d' ' -f2 "$work/load$e")"; done
echo
echo "| experts | routing | who | tokens/s, median | spread | ttrun ÷ it |"
echo "|---|---|---|---|---|---|"
sort -k1,1n -k2,2r -k3,3 -s "$work/all" | awk '
    {k = $1 " " $2 " " $3; if (!(k in n)) order[++keys] = k; v[k, ++n[k]] = $4}
    END {
        for (i = 1; i <= keys; i++) { # sorts the rounds of each
            k = order[i]
            for (a = 2; a <= n[k]; a++) for (b = a; b > 1 && v[k, b] + 0 < v[k, b - 1] + 0; b--) {t = v[k, b]; v[k, b] = v[k, b - 1]; v[k, b - 1] = t}
            m[k] = v[k, int((n[k] + 1) / 2)]
        }
        for (i = 1; i <= keys; i++) {
            k = order[i]; split(k, p, " "); own = m[p[1] " " p[2] " ttrun"]
            printf "| %s | %s | %s | %.0f | %.0f–%.0f | %s |\n", p[1], (p[2] == "true" ? "in turn" : "learned"), p[3], m[k], v[k, 1], v[k, n[k]],
                (p[3] == "ttrun" ? "" : sprintf("%.2f", own / m[k]))
        }
    }'
