/* SPDX-License-Identifier: Apache-2.0 */
/* Compares plugins/backends/cuda/blaslt.h with NVIDIA's header, when it is compiled:
 * tests/cuda/test_abi.sh. */
#include <cublasLt.h>
#define CUDA_BLASLT_OTHER_TYPES
#include "blaslt.h"

#define SAME_FUNCTION(result, name, parameters)                                                    \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&(name)), result(*) parameters),        \
                   #name " has other parameters");
CUDA_BLASLT_FUNCTIONS(SAME_FUNCTION)

#define SAME_VALUE(ours, theirs)                                                                   \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs);
SAME_VALUE(BLASLT_SUCCESS, CUBLAS_STATUS_SUCCESS)
SAME_VALUE(BLASLT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED)
SAME_VALUE(BLASLT_COMPUTE_32F, CUBLAS_COMPUTE_32F)
SAME_VALUE(BLASLT_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
SAME_VALUE(BLASLT_R_32F, CUDA_R_32F)
SAME_VALUE(BLASLT_R_16BF, CUDA_R_16BF)
SAME_VALUE(BLASLT_OP_N, CUBLAS_OP_N)
SAME_VALUE(BLASLT_OP_T, CUBLAS_OP_T)
SAME_VALUE(BLASLT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA)
SAME_VALUE(BLASLT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB)
SAME_VALUE(BLASLT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
SAME_VALUE(BLASLT_LAYOUT_STRIDED_BATCH_OFFSET, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
SAME_VALUE(BLASLT_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME_VALUE(BLASLT_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
SAME_VALUE(BLASLT_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME_VALUE(BLASLT_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SAME_VALUE(BLASLT_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SAME_VALUE(BLASLT_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
SAME_VALUE(BLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)

/* our layouts of what is no opaque pointer */
typedef struct our_algo {
    uint64_t data[8];
} our_algo;
typedef struct our_result {
    our_algo algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
} our_result;
SAME_VALUE(sizeof(our_algo), sizeof(cublasLtMatmulAlgo_t))
SAME_VALUE(sizeof(our_result), sizeof(cublasLtMatmulHeuristicResult_t))
#define SAME_PLACE(member)                                                                         \
    SAME_VALUE(offsetof(our_result, member), offsetof(cublasLtMatmulHeuristicResult_t, member))
SAME_PLACE(algo)
SAME_PLACE(workspaceSize)
SAME_PLACE(state)
SAME_PLACE(wavesCount)
SAME_PLACE(reserved)
SAME_VALUE(sizeof(cublasStatus_t), sizeof(int))
SAME_VALUE(sizeof(cublasComputeType_t), sizeof(int))
SAME_VALUE(sizeof(cudaDataType_t), sizeof(int))
