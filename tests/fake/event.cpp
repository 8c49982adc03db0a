/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

enum { DISABLE_TIMING = 2 };

static std::set<fake_event *> &events = *new std::set<fake_event *>;

static fake_event *event_of(void *handle)
{
    const auto i = events.find(static_cast<fake_event *>(handle));
    if (i != events.end())
        return *i;
    fake_refuse(0, "%p is no event", handle);
    return nullptr;
}

FAKE_API cuEventCreate(fake_event **out, unsigned flags)
{
    FAKE_ENTER;
    const fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = new fake_event{nullptr, flags, d->ordinal};
    events.insert(*out);
    return CUDA_SUCCESS;
}
FAKE_API cuEventDestroy_v2(void *handle)
{
    FAKE_ENTER;
    fake_event *e = event_of(handle);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    events.erase(e);
    delete e;
    return CUDA_SUCCESS;
}
FAKE_API cuEventRecord(void *handle, void *stream)
{
    FAKE_ENTER;
    fake_event *e = event_of(handle);
    fake_stream *s = fake_stream_of(stream);
    if (!e || !s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->device != s->device)
        return fake_refuse(CUDA_ERROR_INVALID_HANDLE,
                           "an event of device %d is recorded on a stream of device %d", e->device,
                           s->device);
    e->last = fake_record(s);
    return CUDA_SUCCESS;
}
FAKE_API cuEventRecordWithFlags(void *handle, void *stream, unsigned)
{
    return cuEventRecord(handle, stream);
}

/* In a capture, a stream that waits for a captured event is captured from then on, too. */
FAKE_API cuStreamWaitEvent(void *stream, void *handle, unsigned)
{
    FAKE_ENTER;
    fake_event *e = event_of(handle);
    fake_stream *s = fake_stream_of(stream);
    if (!e || !s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!e->last)
        return CUDA_SUCCESS;
    const uint64_t of = e->last->capture, own = s->capture ? s->capture->id : 0;
    if (own && own != of)
        return fake_refuse(
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            "a stream that is captured waits for an event that is not of this capture");
    if (of && !own) {
        const std::shared_ptr<fake_capture> &c = e->last->stream->capture;
        if (!c || c->id != of)
            return fake_refuse(CUDA_ERROR_CAPTURED_EVENT,
                               "a wait for an event of a capture that has ended");
        s->capture = c;
        s->branch = c->branches.size();
        c->branches.push_back({s, s->device, {}});
    }
    fake_add(s, {FAKE_WAIT, "a wait for an event", nullptr, e->last, nullptr, false});
    return CUDA_SUCCESS;
}

FAKE_API cuEventQuery(void *handle)
{
    FAKE_ENTER;
    const fake_event *e = event_of(handle);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!e->last)
        return CUDA_SUCCESS;
    if (e->last->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    fake_run_some();
    const int failed = fake_devices[static_cast<size_t>(e->device)]->failed;
    return failed ? failed : e->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
FAKE_API cuEventSynchronize(void *handle)
{
    const int entered = fake_enter(__func__);
    if (entered)
        return entered;
    std::unique_lock<std::recursive_mutex> lock(fake_lock);
    const fake_event *e = event_of(handle);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!e->last)
        return CUDA_SUCCESS;
    if (e->last->capture)
        return fake_refuse(CUDA_ERROR_CAPTURED_EVENT,
                           "cuEventSynchronize of an event of a capture");
    const fake_ticket_ref ticket = e->last;
    const int device = e->device;
    return fake_await(ticket, lock, device);
}
FAKE_API cuEventElapsedTime_v2(float *ms, void *from, void *to)
{
    FAKE_ENTER;
    const fake_event *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->last || !b->last || ((a->flags | b->flags) & DISABLE_TIMING))
        return fake_refuse(CUDA_ERROR_INVALID_HANDLE,
                           "cuEventElapsedTime of events that have no time");
    if (a->last->capture || b->last->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!a->last->done || !b->last->done)
        return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>((b->last->seconds - a->last->seconds) * 1e3);
    return CUDA_SUCCESS;
}
FAKE_API cuEventElapsedTime(float *ms, void *from, void *to)
{
    return cuEventElapsedTime_v2(ms, from, to);
}
