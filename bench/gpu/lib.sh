# SPDX-License-Identifier: Apache-2.0
# Sourced by all.sh and check.sh: where things are, in a bundle (bundle.sh) or in a checkout, and jobs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ -e "$here/../ttrun" ] && [ -d "$here/../plugins" ] && [ -d "$here/../tests" ] && [ ! -d "$here/../core" ]; then
    root=$(cd "$here/.." && pwd)
    tests=$root/tests plugins=$root/plugins
    export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
    root=$(cd "$here/../.." && pwd)
    tests=$root/build/release/tests/cuda plugins=$root/build/release/plugins
fi
export TTRUN_PLUGIN_DIR="$plugins" PLUGINS="$plugins" TT_CUDA_LIBRARIES=
text=$root/text.txt
out=${OUT:-$(pwd)/gpu-results}
mkdir -p "$out"
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
[ -e "$text" ] || cat "$root"/include/ttrun/*.h "$root"/docs/*.md >"$text.$$" 2>/dev/null && mv "$text.$$" "$work/text.txt" 2>/dev/null && text=$work/text.txt
[ -e "$text" ] || text=$work/text.txt

# MODEL: dim, layers, heads, kv heads, hidden, vocabulary, sequences, tokens of each. The sizes of LLM.Q's (Qwen2.5) and torchtitan's.
model() {
    case $1 in
    debug) echo '256 6 16 16 768 2048 8 2048' ;;
    0.5B) echo '896 24 14 2 4864 151936 16 1024' ;;
    1.5B) echo '1536 28 12 2 8960 151936 8 2048' ;;
    3B) echo '2048 36 16 2 11008 151936 4 2048' ;;
    *) echo "bench/gpu: no model \"$1\" (debug, 0.5B, 1.5B, 3B)" >&2; return 1 ;;
    esac
}
# job MODEL STEPS: writes $work/job.json
job() {
    # shellcheck disable=SC2046
    set -- "$2" $(model "$1") || return 1
    cat >"$work/job.json" <<JOB
{ "spec": "llama3",
  "model": { "args": { "dim": $2, "n_layers": $3, "n_heads": $4, "n_kv_heads": $5, "hidden_dim": $6, "vocab_size": $7 } },
  "dataloader": { "name": "text", "path": ["$text"] }, "tokenizer": { "name": "byte" },
  "optimizer": { "lr": 3e-4 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": $8, "seq_len": $9, "steps": $1, "mixed_precision_param": "bfloat16" },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "enable": false },
  "backend": { "name": "cuda" } }
JOB
}
# ours RUN OPTION…: trains $work/job.json
ours() {
    run=$1
    shift
    rm -rf "${work:?}/$run"
    timeout -k 5 "${LIMIT:-150}" "$root/ttrun" -q "$work/job.json" --dump_folder "$work/$run" --resume never "$@" >"$work/$run.log" 2>&1 || {
        tail -n 5 "$work/$run.log" >&2
        return 1
    }
}
field() { # RUN KEY: one line per step
    sed -n 's/.*"'"$2"'":\([-0-9.e+]*\).*/\1/p' "$work/$1/metrics.jsonl"
}
middle() { sort -n | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
