/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include <stdio.h>
#include <string.h>

/* tt_device_vt: memory, queues, events, copies, capture. */

static CUdeviceptr device_address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

/* ---- memory ---- */

static tt_status device_alloc(void *self, size_t bytes, void **out, tt_error *err)
{
    const cuda_backend *b = self;
    CUdeviceptr p = 0;
    const CUresult r = cu.cuMemAlloc_v2(&p, bytes);
    if ((int)r == CUDA_OUT_OF_MEMORY) {
        size_t left = 0, all = 0;
        cu.cuMemGetInfo_v2(&left, &all);
        return TT_FAIL(err, TT_ENOMEM,
                       "device %d (%s) has no room for %zu bytes (%.2f GiB): %zu of %zu bytes are "
                       "free",
                       b->device, b->chip.name, bytes, (double)bytes / (1 << 30), left, all);
    }
    TT_TRY(cuda_check(r, err, "cuMemAlloc of %zu bytes on device %d", bytes, b->device));
    *out = (void *)(uintptr_t)p;
    return TT_OK;
}

static void device_free(void *self, void *p)
{
    (void)self;
    if (p)
        cu.cuMemFree_v2(device_address(p));
}

static tt_status device_alloc_pinned(void *self, size_t bytes, void **out, tt_error *err)
{
    const cuda_backend *b = self;
    void *p = NULL;
    const CUresult r = cu.cuMemHostAlloc(&p, bytes, CUDA_MEMHOSTALLOC_PORTABLE);
    if ((int)r == CUDA_OUT_OF_MEMORY)
        return TT_FAIL(err, TT_ENOMEM,
                       "no %zu bytes (%.2f GiB) of pinned host memory for device %d: look at free "
                       "-h and ulimit -l",
                       bytes, (double)bytes / (1 << 30), b->device);
    TT_TRY(cuda_check(r, err, "cuMemHostAlloc of %zu bytes", bytes));
    *out = p;
    return TT_OK;
}

static void device_free_pinned(void *self, void *p)
{
    (void)self;
    if (p)
        cu.cuMemFreeHost(p);
}

static tt_status device_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes,
                               tt_error *err)
{
    const cuda_backend *b = self;
    size_t left = 0, all = 0;
    TT_TRY(
        cuda_check(cu.cuMemGetInfo_v2(&left, &all), err, "cuMemGetInfo of device %d", b->device));
    *free_bytes = left;
    *total_bytes = all;
    return TT_OK;
}

static tt_status device_enter(void *self, tt_error *err)
{
    const cuda_backend *b = self;
    if (!b || b->is_target)
        return TT_FAIL(err, TT_EINVAL, "cuda: enter: there is no device");
    return cuda_check(cu.cuCtxSetCurrent(b->context), err, "cuCtxSetCurrent to device %d",
                      b->device);
}

/* ---- queues and events ---- */

static tt_status device_queue_new(void *self, int urgent, tt_device_queue **out, tt_error *err)
{
    const cuda_backend *b = self;
    int least = 0, greatest = 0; /* the greatest priority is the smallest number */
    CUstream stream = NULL;
    TT_TRY(cuda_check(cu.cuCtxGetStreamPriorityRange(&least, &greatest), err,
                      "cuCtxGetStreamPriorityRange"));
    TT_TRY(cuda_check(
        cu.cuStreamCreateWithPriority(&stream, CUDA_STREAM_NON_BLOCKING, urgent ? greatest : least),
        err, "cuStreamCreateWithPriority on device %d", b->device));
    *out = (tt_device_queue *)stream;
    return TT_OK;
}

static void device_queue_free(void *self, tt_device_queue *q)
{
    (void)self;
    if (q)
        cu.cuStreamDestroy_v2((CUstream)q);
}

static tt_status device_event_new(void *self, int timed, tt_device_event **out, tt_error *err)
{
    const cuda_backend *b = self;
    CUevent event = NULL;
    TT_TRY(
        cuda_check(cu.cuEventCreate(&event, timed ? CUDA_EVENT_DEFAULT : CUDA_EVENT_DISABLE_TIMING),
                   err, "cuEventCreate on device %d", b->device));
    *out = (tt_device_event *)event;
    return TT_OK;
}

static void device_event_free(void *self, tt_device_event *e)
{
    (void)self;
    if (e)
        cu.cuEventDestroy_v2((CUevent)e);
}

static tt_status device_record(void *self, tt_device_event *e, tt_device_queue *q, tt_error *err)
{
    (void)self;
    return cuda_check(cu.cuEventRecord((CUevent)e, (CUstream)q), err, "cuEventRecord");
}

static tt_status device_wait(void *self, tt_device_queue *q, tt_device_event *e, tt_error *err)
{
    (void)self;
    return cuda_check(cu.cuStreamWaitEvent((CUstream)q, (CUevent)e, 0), err, "cuStreamWaitEvent");
}

static tt_status device_sync(void *self, tt_device_event *e, tt_error *err)
{
    const cuda_backend *b = self;
    return cuda_check(cu.cuEventSynchronize((CUevent)e), err,
                      "work on a queue of rank %d, device %d (%s)", b->rank, b->device,
                      b->chip.name);
}

static int device_done(void *self, tt_device_event *e)
{
    (void)self;
    return (int)cu.cuEventQuery((CUevent)e) != CUDA_NOT_READY;
}

static tt_status device_seconds(void *self, tt_device_event *from, tt_device_event *to, double *out,
                                tt_error *err)
{
    float ms = 0;
    (void)self;
    TT_TRY(cuda_check(cu.cuEventElapsedTime(&ms, (CUevent)from, (CUevent)to), err,
                      "cuEventElapsedTime"));
    *out = 1e-3 * (double)ms;
    return TT_OK;
}

/* ---- copies ---- */

static tt_status device_copy(void *self, tt_device_queue *q, void *to, const void *from,
                             size_t bytes, tt_error *err)
{
    return cuda_copy(self, q, to, from, bytes, err);
}

static tt_status device_fill(void *self, tt_device_queue *q, void *to, uint32_t pattern,
                             size_t bytes, tt_error *err)
{
    const unsigned char *byte = (const unsigned char *)&pattern;
    const CUstream stream = (CUstream)q;
    const CUdeviceptr at = device_address(to);
    const bool even = byte[0] == byte[1] && byte[1] == byte[2] && byte[2] == byte[3];
    (void)self;
    if (even && bytes)
        return cuda_check(cu.cuMemsetD8Async(at, byte[0], bytes, stream), err,
                          "cuMemsetD8Async of %zu bytes at %p", bytes, to);
    const size_t words = at % 4 ? 0 : bytes / 4;
    if (words)
        TT_TRY(cuda_check(cu.cuMemsetD32Async(at, pattern, words, stream), err,
                          "cuMemsetD32Async of %zu words at %p", words, to));
    for (size_t i = 4 * words; i < bytes; i++)
        TT_TRY(cuda_check(cu.cuMemsetD8Async(at + i, byte[i % 4], 1, stream), err,
                          "cuMemsetD8Async of byte %zu at %p", i, to));
    return TT_OK;
}

/* ---- capture ---- */

static tt_status device_capture_begin(void *self, tt_device_queue *q, tt_error *err)
{
    (void)self;
    return cuda_check(cu.cuStreamBeginCapture_v2((CUstream)q, CUDA_STREAM_CAPTURE_MODE_RELAXED),
                      err, "cuStreamBeginCapture");
}

static tt_status device_capture_end(void *self, tt_device_queue *q, tt_device_graph **out,
                                    tt_error *err)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    (void)self;
    TT_TRY(cuda_check(cu.cuStreamEndCapture((CUstream)q, &graph), err, "cuStreamEndCapture"));
    const tt_status s =
        cuda_check(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), err, "cuGraphInstantiate");
    cu.cuGraphDestroy(graph);
    if (s == TT_OK)
        *out = (tt_device_graph *)exec;
    return s;
}

static tt_status device_launch(void *self, tt_device_graph *g, tt_device_queue *q, tt_error *err)
{
    (void)self;
    return cuda_check(cu.cuGraphLaunch((CUgraphExec)g, (CUstream)q), err, "cuGraphLaunch");
}

static void device_graph_free(void *self, tt_device_graph *g)
{
    (void)self;
    if (g)
        cu.cuGraphExecDestroy((CUgraphExec)g);
}

/* The current context of this thread is self's. */
static int device_reaches(void *self, void *other)
{
    const cuda_backend *a = self, *b = other;
    int can = 0;
    if (a->is_target || b->is_target)
        return 0;
    if (a->device == b->device)
        return 1; /* ranks of one process share the device's primary context */
    if ((int)cu.cuDeviceCanAccessPeer(&can, a->device, b->device) != CUDA_SUCCESS_ || !can)
        return 0;
    const int r = (int)cu.cuCtxEnablePeerAccess(b->context, 0);
    return r == CUDA_SUCCESS_ || r == CUDA_PEER_ACCESS_ALREADY_ENABLED;
}

static tt_status device_identity(void *self, unsigned char *out, tt_error *err)
{
    const cuda_backend *b = self;
    CUuuid id;
    TT_TRY(cuda_check(cu.cuDeviceGetUuid_v2(&id, b->device), err, "cuDeviceGetUuid"));
    memcpy(out, &id, 16);
    return TT_OK;
}

const tt_device_vt cuda_device_vt = {.struct_size = sizeof(tt_device_vt),
                                     .alignment = 256,
                                     .alloc = device_alloc,
                                     .free = device_free,
                                     .alloc_pinned = device_alloc_pinned,
                                     .free_pinned = device_free_pinned,
                                     .memory = device_memory,
                                     .enter = device_enter,
                                     .queue_new = device_queue_new,
                                     .queue_free = device_queue_free,
                                     .event_new = device_event_new,
                                     .event_free = device_event_free,
                                     .record = device_record,
                                     .wait = device_wait,
                                     .sync = device_sync,
                                     .done = device_done,
                                     .seconds = device_seconds,
                                     .copy = device_copy,
                                     .fill = device_fill,
                                     .capture_begin = device_capture_begin,
                                     .capture_end = device_capture_end,
                                     .launch = device_launch,
                                     .graph_free = device_graph_free,
                                     .reaches = device_reaches,
                                     .identity = device_identity};
