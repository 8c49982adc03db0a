/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "far.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* When work runs. `force` marks what its goal needs (the work before it on its queue, what that
 * waits for, other members' calls), then runs marked work in an order drawn from the seed:
 *   seed % 4 = 0, 1   nothing else runs; with 1, one queue as far as it can go, then another
 *   seed % 4 = 2      sometimes other work runs between
 *   seed % 4 = 3      work also runs when it is put on a queue */

static struct {
    far_node **nodes;
    int n, room;
} stack;                 /* needed, but what they need is not marked yet */
static tt_error missing; /* the first call that was not made; code TT_OK: none */
static far_node *missing_for;

void far_run_drop_stack(void)
{
    free(stack.nodes);
    stack.nodes = NULL;
    stack.room = 0;
}

static void far_need(far_node *n)
{
    if (n->ran || n->mark == far.round)
        return;
    if (stack.n == stack.room) {
        stack.room = 2 * stack.room + 64;
        stack.nodes = realloc(stack.nodes, (size_t)stack.room * sizeof(far_node *));
        if (!stack.nodes)
            far_misuse("no host memory for %d nodes", stack.room);
    }
    stack.nodes[stack.n++] = n;
}

static void far_mark(far_node *n)
{
    tt_error e = {0};
    n->mark = far.round;
    if (n->rank->failed)
        return;
    if (n->kind == FAR_WAIT)
        far_need(n->target);
    if (n->kind == FAR_CALL && !far_collective_needs(n, far_need, &e) && !missing_for) {
        missing = e;
        missing_for = n;
    }
}

static void far_mark_all(far_node *goal)
{
    far.round++;
    missing_for = NULL;
    far_need(goal);
    while (stack.n) {
        far_node *n = stack.nodes[--stack.n];
        tt_device_queue *q = n->queue;
        if (n->ran || n->mark == far.round)
            continue;
        far_node *m = q->mark == far.round ? q->marked_to->next : q->next_run;
        q->mark = far.round;
        q->marked_to = n;
        for (; m != n; m = m->next)
            far_mark(m);
        far_mark(n);
    }
}

static bool far_ready(const far_node *n)
{
    if (n->rank->failed)
        return true;
    if (n->kind == FAR_WAIT)
        return n->target->ran;
    return n->kind != FAR_CALL || far_collective_ready(n);
}

void far_fail_rank(far_rank *r, const tt_error *e)
{
    if (r->failed)
        return;
    r->failed = true;
    r->error = *e;
}

void far_node_ran(far_node *n)
{
    size_t bytes = 0;
    for (int i = 0; i < n->n_ranges; i++)
        bytes += n->ranges[i].bytes;
    far.clock_ns += n->kind == FAR_WAIT ? 0 : 1000 + bytes;
    n->time_ns = far.clock_ns;
    n->ran = true;
    n->queue->next_run = n->next;
}

static void far_run_fill(const far_node *n)
{
    char *to = n->ranges[0].hidden;
    for (size_t i = 0; i < n->ranges[0].bytes; i++)
        to[i] = ((const char *)&n->pattern)[i % 4];
}

static void far_run(far_node *n)
{
    far_rank *r = n->rank;
    tt_error e = {0};
    tt_status s = TT_OK;
    if (n->kind == FAR_CALL) { /* of several queues */
        if (r->failed)
            far_collective_skip(n);
        else
            far_collective_run(n);
        return;
    }
    if (!r->failed)
        s = far_resolve(n, &e);
    if (!r->failed && s == TT_OK) {
        if (n->kind == FAR_KERNEL)
            s = far_call_run(n, &e);
        else if (n->kind == FAR_COPY)
            memcpy(n->ranges[0].hidden, n->ranges[1].hidden, n->ranges[0].bytes);
        else if (n->kind == FAR_FILL)
            far_run_fill(n);
    }
    if (s != TT_OK)
        far_fail_rank(r, &e);
    far_node_ran(n);
}

/* A queue of the rank, or of any rank if r is NULL, whose next work can run; drawn among all of
 * them. needed: only work that is marked. */
static tt_device_queue *far_pick(far_rank *chooser, const far_rank *r, bool needed)
{
    tt_device_queue *picked = NULL;
    uint64_t n = 0;
    for (far_rank *k = far.ranks; k; k = k->next)
        for (int i = 0; (!r || k == r) && i < FAR_QUEUES; i++) {
            tt_device_queue *q = k->queues[i];
            if (!q || !q->next_run || (needed && q->next_run->mark != far.round) ||
                !far_ready(q->next_run))
                continue;
            if (q == chooser->favourite && chooser->config.seed % 4 == 1)
                return q;
            if (far_random(chooser, ++n) == 0)
                picked = q;
        }
    chooser->favourite = picked;
    return picked;
}

void far_run_some(far_rank *r)
{
    const int64_t mode = r->config.seed % 4;
    while (mode >= 2 && far_random(r, mode == 3 ? 2 : 8) == 0) {
        tt_device_queue *q = far_pick(r, r, false);
        if (!q)
            return;
        far_run(q->next_run);
    }
}

static int far_run_marked(far_rank *r)
{
    int n_ran = 0;
    for (tt_device_queue *q; (q = far_pick(r, NULL, true)) != NULL; n_ran++) {
        far_run(q->next_run);
        far_run_some(r);
    }
    return n_ran;
}

static double far_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits a moment for other threads. An error: the run is being stopped. */
static tt_status far_pause(const far_rank *r, tt_error *err)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&far.changed, &far.lock, &t);
    const far_comm *c = r->comm;
    far_unlock(); /* stopped may take other locks */
    const tt_status s = c ? far_comm_stopped(c, err) : TT_OK;
    far_lock();
    return s;
}

void far_force(far_rank *r, far_node *goal, bool block)
{
    double since = 0;
    bool any = false;
    while (!goal->ran) {
        far_mark_all(goal);
        if (far_run_marked(r)) {
            since = 0;
            any = true;
            continue;
        }
        if (goal->ran || !block)
            break;
        tt_error e = {0};
        if (!missing_for) {
            TT_FAIL(&e, TT_ECOMM,
                    "far: a deadlock: members make the calls of two groups in different orders");
            far_fail_rank(r, &e);
            continue;
        }
        far_node *for_call = far_node_ref(missing_for);
        const tt_error what = missing;
        const double now = far_now(), limit = r->comm ? far_comm_timeout(r->comm) : 0;
        since = since > 0 ? since : now;
        if (limit > 0 && now - since > limit)
            far_collective_break(for_call, TT_ETIMEOUT, &what);
        else if (far_pause(r, &e) != TT_OK)
            far_fail_rank(r, &e);
        far_node_drop(for_call);
    }
    if (any)
        pthread_cond_broadcast(&far.changed);
}

/* Takes from the rank's queues what its host knows to be done. */
static void far_drop_known(far_rank *r)
{
    for (int i = 0; i < FAR_QUEUES; i++) {
        tt_device_queue *q = r->queues[i];
        while (q && q->head && q->head->seq <= r->host_clock[q->clock_id]) {
            far_node *m = q->head;
            q->head = m->next;
            if (!q->head)
                q->tail = NULL;
            m->observed = true;
            if (m->kind == FAR_COPY)
                far_pinned_pending(m, -1);
            far_node_drop(m);
        }
    }
}

void far_clock_join(uint64_t *clock, const uint64_t *other)
{
    for (int i = 0; i < far.n_clocks; i++)
        if (other[i] > clock[i])
            clock[i] = other[i];
}

void far_observe(far_node *n)
{
    far_rank *r = n->rank;
    if (n->clock)
        far_clock_join(r->host_clock, n->clock);
    else if (!n->observed)
        far_clock_join(r->host_clock, n->queue->clock);
    far_drop_known(r);
}
