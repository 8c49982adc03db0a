#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A save beside training never has values of a later step (pytorch issue 144657): each of its copies is delayed, so that they end before, in and
# after any of the step's micro-batches, its update, and the next save; every step's files are those of a run that stands still while it saves.
. "$(dirname "$0")/lib.sh"
without_sanitizers
preload slow
ok slow_copies_build
hashes() { for s in 1 2 3 4 5; do hash_of "$1/checkpoint/step-$s"; done; }
every="--checkpoint.interval 1 --checkpoint.keep_latest_k 0 --training.steps 5 --training.local_batch_size 1 --training.seq_len 64"
for mesh in "--training.global_batch_size 4" "--training.global_batch_size 8 --nproc 2 --comm.backend shm" \
    "--training.global_batch_size 4 --nproc 2 --comm.backend shm --parallelism.pipeline_parallel_degree 2"; do
    name=$(echo "$mesh" | tr -dc '0-9a-z' | sed 's/trainingglobalbatchsize/_/; s/commbackendshm//; s/parallelism//')
    rm -rf "$dir/still"
    train "$dir/still" $every $mesh --checkpoint.async_mode disabled
    hashes "$dir/still" >"$dir/want"
    [ $rc -eq 0 ] && [ "$(sort -u "$dir/want" | wc -l)" -eq 5 ]
    ok "a_run_that_stands_still$name"
    waited=0
    # per copy: none, shorter and longer than a micro-batch, longer than a step; a fixed time and random ones
    for delay in 0: 300: 1000:1 2000:2 5000:3 10000: 20000:4; do
        rm -rf "$dir/beside"
        SLOW_US=${delay%:*} SLOW_SEED=${delay#*:}
        export SLOW_US SLOW_SEED
        [ -n "$SLOW_SEED" ] || unset SLOW_SEED
        LD_PRELOAD=$dir/slow.so train "$dir/beside" $every $mesh
        hashes "$dir/beside" | cmp - "$dir/want" >>"$dir/out" 2>&1 || { rc=99 && break; }
        waited=$(sed -n 's/.*"checkpoint":\([0-9.e+-]*\).*/\1/p' "$dir/beside/metrics.jsonl" | awk -v w="$waited" '{ if ($1 > w) w = $1 } END { print w }')
    done
    unset SLOW_US SLOW_SEED
    [ $rc -eq 0 ] && awk -v w="$waited" 'BEGIN { exit !(w > 0.05) }' # the update did wait for copies
    ok "no_save_has_a_newer_value$name"
done
exit $failed
