#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs on the backend "cuda" over the driver and the libraries of tests/fake, which run the kernels on the host: losses near those of the
# backend "reference", and equal to the bit whatever the order of queues, blocks and warps (FAKE_CUDA_SEED).
. "$(dirname "$0")/cuda.sh"

same alone 2e-6
cp "$dir/losses-$seed" "$dir/losses-in-time"
same late 2e-6 --metrics.lag 1
cmp "$dir/losses-in-time" "$dir/losses-$seed" >>"$dir/err" 2>&1 && [ -s "$dir/losses-$seed" ]
ok metrics_lag_changes_no_bit
same bf16 5e-3 --training.mixed_precision_param bfloat16
mine="--backend.gemm own --backend.attention own"
same own_products 2e-6
same own_bf16 5e-3 --training.mixed_precision_param bfloat16
mine="--backend.attention cudnn --backend.deterministic false"
same any_order 5e-3 --training.mixed_precision_param bfloat16
mine=
same accumulate 2e-6 --training.global_batch_size 12
same recompute 2e-6 --activation_checkpoint.mode full
same unfused 2e-6 --debug.disable_fusion true
same documents 2e-6 --dataloader.document_mask true
same fsdp 2e-6 --nproc 2 $p.data_parallel_shard_degree 2
same tp 2e-6 --nproc 2 $p.tensor_parallel_degree 2
same pp 2e-6 --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
same cp_ring 2e-6 --nproc 2 $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring

# Initial values have the bits of the host's, and are drawn by the device: learning rate 0 keeps them.
weights() { # FOLDER OPTION...
    folder=$1
    shift
    train "$folder" "$@" --training.steps 1 --optimizer.lr 0 --checkpoint.last_save_model_only true && [ "$rc" -eq 0 ] &&
        find "$folder" -name '*.safetensors' | sort | xargs cat | cksum
}
i=0
for mesh in "" "--training.dtype bfloat16" "--nproc 2 $p.data_parallel_shard_degree 2" "--nproc 2 $p.tensor_parallel_degree 2"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    host=$(weights "$dir/host-$i" --backend.name reference $mesh) && device=$(weights "$dir/device-$i" $cuda $mesh) && [ "$host" = "$device" ]
    ok "initial_values_have_the_hosts_bits_$i"
done
FAKE_CUDA_FAIL=kernel.tt_initial:1=700
export FAKE_CUDA_FAIL
# shellcheck disable=SC2086
train "$dir/no-initial" $cuda --training.steps 1
unset FAKE_CUDA_FAIL
[ "$rc" -ne 0 ] && grep -q 'CUDA error 700' "$dir/err"
ok "the_device_draws_initial_values"

# Nothing is compiled in a step: a job that only starts leaves the kernels of one that trains and validates.
compiled() { find "$dir/cubin" -name "*.cubin" -exec grep -l ELF {} + | sort >"$1"; } # choices of cuBLASLt are no code
n=0
for extra in "" "--backend.gemm own --backend.attention own --training.mixed_precision_param bfloat16" "--nproc 2 $p.tensor_parallel_degree 2"; do
    n=$((n + 1))
    rm -rf "$dir/cubin"
    extra="$extra --validation.enable true --validation.freq 2 --validation.steps 1 --validation.dataloader.path $dir/text.txt"
    # shellcheck disable=SC2086
    train "$dir/start-$n" $cuda --backend.cache "$dir/cubin" --training.steps 0 $extra
    [ "$rc" -eq 0 ] && compiled "$dir/before" && [ -s "$dir/before" ]
    ok "a_start_compiles_what_job_${n}_needs"
    # shellcheck disable=SC2086
    train "$dir/steps-$n" $cuda --backend.cache "$dir/cubin" --training.steps 3 $extra
    [ "$rc" -eq 0 ] && compiled "$dir/after" && cmp "$dir/before" "$dir/after" >>"$dir/err" 2>&1
    ok "no_step_of_job_${n}_compiles"
    [ $n -ne 2 ] && continue
    grep -rqF attention_dq_64 "$dir/cubin" && ! grep -rqE 'attention_dq_128|attention_plain_dq|scan_parts|expert_order' "$dir/cubin"
    ok "files_of_kernels_that_no_op_needs_are_not_compiled"
done
exit $failed
