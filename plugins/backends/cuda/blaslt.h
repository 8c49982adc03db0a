/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_BLASLT_H
#define TT_CUDA_BLASLT_H
#include <stddef.h>
#include <stdint.h>

/* What this plugin calls of cuBLASLt, libcublasLt.so.13 or .12, with prototypes of our own. The names
 * are those that the library exports. tests/cuda/abi_blaslt.c compares them with NVIDIA's header
 * where it is installed. */

#ifndef CUDA_BLASLT_OTHER_TYPES /* the test takes NVIDIA's */
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtDesc *cublasLtMatmulDesc_t;
typedef struct cublasLtLayout *cublasLtMatrixLayout_t;
typedef struct cublasLtPreference *cublasLtMatmulPreference_t;
typedef struct CUstream_st *cudaStream_t;
/* Plain data: equal bytes mean the same algorithm to the same version of the library. */
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

/* Values of NVIDIA's enums. */
enum {
    BLASLT_SUCCESS = 0,
    BLASLT_NOT_SUPPORTED = 15,
    BLASLT_COMPUTE_32F = 68, /* exact f32 products, f32 sums; bf16 operands are exact in it */
    BLASLT_COMPUTE_32F_FAST_TF32 = 77, /* f32 operands are rounded to tf32 */
    BLASLT_R_32F = 0,
    BLASLT_R_16BF = 14,
    BLASLT_OP_N = 0,
    BLASLT_OP_T = 1,
    BLASLT_DESC_TRANSA = 3, /* cublasLtMatmulDescAttributes_t; values are int32_t */
    BLASLT_DESC_TRANSB = 4,
    BLASLT_LAYOUT_BATCH_COUNT = 5,          /* int32_t */
    BLASLT_LAYOUT_STRIDED_BATCH_OFFSET = 6, /* int64_t, elements */
    BLASLT_PREF_MAX_WORKSPACE_BYTES = 1,    /* uint64_t */
    BLASLT_PREF_REDUCTION_SCHEME_MASK = 3,  /* uint32_t */
    BLASLT_PREF_MIN_ALIGNMENT_A_BYTES = 5,  /* uint32_t */
    BLASLT_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    BLASLT_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    BLASLT_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    BLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
};

/* X(result, name, parameters) */
#define CUDA_BLASLT_FUNCTIONS(X)                                                                   \
    X(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t *))                                        \
    X(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t))                                         \
    X(size_t, cublasLtGetVersion, (void))                                                          \
    X(const char *, cublasLtGetStatusString, (cublasStatus_t))                                     \
    X(cublasStatus_t, cublasLtMatmulDescCreate,                                                    \
      (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t))                               \
    X(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t))                           \
    X(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                              \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))                \
    X(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                  \
      (cublasLtMatrixLayout_t *, cudaDataType_t, uint64_t, uint64_t, int64_t))                     \
    X(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t))                       \
    X(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                            \
      (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t))             \
    X(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *))              \
    X(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t))               \
    X(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                        \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t))    \
    X(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                              \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,            \
       cublasLtMatmulHeuristicResult_t *, int *))                                                  \
    X(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                     \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,               \
       cublasLtMatmulHeuristicResult_t *))                                                         \
    X(cublasStatus_t, cublasLtMatmul,                                                              \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,   \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,               \
       cudaStream_t))

typedef struct cuda_blaslt {
#define CUDA_BLASLT_MEMBER(result, name, parameters) result(*name) parameters;
    CUDA_BLASLT_FUNCTIONS(CUDA_BLASLT_MEMBER)
#undef CUDA_BLASLT_MEMBER
} cuda_blaslt;

#endif
