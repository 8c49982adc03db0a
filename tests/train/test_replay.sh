#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# debug.replay_interval: a kernel that is wrong once, or each time, in the backward or in the update, is found by computing steps again; a sound
# machine's run does not change.
. "$(dirname "$0")/../run/lib.sh"
mkdir -p "$dir/kernels" "$dir/common"
# relu2 of examples/, with one element that is wrong in the calls, and on the rank, that the environment names; without FLAKY_PLACE another one each time
sed 's|^static tt_status run(void \*backend|static int calls;\nstatic tt_status run(void *backend|
     s|    tt_parallel_for(c->pool, tt_tensor_numel(&c->out\[0\]), 16384, range, (void \*)(uintptr_t)c);|&\
    const int call = __sync_add_and_fetch(\&calls, 1);\
    const char *from = getenv("FLAKY_FROM"), *to = getenv("FLAKY_TO"), *who = getenv("FLAKY_RANK"), *place = getenv("FLAKY_PLACE"),\
        *me = getenv("TTRUN_RANK") ? getenv("TTRUN_RANK") : getenv("OMPI_COMM_WORLD_RANK");\
    if (from \&\& call >= atoi(from) \&\& call <= atoi(to) \&\& (!who \|\| (me \&\& !strcmp(who, me))))\
        ((float *)c->out[0].data)[place ? atoi(place) : call % 64] += 1, c->checks ? c->checks->wrong++ : 0;|
     1a #include <stdlib.h>\n#include <string.h>' "$SRC/examples/relu2/relu2.c" >"$dir/flaky.c"
sed 's|tt_value \*h = tt_rms_norm|tt_value *g, *h = tt_rms_norm|
     s|h = tt_mul(b, tt_silu(b, tt_linear(b, h, "gate", F, NULL))|g = tt_linear(b, h, "gate", F, NULL); tt_op(b, "relu2", \&g, 1, NULL, \&g, 1); h = tt_mul(b, g|
     s|#include <ttrun/model.h>|#include <ttrun/model.h>\n#include <ttrun/op.h>|' "$SRC/examples/mini/mini.c" >"$dir/mini.c"
cc -std=c11 -D_GNU_SOURCE -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/flaky.c" "-L$BUILD" -lttrun -lm -o "$dir/kernels/relu2.so" >"$dir/out" 2>&1 &&
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/mini.c" "-L$BUILD" -lttrun -lm -o "$dir/common/mini.so" >>"$dir/out" 2>&1
ok the_flaky_kernel_builds
layers=$(sed -n 's/.*offsetof(config, layers), *"\([0-9]*\)".*/\1/p' "$SRC/examples/mini/mini.c")
job=$dir/mini.json
cat >"$job" <<JOB
{ "model": { "name": "mini" }, "dataloader": { "path": ["text.txt"] }, "checkpoint": { "enable": false },
  "training": { "local_batch_size": 4, "global_batch_size": 8, "seq_len": 16, "steps": 6 }, "metrics": { "log_freq": 1, "enable_tensorboard": false },
  "comm": { "backend": "local" }, "backend": { "name": "cpu", "threads": 1 } }
JOB
go() { # NAME OPTION...
    name=$1
    shift
    rm -rf "${dir:?}/$name"
    train "$dir/$name" --plugin-dir "$dir/common" --plugin-dir "$dir/kernels" "$@"
}
same_as_sound() { losses "$dir/$1/metrics.jsonl" | cmp -s - "$dir/want"; }
go sound
[ "$rc" -eq 0 ] && losses "$dir/sound/metrics.jsonl" >"$dir/want" && [ "$(wc -l <"$dir/want")" -eq 6 ]
ok a_run_without_replay
go each --debug.replay_interval 1
[ "$rc" -eq 0 ] && same_as_sound each && ! grep -q 'computed again' "$dir/err"
ok computing_each_step_again_changes_nothing
export FLAKY_FROM=1 FLAKY_TO=1
go first
[ "$rc" -eq 0 ] && ! same_as_sound first
ok a_wrong_bit_changes_the_losses
go first --debug.replay_interval 1
[ "$rc" -eq 0 ] && grep -q 'step 1 computed again from the same inputs has other bits in' "$dir/err" &&
    grep -q 'step 1: the third run agrees with another one, and training goes on from it' "$dir/err" && same_as_sound first
ok a_bit_that_was_wrong_once_is_found_and_the_run_goes_on_right
go first --debug.replay_interval 2
[ "$rc" -eq 0 ] && ! grep -q 'computed again' "$dir/err" && ! same_as_sound first
ok a_step_that_is_not_computed_again_is_not_checked
# a step calls the kernel for each layer and micro-batch: the first call of the second run is wrong
FLAKY_FROM=$((2 * layers + 1)) FLAKY_TO=$((2 * layers + 1)) go first --debug.replay_interval 1
[ "$rc" -eq 0 ] && grep -q 'step 1: the third run agrees' "$dir/err" && same_as_sound first
ok a_bit_that_is_wrong_in_the_second_run_is_not_taken
export FLAKY_FROM=1 FLAKY_TO=1000000
go always --debug.replay_interval 3
[ "$rc" -eq 3 ] && grep -q 'step 3: computed three times, with other bits the third time too' "$dir/err"
ok a_kernel_that_is_always_wrong_ends_the_run
export FLAKY_FROM=1 FLAKY_TO=2
while read -r what options; do
    # shellcheck disable=SC2086
    FLAKY_FROM= FLAKY_TO= go "sound_$what" $options && losses "$dir/sound_$what/metrics.jsonl" >"$dir/want"
    # shellcheck disable=SC2086
    go "$what" --debug.replay_interval 1 $options
    [ "$rc" -eq 0 ] && grep -q 'step 1: the third run agrees with another one' "$dir/err" && same_as_sound "$what"
    ok "mesh_$what"
done <<LIST
fsdp --nproc 2
tp --nproc 2 --parallelism.tensor_parallel_degree 2
pp --nproc 2 --parallelism.pipeline_parallel_degree 2
recompute --activation_checkpoint.mode full
LIST
# check_products: this kernel, which is no product's, says that it was wrong; products themselves are in tests/backends/test_cpu_checks.c
FLAKY_FROM=0 FLAKY_TO=0 go sound && losses "$dir/sound/metrics.jsonl" >"$dir/want"
FLAKY_FROM=0 FLAKY_TO=0 go checked --debug.check_products again
[ "$rc" -eq 0 ] && same_as_sound checked && ! grep -q ' E ' "$dir/err"
ok checked_products_find_nothing
for options in '' '--nproc 2' '--nproc 2 --parallelism.pipeline_parallel_degree 2'; do
    # shellcheck disable=SC2086
    FLAKY_FROM=0 FLAKY_TO=0 go sound $options && losses "$dir/sound/metrics.jsonl" >"$dir/want"
    # shellcheck disable=SC2086
    FLAKY_FROM=1 FLAKY_TO=1 go checked --debug.check_products again $options
    [ "$rc" -eq 0 ] && same_as_sound checked && grep -q 'step 1, rank [01], micro-batch 0: a product of relu2 in "layers.0' "$dir/err" &&
        grep -q 'step 1: computed again, all products have their sums' "$dir/err"
    ok "a_product_that_is_wrong_once_is_computed_again${options:+_}$(echo "$options" | tr -dc a-z0-9)"
done
FLAKY_FROM=9 FLAKY_TO=9 go checked --debug.check_products stop
[ "$rc" -eq 3 ] && grep -q 'step 3: products are wrong on the ranks named above\.' "$dir/err"
ok a_wrong_product_stops_the_run
FLAKY_FROM=1 FLAKY_TO=1000000 go checked --debug.check_products again
[ "$rc" -eq 3 ] && grep -q 'step 1: products are wrong .* and again' "$dir/err"
ok a_product_that_is_always_wrong_stops_the_run
FLAKY_FROM=0 FLAKY_TO=0 go refused --debug.check_products again --backend.name reference
[ "$rc" -eq 2 ] && grep -q 'debug.check_products: the kernels of backend reference check no product' "$dir/err"
ok a_backend_without_checks_is_refused

# replay_on next: a rank that is wrong in the same way each time equals itself, but not the ranks that compute the same
export FLAKY_FROM=1 FLAKY_TO=1000000 FLAKY_PLACE=5
three="--nproc 3 --comm.backend shm --training.global_batch_size 12"
FLAKY_RANK=1 go blind $three --debug.replay_interval 1
[ "$rc" -eq 0 ]
ok a_rank_that_is_always_wrong_equals_itself
FLAKY_RANK=1 go named $three --debug.replay_interval 2 --debug.replay_on next
[ "$rc" -eq 3 ] && grep -q 'rank 1 computed the micro-batches of rank 2 with other bits' "$dir/err" &&
    grep -q 'rank 0 computed the micro-batches of rank 1 with other bits' "$dir/err" && grep -q 'step 2: .*both neighbours contradict rank 1;' "$dir/err"
ok computed_on_the_next_rank_it_is_named
FLAKY_RANK=1 go named --nproc 2 --comm.backend shm --debug.replay_interval 1 --debug.replay_on next
[ "$rc" -eq 3 ] && grep -q 'step 1: .*one is wrong of rank 0, 1;' "$dir/err"
ok of_two_ranks_both_are_named
FLAKY_RANK=2 go named --nproc 4 --comm.backend shm --training.local_batch_size 2 --parallelism.data_parallel_replicate_degree 4 \
    --parallelism.data_parallel_shard_degree 1 --debug.replay_interval 1 --debug.replay_on next
[ "$rc" -eq 3 ] && grep -q 'both neighbours contradict rank 2;' "$dir/err"
ok of_replicas_too
FLAKY_FROM=0 FLAKY_TO=0 go sound_next $three && losses "$dir/sound_next/metrics.jsonl" >"$dir/want"
for call in 1 $((layers + 1)); do # of the other's micro-batches, of the own ones
    FLAKY_RANK=1 FLAKY_FROM=$call FLAKY_TO=$call go once $three --debug.replay_interval 1 --debug.replay_on next
    [ "$rc" -eq 0 ] && grep -q 'step 1: computed on both ranks again, the bits are equal' "$dir/err" && same_as_sound once
    ok "call_${call}_that_is_wrong_once_is_put_right"
done
while read -r what options; do
    # shellcheck disable=SC2086
    FLAKY_FROM=0 FLAKY_TO=0 go "sound_$what" $options && losses "$dir/sound_$what/metrics.jsonl" >"$dir/want"
    # shellcheck disable=SC2086
    FLAKY_FROM=0 FLAKY_TO=0 go "$what" $options --debug.replay_interval 1 --debug.replay_on next
    [ "$rc" -eq 0 ] && same_as_sound "$what" && ! grep -q 'other bits' "$dir/err"
    ok "next_$what"
done <<LIST
fsdp $three
hsdp --nproc 4 --training.local_batch_size 2 --parallelism.data_parallel_replicate_degree 2
fsdp_tp --nproc 4 --parallelism.tensor_parallel_degree 2
fsdp_cp --nproc 4 --parallelism.context_parallel_degree 2
fsdp_pp --nproc 4 --parallelism.pipeline_parallel_degree 2
bf16 --nproc 3 --training.global_batch_size 24 --training.mixed_precision_param bfloat16
LIST
unset FLAKY_FROM FLAKY_TO FLAKY_PLACE
# random numbers go with the tokens
sed 's|"model": { "name": "mini" }|"spec": "gpt2", "model": { "flavor": "debugmodel", "args": { "dim": 64, "n_layers": 2, "resid_pdrop": 0.1 } }|' "$job" >"$dir/drop.json"
job=$dir/drop.json
go dropout $three --debug.replay_interval 1 --debug.replay_on next --training.steps 2
[ "$rc" -eq 0 ] && ! grep -q 'other bits' "$dir/err"
ok next_dropout
job=$dir/mini.json
refused() { # NAME TEXT OPTION...
    name=$1 text=$2
    shift 2
    go refused "$@"
    [ "$rc" -ne 0 ] && grep -q "debug.replay_on: .*$text" "$dir/err"
    ok "$name"
}
refused without_other_data_ranks_it_is_refused 'no other rank' --debug.replay_interval 1 --debug.replay_on next --nproc 2 --parallelism.tensor_parallel_degree 2
refused without_an_interval_it_is_refused 'debug.replay_interval is 0' --debug.replay_on next --nproc 2

# an optimizer whose update has the kernel; the model has not
mkdir -p "$dir/optimizer"
sed 's|tt_value \*sign = |tt_value *q; tt_op(b, "relu2", \&d, 1, NULL, \&q, 1);\n    tt_value *sign = |
     s|tt_value \*step = tt_add(b, sign,|tt_value *step = tt_add(b, tt_add(b, sign, q),|
     s|#include <ttrun/optimizer.h>|#include <ttrun/op.h>\n#include <ttrun/optimizer.h>|' "$SRC/examples/signum/signum.c" >"$dir/signum.c"
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/signum.c" "-L$BUILD" -lttrun -lm -o "$dir/optimizer/signum.so" >"$dir/out" 2>&1 &&
    cp "$dir/kernels/relu2.so" "$dir/optimizer"
ok the_optimizer_builds
sed 's|"model": { "name": "mini" }|"spec": "llama3", "optimizer": { "name": "signum", "lr": 0.01 }, "model": { "args": { "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262 } }|' "$job" >"$dir/update.json"
job=$dir/update.json
go() { # NAME OPTION...
    name=$1
    shift
    rm -rf "${dir:?}/$name"
    train "$dir/$name" --plugin-dir "$dir/optimizer" "$@"
}
while read -r what options; do
    # shellcheck disable=SC2086
    FLAKY_FROM=0 FLAKY_TO=0 go "sound_$what" $options && losses "$dir/sound_$what/metrics.jsonl" >"$dir/want"
    # shellcheck disable=SC2086
    FLAKY_FROM=0 FLAKY_TO=0 go "$what" --debug.replay_interval 1 $options
    [ "$rc" -eq 0 ] && same_as_sound "$what" && ! grep -q 'computed again' "$dir/err"
    ok "updating_again_changes_nothing_$what"
    for call in 1 2; do
        # shellcheck disable=SC2086
        FLAKY_FROM=$call FLAKY_TO=$call go "$what" --debug.replay_interval 1 $options
        [ "$rc" -eq 0 ] && grep -q 'the update of step 1: 1 ops computed again.* relu2 in "stack' "$dir/err" &&
            grep -q 'the update of step 1: two of three runs agree' "$dir/err" && same_as_sound "$what"
        ok "call_${call}_of_an_update_that_is_wrong_is_put_right_$what"
    done
    # shellcheck disable=SC2086
    FLAKY_FROM=2 FLAKY_TO=8 go "$what" $options
    ! same_as_sound "$what"
    ok "without_a_replay_it_changes_the_losses_$what"
    # shellcheck disable=SC2086
    FLAKY_FROM=1 FLAKY_TO=1000000 go "$what" --debug.replay_interval 2 $options
    [ "$rc" -eq 3 ] && grep -q 'step 2: computed three times, with other bits the third time too' "$dir/err"
    ok "an_update_that_is_always_wrong_ends_the_run_$what"
done <<LIST
alone
ddp --nproc 2 --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1
fsdp --nproc 2
pp --nproc 2 --parallelism.pipeline_parallel_degree 2
LIST
# a rank that is wrong in the same way each time: its update is equal to itself, but not to that of its replicas
export FLAKY_FROM=1 FLAKY_TO=1000000 FLAKY_PLACE=5
FLAKY_RANK=1 go replicas --nproc 3 --comm.backend shm --parallelism.data_parallel_replicate_degree 3 --parallelism.data_parallel_shard_degree 1 \
    --training.global_batch_size 12 --debug.replay_interval 2
[ "$rc" -eq 3 ] && grep -q 'step 2: .* other bits are on rank 1; checkpoints up to step 0 ' "$dir/err"
ok a_rank_whose_replica_differs_is_named
FLAKY_RANK=1 go replicas --nproc 2 --comm.backend shm --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 --debug.replay_interval 1
[ "$rc" -eq 3 ] && grep -q 'step 1: .* no majority of the copies agrees, which are on rank 0, 1;' "$dir/err"
ok of_two_replicas_both_are_named
FLAKY_RANK=5 go replicas --nproc 3 --comm.backend shm --parallelism.data_parallel_replicate_degree 3 --parallelism.data_parallel_shard_degree 1 \
    --training.global_batch_size 12 --debug.replay_interval 2
[ "$rc" -eq 0 ]
ok equal_replicas_go_on
unset FLAKY_FROM FLAKY_TO FLAKY_PLACE
ttrun plan "$job" --plugin-dir "$dir/optimizer" >"$dir/out" 2>"$dir/err"
! grep -q '^ *replay ' "$dir/out" && ttrun plan "$job" --debug.replay_interval 1 --plugin-dir "$dir/optimizer" >"$dir/out" 2>"$dir/err" &&
    grep -q '^ *replay  *[0-9.]*  copies to update again' "$dir/out"
ok the_plan_counts_the_copies
exit $failed
