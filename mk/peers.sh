#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# peers.sh [NAME...]: runs tests/peers/NAME_peer.py (default: all), which compare ttrun with other programs. They need Python
# packages, so they are no part of `make test`. The virtual environment is TTRUN_VENV, outside the tree; it is created if it
# does not exist, and missing packages are installed (network; 1 GB). Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
venv=${TTRUN_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ttrun/peers}
packages="openai torch numpy safetensors transformers tokenizers tiktoken sentencepiece tensorboard gguf xllamacpp jsonschema peft wandb prometheus_client trackio bitsandbytes trl datasets torchao lm_eval pyarrow polars duckdb fastparquet accelerate aiohttp tenacity compressed_tensors"

if ! [ -x "$venv/bin/python" ]; then
    echo "peers: making $venv" >&2
    python3 -m venv "$venv" || {
        echo "peers: python3 -m venv failed; install python3-venv, or set TTRUN_VENV to an environment with $packages" >&2
        exit 1
    }
fi
find='import importlib.util, sys; print(*(p for p in sys.argv[1:] if importlib.util.find_spec(p) is None))'
# shellcheck disable=SC2086
missing=$("$venv/bin/python" -c "$find" $packages) || exit 1
if [ -n "$missing" ]; then
    echo "peers: installing $missing" >&2
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install -q $missing || exit 1
fi

passed=0 failed=0
[ $# -gt 0 ] || set -- $(cd tests/peers && ls ./*_peer.py | sed 's|^\./||; s|_peer\.py$||')
for name; do
    echo "== $name"
    if "$venv/bin/python" "tests/peers/${name}_peer.py"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
