/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. The source of a copy on a stream is read when the copy runs, so who changes it earlier is found. */
#include "driver.h"
#include <string.h>

/* Is [p, p + n) memory that a copy may touch? Copies between devices need no peer access. */
static bool check_range(const void *p, size_t n, const char *what)
{
    if (fake_find(p, n))
        return true;
    fake_refuse(0, "%zu bytes %s %p: neither device nor pinned memory, or they end behind it", n,
                what, p);
    return false;
}

static int copy_on(void *stream, void *to, const void *from, size_t n)
{
    fake_stream *s = fake_stream_of(stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!n)
        return CUDA_SUCCESS;
    if (!check_range(to, n, "to") || !check_range(from, n, "from"))
        return CUDA_ERROR_INVALID_VALUE;
    const char *a = static_cast<const char *>(to), *b = static_cast<const char *>(from);
    if (a < b + n && b < a + n)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "a copy of %zu bytes onto itself: offset %td",
                           n, a - b);
    fake_add_run(s, "a copy", [=] {
        fake_open(-1);
        memcpy(to, from, n);
    });
    return CUDA_SUCCESS;
}

FAKE_API cuMemcpyAsync(void *to, const void *from, size_t n, void *stream)
{
    FAKE_ENTER;
    return copy_on(stream, to, from, n);
}
static int copy_kinds(void *stream, void *to, bool to_device, const void *from, bool from_device,
                      size_t n)
{
    const fake_memory *a = fake_find(to, n), *b = fake_find(from, n);
    if (n && a && b && ((a->device >= 0) != to_device || (b->device >= 0) != from_device))
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "a copy of %zu bytes: host and device memory are exchanged", n);
    return copy_on(stream, to, from, n);
}
FAKE_API cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, void *stream)
{
    FAKE_ENTER;
    return copy_kinds(stream, to, true, from, false, n);
}
FAKE_API cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, void *stream)
{
    FAKE_ENTER;
    return copy_kinds(stream, to, false, from, true, n);
}
FAKE_API cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t n, void *stream)
{
    FAKE_ENTER;
    return copy_kinds(stream, to, true, from, true, n);
}
FAKE_API cuMemcpyPeerAsync(void *to, void *to_context, const void *from, void *from_context,
                           size_t n, void *stream)
{
    FAKE_ENTER;
    const fake_memory *a = fake_find(to, n), *b = fake_find(from, n);
    if (a && b && n &&
        (a->device < 0 || fake_devices[static_cast<size_t>(a->device)].get() != to_context ||
         b->device < 0 || fake_devices[static_cast<size_t>(b->device)].get() != from_context))
        return fake_refuse(CUDA_ERROR_INVALID_CONTEXT,
                           "cuMemcpyPeerAsync: memory of another context");
    return copy_on(stream, to, from, n);
}

/* The functions that wait do their copy at once, before all that is pending: nothing orders them with other streams. The
 * host's side may be any memory. */
static int copy_now(void *to, bool to_device, const void *from, bool from_device, size_t n)
{
    const fake_memory *a = to_device ? fake_find(to, n) : nullptr,
                      *b = from_device ? fake_find(from, n) : nullptr;
    if (!fake_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (n && ((to_device && !a) || (from_device && !b)))
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "a copy of %zu bytes: no such device memory",
                           n);
    fake_open(-1);
    memmove(to, from, n);
    fake_close();
    return CUDA_SUCCESS;
}
FAKE_API cuMemcpyHtoD_v2(void *to, const void *from, size_t n)
{
    FAKE_ENTER;
    return copy_now(to, true, from, false, n);
}
FAKE_API cuMemcpyDtoH_v2(void *to, const void *from, size_t n)
{
    FAKE_ENTER;
    return copy_now(to, false, from, true, n);
}

/* ---- fills ---- */
static int fill_on(void *stream, void *to, const void *pattern, size_t width, size_t n)
{
    fake_stream *s = fake_stream_of(stream);
    unsigned bits = 0;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!n)
        return CUDA_SUCCESS;
    if (reinterpret_cast<uintptr_t>(to) % width)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "a fill of %zu-byte elements at %p", width,
                           to);
    if (n > SIZE_MAX / width || !check_range(to, n * width, "to"))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&bits, pattern, width);
    fake_add_run(s, "a fill", [=] {
        char *p = static_cast<char *>(to);
        for (size_t i = 0; i < n; i++, p += width)
            memcpy(p, &bits, width);
    });
    return CUDA_SUCCESS;
}
FAKE_API cuMemsetD8Async(void *to, unsigned char v, size_t n, void *stream)
{
    FAKE_ENTER;
    return fill_on(stream, to, &v, 1, n);
}
FAKE_API cuMemsetD16Async(void *to, unsigned short v, size_t n, void *stream)
{
    FAKE_ENTER;
    return fill_on(stream, to, &v, 2, n);
}
FAKE_API cuMemsetD32Async(void *to, unsigned v, size_t n, void *stream)
{
    FAKE_ENTER;
    return fill_on(stream, to, &v, 4, n);
}

/* A host function runs without the driver's lock; it may not call the driver, as with the real one. */
FAKE_API cuLaunchHostFunc(void *stream, void (*f)(void *), void *arg)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(stream);
    if (!s || !f)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_add(s, {FAKE_HOST, "a host function", [=] { f(arg); }, nullptr, nullptr, false});
    return CUDA_SUCCESS;
}
