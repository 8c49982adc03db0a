/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "base/pages.h"
#include <string.h>

/* Each function calls the device's, guarded as every call of a plugin is; on the host it acts itself. */

#define CALL(d, name, ...)                                                                         \
    TT_PLUGIN_CALL((d)->vt->name((d)->backend, __VA_ARGS__, err), err, "device", #name)

tt_device tt_device_of(const tt_backend_vt *vt, void *backend)
{
    return (tt_device){TT_HAS(vt, tt_backend_vt, device) ? vt->device : NULL, backend};
}

int64_t tt_device_alignment(const tt_backend_vt *vt)
{
    const tt_device d = tt_device_of(vt, NULL);
    return d.vt ? (int64_t)d.vt->alignment : TT_ALIGNMENT;
}

bool tt_comm_is_of_device(const tt_comm_vt *vt)
{
    return TT_HAS(vt, tt_comm_vt, device_memory) && vt->device_memory;
}

/* ---- memory ---- */

static tt_status map_memory(size_t bytes, void **out, tt_error *err)
{
    void *p = tt_pages_new(bytes);
    if (!p)
        return TT_FAIL(err, TT_ENOMEM, "cannot map %.2f GiB", (double)bytes / (1 << 30));
    *out = p;
    return TT_OK;
}

tt_status tt_device_alloc(const tt_device *d, size_t bytes, void **out, tt_error *err)
{
    return d->vt ? CALL(d, alloc, bytes, out) : map_memory(bytes, out, err);
}

void tt_device_free(const tt_device *d, void *p, size_t bytes)
{
    if (p && d->vt)
        d->vt->free(d->backend, p);
    else
        tt_pages_free(p, bytes);
}

tt_status tt_device_alloc_pinned(const tt_device *d, size_t bytes, void **out, tt_error *err)
{
    return d->vt ? CALL(d, alloc_pinned, bytes, out) : map_memory(bytes, out, err);
}

void tt_device_clear_pinned(void *p, size_t bytes)
{
    memset(p, 0, bytes);
}

void tt_device_free_pinned(const tt_device *d, void *p, size_t bytes)
{
    if (p && d->vt)
        d->vt->free_pinned(d->backend, p);
    else
        tt_pages_free(p, bytes);
}

tt_status tt_device_memory(const tt_device *d, uint64_t *left, uint64_t *all, tt_error *err)
{
    TT_ASSERT(d->vt);
    return CALL(d, memory, left, all);
}

/* ---- queues and events ---- */

tt_status tt_device_enter(const tt_device *d, tt_error *err)
{
    return d->vt ? TT_PLUGIN_CALL(d->vt->enter(d->backend, err), err, "device", "enter") : TT_OK;
}

tt_status tt_device_queue_new(const tt_device *d, bool urgent, tt_device_queue **out, tt_error *err)
{
    *out = NULL;
    return d->vt ? CALL(d, queue_new, urgent, out) : TT_OK;
}

void tt_device_queue_free(const tt_device *d, tt_device_queue *q)
{
    if (q)
        d->vt->queue_free(d->backend, q);
}

tt_status tt_device_event_new(const tt_device *d, bool timed, tt_device_event **out, tt_error *err)
{
    *out = NULL;
    return d->vt ? CALL(d, event_new, timed, out) : TT_OK;
}

void tt_device_event_free(const tt_device *d, tt_device_event *e)
{
    if (e)
        d->vt->event_free(d->backend, e);
}

tt_status tt_device_record(const tt_device *d, tt_device_event *e, tt_device_queue *q,
                           tt_error *err)
{
    return d->vt ? CALL(d, record, e, q) : TT_OK;
}

tt_status tt_device_wait(const tt_device *d, tt_device_queue *q, tt_device_event *e, tt_error *err)
{
    return d->vt ? CALL(d, wait, q, e) : TT_OK;
}

tt_status tt_device_sync(const tt_device *d, tt_device_event *e, tt_error *err)
{
    return d->vt ? CALL(d, sync, e) : TT_OK;
}

tt_status tt_device_seconds(const tt_device *d, tt_device_event *from, tt_device_event *to,
                            double *out, tt_error *err)
{
    *out = 0;
    return d->vt ? CALL(d, seconds, from, to, out) : TT_OK;
}

/* ---- graphs ---- */

bool tt_device_captures(const tt_device *d)
{
    return d->vt && TT_HAS(d->vt, tt_device_vt, graph_free) && d->vt->capture_begin &&
           d->vt->capture_end && d->vt->launch && d->vt->graph_free;
}

tt_status tt_device_capture_begin(const tt_device *d, tt_device_queue *q, tt_error *err)
{
    return CALL(d, capture_begin, q);
}

tt_status tt_device_capture_end(const tt_device *d, tt_device_queue *q, tt_device_graph **out,
                                tt_error *err)
{
    *out = NULL;
    return CALL(d, capture_end, q, out);
}

tt_status tt_device_launch(const tt_device *d, tt_device_graph *g, tt_device_queue *q,
                           tt_error *err)
{
    return CALL(d, launch, g, q);
}

void tt_device_graph_free(const tt_device *d, tt_device_graph *g)
{
    if (g)
        d->vt->graph_free(d->backend, g);
}

/* ---- bytes ---- */

tt_status tt_device_copy(const tt_device *d, tt_device_queue *q, void *to, const void *from,
                         size_t bytes, tt_error *err)
{
    if (!bytes || to == from)
        return TT_OK;
    if (d->vt)
        return CALL(d, copy, q, to, from, bytes);
    memmove(to, from, bytes);
    return TT_OK;
}

#define MOST_AT_ONCE ((size_t)32 << 10) /* stays in a cache */

/* What is there is copied behind itself, twice as much each time. */
static void fill_host(void *to, uint32_t pattern, size_t bytes)
{
    char *p = to;
    size_t n = TT_MIN(bytes, sizeof pattern);
    if (!pattern) {
        memset(to, 0, bytes);
        return;
    }
    memcpy(p, &pattern, n);
    for (size_t more; n < bytes; n += more) {
        more = TT_MIN(TT_MIN(n, MOST_AT_ONCE), bytes - n);
        memcpy(p + n, p, more);
    }
}

tt_status tt_device_fill(const tt_device *d, tt_device_queue *q, void *to, uint32_t pattern,
                         size_t bytes, tt_error *err)
{
    if (!bytes)
        return TT_OK;
    if (d->vt)
        return CALL(d, fill, q, to, pattern, bytes);
    fill_host(to, pattern, bytes);
    return TT_OK;
}
