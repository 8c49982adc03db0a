#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A save beside training never has values of a later step (pytorch issue 144657): each of its copies is held until training has got on by so
# much, or waits, so that they end before, in and after any of the step's micro-batches, in its update, and before the next save; every step's
# files are those of a run that stands still while it saves.
. "$(dirname "$0")/lib.sh"
without_sanitizers
preload held
ok held_copies_build
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
    # A step is some 8,000 things that its thread does, and a save has some 60 copies: none is held; each until it is waited for; each until
    # so many things more, that is within the first micro-batch, in a later one, up to the update, and in the next step
    waited=yes
    for held in none: last: 20:1 60:2 100: 130:3 400:4; do
        rm -rf "$dir/beside" "$dir/waited"
        export HELD="${held%:*}" HELD_SEED="${held#*:}" HELD_WAITED="$dir/waited"
        [ -n "$HELD_SEED" ] || unset HELD_SEED
        LD_PRELOAD=$dir/held.so train "$dir/beside" $every $mesh
        hashes "$dir/beside" | cmp - "$dir/want" >>"$dir/out" 2>&1 || { rc=99 && break; }
        [ "$HELD" != last ] || [ -e "$dir/waited" ] || waited="no: the update did not wait for copies"
    done
    unset HELD HELD_SEED HELD_WAITED
    [ $rc -eq 0 ] && [ "$waited" = yes ]
    ok "no_save_has_a_newer_value$name"
done
exit $failed
