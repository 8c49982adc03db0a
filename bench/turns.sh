#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# This checkout in turns with another one: start-up, training, and ranks on one machine. Both are built with the same flags.
#   bench/turns.sh DIR          about 11 minutes on 2 idle cores
#   ROUNDS=5 bench/turns.sh DIR
# Above 1, this checkout is faster. A ratio is that of a round, in which both ran one after the other.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -eq 1 ] && [ -x "$1/ttrun" ] || {
    echo "usage: bench/turns.sh DIR   (a checkout in which make has run)" >&2
    exit 2
}
OTHER=$(cd "$1" && pwd) || exit 1
rounds=${ROUNDS:-5}
export OTHER
ROUNDS=$((2 * rounds - 1)) RUNS=5 bench/startup/run.sh && echo &&
    ROUNDS=$rounds STEPS=6 MODELS="debugmodel gpt2_64" bench/train/run.sh && echo &&
    ROUNDS=$(((rounds + 1) / 2)) STEPS=4 MODELS="llama34m gpt2_256" bench/train/run.sh && echo &&
    ROUNDS=$rounds bench/parallel/run.sh
