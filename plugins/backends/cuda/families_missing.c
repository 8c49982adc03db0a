/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"
#include <stdio.h>

/* Stands for the families whose files are not there yet: the linker takes theirs where there are. */
#define MISSING(name) __attribute__((weak)) const tt_kernel name[] = {{0}};
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

__attribute__((weak)) tt_status cuda_blas_open(cuda_backend *b, tt_error *err)
{
    (void)b, (void)err;
    return TT_OK;
}
__attribute__((weak)) void cuda_blas_close(cuda_backend *b)
{
    (void)b;
}
__attribute__((weak)) void cuda_blas_describe(const cuda_backend *b, char *text, size_t size)
{
    (void)b;
    snprintf(text, size, "own products");
}
__attribute__((weak)) tt_status cuda_dnn_open(cuda_backend *b, tt_error *err)
{
    (void)b, (void)err;
    return TT_OK;
}
__attribute__((weak)) void cuda_dnn_close(cuda_backend *b)
{
    (void)b;
}
__attribute__((weak)) void cuda_dnn_describe(const cuda_backend *b, char *text, size_t size)
{
    (void)b;
    snprintf(text, size, "own attention");
}
__attribute__((weak)) void cuda_fused_close(cuda_backend *b)
{
    (void)b;
}
