/* SPDX-License-Identifier: Apache-2.0 */
/* Streams; and queue.h. */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

std::recursive_mutex fake_lock;
std::vector<std::unique_ptr<fake_stream>> &fake_streams =
    *new std::vector<std::unique_ptr<fake_stream>>;

uint64_t fake_seed()
{
    static const char *text = getenv("FAKE_CUDA_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

unsigned fake_draw(unsigned n)
{
    static uint64_t state = fake_seed() * 0x9e3779b97f4a7c15u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? static_cast<unsigned>(state >> 33) % n : 0;
}

fake_stream *fake_stream_new(int device, int priority)
{
    static int n_made;
    fake_stream *s = nullptr;
    for (auto &old : fake_streams)
        if (!old->in_use && old->ops.empty() && !old->busy)
            s = old.get();
    if (!s) {
        fake_streams.push_back(std::make_unique<fake_stream>());
        s = fake_streams.back().get();
    }
    s->id = ++n_made;
    s->device = device;
    s->priority = priority;
    s->turn = fake_draw(1u << 30);
    s->in_use = true;
    s->busy = false;
    s->capture.reset();
    s->branch = 0;
    return s;
}

fake_stream *fake_stream_of(void *handle)
{
    if (reinterpret_cast<uintptr_t>(handle) <= 1) {
        fake_device *d = fake_current();
        if (d && !d->legacy)
            d->legacy = fake_stream_new(d->ordinal, 0);
        return d ? d->legacy : nullptr;
    }
    for (auto &s : fake_streams)
        if (s.get() == handle && s->in_use)
            return s.get();
    return nullptr;
}

void fake_add(fake_stream *s, fake_op op)
{
    if (fake_in_operation())
        fake_abort("%s: work is put on a stream from inside of an item", op.name.c_str());
    if (s->capture)
        s->capture->branches[s->branch].ops.push_back(std::move(op));
    else
        s->ops.push_back(std::move(op));
    fake_note_change();
}
void fake_add_run(fake_stream *s, std::string name, std::function<void()> run)
{
    fake_add(s, {FAKE_RUN, std::move(name), std::move(run), nullptr, nullptr, false});
}

fake_ticket_ref fake_record(fake_stream *s)
{
    const fake_ticket_ref t = std::make_shared<fake_ticket>();
    t->stream = s;
    t->capture = s->capture ? s->capture->id : 0;
    fake_add(s, {FAKE_RECORD, "an event's record", nullptr, t, nullptr, false});
    return t;
}

/* ---- queue.h ---- */
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
FAKE_EXPORT int fake_queue_add(void *handle, const fake_item *item)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    fake_stream *s = fake_stream_of(handle);
    if (!s || !item || !item->name || !item->run)
        return fake_refuse(CUDA_ERROR_INVALID_HANDLE,
                           "fake_queue_add: no stream, or an item without name or run");
    if (fake_devices[static_cast<size_t>(s->device)]->failed)
        return fake_devices[static_cast<size_t>(s->device)]->failed;
    const std::shared_ptr<fake_item> shared(new fake_item(*item), [](fake_item *i) {
        if (i->release)
            i->release(i->arg);
        delete i;
    });
    fake_add(s, {FAKE_ITEM, item->name, nullptr, nullptr, shared, false});
    return CUDA_SUCCESS;
}
FAKE_EXPORT void fake_queue_wake(void)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    fake_note_change();
}
FAKE_EXPORT void fake_queue_lock(void)
{
    fake_lock.lock();
}
FAKE_EXPORT void fake_queue_unlock(void)
{
    fake_lock.unlock();
}
FAKE_EXPORT int fake_queue_device(void *handle)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    const fake_stream *s = fake_stream_of(handle);
    return s ? s->device : -1;
}
FAKE_EXPORT void fake_queue_fail(void *handle, int result)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    const fake_stream *s = fake_stream_of(handle);
    if (s)
        fake_devices[static_cast<size_t>(s->device)]->failed = result;
    fake_note_change();
}

/* ---- the API ---- */
FAKE_API cuStreamCreateWithPriority(fake_stream **out, unsigned flags, int priority)
{
    FAKE_ENTER;
    const fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 1)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "a stream without CU_STREAM_NON_BLOCKING: the fake's default "
                           "stream orders nothing else");
    *out = fake_stream_new(d->ordinal, priority);
    return CUDA_SUCCESS;
}
FAKE_API cuStreamCreate(fake_stream **out, unsigned flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}
/* What is on it is still run. */
FAKE_API cuStreamDestroy_v2(void *handle)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(handle);
    if (!s || !handle)
        return fake_refuse(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy of %p", handle);
    s->in_use = false;
    s->capture.reset();
    return CUDA_SUCCESS;
}
FAKE_API cuStreamGetPriority(void *handle, int *out)
{
    FAKE_ENTER;
    const fake_stream *s = fake_stream_of(handle);
    *out = s ? s->priority : 0;
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
FAKE_API cuStreamGetCtx(void *handle, void **out)
{
    FAKE_ENTER;
    const fake_stream *s = fake_stream_of(handle);
    *out = s ? fake_devices[static_cast<size_t>(s->device)].get() : nullptr;
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FAKE_API cuStreamSynchronize(void *handle)
{
    const int entered = fake_enter(__func__);
    if (entered)
        return entered;
    std::unique_lock<std::recursive_mutex> lock(fake_lock);
    fake_stream *s = fake_stream_of(handle);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return fake_refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                           "cuStreamSynchronize of a stream that is captured");
    return fake_await(fake_record(s), lock, s->device);
}
FAKE_API cuStreamQuery(void *handle)
{
    FAKE_ENTER;
    fake_stream *s = fake_stream_of(handle);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake_run_some();
    const int failed = fake_devices[static_cast<size_t>(s->device)]->failed;
    return failed ? failed : s->ops.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
FAKE_API cuCtxSynchronize(void)
{
    const int entered = fake_enter(__func__);
    if (entered)
        return entered;
    std::unique_lock<std::recursive_mutex> lock(fake_lock);
    const fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<fake_ticket_ref> tickets;
    for (auto &s : fake_streams)
        if (s->device == d->ordinal && !s->capture && (s->in_use || !s->ops.empty()))
            tickets.push_back(fake_record(s.get()));
    for (const fake_ticket_ref &t : tickets)
        fake_await(t, lock, d->ordinal);
    return d->failed;
}
