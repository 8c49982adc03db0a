#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs on the backend "cuda" over the driver and the libraries of tests/fake, which run the kernels on the host: losses near those of the
# backend "reference", and equal to the bit whatever the order of queues, blocks and warps (FAKE_CUDA_SEED).
. "$(dirname "$0")/cuda.sh"

same alone 2e-6
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
exit $failed
