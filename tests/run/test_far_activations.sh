#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# activation_checkpoint.offload on the backend "far": activations wait for the backward in pinned host memory, copied there and back by
# queues that run as late as the program's waits allow. The numbers are those of the backend "reference", where nothing is copied, to the bit.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
far="--plugin-dir $dir/far --backend.name far --comm.backend local"
! is_long || : "${SEEDS:=$(seq -s " " 20)}"
turn=0 # the seed of a job, but for the long tier

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl" >"$1.txt" && [ -s "$1.txt" ]
}

# same NAME OPTION…: with activations in host memory far has the numbers of the reference, for every seed.
same() {
    name=$1
    shift
    turn=$((turn + 1))
    set -- --training.steps 2 --training.seq_len 16 --checkpoint.interval 1000 --model.args.n_layers 4 "$@"
    train "$dir/$name" --backend.name reference "$@"
    [ "$rc" -eq 0 ] && numbers "$dir/$name"
    ok "reference_runs_$name"
    for seed in ${SEEDS:-$turn}; do
        # shellcheck disable=SC2086
        train "$dir/$name-far" $far --backend.seed "$seed" --activation_checkpoint.offload all "$@"
        [ "$rc" -eq 0 ] && numbers "$dir/$name-far" && cmp "$dir/$name.txt" "$dir/$name-far.txt" >>"$dir/err" 2>&1 &&
            grep -q 'activation_checkpoint.offload: [1-9][0-9]* activations' "$dir/err"
        ok "far_has_the_numbers_of_the_reference_${name}_seed_$seed"
        rm -rf "$dir/$name-far"
    done
}

p=--parallelism
mode=--activation_checkpoint.mode
valid="--validation.enable true --validation.freq 1 --validation.steps 2 --validation.dataloader.path $dir/text.txt"
pp="--nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4"
# shellcheck disable=SC2086
{
    same alone --metrics.lag 1 $valid
    same full $mode full --debug.capture off --metrics.lag 1
    same selective $mode selective --activation_checkpoint.store_dtype bfloat16 --training.global_batch_size 12
    same bf16_unfused --training.mixed_precision_param bfloat16 --debug.disable_fusion true
    same far_ahead --activation_checkpoint.offload_prefetch_n_layers 3 --training.enable_cpu_offload true --model.args.n_layers 6
    same budget --activation_checkpoint.offload_budget_gb 0.00008
    same float8 --converters '[{"name": "float8", "recipe": "rowwise"}]' $mode selective
    same poison --debug.poison true
    same detect_nan --debug.detect_nan true $mode full
    same fsdp --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on $valid
    same fsdp_full --nproc 2 $p.data_parallel_shard_degree 2 $mode full --debug.capture off --training.seq_len 64
    same hsdp --nproc 4 $p.data_parallel_shard_degree 2 $p.data_parallel_replicate_degree 2 --comm.overlap on --training.global_batch_size 32
    same tp --nproc 2 $p.tensor_parallel_degree 2 --metrics.lag 1
    same tp_async --nproc 2 $p.tensor_parallel_degree 2 $p.enable_async_tensor_parallel true --comm.overlap on $mode selective
    same cp_gather --nproc 2 $p.context_parallel_degree 2 $mode selective
    same cp_ring --nproc 2 $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring --debug.capture off
    same pp $pp --training.local_batch_size 8 $valid
    same pp_full $pp --training.local_batch_size 8 $mode full --training.seq_len 64 --metrics.lag 1
    same pp_poison $pp --training.local_batch_size 8 --debug.poison true
    same pp_interleaved $pp --training.local_batch_size 8 $p.pipeline_parallel_schedule Interleaved1F1B --model.args.n_layers 8
    same pp_zero_bubble $pp --training.local_batch_size 8 $p.pipeline_parallel_schedule ZBVZeroBubble --model.args.n_layers 8 --debug.capture off
    same pp_fsdp --nproc 4 $p.pipeline_parallel_degree 2 $p.data_parallel_shard_degree 2 $p.pipeline_parallel_microbatches 2 --comm.overlap on $mode selective
}

# joint NAME OPTION…: in mode budget with offload auto, where some is computed again and some is offloaded, far has the
# numbers that the reference has in mode none.
joint() {
    name=$1
    shift
    turn=$((turn + 1))
    set -- --training.steps 2 --training.seq_len 16 --checkpoint.interval 1000 --model.args.n_layers 6 "$@"
    train "$dir/$name" --backend.name reference "$@"
    [ "$rc" -eq 0 ] && numbers "$dir/$name"
    ok "reference_runs_$name"
    budgets="0 0.3" # in turn, but for the long tier
    is_long || { [ $((turn % 2)) -eq 0 ] && budgets=0 || budgets=0.3; }
    for budget in $budgets; do
        # shellcheck disable=SC2086
        train "$dir/$name-far" $far $mode budget --activation_checkpoint.offload auto --activation_checkpoint.memory_budget $budget "$@"
        [ "$rc" -eq 0 ] && numbers "$dir/$name-far" && cmp "$dir/$name.txt" "$dir/$name-far.txt" >>"$dir/err" 2>&1 &&
            grep -q 'activation_checkpoint.offload: [1-9][0-9]* activations' "$dir/err" && grep -q 'layers keep MiB host MiB copy ms' "$dir/err"
        ok "far_has_the_numbers_of_the_reference_${name}_$budget"
        rm -rf "$dir/$name-far"
    done
}
# shellcheck disable=SC2086
{
    joint joint --metrics.lag 1
    joint joint_bf16 --training.mixed_precision_param bfloat16 --training.global_batch_size 8 --debug.poison true
    joint joint_fsdp --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on --activation_checkpoint.offload_budget_gb 0.0001
    joint joint_pp $pp --training.local_batch_size 8
    joint joint_zero_bubble $pp --training.local_batch_size 8 --model.args.n_layers 10 $p.pipeline_parallel_schedule ZBVZeroBubble --debug.capture off
}

# A backend without a device, and a model without a layer whose copies something hides, say so.
train "$dir/host" --training.steps 1 --activation_checkpoint.offload all
[ "$rc" -eq 0 ] && grep -q 'activation_checkpoint.offload: backend .* computes in host memory' "$dir/err"
ok no_effect_on_a_host
# shellcheck disable=SC2086
train "$dir/one" $far --training.steps 1 --activation_checkpoint.offload all --model.args.n_layers 1
[ "$rc" -eq 0 ] && grep -q 'nothing is offloaded' "$dir/err"
ok one_layer_offloads_nothing
train "$dir/unknown" --activation_checkpoint.offload_hardware abacus
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'offload_hardware: unknown machine "abacus" (known: a100' "$dir/err"
ok an_unknown_machine_is_named
exit $failed
