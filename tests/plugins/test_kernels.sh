#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kernels of plugins: examples/relu2 brings an op and its kernel for the cpu backend. A model trained with the
# kernel has the losses that it has with the op's decomposition. Which kernel runs follows the order in <ttrun/kernels.h>.
. "$(dirname "$0")/../script.sh"
cd "$dir" || exit 1

plugin() { # SOURCE FOLDER
    mkdir -p "$2"
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$1" "-L$BUILD" -lttrun -lm -o "$2/$(basename "$1" .c).so"
}

# mini, its MLP's silu replaced by relu2
sed 's|tt_value \*h = tt_rms_norm|tt_value *g, *h = tt_rms_norm|
     s|h = tt_mul(b, tt_silu(b, tt_linear(b, h, "gate", F, NULL))|g = tt_linear(b, h, "gate", F, NULL); tt_op(b, "relu2", \&g, 1, NULL, \&g, 1); h = tt_mul(b, g|
     s|#include <ttrun/model.h>|#include <ttrun/model.h>\n#include <ttrun/op.h>|' "$SRC/examples/mini/mini.c" >mini.c
cp "$SRC/examples/relu2/relu2.c" relu2.c
sed '/TT_KIND_KERNELS/d; s/TT_COUNT(components_)/1/' relu2.c >bare.c
# the same kernel without the op; and one of the core's rms_norm that says that it ran
sed '/TT_KIND_OP/d; s/TT_PLUGIN("relu2"/TT_PLUGIN("other"/; s/TT_KIND_KERNELS, "relu2"/TT_KIND_KERNELS, "other"/' relu2.c >other.c
sed '/TT_KIND_OP/d; s/{sizeof(kernel), "relu2"/{sizeof(kernel), "rms_norm"/; s/TT_PLUGIN("relu2"/TT_PLUGIN("loud"/
     s/TT_KIND_KERNELS, "relu2"/TT_KIND_KERNELS, "loud"/; s/(void)backend, (void)err;/return TT_FAIL(err, TT_EINVAL, "loud ran");/' relu2.c >loud.c
sed 's/vt), "cpu"/vt), "cuda"/; s/"loud"/"far"/' loud.c >far.c
plugin mini.c common && plugin relu2.c with && mkdir without && plugin bare.c bare && mv bare/bare.so without/relu2.so &&
    plugin other.c others && plugin loud.c louds && plugin far.c louds && mkdir twice && cp others/other.so twice/other.so &&
    sed 's/"other"/"another"/' other.c >another.c && plugin another.c twice
ok plugin_with_kernels_builds

cat >job.json <<JOB
{"model": {"name": "mini"}, "dataloader": {"path": ["$SRC/include/ttrun/status.h"]}, "checkpoint": {"enable": false},
 "training": {"local_batch_size": 4, "seq_len": 64, "steps": 3}, "metrics": {"log_freq": 1, "enable_tensorboard": false},
 "comm": {"backend": "local"}, "backend": {"name": "cpu", "threads": 1}}
JOB
train() { # NAME FOLDER [OPTION...]: losses to NAME.loss
    name=$1 folder=$2
    shift 2
    "$TTRUN" -v --plugin-dir common --plugin-dir "$folder" --plugin-dir "$PLUGINS" job.json --dump_folder "run_$name" "$@" >out 2>err ||
        return 1
    grep -o '"loss":[0-9.]*' "run_$name/metrics.jsonl" >"$name.loss" && [ "$(wc -l <"$name.loss")" -eq 3 ]
}
near() { # A B: to 1e-5
    paste -d: "$1.loss" "$2.loss" | awk -F: '{d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) bad = 1} END {exit bad || NR != 3}'
}
train kernel with && grep -q 'op relu2: 2 nodes run on a kernel of a plugin' err
ok an_op_runs_on_the_kernel_of_its_own_file
grep -q '"kind":"kernels","name":"relu2"' run_kernel/run.json
ok run_json_names_the_kernels
train bare without && ! grep -q 'on a kernel' err && cmp -s kernel.loss bare.loss
ok the_decomposition_gives_the_same_losses
train reference with --backend.name reference && ! grep -q 'on a kernel' err && near kernel reference
ok another_backend_has_the_decomposition
train half with --training.mixed_precision_param bfloat16 && ! grep -q 'on a kernel' err
ok a_dtype_the_kernel_does_not_take_is_decomposed
train tp with --parallelism.tensor_parallel_degree 2 && grep -q 'on a kernel' err && near kernel tp
ok kernels_with_tensor_parallelism
train fsdp with --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 2 && near kernel fsdp
ok kernels_with_fsdp
train pp with --parallelism.pipeline_parallel_degree 2 && near kernel pp
ok kernels_with_a_pipeline

# an op without a derivative of its own has that of its decomposition, beside a kernel too: the losses are those of the decomposition alone
mkdir own && sed 's/infer, vjp, decompose/infer, NULL, decompose/; /^static void vjp/,/^}/d' relu2.c >own/relu2.c && plugin own/relu2.c own &&
    sed '/TT_KIND_KERNELS/d; s/TT_COUNT(components_)/1/' own/relu2.c >own/bare.c && plugin own/bare.c alone && mv alone/bare.so alone/relu2.so
while read -r run options; do
    train "own_$run" own $options && grep -q 'on a kernel' err && train "alone_$run" alone $options && ! grep -q 'on a kernel' err &&
        cmp "own_$run.loss" "alone_$run.loss" && near kernel "own_$run"
    ok "a_kernel_without_a_vjp_trains_as_the_decomposition_$run"
done <<LIST
plain
recomputed --activation_checkpoint.mode full
tp --parallelism.tensor_parallel_degree 2 --activation_checkpoint.mode full
LIST

# the binder's order
mv without/relu2.so others/relu2.so
train foreign others && grep -q 'on a kernel' err && cmp -s kernel.loss foreign.loss
ok a_kernel_from_another_file_where_there_is_none
cp others/relu2.so twice/relu2.so
train both twice
[ $? -ne 0 ] && grep -q 'op relu2 has a kernel for backend cpu in both kernels "a*n*other" .* name one of them in backend.kernels' err
ok two_kernels_are_an_error
train chosen twice --backend.kernels another && cmp -s kernel.loss chosen.loss && [ "$(grep -o '"kind":"kernels","name":"[a-z0-9]*"' run_chosen/run.json)" = '"kind":"kernels","name":"another"' ]
ok the_job_chooses
cp with/relu2.so louds/relu2.so
train quiet louds && cmp -s kernel.loss quiet.loss
ok the_backends_own_kernel_goes_before_a_plugins
train loud louds --backend.kernels loud
[ $? -ne 0 ] && grep -q 'loud ran' err
ok the_job_puts_a_plugins_kernel_first
train unknown louds --backend.kernels lout
[ $? -ne 0 ] && grep -q 'backend.kernels.*kernels "lout" is unknown; did you mean "loud"? Known: ' err
ok unknown_kernels_are_refused
train far louds --backend.kernels far
[ $? -ne 0 ] && grep -q 'backend.kernels.*: kernels "far" are for backend cuda, not cpu' err
ok kernels_of_another_backend_are_refused

# plugins check compares a kernel with the decomposition
check() { "$TTRUN" plugins check "$1" --plugin-dir "$PLUGINS" >out 2>err; }
check with/relu2.so && grep -q 'kernels relu2: relu2: losses after 3 steps: .* without these kernels' out && [ "$(grep -c '^ok ' out)" -eq 5 ]
ok check_compares_with_the_backend
mkdir wrong && sed 's/x\[i\] \* x\[i\] : 0/x[i] * x[i] * 1.01f : 0/' relu2.c >wrong/wrong.c && plugin wrong/wrong.c wrong
check wrong/wrong.so
[ $? -eq 2 ] && grep -q 'kernels relu2: the .* differs between these kernels and the backend without them\|with these kernels' err
ok check_finds_a_wrong_kernel
sed 's/{sizeof(kernel), "relu2"/{sizeof(kernel), "relu3"/' relu2.c >wrong/stray.c && plugin wrong/stray.c wrong
check wrong/stray.so
[ $? -eq 2 ] && grep -q 'a kernel of op relu3: op "relu3" is unknown' err
ok check_finds_a_kernel_of_no_op
sed 's/"cpu", &kernel, 1, sizeof(kernel)/"cpu", \&kernel, 1, 24/' relu2.c >wrong/stride.c && plugin wrong/stride.c wrong
check wrong/stride.so
[ $? -eq 2 ] && grep -q 'kernels "relu2": kernel_size 24 is not a size of tt_kernel' err
ok a_malformed_kernel_table_is_refused
# the core's own instructions, those between ranks too, are looked for in no plugin
printf '__attribute__((constructor)) static void opened(void) { write(2, "OPENED\\n", 7); }\n' | cat - other.c | sed '1i #include <unistd.h>' >watch.c &&
    plugin watch.c watch/models && echo '{ "model": { "flavor": "debugmodel" } }' >debug.json &&
    "$TTRUN" --plugin-dir "$PLUGINS" --plugin-dir watch debug.json \
        --dataloader.path "$SRC/README.md" --training.seq_len 32 --training.local_batch_size 1 --training.steps 1 --dump_folder watched \
        --checkpoint.enable false --nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2 >out 2>err &&
    ! grep -q OPENED err && "$TTRUN" plugins list --plugin-dir watch 2>&1 | grep -q OPENED
ok no_plugin_is_opened_for_the_cores_instructions
"$TTRUN" plugins new kernels relu2 >out 2>err && cmp relu2/relu2.c "$SRC/examples/relu2/relu2.c"
ok the_scaffold_is_the_example
exit $failed
