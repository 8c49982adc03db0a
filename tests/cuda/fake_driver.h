/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the fake driver and of the fake NVRTC, for tests: opened from $BUILD/tests/fake/lib. */
#ifndef TT_TESTS_CUDA_FAKE_DRIVER_H
#define TT_TESTS_CUDA_FAKE_DRIVER_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FAKE_FUNCTIONS(F)                                                                          \
    F(cuInit, (unsigned))                                                                          \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                    \
    F(cuCtxSetCurrent, (void *))                                                                   \
    F(cuCtxSynchronize, (void))                                                                    \
    F(cuCtxEnablePeerAccess, (void *, unsigned))                                                   \
    F(cuDeviceGetAttribute, (int *, int, int))                                                     \
    F(cuGetErrorName, (int, const char **))                                                        \
    F(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))                          \
    F(cuMemAlloc_v2, (void **, size_t))                                                            \
    F(cuMemFree_v2, (void *))                                                                      \
    F(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    F(cuMemFreeHost, (void *))                                                                     \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    F(cuMemcpyAsync, (void *, const void *, size_t, void *))                                       \
    F(cuMemcpyHtoD_v2, (void *, const void *, size_t))                                             \
    F(cuMemcpyDtoH_v2, (void *, const void *, size_t))                                             \
    F(cuMemsetD32Async, (void *, unsigned, size_t, void *))                                        \
    F(cuStreamCreateWithPriority, (void **, unsigned, int))                                        \
    F(cuStreamDestroy_v2, (void *))                                                                \
    F(cuStreamSynchronize, (void *))                                                               \
    F(cuStreamQuery, (void *))                                                                     \
    F(cuStreamWaitEvent, (void *, void *, unsigned))                                               \
    F(cuStreamBeginCapture_v2, (void *, int))                                                      \
    F(cuStreamEndCapture, (void *, void **))                                                       \
    F(cuEventCreate, (void **, unsigned))                                                          \
    F(cuEventDestroy_v2, (void *))                                                                 \
    F(cuEventRecord, (void *, void *))                                                             \
    F(cuEventQuery, (void *))                                                                      \
    F(cuEventSynchronize, (void *))                                                                \
    F(cuEventElapsedTime, (float *, void *, void *))                                               \
    F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                          \
    F(cuGraphLaunch, (void *, void *))                                                             \
    F(cuGraphDestroy, (void *))                                                                    \
    F(cuGraphExecDestroy, (void *))                                                                \
    F(cuLaunchHostFunc, (void *, void (*)(void *), void *))                                        \
    F(cuLibraryLoadData,                                                                           \
      (void **, const void *, void *, void *, unsigned, void *, void *, unsigned))                 \
    F(cuLibraryUnload, (void *))                                                                   \
    F(cuLibraryGetKernel, (void **, void *, const char *))                                         \
    F(cuKernelSetAttribute, (int, int, void *, int))                                               \
    F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                       unsigned, void *, void **, void **))                                        \
    F(fake_inject, (const char *, int, int))                                                       \
    F(fake_queue_add, (void *, const void *))
#define FAKE_NVRTC_FUNCTIONS(F)                                                                    \
    F(nvrtcCreateProgram,                                                                          \
      (void **, const char *, const char *, int, const char *const *, const char *const *))        \
    F(nvrtcCompileProgram, (void *, int, const char *const *))                                     \
    F(nvrtcGetCUBINSize, (void *, size_t *))                                                       \
    F(nvrtcGetCUBIN, (void *, char *))                                                             \
    F(nvrtcGetProgramLogSize, (void *, size_t *))                                                  \
    F(nvrtcGetProgramLog, (void *, char *))                                                        \
    F(nvrtcDestroyProgram, (void **))

#define FAKE_FIELD(name, arguments) int(*name) arguments;
static struct {
    FAKE_FUNCTIONS(FAKE_FIELD)
    FAKE_NVRTC_FUNCTIONS(FAKE_FIELD)
} fake;

static inline void *fake_library(const char *file)
{
    char path[4096];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/fake/lib/%s", build ? build : "build/release", file);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return h;
}
static inline void fake_symbol(void *library, const char *name, void *out)
{
    *(void **)out = dlsym(library, name);
    if (!*(void **)out) {
        fprintf(stderr, "no function %s\n", name);
        abort();
    }
}
#define FAKE_GET(name, arguments) fake_symbol(library, #name, &fake.name);
static inline void fake_load(void)
{
    void *library = fake_library("libcuda.so.1");
    FAKE_FUNCTIONS(FAKE_GET)
}
static inline void fake_load_nvrtc(void)
{
    void *library = fake_library("libnvrtc.so.13");
    FAKE_NVRTC_FUNCTIONS(FAKE_GET)
}

#endif
