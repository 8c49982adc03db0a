/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

/* One launch of a kernel. */

enum { SHARED_WITHOUT_ASKING = 48 << 10 };

static tt_status launch_find(cuda_backend *b, cuda_kernel *k, CUkernel *out, tt_error *err)
{
    void *handle = __atomic_load_n(&k->handle, __ATOMIC_ACQUIRE);
    if (!handle) {
        TT_TRY(cuda_files_kernel(b, k->file, k->name, &handle, err));
        __atomic_store_n(&k->handle, handle, __ATOMIC_RELEASE);
    }
    *out = handle;
    return TT_OK;
}

/* More than 48 KiB of shared memory must be asked for, once per kernel and device. */
static tt_status launch_widen(const cuda_backend *b, cuda_kernel *k, CUkernel kernel, int shared,
                              tt_error *err)
{
    const uint64_t bit = b->device < 64 ? (uint64_t)1 << b->device : 0;
    if (__atomic_load_n(&k->wide, __ATOMIC_ACQUIRE) & bit)
        return TT_OK;
    TT_TRY(cuda_check(cu.cuKernelSetAttribute(CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              b->chip.shared_bytes, kernel, b->device),
                      err, "kernel %s: %d bytes of shared memory on device %d (%s)", k->name,
                      shared, b->device, b->chip.name));
    __atomic_fetch_or(&k->wide, bit, __ATOMIC_RELEASE);
    return TT_OK;
}

static tt_status launch_check(const cuda_backend *b, const cuda_kernel *k, const cuda_grid *g,
                              tt_error *err)
{
    if (g->x < 0 || g->y < 0 || g->z < 0 || g->x > INT32_MAX || g->y > UINT16_MAX ||
        g->z > UINT16_MAX)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "kernel %s: a grid of %lld × %lld × %lld blocks; at most %d × %d × %d are "
                       "possible",
                       k->name, (long long)g->x, (long long)g->y, (long long)g->z, INT32_MAX,
                       UINT16_MAX, UINT16_MAX);
    if (g->threads < 1 || g->threads > 1024)
        return TT_FAIL(err, TT_EINTERNAL, "kernel %s: %d threads per block; 1 to 1024 are possible",
                       k->name, g->threads);
    if (g->shared < 0 || g->shared > b->chip.shared_bytes)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "kernel %s: %d bytes of shared memory a block; %s has %d", k->name,
                       g->shared, b->chip.name, b->chip.shared_bytes);
    return TT_OK;
}

tt_status cuda_launch(cuda_backend *b, tt_device_queue *q, cuda_kernel *k, cuda_grid g,
                      void *const *params, tt_error *err)
{
    CUkernel kernel;
    TT_TRY(launch_check(b, k, &g, err));
    if (!g.x || !g.y || !g.z)
        return TT_OK;
    TT_TRY(launch_find(b, k, &kernel, err));
    if (g.shared > SHARED_WITHOUT_ASKING)
        TT_TRY(launch_widen(b, k, kernel, g.shared, err));
    return cuda_check(
        cu.cuLaunchKernel((CUfunction)(void *)kernel, (unsigned)g.x, (unsigned)g.y, (unsigned)g.z,
                          (unsigned)g.threads, 1, 1, (unsigned)g.shared, (CUstream)q,
                          (void **)(uintptr_t)params, NULL),
        err,
        "kernel %s of %s.cu: %lld × %lld × %lld blocks of %d threads with %d bytes of "
        "shared memory on device %d",
        k->name, k->file ? k->file : "generated", (long long)g.x, (long long)g.y, (long long)g.z,
        g.threads, g.shared, b->device);
}

tt_status cuda_zero(cuda_backend *b, tt_device_queue *q, void *p, size_t n, tt_error *err)
{
    if (!n)
        return TT_OK;
    return cuda_check(cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 0, n, (CUstream)q), err,
                      "cuMemsetD8Async of %zu bytes at %p on device %d", n, p, b->device);
}

tt_status cuda_copy(cuda_backend *b, tt_device_queue *q, void *to, const void *from, size_t n,
                    tt_error *err)
{
    if (!n || to == from)
        return TT_OK;
    return cuda_check(
        cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, n, (CUstream)q),
        err, "cuMemcpyAsync of %zu bytes from %p to %p on device %d", n, from, to, b->device);
}
