#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs on the backend "far" (tests/plugins/far), whose memory the host cannot read and whose queues run as late as the program's waits
# allow, in an order drawn from a seed: the numbers of every job are those of the backend "reference", whose kernels it runs, to the bit.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
far="--plugin-dir $dir/far --backend.name far"
! is_long || : "${SEEDS:=$(seq -s " " 20)}"

# In the long tier every seed and both communicators; else one of each for a job, in turn.
turn=0

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl" >"$1.txt" && [ -s "$1.txt" ]
}

# same NAME OPTION…: on far the job's numbers are those of the reference, for every seed, with the communicators in COMMS, or else
# with copies between the rank-threads' memory (local) and with far's.
same() {
    name=$1
    shift
    turn=$((turn + 1))
    set -- --training.steps 2 --training.seq_len 16 --checkpoint.interval 1000 "$@"
    train "$dir/$name" --backend.name reference "$@"
    [ "$rc" -eq 0 ] && numbers "$dir/$name"
    ok "reference_runs_$name"
    comms=local
    case "$*" in
    *--nproc*)
        [ $((turn % 2)) -eq 0 ] || comms=far
        ! is_long || comms="local far"
        comms=${COMMS:-$comms} ;;
    esac
    for comm in $comms; do
        for seed in ${SEEDS:-$turn}; do
            train "$dir/$name-far" $far --backend.seed "$seed" --comm.backend "$comm" "$@"
            [ "$rc" -eq 0 ] && numbers "$dir/$name-far" && cmp "$dir/$name.txt" "$dir/$name-far.txt" >>"$dir/err" 2>&1
            ok "far_has_the_numbers_of_the_reference_${name}_${comm}_seed_$seed"
            rm -rf "$dir/$name-far"
        done
    done
}

p=--parallelism
same alone
same bf16 --training.mixed_precision_param bfloat16
same accumulate --training.global_batch_size 12
same recompute --activation_checkpoint.mode full
same selective --activation_checkpoint.mode selective --activation_checkpoint.store_dtype bfloat16
same unfused --debug.disable_fusion true
same chunks --training.seq_len 64 --debug.poison true
same tied --model.args.tie_embeddings true
same ddp --nproc 2 $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 1
same fsdp --nproc 2 $p.data_parallel_shard_degree 2
same fsdp_overlap --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on --training.global_batch_size 8
same fsdp3 --nproc 3 $p.data_parallel_shard_degree 3
same tp --nproc 2 $p.tensor_parallel_degree 2
same tp_async --nproc 2 $p.tensor_parallel_degree 2 $p.enable_async_tensor_parallel true --comm.overlap on
same cp_gather --nproc 2 $p.context_parallel_degree 2
same cp_ring --nproc 2 $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring
same cp_ulysses --nproc 2 $p.context_parallel_degree 2 $p.context_parallel_rotate_method ulysses
same pp --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
same pp_zero_bubble --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4 $p.pipeline_parallel_schedule ZBVZeroBubble --model.args.n_layers 4
same fsdp_tp --nproc 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
same pp_fsdp_overlap --nproc 4 $p.pipeline_parallel_degree 2 $p.data_parallel_shard_degree 2 $p.pipeline_parallel_microbatches 2 --comm.overlap on
same offload --training.enable_cpu_offload true --model.args.n_layers 5
same offload_bf16 --training.enable_cpu_offload true --training.dtype bfloat16 --training.global_batch_size 8
same offload_fsdp --training.enable_cpu_offload true --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on
same offload_pp_tied --training.enable_cpu_offload true --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4 --model.args.tie_embeddings true
same float8 --converters '[{"name": "float8"}]' --training.mixed_precision_param bfloat16 --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on --model.args.n_layers 1
same rowwise_tp --converters '[{"name": "float8", "recipe": "rowwise"}]' --nproc 2 $p.tensor_parallel_degree 2 --model.args.n_layers 1
same offload_mxfp8 --converters '[{"name": "mxfp8"}]' --training.enable_cpu_offload true --training.global_batch_size 8 --model.args.n_layers 1
same detect_nan --debug.detect_nan true
# Processes, and devices that do not reach each other: through the host's communicator.
COMMS=shm
same processes --nproc 2 $p.data_parallel_shard_degree 2
same processes_pp --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
COMMS=local
far="$far --backend.peers false"
same apart --nproc 3 $p.data_parallel_shard_degree 3
exit $failed
