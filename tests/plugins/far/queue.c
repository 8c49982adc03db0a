/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "far.h"
#include <stdlib.h>
#include <string.h>

/* Nodes of work, and how they get on a queue. */

far_node *far_node_new(far_rank *r, far_kind kind, const char *name, int n_ranges)
{
    far_node *n = far_calloc(1, sizeof *n);
    *n = (far_node){.refs = 1, .kind = kind, .rank = r, .n_ranges = n_ranges, .kinds = FAR_DEVICE};
    if (kind == FAR_COPY)
        n->kinds |= FAR_PINNED | FAR_PEER;
    n->name = strdup(name);
    n->ranges = far_calloc((size_t)n_ranges, sizeof *n->ranges);
    return n;
}

far_node *far_node_ref(far_node *n)
{
    n->refs++;
    return n;
}

void far_node_drop(far_node *n)
{
    if (!n || --n->refs > 0)
        return;
    far_node_drop(n->target);
    far_call_drop(n->call);
    far_collective_drop(n->collective);
    free(n->name);
    free(n->ranges);
    free(n->clock);
    free(n);
}

far_node *far_node_again(const far_node *n)
{
    far_node *m = far_node_new(n->rank, n->kind, n->name, n->n_ranges);
    memcpy(m->ranges, n->ranges, (size_t)n->n_ranges * sizeof *m->ranges);
    m->pattern = n->pattern;
    m->kinds = n->kinds;
    m->peers = n->peers;
    m->timed = n->timed;
    m->call = n->call ? far_call_ref(n->call) : NULL;
    m->collective = n->collective ? far_collective_again(n->collective) : NULL;
    return m;
}

bool far_overlap(const far_range *a, const far_range *b)
{
    const char *p = a->at, *q = b->at;
    return a->bytes && b->bytes && p < q + b->bytes && q < p + a->bytes;
}

tt_status far_resolve(const far_node *n, tt_error *err)
{
    for (int i = 0; i < n->n_ranges; i++) {
        far_range *g = &n->ranges[i];
        g->hidden = NULL;
        if (g->bytes && far_translate(n->rank, g->at, g->bytes, n->kinds, &g->hidden, err) != TT_OK)
            return tt_error_context(err, "far: %s, operand %d", n->name, i);
    }
    return TT_OK;
}

tt_status far_check_races(const tt_device_queue *q, const far_node *n, tt_error *err)
{
    const far_rank *r = q->rank;
    if (!r->config.races)
        return TT_OK;
    for (int i = 0; i < far.n_clocks; i++) {
        const tt_device_queue *other = far.queues[i];
        if (!other || other == q)
            continue;
        for (const far_node *m = other->head; m; m = m->next)
            for (int a = 0;
                 (m->rank == r || m->peers || n->peers) && m->seq > q->clock[i] && a < n->n_ranges;
                 a++)
                for (int b = 0; b < m->n_ranges; b++)
                    if ((n->ranges[a].write || m->ranges[b].write) &&
                        far_overlap(&n->ranges[a], &m->ranges[b]))
                        return TT_FAIL(err, TT_EINVAL,
                                       "far: a race: \"%s\" on queue %d of rank %d %s %zu bytes at "
                                       "%p, \"%s\" on queue %d of rank %d %s %zu bytes at %p, and "
                                       "no event orders them",
                                       n->name, q->id, r->rank,
                                       n->ranges[a].write ? "writes" : "reads", n->ranges[a].bytes,
                                       n->ranges[a].at, m->name, other->id, m->rank->rank,
                                       m->ranges[b].write ? "writes" : "reads", m->ranges[b].bytes,
                                       m->ranges[b].at);
    }
    return TT_OK;
}

/* Until the copy has run, pinned memory that it writes holds poison, unless other work that did not
 * run yet reads it first. */
static void far_poison_target(const far_node *n)
{
    const far_range *to = &n->ranges[0];
    char *hidden = NULL;
    tt_error e;
    if (far_translate(n->rank, to->at, to->bytes, FAR_PINNED, &hidden, &e) != TT_OK)
        return;
    for (int i = 0; i < FAR_QUEUES; i++)
        for (const far_node *m = n->rank->queues[i] ? n->rank->queues[i]->next_run : NULL; m;
             m = m->next)
            for (int k = 0; m != n && k < m->n_ranges; k++)
                if (!m->ranges[k].write && far_overlap(to, &m->ranges[k]))
                    return;
    memset(hidden, FAR_POISON, to->bytes);
}

tt_status far_attach(tt_device_queue *q, far_node *n, tt_error *err)
{
    far_rank *r = q->rank;
    far_clock_join(q->clock, r->host_clock);
    if (n->kind == FAR_WAIT)
        far_clock_join(q->clock, n->target->clock);
    for (int i = 0; i < n->n_ranges; i++)
        n->peers |= n->ranges[i].bytes && far_owner_of(n->ranges[i].at) != r;
    const tt_status s = far_check_races(q, n, err);
    if (s != TT_OK) {
        far_node_drop(n);
        return s;
    }
    n->queue = q;
    n->seq = q->clock[q->clock_id] = ++q->seq;
    if (n->kind == FAR_RECORD) {
        n->clock = far_calloc(FAR_CLOCKS, sizeof *n->clock);
        memcpy(n->clock, q->clock, sizeof q->clock);
    }
    if (q->tail)
        q->tail->next = n;
    else
        q->head = n;
    q->tail = n;
    if (!q->next_run)
        q->next_run = n;
    if (n->kind == FAR_COPY) {
        far_poison_target(n);
        far_pinned_pending(n, 1);
    }
    if (n->kind == FAR_CALL) {
        far_collective_attach(n);
        pthread_cond_broadcast(&far.changed);
    }
    far_run_some(r);
    return TT_OK;
}

tt_status far_put(tt_device_queue *q, far_node *n, tt_error *err)
{
    if (!q->capture)
        return far_attach(q, n, err);
    far_graph_add(q->capture, q->captured_as, n);
    return TT_OK;
}

tt_status far_check_queue(const far_rank *r, const tt_device_queue *q, const char *what,
                          tt_error *err)
{
    if (!q)
        return TT_FAIL(err, TT_EINVAL, "far: %s without a queue", what);
    if (q->rank != r)
        return TT_FAIL(err, TT_EINVAL, "far: %s of rank %d on a queue of rank %d", what, r->rank,
                       q->rank->rank);
    return TT_OK;
}

/* ---- copies ---- */

static tt_status far_put_checked(tt_device_queue *q, far_node *n, tt_error *err)
{
    const tt_status s = far_resolve(n, err);
    if (s == TT_OK)
        return far_put(q, n, err);
    far_node_drop(n);
    return s;
}

tt_status far_copy(void *self, tt_device_queue *q, void *to, const void *from, size_t bytes,
                   tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "copy", err));
    tt_status s = far_check_queue(r, q, "copy", err);
    if (s == TT_OK && bytes) {
        far_node *n = far_node_new(r, FAR_COPY, "copy", 2);
        n->ranges[0] = (far_range){.at = to, .bytes = bytes, .write = true};
        n->ranges[1] = (far_range){.at = (char *)(uintptr_t)from, .bytes = bytes};
        if (far_overlap(&n->ranges[0], &n->ranges[1])) {
            far_node_drop(n);
            s = TT_FAIL(err, TT_EINVAL, "far: copy of %zu bytes from %p to %p: they overlap", bytes,
                        from, to);
        } else {
            s = far_put_checked(q, n, err);
        }
    }
    return far_end(r, s);
}

tt_status far_fill(void *self, tt_device_queue *q, void *to, uint32_t pattern, size_t bytes,
                   tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "fill", err));
    tt_status s = far_check_queue(r, q, "fill", err);
    if (s == TT_OK && bytes > 4 && (uintptr_t)to % 4)
        s = TT_FAIL(err, TT_EINVAL, "far: fill of %zu bytes at %p, which is no multiple of 4",
                    bytes, to);
    else if (s == TT_OK && bytes) {
        far_node *n = far_node_new(r, FAR_FILL, "fill", 1);
        n->ranges[0] = (far_range){.at = to, .bytes = bytes, .write = true};
        n->pattern = pattern;
        s = far_put_checked(q, n, err);
    }
    return far_end(r, s);
}

/* ---- queues ---- */

tt_status far_queue_new(void *self, int urgent, tt_device_queue **out, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "queue_new", err));
    int id = 0, clock = 0;
    while (id < FAR_QUEUES && r->queues[id])
        id++;
    while (clock < FAR_CLOCKS && far.queues[clock])
        clock++;
    tt_status s = TT_OK;
    if (clock == FAR_CLOCKS) {
        s = TT_FAIL(err, TT_ENOMEM, "far: the ranks have %d queues already", FAR_CLOCKS);
    } else if (id == FAR_QUEUES) {
        s = TT_FAIL(err, TT_ENOMEM, "far: rank %d has %d queues already", r->rank, FAR_QUEUES);
    } else {
        tt_device_queue *q = far_calloc(1, sizeof *q);
        *q = (tt_device_queue){.rank = r, .id = id, .clock_id = clock, .urgent = urgent};
        q->seq = far.last_seq[clock];
        if (clock == far.n_clocks)
            far.n_clocks++;
        *out = r->queues[id] = far.queues[clock] = q;
    }
    return far_end(r, s);
}

void far_queue_free(void *self, tt_device_queue *q)
{
    far_rank *r = self;
    if (!q)
        return;
    far_begin_or_die(r, "queue_free");
    if (q->rank != r || q->capture)
        far_misuse("queue_free of a queue of rank %d%s", q->rank->rank,
                   q->capture ? " that is being captured" : "");
    if (q->tail) {
        far_node *last = far_node_ref(q->tail);
        far_force(r, last, true);
        far_observe(last);
        far_node_drop(last);
    }
    r->queues[q->id] = far.queues[q->clock_id] = NULL;
    far.last_seq[q->clock_id] = q->seq;
    if (r->favourite == q)
        r->favourite = NULL;
    free(q);
    far_unlock();
}
