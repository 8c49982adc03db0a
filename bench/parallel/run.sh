#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks cost on one machine: tokens/s of 1 rank with 2 threads against 2 ranks (rank-threads) with 1 thread each, the
# same samples per step, in turns: one rank, FSDP 2, TP 2, PP 2 (of two micro-batches, as threads of one process and as two), one rank, …
# Median of the rounds.
#   bench/parallel/run.sh                       after `make`, on an idle machine
#   TTRUN_VENV=DIR bench/parallel/run.sh        PyTorch's FSDP2 and TP over gloo as well, in turns with ours
#   OTHER=DIR bench/parallel/run.sh             in turns with another checkout that is built, instead of one another
#   ROUNDS=5 STEPS=12 SEQ=512 BATCH=4 FLAVOR=debugmodel
set -u
cd "$(dirname "$0")/../.." || exit 1
other=${OTHER:+$(cd "$OTHER" && pwd)} || exit 1
rounds=${ROUNDS:-5} steps=${STEPS:-12} batch=${BATCH:-4} seq=${SEQ:-512}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-parallel.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cat docs/*.md core/*/*.[ch] >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "${FLAVOR:-debugmodel}" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run",
  "training": { "local_batch_size": $batch, "seq_len": $seq, "steps": $steps }, "checkpoint": { "enable": false },
  "metrics": { "log_freq": $((steps - 2)), "enable_tensorboard": false } }
JOB
# TREE OPTION...: tokens/s of all ranks over the last logged steps: the first ones warm up.
one() {
    tree=$1
    shift
    rm -rf "$work/run"
    "$tree/ttrun" -q --plugin-dir "$tree/plugins" "$work/job.json" --resume never "$@" >/dev/null 2>"$work/err" || {
        cat "$work/err" >&2
        return 1
    }
    sed -n "/\"step\":$((steps - 2)),/s/.*\"tps_global\":\([0-9.]*\).*/\1/p" "$work/run/metrics.jsonl"
}
# PyTorch's, with the malloc it likes best (bench/train).
peer() {
    MALLOC_MMAP_THRESHOLD_=17179869184 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 \
        "$TTRUN_VENV/bin/python" bench/parallel/peer.py "$1" "$batch" "$seq" "$steps" 2>"$work/err" || {
        tail -3 "$work/err" >&2
        return 1
    }
}
measure() { # TREE one|fsdp|tp|pp|pp2
    case $2 in
    one) one "$1" --backend.threads 2 ;;
    fsdp)
        one "$1" --backend.threads 1 --nproc 2 --parallelism.data_parallel_shard_degree 2 \
            --training.local_batch_size $((batch / 2))
        ;;
    tp) one "$1" --backend.threads 1 --nproc 2 --parallelism.tensor_parallel_degree 2 ;;
    pp) one "$1" --comm.backend local --backend.threads 1 --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatches 2 ;;
    pp2) one "$1" --comm.backend shm --nproc 2 --backend.threads 1 --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatches 2 ;;
    esac
}
if [ -n "$other" ]; then
    for i in $(seq "$rounds"); do
        for k in one fsdp tp pp pp2; do
            if [ $((i % 2)) -eq 1 ]; then
                ours=$(measure . $k) && theirs=$(measure "$other" $k) || exit 1
            else
                theirs=$(measure "$other" $k) && ours=$(measure . $k) || exit 1
            fi
            echo "$k|$ours|$theirs" >>"$work/turns"
        done
    done
    echo "| ${FLAVOR:-debugmodel}, $batch x $seq tokens per step | tokens/s | of OTHER | ratio: median | least | most | rounds |"
    echo "|---|---|---|---|---|---|---|"
    sed "s/^one|/1 rank, 2 threads|/; s/^fsdp|/FSDP 2, 1 thread each|/; s/^tp|/TP 2, 1 thread each|/; s/^pp|/PP 2, 1 thread each, one process|/
        s/^pp2|/PP 2, 1 thread each, two processes|/" "$work/turns" |
        awk -f bench/ratios.awk
    exit
fi
i=0
while [ $i -lt "$rounds" ]; do
    for k in one fsdp tp pp pp2; do
        measure . $k >>"$work/$k" || exit 1
    done
    for k in one fsdp tp; do
        [ -z "${TTRUN_VENV:-}" ] || peer $k >>"$work/torch-$k" || exit 1
    done
    i=$((i + 1))
done
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
row() { # FILE NAME BASE
    sort -n "$work/$1" | awk -v b="$3" -v m="$(median "$work/$1")" -v n="$2" \
        'NR == 1 {least = $1} {most = $1} END {printf "| %s | %.0f | %.2f | %.0f | %.0f |\n", n, m, m / b, least, most}'
}
echo "| ${FLAVOR:-debugmodel}, $batch x $seq tokens per step | tokens/s | of one rank | least | most |"
echo "|---|---|---|---|---|"
for who in "" torch-; do
    [ -e "$work/${who}one" ] || continue
    base=$(median "$work/${who}one") name=${who:+PyTorch, }
    row "${who}one" "${name}1 rank, 2 threads" "$base"
    row "${who}fsdp" "${name}FSDP 2, 1 thread each" "$base"
    row "${who}tp" "${name}TP 2, 1 thread each" "$base"
    [ -n "$who" ] || { row pp "PP 2, 1 thread each, one process" "$base" && row pp2 "PP 2, 1 thread each, two processes" "$base"; }
done
