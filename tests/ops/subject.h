/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_SUBJECT_H
#define TT_TESTS_OPS_SUBJECT_H
#include "base/pool.h"
#include "tensors.h"

/* A backend under test. Its operands are tensors in host memory. If the backend has a device, each
 * call works on copies of them in device memory: every operand lies between guard bytes, aligned as the
 * plan aligns it or, if `tight`, to one element only. */

#define SUBJECT_GUARD 64
#define SUBJECT_GUARD_BYTE 0xa5
#define SUBJECT_OPERANDS 600

typedef struct subject {
    const char *name;
    const tt_backend_vt *vt;
    void *self[2]; /* of 1 and 2 threads; of a device both are one */
    tt_pool *pool[2];
    bool tight;
    uint64_t random; /* of the addresses */
    tt_device_queue *queue;
    tt_device_event *event;
    char *memory, *pinned; /* of `room` bytes; pinned: room to send and to receive */
    size_t room;
} subject;

#define SUBJECT_OK(call)                                                                           \
    do {                                                                                           \
        if ((call) != TT_OK)                                                                       \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static inline void subject_open(subject *u, const char *name, const void *config)
{
    tt_error err = {0};
    *u = (subject){.name = name, .vt = backend_load(name), .random = 77};
    for (int t = 0; t < 2; t++) {
        const tt_backend_env env = {
            .struct_size = sizeof env, .n_threads = t + 1, .world = 1, .local_world = 1};
        SUBJECT_OK(tt_pool_new(t + 1, &u->pool[t], &err));
        if (t == 0 || u->vt->device == NULL)
            SUBJECT_OK(u->vt->open(config, &env, &u->self[t], &err));
        else
            u->self[1] = u->self[0];
    }
    if (u->vt->device == NULL)
        return;
    SUBJECT_OK(u->vt->device->enter(u->self[0], &err));
    SUBJECT_OK(u->vt->device->queue_new(u->self[0], 0, &u->queue, &err));
    SUBJECT_OK(u->vt->device->event_new(u->self[0], 0, &u->event, &err));
}

static inline void subject_free_memory(subject *u)
{
    if (u->room == 0)
        return;
    u->vt->device->free(u->self[0], u->memory);
    u->vt->device->free_pinned(u->self[0], u->pinned);
    u->room = 0;
}

static inline void subject_close(subject *u)
{
    if (u->vt->device != NULL) {
        subject_free_memory(u);
        u->vt->device->event_free(u->self[0], u->event);
        u->vt->device->queue_free(u->self[0], u->queue);
    }
    for (int t = 0; t < 2; t++) {
        if (t == 0 || u->vt->device == NULL)
            u->vt->close(u->self[t]);
        tt_pool_free(u->pool[t]);
    }
}

/* Where each operand of a call lies in device memory. Operands with one host address are one. */
typedef struct subject_place {
    void *host;
    size_t bytes, at; /* at: from the begin of the memory */
    bool is_out, is_scratch;
} subject_place;
typedef struct subject_image {
    subject_place places[SUBJECT_OPERANDS];
    int n;
    size_t end;
} subject_image;

static inline int subject_put(subject *u, subject_image *m, const void *host, size_t bytes,
                              size_t element)
{
    for (int i = 0; i < m->n; i++)
        if (m->places[i].host == host && host != NULL)
            return i;
    assert_true(m->n < SUBJECT_OPERANDS);
    const size_t whole = u->vt->device->alignment;
    size_t at = (m->end + SUBJECT_GUARD + whole - 1) / whole * whole;
    if (u->tight && element > 0)
        at += element * (size_t)(eval_uniform(&u->random) * 17);
    m->places[m->n] = (subject_place){(void *)(uintptr_t)host, bytes, at, false, element == 0};
    m->end = at + bytes + SUBJECT_GUARD;
    return m->n++;
}

static inline void subject_reserve(subject *u, size_t bytes)
{
    tt_error err = {0};
    if (bytes <= u->room)
        return;
    subject_free_memory(u);
    u->room = bytes * 2;
    SUBJECT_OK(u->vt->device->alloc(u->self[0], u->room, (void **)&u->memory, &err));
    SUBJECT_OK(u->vt->device->alloc_pinned(u->self[0], 2 * u->room, (void **)&u->pinned, &err));
}

static inline size_t subject_bytes(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

/* Scratch is NaN: it holds nothing yet. */
static inline void subject_write_image(const subject_image *m, char *to)
{
    memset(to, SUBJECT_GUARD_BYTE, m->end);
    for (int i = 0; i < m->n; i++) {
        const subject_place *p = &m->places[i];
        if (p->is_scratch)
            memset(to + p->at, 0xff, p->bytes);
        else if (p->bytes > 0)
            memcpy(to + p->at, p->host, p->bytes);
    }
}

/* Fetches what the outputs have become. Nothing else but scratch may have changed. */
static inline void subject_read_image(const subject_image *m, const char *from, const char *op)
{
    size_t at = 0;
    for (int i = 0; i <= m->n; i++) {
        const size_t until = i < m->n ? m->places[i].at : m->end;
        for (; at < until; at++)
            if ((unsigned char)from[at] != SUBJECT_GUARD_BYTE)
                fail_msg(
                    "%s: wrote %lld bytes behind operand %d, or %lld before the next", op,
                    (long long)(i > 0 ? at - m->places[i - 1].at - m->places[i - 1].bytes : at),
                    i - 1, (long long)(until - at));
        if (i == m->n)
            break;
        const subject_place *p = &m->places[i];
        if (p->is_out && p->bytes > 0)
            memcpy(p->host, from + p->at, p->bytes);
        else if (!p->is_scratch && p->bytes > 0 && memcmp(p->host, from + p->at, p->bytes) != 0)
            fail_msg("%s: changed its operand %d", op, i);
        at += p->bytes;
    }
}

static inline void subject_run_on_device(subject *u, const tt_kernel *k, const tt_kernel_call *c)
{
    const tt_device_vt *d = u->vt->device;
    tt_tensor in[SUBJECT_OPERANDS], out[TT_MAX_OUTS];
    subject_image m = {.n = 0};
    tt_kernel_call call = *c;
    tt_error err = {0};
    int place_of[SUBJECT_OPERANDS], scratch = -1, seed = -1, step = -1;
    for (int i = 0; i < c->n_in; i++)
        place_of[i] = subject_put(u, &m, c->in[i].data, subject_bytes(&c->in[i]),
                                  tt_dtype_size(c->in[i].dtype));
    if (c->seed != NULL) {
        seed = subject_put(u, &m, c->seed, sizeof *c->seed, 8);
        step = subject_put(u, &m, c->step, sizeof *c->step, 8);
    }
    int out_place[TT_MAX_OUTS];
    for (int i = 0; i < c->n_out; i++) {
        out_place[i] = subject_put(u, &m, c->out[i].data, subject_bytes(&c->out[i]),
                                   tt_dtype_size(c->out[i].dtype));
        m.places[out_place[i]].is_out = true;
    }
    if (c->scratch_bytes > 0)
        scratch = subject_put(u, &m, NULL, c->scratch_bytes, 0);
    subject_reserve(u, m.end);
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        in[i].data = u->memory + m.places[place_of[i]].at;
    }
    for (int i = 0; i < c->n_out; i++) {
        out[i] = c->out[i];
        out[i].data = u->memory + m.places[out_place[i]].at;
    }
    call.in = in;
    call.out = out;
    call.queue = u->queue;
    call.scratch = scratch < 0 ? NULL : u->memory + m.places[scratch].at;
    call.seed = seed < 0 ? NULL : (const uint64_t *)(void *)(u->memory + m.places[seed].at);
    call.step = step < 0 ? NULL : (const double *)(void *)(u->memory + m.places[step].at);
    subject_write_image(&m, u->pinned);
    SUBJECT_OK(d->copy(u->self[0], u->queue, u->memory, u->pinned, m.end, &err));
    if (k->run(u->self[0], &call, &err) != TT_OK)
        fail_msg("%s: %s", c->op, err.text);
    memset(in, 0xff, sizeof in); /* what the call points to is valid until run returns only */
    memset(out, 0xff, sizeof out);
    memset(&call, 0xff, sizeof call);
    SUBJECT_OK(d->copy(u->self[0], u->queue, u->pinned + u->room, u->memory, m.end, &err));
    SUBJECT_OK(d->record(u->self[0], u->event, u->queue, &err));
    if (d->sync(u->self[0], u->event, &err) != TT_OK)
        fail_msg("%s: %s", c->op, err.text);
    subject_read_image(&m, u->pinned + u->room, c->op);
}

/* Asks what the core asks before the first step, with no addresses: -1 if the kernel refuses the call,
 * or the bytes of scratch that it wants. */
static inline int64_t subject_ask(const subject *u, int threads, const tt_kernel *k,
                                  const tt_kernel_call *c)
{
    tt_tensor in[SUBJECT_OPERANDS], out[TT_MAX_OUTS];
    tt_kernel_call q = *c;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        in[i].data = NULL;
    }
    for (int i = 0; i < c->n_out; i++) {
        out[i] = c->out[i];
        out[i].data = NULL;
    }
    q.in = in;
    q.out = out;
    q.seed = NULL;
    q.step = NULL;
    q.backend = u->self[threads];
    if (k->supports != NULL && !k->supports(&q))
        return -1;
    return k->scratch_bytes != NULL ? (int64_t)k->scratch_bytes(&q, threads + 1) : 0;
}

/* Runs a kernel; false if it refuses the call. `threads`: 0 or 1, the index of the pool. */
static inline bool subject_run(subject *u, int threads, const tt_kernel *k, tt_kernel_call *c,
                               tt_tensor *out)
{
    tt_error err = {0};
    c->out = out;
    c->pool = u->pool[threads];
    const int64_t scratch = subject_ask(u, threads, k, c);
    if (scratch < 0)
        return false;
    c->scratch_bytes = (size_t)scratch;
    if (u->vt->device != NULL) {
        subject_run_on_device(u, k, c);
        return true;
    }
    c->scratch = aligned_alloc(64, (c->scratch_bytes + 127) / 64 * 64);
    memset(c->scratch, 0xff, c->scratch_bytes); /* NaN: scratch holds nothing yet */
    if (k->run(u->self[threads], c, &err) != TT_OK)
        fail_msg("%s: %s", c->op, err.text);
    free(c->scratch);
    return true;
}

#endif
