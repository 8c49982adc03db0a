#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# llmq.sh MODEL: tokens/s of LLM.Q on the same model, in bf16. LLMQ: its program `train`; LLMQ_DATA: its token file. Built elsewhere, with
# USE_NVML, USE_CUFILE and USE_MPI off; nothing of it is in this tree.
. "$(dirname "$0")/lib.sh"
set -- $(model "$1") "$1"
"$LLMQ" --model "Qwen2.5-$9" --from-scratch --train-file "${LLMQ_DATA:?}" --batch-size "$7" --seq-len "$8" --grad-accumulation 1 --steps 20 \
    --dtype bf16 2>&1 | sed -n 's/.*[^0-9]\([0-9][0-9]*\) *tok\/s.*/\1/p; s/.*tps[ :]*\([0-9]*\).*/\1/p' | tail -n +4 | middle
