/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, and who runs what is on them: a thread that waits. */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 60 };

std::recursive_mutex fake_lock;
static std::condition_variable_any changed;
static uint64_t n_changes; /* operations added or run: a waiting thread looks again */
static std::vector<std::unique_ptr<fake_stream>> streams;
static bool in_operation;

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

static void note_change()
{
    n_changes++;
    changed.notify_all();
}

fake_stream *fake_stream_new(int device, int priority)
{
    static int n_made;
    fake_stream *s = nullptr;
    for (auto &old : streams)
        if (!old->in_use && old->ops.empty() && !old->busy)
            s = old.get();
    if (!s) {
        streams.push_back(std::make_unique<fake_stream>());
        s = streams.back().get();
    }
    s->id = ++n_made;
    s->device = device;
    s->priority = priority;
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
    for (auto &s : streams)
        if (s.get() == handle && s->in_use)
            return s.get();
    return nullptr;
}

void fake_add(fake_stream *s, fake_op op)
{
    if (in_operation)
        fake_abort("%s: work is put on a stream from inside of an item", op.name.c_str());
    if (s->capture)
        s->capture->branches[s->branch].ops.push_back(std::move(op));
    else
        s->ops.push_back(std::move(op));
    note_change();
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

/* ---- running ---- */
static void finish(fake_ticket *t)
{
    t->done = true;
    t->seconds = fake_now();
}

/* The stream's device has failed: nothing runs any more, and nobody waits for it. */
static bool skip(fake_stream *s)
{
    const fake_op op = std::move(s->ops.front());
    s->ops.pop_front();
    if (op.ticket)
        finish(op.ticket.get());
    return true;
}

static bool step_item(fake_stream *s)
{
    fake_op &op = s->ops.front();
    fake_item *i = op.item.get();
    bool moved = false;
    in_operation = true;
    fake_open(-1);
    if (!op.arrived) {
        op.arrived = moved = true;
        if (i->at_head)
            i->at_head(i->arg);
    }
    const bool can = !i->ready || i->ready(i->arg);
    if (can) {
        i->run(i->arg);
        fake_check_edges(i->name);
        const fake_op over = std::move(s->ops.front());
        s->ops.pop_front();
    }
    in_operation = false;
    return moved || can;
}

static void run_host_function(fake_stream *s)
{
    s->busy = true;
    fake_close();
    const std::function<void()> run = s->ops.front().run;
    fake_lock.unlock();
    run();
    fake_lock.lock();
    s->busy = false;
    s->ops.pop_front();
}

/* Runs the operation at the head of the stream, if it can. */
static bool step(fake_stream *s)
{
    if (s->ops.empty() || s->busy)
        return false;
    fake_op &op = s->ops.front();
    if (fake_devices[static_cast<size_t>(s->device)]->failed)
        return skip(s);
    if (op.kind == FAKE_WAIT && !op.ticket->done)
        return false;
    if (op.kind == FAKE_ITEM)
        return step_item(s);
    if (op.kind == FAKE_HOST) {
        run_host_function(s);
        return true;
    }
    if (op.kind == FAKE_RECORD)
        finish(op.ticket.get());
    if (op.kind == FAKE_RUN) {
        in_operation = true;
        fake_open(s->device);
        op.run();
        in_operation = false;
    }
    s->ops.pop_front();
    return true;
}

static bool step_any()
{
    const size_t n = streams.size(), first = fake_draw(static_cast<unsigned>(n));
    for (size_t i = 0; i < n; i++)
        if (step(streams[(first + i) % n].get())) {
            n_changes++;
            return true;
        }
    return false;
}

/* A step that the ticket needs, as far as events tell; else any. */
static bool step_towards(const fake_ticket *t)
{
    for (int hops = 0; t && t->stream && hops < 64; hops++) {
        fake_stream *s = t->stream;
        if (step(s)) {
            n_changes++;
            return true;
        }
        t = !s->ops.empty() && s->ops.front().kind == FAKE_WAIT ? s->ops.front().ticket.get() : nullptr;
    }
    return step_any();
}

[[noreturn]] static void tell_deadlock()
{
    fprintf(stderr, "fake cuda: deadlock: nothing on any stream can run\n");
    int told = 0;
    for (auto &s : streams)
        if (!s->ops.empty() && told++ < MAX_MESSAGE) {
            const fake_op &op = s->ops.front();
            if (op.kind == FAKE_WAIT)
                fprintf(stderr, "  device %d, stream %d waits for an event of stream %d", s->device, s->id,
                        op.ticket->stream->id);
            else
                fprintf(stderr, "  device %d, stream %d is at %s", s->device, s->id,
                        op.item ? op.item->name : op.name.c_str());
            fprintf(stderr, ", %zu operations\n", s->ops.size());
        }
    fake_abort("deadlock");
}

/* Until `over`; the lock is held, once. */
static void drive(const std::function<bool()> &over, const fake_ticket *towards,
                  std::unique_lock<std::recursive_mutex> &lock)
{
    static const char *text = getenv("FAKE_CUDA_PATIENCE");
    static const int patience = text ? atoi(text) : 30;
    const bool lazy = towards && fake_seed() % 2 == 0;
    if (in_operation)
        fake_abort("an item waits for the driver");
    fake_watch_thread();
    while (!over()) {
        if (lazy ? step_towards(towards) : step_any())
            continue;
        fake_close();
        changed.notify_all();
        const uint64_t seen = n_changes;
        if (!changed.wait_for(lock, std::chrono::seconds(patience), [&] { return n_changes != seen || over(); }))
            tell_deadlock();
    }
    fake_close();
    changed.notify_all();
}

int fake_await(const fake_ticket_ref &t, std::unique_lock<std::recursive_mutex> &lock, int device)
{
    drive([&] { return t->done; }, t.get(), lock);
    return fake_devices[static_cast<size_t>(device)]->failed;
}

void fake_run_all()
{
    fake_watch_thread();
    while (step_any())
        continue;
    fake_close();
    changed.notify_all();
}

void fake_run_some()
{
    fake_watch_thread();
    if (fake_draw(2) && step_any()) {
        fake_close();
        changed.notify_all();
    }
}

/* ---- queue.h ---- */
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
FAKE_EXPORT int fake_queue_add(void *handle, const fake_item *item)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    fake_stream *s = fake_stream_of(handle);
    if (!s || !item || !item->name || !item->run)
        return fake_refuse(CUDA_ERROR_INVALID_HANDLE, "fake_queue_add: no stream, or an item without name or run");
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
    note_change();
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
    note_change();
}

/* ---- the API ---- */
FAKE_API cuStreamCreateWithPriority(fake_stream **out, unsigned flags, int priority)
{
    FAKE_ENTER;
    const fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 1)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "a stream without CU_STREAM_NON_BLOCKING: the fake's default "
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
        return fake_refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamSynchronize of a stream that is captured");
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
    for (auto &s : streams)
        if (s->device == d->ordinal && !s->capture && (s->in_use || !s->ops.empty()))
            tickets.push_back(fake_record(s.get()));
    for (const fake_ticket_ref &t : tickets)
        fake_await(t, lock, d->ordinal);
    return d->failed;
}
