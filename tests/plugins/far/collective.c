/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs the calls of a group. A collective runs once, for all members, when the turn of every
 * member's call has come on its queue. A message is copied when it is sent; two fit in between. */

enum { IN_FLIGHT = 2 };

far_collective *far_collective_again(const far_collective *c)
{
    far_collective *d = far_calloc(1, sizeof *d);
    *d = *c;
    far_group_ref(c->group);
    d->counts = far_calloc((size_t)c->n_counts, sizeof *c->counts);
    if (c->n_counts)
        memcpy(d->counts, c->counts, (size_t)c->n_counts * sizeof *c->counts);
    d->next = NULL;
    return d;
}

void far_collective_drop(far_collective *c)
{
    if (!c)
        return;
    far_group_drop(c->group);
    free(c->counts);
    free(c);
}

/* ---- the lists of a group ---- */

static far_box *far_box_of(const far_collective *c)
{
    const int n = c->group->n;
    return &c->group->boxes[c->op == FAR_SEND ? c->me * n + c->peer : c->peer * n + c->me];
}

static bool far_is_message(far_op op)
{
    return op == FAR_SEND || op == FAR_RECV;
}

void far_collective_attach(far_node *n)
{
    far_collective *c = n->collective;
    far_group *g = c->group;
    if (!far_is_message(c->op))
        c->number = g->n_calls[c->me]++;
    else if (c->op == FAR_SEND)
        c->number = far_box_of(c)->n_sends++;
    else
        c->number = far_box_of(c)->n_recvs++;
    far_node **at = &g->calls[c->me];
    while (*at)
        at = &(*at)->collective->next;
    *at = n;
}

static void far_call_over(far_node *n)
{
    far_collective *c = n->collective;
    far_node **at = &c->group->calls[c->me];
    while (*at != n)
        at = &(*at)->collective->next;
    *at = c->next;
    c->next = NULL;
    far_node_ran(n);
}

/* The member's collective of that number, or NULL: it was not called yet. */
static far_node *far_find_call(const far_group *g, int member, uint64_t number)
{
    for (far_node *n = g->calls[member]; n; n = n->collective->next)
        if (!far_is_message(n->collective->op) && n->collective->number == number)
            return n;
    return NULL;
}

static far_node *far_find_message(const far_group *g, int member, far_op op, int peer,
                                  uint64_t number)
{
    for (far_node *n = g->calls[member]; n; n = n->collective->next)
        if (n->collective->op == op && n->collective->peer == peer &&
            n->collective->number == number)
            return n;
    return NULL;
}

/* The message that must go before this one, or the answer that it waits for. Both NULL: neither. */
static bool far_message_waits(const far_collective *c, far_op *op, int *member, uint64_t *number)
{
    const far_box *b = far_box_of(c);
    const bool sends = c->op == FAR_SEND;
    const uint64_t over = sends ? b->n_sent : b->n_received;
    if (over < c->number) {
        *op = c->op;
        *member = c->me;
        *number = over;
        return true;
    }
    *op = sends ? FAR_RECV : FAR_SEND;
    *member = c->peer;
    *number = sends ? b->n_received : b->n_sent;
    return sends ? b->n_sent - b->n_received >= IN_FLIGHT : b->n_sent == b->n_received;
}

bool far_collective_ready(const far_node *n)
{
    const far_collective *c = n->collective;
    const far_group *g = c->group;
    far_op op;
    int member;
    uint64_t number;
    if (far_group_status(g, NULL) != TT_OK)
        return true;
    if (far_is_message(c->op))
        return !far_message_waits(c, &op, &member, &number);
    for (int i = 0; i < g->n; i++) {
        const far_node *m = far_find_call(g, i, c->number);
        if (!m || m->queue->next_run != m || m->rank->failed)
            return false;
    }
    return true;
}

bool far_collective_needs(const far_node *n, void (*found)(far_node *), tt_error *err)
{
    const far_collective *c = n->collective;
    const far_group *g = c->group;
    char absent[200] = "";
    size_t len = 0;
    far_op op;
    int member;
    uint64_t number;
    if (far_group_status(g, NULL) != TT_OK)
        return true;
    if (far_is_message(c->op)) {
        if (!far_message_waits(c, &op, &member, &number))
            return true;
        far_node *m = far_find_message(g, member, op, member == c->me ? c->peer : c->me, number);
        if (m)
            found(m);
        else
            TT_FAIL(err, TT_ETIMEOUT, "%s number %llu of rank %d; ranks that did not call %s: %d",
                    n->name, (unsigned long long)c->number + 1, g->ranks[c->me],
                    op == FAR_SEND ? "send" : "recv", g->ranks[member]);
        return m != NULL;
    }
    for (int i = 0; i < g->n; i++) {
        far_node *m = far_find_call(g, i, c->number);
        if (m)
            found(m);
        else if (len + 16 < sizeof absent)
            len += (size_t)snprintf(absent + len, sizeof absent - len, " %d", g->ranks[i]);
    }
    if (len)
        TT_FAIL(err, TT_ETIMEOUT, "%s number %llu of rank %d; ranks that did not call it:%s",
                n->name, (unsigned long long)c->number + 1, g->ranks[c->me], absent);
    return len == 0;
}

/* ---- failures ---- */

void far_collective_skip(far_node *n)
{
    tt_error e;
    TT_FAIL(&e, TT_ECOMM, "far: %s: rank %d failed before it: %s", n->name, n->rank->rank,
            n->rank->error.text);
    far_group_break(n->collective->group, &e);
    far_call_over(n);
}

void far_collective_break(far_node *n, tt_status s, const tt_error *missing)
{
    tt_error e;
    const far_comm *c = n->rank->comm;
    TT_FAIL(&e, s, "far: waited %g s (" TT_COMM_LIMIT_KEYS ") in %s", c ? far_comm_timeout(c) : 0.0,
            missing->text);
    far_group_break(n->collective->group, &e);
}

/* ---- collectives ---- */

static int64_t far_sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

static tt_status far_check_same(far_node *const *nodes, int n, tt_error *err)
{
    const far_collective *a = nodes[0]->collective;
    for (int i = 1; i < n; i++) {
        const far_collective *b = nodes[i]->collective;
        const bool same = a->op == b->op && a->dtype == b->dtype && a->reduce == b->reduce;
        if (!same || (a->op != FAR_ALL_TO_ALL &&
                      memcmp(a->counts, b->counts, (size_t)a->n_counts * sizeof *a->counts) != 0))
            return TT_FAIL(err, TT_ECOMM,
                           "far: collective number %llu: rank %d calls %s of %lld %s, rank %d "
                           "calls %s of %lld %s%s",
                           (unsigned long long)a->number + 1, a->group->ranks[0], nodes[0]->name,
                           (long long)far_sum(a->counts, a->n_counts), tt_dtype_name(a->dtype),
                           a->group->ranks[i], nodes[i]->name,
                           (long long)far_sum(b->counts, b->n_counts), tt_dtype_name(b->dtype),
                           same ? ": their counts differ" : "");
    }
    for (int i = 0; a->op == FAR_ALL_TO_ALL && i < n; i++)
        for (int k = 0; k < n; k++)
            if (nodes[i]->collective->counts[k] != nodes[k]->collective->counts[n + i])
                return TT_FAIL(err, TT_ECOMM,
                               "far: all_to_all number %llu: rank %d sends %lld elements where "
                               "rank %d expects %lld",
                               (unsigned long long)a->number + 1, a->group->ranks[i],
                               (long long)nodes[i]->collective->counts[k], a->group->ranks[k],
                               (long long)nodes[k]->collective->counts[n + i]);
    return TT_OK;
}

static void far_move(char *to, const char *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

/* Reduces elements [at, at + count) of all members' inputs. */
static tt_status far_reduce(far_node *const *nodes, int n, void *out, int64_t at, int64_t count,
                            tt_error *err)
{
    const far_collective *c = nodes[0]->collective;
    const void **xs = far_calloc((size_t)n, sizeof *xs);
    for (int i = 0; i < n && count; i++)
        xs[i] = nodes[i]->ranges[0].hidden + (size_t)at * tt_dtype_size(c->dtype);
    const tt_status s = tt_reduce_members(out, xs, n, count, c->dtype, c->reduce, err);
    free(xs);
    return s;
}

static tt_status far_run_all(far_node *const *nodes, int n, tt_error *err)
{
    const far_collective *c = nodes[0]->collective;
    const size_t size = tt_dtype_size(c->dtype);
    tt_status s = TT_OK;
    for (int i = 0; s == TT_OK && i < n; i++) { /* what member i receives */
        char *to = nodes[i]->ranges[1].hidden;
        if (c->op == FAR_REDUCE_SCATTER)
            s = far_reduce(nodes, n, to, far_sum(c->counts, i), c->counts[i], err);
        for (int k = 0; k < n && (c->op == FAR_ALL_GATHER || c->op == FAR_ALL_TO_ALL); k++) {
            const far_collective *from = nodes[k]->collective;
            const bool gather = c->op == FAR_ALL_GATHER;
            const size_t bytes = (size_t)from->counts[gather ? k : i] * size;
            if (bytes)
                far_move(to,
                         nodes[k]->ranges[0].hidden +
                             (gather ? 0 : (size_t)far_sum(from->counts, i) * size),
                         bytes);
            to += bytes;
        }
    }
    if (c->op == FAR_ALL_REDUCE && c->counts[0]) {
        char *first = nodes[0]->ranges[1].hidden;
        s = far_reduce(nodes, n, first, 0, c->counts[0], err);
        for (int i = 1; i < n; i++)
            far_move(nodes[i]->ranges[1].hidden, first, (size_t)c->counts[0] * size);
    }
    return s;
}

static tt_status far_run_message(const far_node *n, tt_error *err)
{
    const far_collective *c = n->collective;
    far_box *b = far_box_of(c);
    if (c->op == FAR_SEND) {
        far_message *m = far_calloc(1, sizeof *m), **at = &b->first;
        m->bytes = n->ranges[0].bytes;
        m->data = far_calloc(m->bytes, 1);
        far_move(m->data, n->ranges[0].hidden, m->bytes);
        while (*at)
            at = &(*at)->next;
        *at = m;
        b->n_sent++;
        return TT_OK;
    }
    far_message *m = b->first;
    b->first = m->next;
    b->n_received++;
    tt_status s = TT_OK;
    if (m->bytes == n->ranges[1].bytes)
        far_move(n->ranges[1].hidden, m->data, m->bytes);
    else
        s = TT_FAIL(err, TT_ECOMM,
                    "far: message number %llu from rank %d to rank %d has %zu bytes, the receiver "
                    "expects %zu",
                    (unsigned long long)c->number + 1, c->group->ranks[c->peer],
                    c->group->ranks[c->me], m->bytes, n->ranges[1].bytes);
    free(m->data);
    free(m);
    return s;
}

void far_collective_run(far_node *n)
{
    far_collective *c = n->collective;
    far_group *g = far_group_ref(c->group);
    tt_error e = {0};
    tt_status s = far_group_status(g, &e);
    const bool alone = s != TT_OK || far_is_message(c->op);
    const int count = alone ? 1 : g->n;
    far_node **nodes = far_calloc((size_t)count, sizeof(far_node *));
    nodes[0] = n;
    for (int i = 0; !alone && i < count; i++)
        nodes[i] = far_find_call(g, i, c->number);
    for (int i = 0; s == TT_OK && i < count; i++)
        s = far_resolve(nodes[i], &e);
    if (s == TT_OK && !alone)
        s = far_check_same(nodes, count, &e);
    if (s == TT_OK)
        s = alone ? far_run_message(n, &e) : far_run_all(nodes, count, &e);
    if (s != TT_OK)
        far_group_break(g, &e);
    for (int i = 0; i < count; i++) {
        if (s != TT_OK)
            far_fail_rank(nodes[i]->rank, &e);
        far_call_over(nodes[i]);
    }
    free(nodes);
    far_group_drop(g);
}
