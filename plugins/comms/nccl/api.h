/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_NCCL_API_H
#define TT_NCCL_API_H
#include <stddef.h>
#include <ttrun/status.h>

/* The functions of libnccl.so.2 that this plugin calls, with prototypes of our own: no header of NVIDIA's
 * is needed to build it. tests/cuda/abi_nccl.c compares them with nccl.h where that is installed. */

#ifndef NCCL_OTHER_TYPES /* the test takes NVIDIA's */
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct nccl_settings ncclConfig_t;
#endif

/* NVIDIA's ncclConfig_t as it was in version 2.18, which later versions take. */
typedef struct nccl_settings {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} nccl_settings;

enum {
    NCCL_OLDEST = 21800, /* 2.18.0 */
    NCCL_MAGIC = (int)0xcafebeefu,
    NCCL_UNDEFINED = -2147483647 - 1,

    NCCL_SUCCESS = 0, /* ncclResult_t */
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_IN_PROGRESS = 7,

    NCCL_UINT8 = 1, /* ncclDataType_t */
    NCCL_INT32 = 2,
    NCCL_INT64 = 4,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,

    NCCL_SUM = 0, /* ncclRedOp_t */
    NCCL_MAX = 2
};

/* X(result, name, parameters) */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclResult_t, ncclGetVersion, (int *))                                                       \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *))                                             \
    X(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))                                      \
    X(ncclResult_t, ncclCommFinalize, (ncclComm_t))                                                \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t))                                                 \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t))                                                   \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))                           \
    X(const char *, ncclGetErrorString, (ncclResult_t))                                            \
    X(const char *, ncclGetLastError, (ncclComm_t))                                                \
    X(ncclResult_t, ncclGroupStart, (void))                                                        \
    X(ncclResult_t, ncclGroupEnd, (void))                                                          \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                       \
    X(ncclResult_t, ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))     \
    X(ncclResult_t, ncclAllGather,                                                                 \
      (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))                    \
    X(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))       \
    X(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))

/* Since 2.19; NULL where the library has them not. */
#define NCCL_OPTIONAL(X)                                                                           \
    X(ncclResult_t, ncclCommRegister, (const ncclComm_t, void *, size_t, void **))                 \
    X(ncclResult_t, ncclCommDeregister, (const ncclComm_t, void *))

typedef struct nccl_api {
#define NCCL_MEMBER(result, name, parameters) result(*name) parameters;
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_OPTIONAL(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl_api;
extern nccl_api nccl; /* of the process; filled by nccl_api_open */

/* Opens libnccl once per process. folder: searched first, or NULL. TT_ENOTFOUND says what was searched.
 * [any-thread] */
tt_status nccl_api_open(const char *folder, tt_error *err);
const char *nccl_api_describe(void); /* "2.28.9, /usr/lib/…/libnccl.so.2" */

#endif
