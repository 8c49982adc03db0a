/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/debug.h"
#include "exec/succeed.h"
#include "exec/twice.h"
#include <stdlib.h>
#include <string.h>

/* The memory of a program, and how the host reads and writes what is in it. */

#define TOUCH_PIECE ((int64_t)2 << 20) /* a huge page */
#define TOUCH_STEP 4096                /* a page, if there are no huge ones */

static void touch_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i += TOUCH_STEP)
        ((volatile char *)arg)[i] = 0;
}

/* Tells the communicator of tensors that their buffers lie there, or no longer do. */
static void tell_comm(const tt_exec *x, void *base, size_t bytes)
{
    const tt_dist *d = x->o.dist;
    const tt_comm_vt *vt = d ? d->data_vt : NULL;
    if (!base || !vt || !TT_HAS(vt, tt_comm_vt, forget_memory) || !vt->use_memory ||
        !vt->device_memory || !d->data_self)
        return;
    if (bytes)
        vt->use_memory(d->data_self, base, bytes);
    else
        vt->forget_memory(d->data_self, base);
}

/* With room for canaries behind it. */
static tt_status open_space(tt_exec *x, tt_space space, int64_t bytes, tt_error *err)
{
    const size_t n = (size_t)tt_program_space_bytes(x->p, space);
    const tt_mover *m = tt_exec_mover(x);
    void *p = NULL;
    if (tt_exec_borrow_space(x, space))
        return TT_OK;
    if (tt_device_alloc(&x->o.device, n, &p, err) != TT_OK)
        return tt_error_context(err, "%.2f GiB of %s memory", (double)bytes / (1 << 30),
                                tt_space_name(space));
    x->space[space] = p;
    x->mapped[space] = n;
    tell_comm(x, p, n);
    if (x->o.poison)
        TT_TRY(tt_exec_poison(x, p, n, err));
    if (x->o.from) /* the running program has the pool */
        tt_parallel_for(NULL, (int64_t)n, TOUCH_PIECE, touch_range, p);
    /* states begin as zeros; host memory does anyway */
    if (space == TT_SPACE_STATE && (x->o.poison || !tt_device_is_host(&x->o.device)))
        TT_TRY(tt_device_fill(&m->device, m->queue, p, 0, (size_t)bytes, err));
    return TT_OK;
}

static tt_status open_offloaded(tt_exec *x, tt_space space, tt_error *err)
{
    const int64_t bytes = x->p->bytes[space];
    void *p = NULL;
    if (!bytes)
        return TT_OK;
    if (tt_device_alloc_pinned(&x->o.device, (size_t)bytes, &p, err) != TT_OK)
        return tt_error_context(err, "%.2f GiB of pinned host memory for %s",
                                (double)bytes / (1 << 30),
                                space == TT_SPACE_PINNED ? "optimizer states" : "activations");
    x->space[space] = p;
    x->mapped[space] = (size_t)bytes;
    if (space == TT_SPACE_PINNED) /* states begin as zeros */
        tt_device_clear_pinned(p, (size_t)bytes);
    return TT_OK;
}

/* An optimizer reads its states before it writes them, so the kernel would map each page twice: for
 * the read and, stopping every core, for the write. Writing them first avoids that; they are zeros
 * before and after. */
static void touch_moments(tt_exec *x)
{
    for (int i = 0; i < x->p->n_states; i++) {
        const tt_program_state *s = &x->p->states[i];
        if (s->moments && s->offset >= 0)
            tt_parallel_for(x->o.pool, tt_tensor_bytes(&s->tensor), TOUCH_PIECE, touch_range,
                            x->space[TT_SPACE_STATE] + s->offset);
    }
}

/* ---- scalars and metrics ---- */

static size_t pinned_bytes(const tt_program *p)
{
    return (size_t)p->written_end + (size_t)p->read_end;
}

static tt_status open_scalars(tt_exec *x, tt_error *err)
{
    const tt_device *d = &x->o.device;
    void *p = NULL;
    x->scalars = x->space[TT_SPACE_STATE];
    if (tt_device_is_host(d) || !x->p->read_end)
        return TT_OK;
    x->scalars = tt_arena_alloc(x->arena, (size_t)x->p->read_end);
    TT_TRY(tt_device_alloc_pinned(d, pinned_bytes(x->p), &p, err));
    x->pinned = p;
    for (size_t i = 0; i < TT_COUNT(x->pushed); i++)
        TT_TRY(tt_device_event_new(d, false, &x->pushed[i], err));
    return tt_device_event_new(d, false, &x->pulled, err);
}

tt_status tt_exec_push_scalars(tt_exec *x, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(x);
    const size_t bytes = (size_t)x->p->written_end;
    if (!x->scalars_changed || !x->pinned)
        return TT_OK;
    const int slot = x->slot;
    uint8_t *at = x->pinned + (size_t)slot * bytes;
    x->scalars_changed = false;
    x->slot = !slot;
    TT_TRY(tt_exec_await(x, x->pushed[slot], err)); /* it has long happened */
    memcpy(at, x->scalars, bytes);
    TT_TRY(tt_move_copy(m, x->space[TT_SPACE_STATE], at, bytes, err));
    return tt_device_record(&m->device, x->pushed[slot], m->queue, err);
}

static uint8_t *pinned_metrics(const tt_exec *x)
{
    return x->pinned + 2 * (size_t)x->p->written_end;
}

tt_status tt_exec_pull_metrics(tt_exec *x, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(x);
    const size_t from = (size_t)x->p->written_end, bytes = (size_t)x->p->read_end - from;
    TT_ASSERT(!x->pulling);
    if (!x->pinned)
        return TT_OK;
    TT_TRY(tt_move_copy(m, pinned_metrics(x), x->space[TT_SPACE_STATE] + from, bytes, err));
    TT_TRY(tt_device_record(&m->device, x->pulled, m->queue, err));
    x->pulling = true;
    x->pulled_step = x->step;
    return TT_OK;
}

tt_status tt_exec_read_metrics(tt_exec *x, tt_error *err)
{
    const size_t from = (size_t)x->p->written_end, bytes = (size_t)x->p->read_end - from;
    TT_ASSERT(!x->pulling);
    return x->pinned
               ? tt_exec_read(x, x->scalars + from, x->space[TT_SPACE_STATE] + from, bytes, err)
               : TT_OK;
}

tt_status tt_exec_wait_metrics(tt_exec *x, tt_error *err)
{
    const size_t from = (size_t)x->p->written_end, bytes = (size_t)x->p->read_end - from;
    if (!x->pulling)
        return TT_OK;
    const tt_status s = tt_exec_await(x, x->pulled, err);
    x->pulling = false;
    if (s != TT_OK)
        return s;
    memcpy(x->scalars + from, pinned_metrics(x), bytes);
    return TT_OK;
}

/* ---- life ---- */

tt_status tt_exec_memory_open(tt_exec *x, tt_error *err)
{
    void *p = NULL;
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++)
        TT_TRY(open_space(x, (tt_space)sp, x->p->bytes[sp], err));
    TT_TRY(open_offloaded(x, TT_SPACE_PINNED, err));
    TT_TRY(open_offloaded(x, TT_SPACE_OFFLOADED, err));
    TT_TRY(open_scalars(x, err));
    TT_TRY(tt_device_event_new(&x->o.device, false, &x->idle, err));
    x->sums_bytes = (size_t)tt_program_sums_bytes(x->p);
    TT_TRY(tt_device_alloc(&x->o.device, x->sums_bytes, &p, err));
    x->bad_at = p;
    x->sums = (float *)(x->bad_at + 1);
    if (tt_device_is_host(&x->o.device) && !x->o.from)
        touch_moments(x);
    return tt_exec_open_kept(x, err);
}

void tt_exec_memory_close(tt_exec *x)
{
    const tt_device *d = &x->o.device;
    tt_device_free_pinned(d, x->pinned, pinned_bytes(x->p));
    for (size_t i = 0; i < TT_COUNT(x->pushed); i++)
        tt_device_event_free(d, x->pushed[i]);
    tt_device_event_free(d, x->pulled);
    tt_device_event_free(d, x->idle);
    tt_device_free(d, x->bad_at, x->sums_bytes);
    tt_stage_close(&x->stage);
    free(x->kept);
    for (int sp = TT_SPACE_PINNED; sp < TT_SPACE_STATE; sp++)
        tt_device_free_pinned(d, x->space[sp], x->mapped[sp]);
    for (int sp = TT_SPACE_STATE; sp < TT_N_SPACES; sp++) {
        if (x->borrowed >> sp & 1)
            continue;
        tell_comm(x, x->space[sp], 0);
        tt_device_free(d, x->space[sp], x->mapped[sp]);
    }
}

/* ---- tensors ---- */

static tt_status exec_stage(tt_exec *x, tt_error *err)
{
    return x->stage.bytes ? TT_OK
                          : tt_stage_open(&x->stage, &x->o.device, (size_t)TT_STAGE_BYTES, err);
}

tt_status tt_exec_read(tt_exec *x, void *to, const void *from, size_t bytes, tt_error *err)
{
    TT_TRY(exec_stage(x, err));
    return tt_stage_read(&x->stage, tt_exec_mover(x)->queue, to, from, bytes, err);
}

tt_status tt_exec_write(tt_exec *x, void *to, const void *from, size_t bytes, tt_error *err)
{
    TT_TRY(exec_stage(x, err));
    return tt_stage_write(&x->stage, tt_exec_mover(x)->queue, to, from, bytes, err);
}

tt_status tt_exec_map(tt_exec *x, const tt_tensor *t, bool read, void **host, tt_error *err)
{
    const size_t bytes = (size_t)tt_tensor_bytes(t);
    const bool in_place = tt_device_is_host(&x->o.device);
    *host = in_place ? t->data : NULL;
    if (in_place || !bytes)
        return TT_OK;
    *host = malloc(bytes);
    if (!*host)
        return TT_FAIL(err, TT_ENOMEM, "no host memory for a copy of %zu bytes", bytes);
    const tt_status s = read ? tt_exec_read(x, *host, t->data, bytes, err) : TT_OK;
    if (s != TT_OK) {
        free(*host);
        *host = NULL;
    }
    return s;
}

tt_status tt_exec_hash(tt_exec *x, const tt_tensor *t, uint64_t seed, uint64_t *hash, tt_error *err)
{
    void *host;
    TT_TRY(tt_exec_map(x, t, true, &host, err));
    *hash = tt_hash64(host, (size_t)tt_tensor_bytes(t), seed);
    return tt_exec_unmap(x, t, host, false, err);
}

int tt_exec_n_states(const tt_exec *x)
{
    return x->p->n_states;
}

const char *tt_exec_state_name(const tt_exec *x, int i)
{
    return x->p->states[i].name;
}

tt_status tt_exec_hash_state(tt_exec *x, int i, uint64_t *hash, tt_error *err)
{
    const tt_program_state *s = &x->p->states[i];
    tt_tensor t = s->tensor;
    *hash = 0;
    if (!s->fresh || s->for_host || s->offset < 0)
        return TT_OK;
    t.data = x->space[s->space] + s->offset;
    return tt_exec_hash(x, &t, 0, hash, err);
}

tt_status tt_exec_unmap(tt_exec *x, const tt_tensor *t, void *host, bool changed, tt_error *err)
{
    if (tt_device_is_host(&x->o.device))
        return TT_OK;
    const size_t bytes = (size_t)tt_tensor_bytes(t);
    const tt_status s = changed && host ? tt_exec_write(x, t->data, host, bytes, err) : TT_OK;
    free(host);
    return s;
}

tt_status tt_exec_sync(tt_exec *x, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(x);
    TT_TRY(tt_device_record(&m->device, x->idle, m->queue, err));
    return tt_exec_await(x, x->idle, err);
}
