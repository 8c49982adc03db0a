#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MB/s of text to ids, compared with Hugging Face tokenizers and tiktoken: the same vocabulary (trained on the text), the same
# documents of this machine, one and two threads, in turns; the median of ROUNDS.
#   bench/tokenizer/run.sh                          ours alone, with the small vocabulary of the tests
#   TTRUN_VENV=DIR bench/tokenizer/run.sh           with DIR/bin/python's tokenizers and tiktoken
#   ROUNDS=3 MB=20 VOCAB=32000 FAMILY=llama3
#   KINDS='llama2|t5|bert|sp .*'                     the kinds of tests/peers/subword_models.py that match, beside their packages
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-tokenizer.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
${CC:-gcc} -std=c11 -O2 -g -pthread -ffp-contract=off -Iinclude -Icore -o "$work/hf_tool" tests/peers/hf_tool.c \
    core/base/*.c -ljansson -lpcre2-8 -lutf8proc -lm || exit 1
python=${TTRUN_VENV:+$TTRUN_VENV/bin/python}
if [ -n "${KINDS:-}" ]; then
    exec "${python:-python3}" bench/tokenizer/kinds.py "$work" "${ROUNDS:-3}" "${MB:-20}" "${VOCAB:-8000}" "$KINDS"
fi
exec "${python:-python3}" bench/tokenizer/peer.py "$work" "${ROUNDS:-3}" "${MB:-20}" "${VOCAB:-32000}" "${FAMILY:-llama3}"
