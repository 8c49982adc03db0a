/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_GEMM_H
#define TT_CUDA_GEMM_H
#include "cuda.h"

/* Products of matrices. gemm.c and grouped.c have the ops; gemm_lt.c computes products by cuBLASLt, and gemm_pins.c
 * keeps its choices of algorithms on disk; gemm_own.c computes them by the kernels of kernels/gemm.cu
 * and kernels/gemm_f32.cu, and those of experts, too. */

/* c[m,n] = A[m,k] B[k,n] for each of `batch`, or with `add` c += A B; rows follow each other without
 * gaps, and so do the matrices of a batch. a_t: A is stored as [k,m]; b_t: B is stored as [n,k]. An
 * operand is f32 or bf16; c is f32, or bf16 if both operands are. */
typedef struct cuda_product {
    int64_t m, n, k, batch;
    const void *a, *b;
    void *c;
    bool a_t, b_t, add;
    tt_dtype a_type, b_type, c_type;
} cuda_product;

/* ---- gemm.c ---- */
int cuda_product_supports(const tt_kernel_call *c);
/* Asks for the files of our own kernels, where they compute the product. */
void cuda_need_own_products(const tt_kernel_call *c, bool grouped);

/* ---- gemm_own.c ---- */
/* Any sizes and addresses. An element's bits depend on its row of A, its column of B and k alone. */
tt_status cuda_own_product(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                           tt_error *err);
/* Which rows of p belong to which expert; p.batch experts, whose weights p.b or p.c holds. */
typedef enum cuda_grouping {
    CUDA_BY_ROWS = 1, /* m are all rows: each row of A times the B of its expert; other rows: 0 */
    CUDA_BY_SUMS = 2  /* k are all rows: for each expert the sum over its rows */
} cuda_grouping;
/* counts: i32 on the device, one per expert. scratch: cuda_own_grouped_scratch(p.batch) bytes. */
tt_status cuda_own_grouped(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                           cuda_grouping how, const void *counts, void *scratch, tt_error *err);
size_t cuda_own_grouped_scratch(int64_t experts);

/* ---- gemm_lt.c ---- */
/* cuda_blas_open and the like: cuda.h. */
/* The workspace for a product with n results. b NULL: on the largest chip. */
size_t cuda_blas_workspace(const cuda_backend *b, int64_t n);
/* *done false: cuBLASLt has no algorithm for this product, nothing is on the queue. No size is 0. */
tt_status cuda_blas_product(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                            void *workspace, size_t workspace_bytes, bool *done, tt_error *err);

#endif
