/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_CUDA_NO_FAMILIES_H
#define TT_TESTS_CUDA_NO_FAMILIES_H
#include "../../plugins/backends/cuda/cuda.h"
#include "../../plugins/backends/cuda/program.h"
#include <stdio.h>

/* For tests of the host side alone: a plugin without a family of kernels. */
#define MISSING(name) const tt_kernel name[] = {{0}};
MISSING(cuda_kernels_extra)
MISSING(cuda_kernels_pointwise)
MISSING(cuda_kernels_fused)
MISSING(cuda_kernels_shape)
MISSING(cuda_kernels_random)
MISSING(cuda_kernels_norm)
MISSING(cuda_kernels_softmax)
MISSING(cuda_kernels_reduce)
MISSING(cuda_kernels_rope)
MISSING(cuda_kernels_index)
MISSING(cuda_kernels_scan)
MISSING(cuda_kernels_attention)
MISSING(cuda_kernels_gemm)
MISSING(cuda_kernels_experts)
MISSING(cuda_kernels_grouped)
MISSING(cuda_kernels_dispatch)
MISSING(cuda_kernels_codes)
MISSING(cuda_kernels_delta_rule)
MISSING(cuda_kernels_eigenbasis)

tt_status cuda_blas_open(cuda_backend *b, tt_error *err)
{
    (void)b, (void)err;
    return TT_OK;
}
void cuda_blas_close(cuda_backend *b)
{
    (void)b;
}
void cuda_blas_describe(const cuda_backend *b, char *text, size_t size)
{
    (void)b;
    snprintf(text, size, "own products");
}
tt_status cuda_dnn_open(cuda_backend *b, tt_error *err)
{
    (void)b, (void)err;
    return TT_OK;
}
void cuda_dnn_close(cuda_backend *b)
{
    (void)b;
}
void cuda_dnn_describe(const cuda_backend *b, char *text, size_t size)
{
    (void)b;
    snprintf(text, size, "own attention");
}
tt_status cuda_program_prepare(cuda_backend *b, tt_error *err)
{
    (void)b, (void)err;
    return TT_OK;
}
void cuda_fused_close(cuda_backend *b)
{
    (void)b;
}

#endif
