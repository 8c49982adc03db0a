/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_DRIVER_H
#define TT_CUDA_DRIVER_H
#include "cuda.h"

/* The functions of the driver, libcuda.so.1, that this plugin calls, with prototypes of our own; the
 * names are those that the library exports. tests/cuda/abi.c compares them with NVIDIA's header
 * where it is installed. */

#ifndef CUDA_DRIVER_OTHER_TYPES /* the test takes NVIDIA's */
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUstreamCaptureMode;
typedef int CUjit_option;
typedef int CUlibraryOption;
typedef unsigned long long CUdeviceptr;
typedef struct {
    char bytes[16];
} CUuuid;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
#endif

/* Values of NVIDIA's enums. */
enum {
    CUDA_SUCCESS_ = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_INVALID_PTX = 218,
    CUDA_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_SYSTEM_DRIVER_MISMATCH = 803,
};
enum { /* CUdevice_attribute */
       CUDA_ATTRIBUTE_CLOCK_RATE = 13,
       CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       CUDA_ATTRIBUTE_COMPUTE_MODE = 20,
       CUDA_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
       CUDA_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
       CUDA_ATTRIBUTE_L2_CACHE_SIZE = 38,
       CUDA_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
       CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CUDA_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};
enum {
    CUDA_COMPUTEMODE_PROHIBITED = 2,
    CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CUDA_MEMHOSTALLOC_PORTABLE = 1,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DEFAULT = 0,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* X(name, parameters) */
#define CUDA_DRIVER_FUNCTIONS(X)                                                                   \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (CUresult, const char **))                                                   \
    X(cuGetErrorString, (CUresult, const char **))                                                 \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                    \
    X(cuDeviceGetName, (char *, int, CUdevice))                                                    \
    X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                   \
    X(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                    \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned))                                                \
    X(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                                          \
    X(cuCtxGetStreamPriorityRange, (int *, int *))                                                 \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    X(cuMemFree_v2, (CUdeviceptr))                                                                 \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                 \
    X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                             \
    X(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                 \
    X(cuStreamCreateWithPriority, (CUstream *, unsigned, int))                                     \
    X(cuStreamDestroy_v2, (CUstream))                                                              \
    X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                            \
    X(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                    \
    X(cuStreamEndCapture, (CUstream, CUgraph *))                                                   \
    X(cuEventCreate, (CUevent *, unsigned))                                                        \
    X(cuEventDestroy_v2, (CUevent))                                                                \
    X(cuEventRecord, (CUevent, CUstream))                                                          \
    X(cuEventQuery, (CUevent))                                                                     \
    X(cuEventSynchronize, (CUevent))                                                               \
    X(cuEventElapsedTime, (float *, CUevent, CUevent))                                             \
    X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                   \
    X(cuGraphLaunch, (CUgraphExec, CUstream))                                                      \
    X(cuGraphExecDestroy, (CUgraphExec))                                                           \
    X(cuGraphDestroy, (CUgraph))                                                                   \
    X(cuLibraryLoadData, (CUlibrary *, const void *, CUjit_option *, void **, unsigned,            \
                          CUlibraryOption *, void **, unsigned))                                   \
    X(cuLibraryUnload, (CUlibrary))                                                                \
    X(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *))                                   \
    X(cuLibraryGetModule, (CUmodule *, CUlibrary))                                                 \
    X(cuKernelSetAttribute, (CUfunction_attribute, int, CUkernel, CUdevice))                       \
    X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                       unsigned, CUstream, void **, void **))

typedef struct cuda_driver {
#define CUDA_DRIVER_MEMBER(name, parameters) CUresult(*name) parameters;
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
} cuda_driver;
extern cuda_driver cu; /* of the process; filled by cuda_driver_open */

/* Opens the driver and initialises it, once per process. TT_ENOTFOUND: there is none, or no GPU.
 * [any-thread] */
tt_status cuda_driver_open(const char *folder, tt_error *err);
int cuda_driver_version(void);      /* 13000: CUDA 13.0 */
int cuda_driver_device_count(void); /* at least 1 */

/* TT_OK, or an error: what was tried, then the driver's name and words for r. */
tt_status cuda_check(CUresult r, tt_error *err, const char *fmt, ...) TT_PRINTF(3, 4);

#endif
