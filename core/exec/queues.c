/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/succeed.h"

/* The queues of a program. On a device the rank has one and each group whose collectives run
 * concurrently one more; on the host the rank's is its own thread, and a group's is a thread that makes
 * its calls. A program that runs beside its parent (validation, decoding) uses the parent's. */

/* Keeps a queue's group apart from other groups of the same ranks: each has an order of its own. */
#define QUEUE_KEY UINT64_C(0x7175657565)

static const tt_queue *parent_queue(const tt_exec *x, uint16_t atoms)
{
    const tt_exec *p = x->o.parent;
    for (int i = 1; p && i <= p->p->n_queues; i++)
        if (p->queues[i].opened && p->queues[i].atoms == atoms)
            return &p->queues[i];
    return NULL;
}

static tt_status find_mover_kernels(tt_exec *x, tt_mover *m, tt_error *err)
{
    if (tt_device_is_host(&m->device))
        return TT_OK;
    m->copy_box = tt_find_kernel(x->o.kernels, m->device.backend, TT_OP_COPY_BOX);
    m->reduce_members = tt_find_kernel(x->o.kernels, m->device.backend, TT_OP_REDUCE_MEMBERS);
    x->initial = tt_find_kernel(x->o.kernels, m->device.backend, TT_OP_INITIAL);
    if (!m->copy_box || !m->reduce_members)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "the backend has a device, but no kernel %s (ttrun/device.h)",
                       m->copy_box ? TT_OP_REDUCE_MEMBERS : TT_OP_COPY_BOX);
    return TT_OK;
}

tt_status tt_exec_open_queues(tt_exec *x, tt_error *err)
{
    x->queues = tt_arena_array(x->arena, (size_t)x->p->n_queues + 1, sizeof *x->queues);
    tt_queue *q = &x->queues[0];
    q->mover = (tt_mover){.device = x->o.device, .pool = x->o.pool};
    TT_TRY(tt_device_enter(&x->o.device, err));
    TT_TRY(find_mover_kernels(x, &q->mover, err));
    if (x->o.parent)
        q->mover.queue = x->o.parent->queues[0].mover.queue;
    else
        TT_TRY(tt_device_queue_new(&x->o.device, false, &q->mover.queue, err));
    q->own = !x->o.parent;
    q->opened = true;
    x->streams = !tt_device_is_host(&x->o.device) && !x->o.poison && !x->o.detect_nan && !x->o.sync;
    return tt_exec_events_open(x, err);
}

static tt_status open_stream(tt_exec *x, tt_queue *q, const tt_group_comm *g, tt_error *err)
{
    const tt_dist *d = x->o.dist;
    const uint64_t key = tt_hash64(g->ranks, (size_t)g->n * sizeof *g->ranks, QUEUE_KEY);
    TT_TRY(tt_device_queue_new(&x->o.device, true, &q->mover.queue, err));
    TT_TRY(d->data_vt->group(d->data_self, g->ranks, g->n, key, &q->comm, err));
    return d->data_vt->on(q->comm, q->mover.queue, err);
}

tt_status tt_exec_copy_queue(tt_exec *x, int queue, tt_error *err)
{
    tt_queue *q = &x->queues[queue];
    if (q->opened)
        return TT_OK;
    q->mover = x->queues[0].mover;
    q->mover.queue = NULL;
    q->own = q->opened = true;
    q->epoch = x->epoch;
    return tt_device_queue_new(&x->o.device, false, &q->mover.queue, err);
}

tt_status tt_exec_group_queue(tt_exec *x, int queue, const tt_group_comm *g, tt_error *err)
{
    tt_queue *q = &x->queues[queue];
    if (q->opened)
        return TT_OK;
    const uint16_t atoms = tt_atom_list_mask(&x->p->queues[queue - 1].atoms);
    if (x->o.from && !x->o.parent)
        return tt_exec_borrow_queue(x, queue, atoms, err);
    const tt_queue *shared = parent_queue(x, atoms);
    if (shared)
        *q = *shared;
    q->epoch = x->epoch;
    q->own = !shared;
    q->atoms = atoms;
    q->opened = true;
    if (shared)
        return TT_OK;
    q->mover = x->queues[0].mover;
    q->mover.queue = NULL;
    return x->streams ? open_stream(x, q, g, err)
                      : tt_async_new(x->o.dist, g->ranks, g->n,
                                     x->p->queues[queue - 1].n_collectives + 1, &q->async, err);
}

void tt_exec_free_queues(tt_exec *x)
{
    for (int i = x->queues ? x->p->n_queues : -1; i >= 0; i--) {
        const tt_queue *q = &x->queues[i];
        if (!q->own)
            continue;
        tt_async_free(q->async);
        if (q->comm)
            x->o.dist->data_vt->group_free(q->comm);
        tt_device_queue_free(&x->o.device, q->mover.queue);
    }
    tt_exec_events_free(x);
}
