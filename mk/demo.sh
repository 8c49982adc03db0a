#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make demo: train a small Llama on the C headers of this machine for about 90 s, then let it write some.
# Writes to ./outputs/demo (afresh each time) and, for the calibration, to a folder of its own under TMPDIR.
#   DEMO_SECONDS=20 make demo     shorter (or longer)
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${DEMO_SECONDS:-90}
run=outputs/demo
job=configs/demo.json
case $seconds in
'' | *[!0-9]* | 0*) echo "demo: DEMO_SECONDS=$seconds is not a number of seconds" >&2; exit 2 ;;
esac
say() { printf '\n== %s\n' "$*"; }

if ! [ -e /usr/include/stdio.h ]; then
    echo "demo: no C headers in /usr/include to train on; install libc6-dev" >&2
    exit 2
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-demo.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' TERM HUP
trap : INT # Ctrl-C ends the training, which saves; the demo continues with that checkpoint

# ---- speed of this machine: the median tokens/s of a few steps ----
# Keys of $scratch/metrics.jsonl, one object per line: tokens per step and tokens/s.
number() { sed -n "s/.*\"$1\":\([0-9.e+]*\).*/\1/p" "$scratch/metrics.jsonl"; }
measure() { # STEPS
    ./ttrun -q "$job" --resume never --dump_folder "$scratch" --training.steps "$1" --lr_scheduler.warmup_steps 0 --checkpoint.enable false \
        --metrics.log_freq 1 --metrics.enable_tensorboard false
}
begin=$(date +%s)
measure 6 || exit
# ten more where six were over at once
if [ $(($(date +%s) - begin)) -le 2 ]; then measure 16 || exit; fi
tokens=$(number tokens | tail -n 1)
rate=$(number tps_global | sed 1d | sort -n | awk '{v[NR] = $1} END {printf "%d", v[int((NR + 1) / 2)]}')
steps=$(awk -v s="$seconds" -v r="$rate" -v t="$tokens" 'BEGIN {n = int(s * r / t); print n < 20 ? 20 : n}')
freq=$((steps / 25 > 0 ? steps / 25 : 1))

# ---- train ----
if [ -e "$run" ]; then
    say "an earlier demo in $run is removed: the demo starts afresh"
    rm -rf "$run"
fi
say "training: $steps steps of $tokens bytes of C headers, about $seconds s at $rate tokens/s"
./ttrun "$job" --training.steps "$steps" --metrics.log_freq "$freq"
status=$?
[ $status -eq 0 ] || [ $status -eq 4 ] || exit $status

# ---- write: prompts begin as files do; the model was trained on 256 bytes at a time, and no more are asked of it ----
say "what it writes (the first lines are ours; every character after them is drawn from the model)"
show() { # SEED PROMPT
    ./ttrun generate -q --checkpoint "$run" --max-tokens $((254 - ${#2})) --temperature 0.7 --seed "$1" --prompt "$2" || exit
    echo '----'
}
show 1 '/* SPDX-License-Identifier: GPL-2.0 */

struct '
show 2 '/* Copyright (C) 1991-2022 Free Software Foundation, Inc.  */

#include <features.h>

extern int '
show 3 '/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
#define '

say "what is where"
cat <<TEXT
  $run/metrics.jsonl    $(wc -l <"$run/metrics.jsonl") lines: loss, gradient norm, learning rate, tokens/s, times, one object per logged step
  $run/tb/              the same for TensorBoard: tensorboard --logdir $run
  $run/run.json         the resolved job, the plugins and their hashes, this machine
  $run/checkpoint/      $(ls "$run/checkpoint" | grep '^step-' | tr '\n' ' ')(safetensors: weights, optimizer; trainer.json)

Try next:
  ./ttrun generate --checkpoint $run --prompt 'extern int ' --temperature 0.9
  ./ttrun $job --training.steps $((steps * 2)) --metrics.log_freq $freq    # continues where this run stopped
  ./ttrun plan configs/llama3_debug.json --world 2 --parallelism.tensor_parallel_degree 2
  ./ttrun config --explain training    # what can be set; all of it: docs/reference.md
TEXT
