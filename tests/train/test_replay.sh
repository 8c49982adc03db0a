#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# debug.replay_interval: a kernel that is wrong once, or each time, is found by computing steps again; a sound machine's run does not change.
. "$(dirname "$0")/../run/lib.sh"
mkdir -p "$dir/kernels" "$dir/common"
# relu2 of examples/, with one element that is wrong in the calls that the environment names
sed 's|^static tt_status run(void \*backend|static int calls;\nstatic tt_status run(void *backend|
     s|    tt_parallel_for(c->pool, tt_tensor_numel(&c->out\[0\]), 16384, range, (void \*)(uintptr_t)c);|&\
    const int call = __sync_add_and_fetch(\&calls, 1);\
    const char *from = getenv("FLAKY_FROM"), *to = getenv("FLAKY_TO");\
    if (from \&\& call >= atoi(from) \&\& call <= atoi(to))\
        ((float *)c->out[0].data)[call % 64] += 1;|
     1a #include <stdlib.h>' "$SRC/examples/relu2/relu2.c" >"$dir/flaky.c"
sed 's|tt_value \*h = tt_rms_norm|tt_value *g, *h = tt_rms_norm|
     s|h = tt_mul(b, tt_silu(b, tt_linear(b, h, "gate", F, NULL))|g = tt_linear(b, h, "gate", F, NULL); tt_op(b, "relu2", \&g, 1, NULL, \&g, 1); h = tt_mul(b, g|
     s|#include <ttrun/model.h>|#include <ttrun/model.h>\n#include <ttrun/op.h>|' "$SRC/examples/mini/mini.c" >"$dir/mini.c"
cc -std=c11 -D_GNU_SOURCE -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/flaky.c" "-L$BUILD" -lttrun -lm -o "$dir/kernels/relu2.so" >"$dir/out" 2>&1 &&
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/mini.c" "-L$BUILD" -lttrun -lm -o "$dir/common/mini.so" >>"$dir/out" 2>&1
ok the_flaky_kernel_builds
job=$dir/mini.json
cat >"$job" <<JOB
{ "model": { "name": "mini" }, "dataloader": { "path": ["text.txt"] }, "checkpoint": { "enable": false },
  "training": { "local_batch_size": 4, "global_batch_size": 8, "seq_len": 64, "steps": 6 }, "metrics": { "log_freq": 1, "enable_tensorboard": false },
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
# how often the kernel is called in a step and in six
export FLAKY_FROM=1 FLAKY_TO=1
go first
[ "$rc" -eq 0 ] && ! same_as_sound first
ok a_wrong_bit_changes_the_losses
go first --debug.replay_interval 1
[ "$rc" -eq 0 ] && grep -q 'step 1 computed again from the same inputs has other bits in' "$dir/err" &&
    grep -q 'step 1: the second and the third run agree, and training goes on from them' "$dir/err" && same_as_sound first
ok a_bit_that_was_wrong_once_is_found_and_the_run_goes_on_right
go first --debug.replay_interval 2
[ "$rc" -eq 0 ] && ! grep -q 'computed again' "$dir/err" && ! same_as_sound first
ok a_step_that_is_not_computed_again_is_not_checked
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
    [ "$rc" -eq 0 ] && grep -q 'step 1: the second and the third run agree' "$dir/err" && same_as_sound "$what"
    ok "mesh_$what"
done <<LIST
fsdp --nproc 2
tp --nproc 2 --parallelism.tensor_parallel_degree 2
pp --nproc 2 --parallelism.pipeline_parallel_degree 2
recompute --activation_checkpoint.mode full
LIST
exit $failed
