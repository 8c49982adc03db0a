#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the numbers of a step count, as docs/numerics.md says: throughput all positions, means the counted labels.
. "$(dirname "$0")/lib.sh"
i=0
while [ $i -lt 60 ]; do # documents of 9 to 28 bytes, so samples of 32 are padded
    printf '{"text": "document %d %s"}\n' $i "$(printf '%*s' $((i % 18 + 1)) x)"
    i=$((i + 1))
done >"$dir/documents.jsonl"
packed="--dataloader.name jsonl --dataloader.path [\"$dir/documents.jsonl\"] --dataloader.packing best_fit"
counts() { # FOLDER RANKS STEP: 4 samples of 32 per data rank, and the quotients agree
    tps=$(value "$1/metrics.jsonl" tps "$3") all=$(value "$1/metrics.jsonl" tps_global "$3") s=$(value "$1/metrics.jsonl" time_s "$3")
    tokens=$(value "$1/metrics.jsonl" tokens "$3") seen=$(value "$1/metrics.jsonl" n_tokens_seen "$3") flops=$(value "$1/metrics.jsonl" tflops "$3")
    awk -v tokens="$tokens" -v seen="$seen" -v tps="$tps" -v all="$all" -v s="$s" -v ranks="$2" -v step="$3" -v flops="$flops" -v each="$4" 'BEGIN {
        near = 1e-3
        a = all * s / tokens - 1; b = all / (tps * ranks) - 1; c = flops * 1e12 / tps / each - 1
        exit !(tokens == 4 * 32 * ranks && seen == step * tokens && a * a < near && b * b < near && c * c < near) }'
}
# shellcheck disable=SC2086 # words
train "$dir/one" $packed --training.steps 6
each=$(sed -n 's/.* \([0-9.e+]*\) FLOP per token.*/\1/p' "$dir/err")
[ $rc -eq 0 ] && grep -q '[1-9][0-9.]* % padding' "$dir/err" && counts "$dir/one" 1 1 "$each" && counts "$dir/one" 1 6 "$each"
ok padding_counts_as_throughput
# shellcheck disable=SC2086
train "$dir/one" $packed --training.steps 9
[ $rc -eq 0 ] && counts "$dir/one" 1 9 "$each" && grep -q '"tokens_seen":1152,' "$dir/one/checkpoint/step-9/trainer.json"
ok tokens_seen_goes_on_after_a_resume
# shellcheck disable=SC2086
train "$dir/two" $packed --training.steps 3 --nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2
[ $rc -eq 0 ] && counts "$dir/two" 2 3 "$each"
ok tokens_are_of_all_ranks_and_tps_of_one
# 60 documents: each byte, bos and eos once; the last token of a sample, or of a document under best_fit, has no label of its own.
train "$dir/valid" --training.steps 1 --validation.enable true --validation.freq 1 --validation.steps -1 --validation.dataloader.name jsonl \
    --validation.dataloader.path "[\"$dir/documents.jsonl\"]" --validation.dataloader.packing best_fit
counted=$(sed -n 's/.*"validation":{[^}]*"tokens":\([0-9]*\).*/\1/p' "$dir/valid/metrics.jsonl" | tail -n 1)
labels=$(awk '{n += length($0) - length("{\"text\": \"\"}") + 1} END {print n}' "$dir/documents.jsonl")
echo "# $counted labels counted, $labels bytes and ends of documents"
[ $rc -eq 0 ] && [ "$counted" -eq "$labels" ]
ok validation_counts_labels_once
exit $failed
