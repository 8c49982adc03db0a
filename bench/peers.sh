#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# peers.sh [OPTION...]: sets the peers up, then bench/train/peers.py OPTION...
# PyTorch 2.15: TTRUN_VENV names a virtual environment with it; else build/venv is made (network; 1 GB). llm.c: LLMC_DIR names a
# checkout; else it is cloned into build/llm.c where there is a network, or left out.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=${TTRUN_VENV:-$PWD/build/venv}
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    if [ -n "${TTRUN_VENV:-}" ]; then
        echo "bench-peers: $venv has no torch; install it there, or leave TTRUN_VENV unset" >&2
        exit 1
    fi
    echo "bench-peers: making $venv" >&2
    python3 -m venv "$venv" || { echo "bench-peers: python3 -m venv failed; install python3-venv, or set TTRUN_VENV" >&2; exit 1; }
    "$venv/bin/pip" install -q "torch==2.15.*" || exit 1
fi
if [ -z "${LLMC_DIR:-}" ]; then
    [ -e build/llm.c/train_gpt2.c ] || git clone -q --depth 1 https://github.com/karpathy/llm.c build/llm.c 2>/dev/null ||
        echo "bench-peers: llm.c could not be cloned: its row is left out (LLMC_DIR names a checkout)" >&2
    [ -e build/llm.c/train_gpt2.c ] && LLMC_DIR=$PWD/build/llm.c && export LLMC_DIR
fi
if [ -n "${LLMC_DIR:-}" ] && ! [ -e "$LLMC_DIR/train_gpt2.c" ]; then
    echo "bench-peers: LLMC_DIR: no train_gpt2.c in $LLMC_DIR" >&2
    exit 1
fi
exec "$venv/bin/python" bench/train/peers.py "$@"
