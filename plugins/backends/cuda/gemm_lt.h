/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_GEMM_LT_H
#define TT_CUDA_GEMM_LT_H
#include "blaslt.h"
#include "gemm.h"
#include "module.h"
#include <pthread.h>

/* Between gemm_lt.c, which runs products, and gemm_plan.c, which describes them to cuBLASLt and
 * chooses algorithms. */

/* A kind of product: what the choice of an algorithm depends on. It has no padding and is compared
 * byte by byte. */
typedef struct cuda_blas_kind {
    int64_t m, n, k, batch, workspace;
    int32_t a_t, b_t;
    int32_t a_type, b_type, c_type, compute;
    int32_t align[3]; /* bytes that divide the addresses of A, B, C: at most 16 */
    int32_t zero;
} cuda_blas_kind;

typedef struct cuda_blas_plan {
    cuda_blas_kind of;
    bool usable; /* false: the library has no algorithm */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c; /* of our A, B, C */
    cublasLtMatmulAlgo_t algo;
} cuda_blas_plan;

struct cuda_blas {
    cuda_blaslt lt;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    char version[128]; /* of the library and the chip, for the cache */
    char folder[4096];
    pthread_mutex_t lock;
    cuda_blas_plan **plans; /* a hash table; NULL: free */
    size_t n_plans, n_slots;
};

/* TT_OK, or an error that names the function and the product (of may be NULL). */
tt_status cuda_blas_check(const struct cuda_blas *s, cublasStatus_t status, const char *function,
                          const cuda_blas_kind *of, tt_error *err);
tt_status cuda_blas_plan_make(const struct cuda_blas *s, const cuda_blas_kind *of,
                              cuda_blas_plan **out, tt_error *err);
void cuda_blas_plan_free(const struct cuda_blas *s, cuda_blas_plan *p);

#endif
