#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ranks cost on one machine: tokens/s of 1 rank with 2 threads against 2 ranks (rank-threads) with 1 thread each, the
# same samples a step, in turns: one rank, FSDP 2, TP 2, one rank, … Median of the rounds.
#   bench/parallel/run.sh                       after `make`, on an idle machine
#   ROUNDS=5 STEPS=20 SEQ=512 BATCH=4 FLAVOR=debugmodel
set -u
cd "$(dirname "$0")/../.." || exit 1
rounds=${ROUNDS:-5} steps=${STEPS:-12} batch=${BATCH:-4} seq=${SEQ:-512}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-parallel.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cat docs/*.md core/*/*.[ch] >"$work/text.txt"
cat >"$work/job.json" <<JOB
{ "model": { "flavor": "${FLAVOR:-debugmodel}" }, "dataloader": { "path": ["text.txt"] }, "dump_folder": "$work/run",
  "training": { "local_batch_size": $batch, "seq_len": $seq, "steps": $steps }, "checkpoint": { "enable": false },
  "metrics": { "log_freq": $((steps - 2)), "enable_tensorboard": false } }
JOB
# tokens/s of all ranks over the last logged steps: the first ones warm up.
one() {
    rm -rf "$work/run"
    ./ttrun -q --plugin-dir ./plugins "$work/job.json" --resume never "$@" >/dev/null 2>"$work/err" || {
        cat "$work/err" >&2
        return 1
    }
    sed -n "/\"step\":$((steps - 2)),/s/.*\"tps_global\":\([0-9.]*\).*/\1/p" "$work/run/metrics.jsonl"
}
i=0
while [ $i -lt "$rounds" ]; do
    one --backend.threads 2 >>"$work/one" || exit 1
    one --backend.threads 1 --nproc 2 --parallelism.data_parallel_shard_degree 2 --training.local_batch_size $((batch / 2)) \
        >>"$work/fsdp" || exit 1
    one --backend.threads 1 --nproc 2 --parallelism.tensor_parallel_degree 2 >>"$work/tp" || exit 1
    i=$((i + 1))
done
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
base=$(median "$work/one")
echo "| ${FLAVOR:-debugmodel}, $batch x $seq tokens a step | tokens/s | of one rank | least | most |"
echo "|---|---|---|---|---|"
for k in one fsdp tp; do
    case $k in one) name="1 rank, 2 threads" ;; fsdp) name="FSDP 2, 1 thread each" ;; tp) name="TP 2, 1 thread each" ;; esac
    sort -n "$work/$k" | awk -v b="$base" -v m="$(median "$work/$k")" -v n="$name" \
        'NR == 1 {least = $1} {most = $1} END {printf "| %s | %.0f | %.2f | %.0f | %.0f |\n", n, m, m / b, least, most}'
done
