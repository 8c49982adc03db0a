/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_RTC_H
#define TT_CUDA_RTC_H
#include <stddef.h>

/* The functions of NVRTC that rtc.c calls, with prototypes of our own; tests/cuda/abi.c compares
 * them with NVIDIA's header where it is installed. */

#ifndef CUDA_RTC_OTHER_TYPES
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
#endif

/* X(name, parameters): each returns nvrtcResult */
#define CUDA_RTC_RESULTS(X)                                                                        \
    X(nvrtcVersion, (int *, int *))                                                                \
    X(nvrtcGetNumSupportedArchs, (int *))                                                          \
    X(nvrtcGetSupportedArchs, (int *))                                                             \
    X(nvrtcCreateProgram,                                                                          \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    X(nvrtcDestroyProgram, (nvrtcProgram *))                                                       \
    X(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))                               \
    X(nvrtcGetPTXSize, (nvrtcProgram, size_t *))                                                   \
    X(nvrtcGetPTX, (nvrtcProgram, char *))                                                         \
    X(nvrtcGetCUBINSize, (nvrtcProgram, size_t *))                                                 \
    X(nvrtcGetCUBIN, (nvrtcProgram, char *))                                                       \
    X(nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))                                            \
    X(nvrtcGetProgramLog, (nvrtcProgram, char *))
#define CUDA_RTC_FUNCTIONS(X) CUDA_RTC_RESULTS(X) X(nvrtcGetErrorString, (nvrtcResult))

typedef struct cuda_rtc {
#define CUDA_RTC_MEMBER(name, parameters) nvrtcResult(*name) parameters;
    CUDA_RTC_RESULTS(CUDA_RTC_MEMBER)
#undef CUDA_RTC_MEMBER
    const char *(*nvrtcGetErrorString)(nvrtcResult);
} cuda_rtc;

#endif
