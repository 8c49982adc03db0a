/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/nodes_machines.h"
#include <stdlib.h>
#include <string.h>

/* Copies of states in the memory of nodes (peers.h): which ones there are, told in the meeting, and which of them a
 * start goes on from. */

/* A node has copies of its ranks and of its neighbour's, and perhaps as many that others may need. */
static int most_copies(const tt_machines *n)
{
    return 4 * n->o.nproc;
}

void tt_nodes_keep_copies(tt_machines *n)
{
    n->stock = calloc((size_t)n->o.n, sizeof *n->stock);
    n->peers = n->stock ? tt_peers_open(n->o.address) : NULL;
    if (n->peers)
        n->stock[n->o.me].port = tt_peers_port(n->peers);
}

/* ---- what there is ---- */

bool tt_nodes_told_stock(const tt_machines *n)
{
    for (int i = 1; n->stock && i < n->o.n; i++)
        if (n->links[i].fd >= 0 && n->stock[i].n < n->stock[i].total)
            return false;
    return true;
}

static bool is_copy(const tt_node_copy *c)
{
    return c->rank >= 0 && c->world > c->rank;
}

void tt_nodes_take_stock(tt_machines *n, int node, const tt_node_message *m)
{
    tt_node_stock *s = n->stock ? &n->stock[node] : NULL;
    if (!s || m->copies_total < 0 || m->copies_total > most_copies(n))
        return;
    if (!m->copies_before) {
        s->n = 0;
        s->total = m->copies_total;
        s->port = m->copies_port;
    }
    tt_node_copy *items = realloc(s->items, ((size_t)s->total + 1) * sizeof *items);
    if (!items)
        return;
    s->items = items;
    for (int k = 0; k < m->n_copies && s->n < s->total && m->copies_before <= s->n; k++)
        items[s->n++] = is_copy(&m->copies[k]) ? m->copies[k]
                                               : (tt_node_copy){
                                                     0, 0, {-1, -1}
        };
}

void tt_nodes_tell_stock(tt_machines *n, const tt_node_message *join)
{
    if (!n->peers)
        return;
    const int most = most_copies(n);
    tt_node_copy *all = calloc((size_t)most, sizeof *all);
    const int total = all ? tt_peers_stock(n->peers, all, most) : 0;
    if (join) {
        tt_node_message m = *join;
        m.copies_total = total;
        tt_node_send(&n->links[0], m);
    }
    for (int at = 0; at < total || (!at && !join); at += TT_NODE_COPIES_MOST) {
        tt_node_message m = tt_nodes_message(n, TT_NODE_COPIES, TT_OK, "");
        m.copies_total = total;
        m.copies_before = at;
        m.n_copies = TT_MIN(total - at, TT_NODE_COPIES_MOST);
        memcpy(m.copies, all + at, (size_t)m.n_copies * sizeof *all);
        if (n->o.me)
            tt_node_send(&n->links[0], m);
        else
            tt_nodes_take_stock(n, 0, &m);
    }
    free(all);
}

/* ---- node 0: the step that a start goes on from ---- */

static bool takes_part(const tt_machines *n, int node)
{
    return (node == 0 || n->links[node].fd >= 0) && n->place[node] >= 0;
}

static bool has_step(const tt_node_copy *c, int64_t step)
{
    return c->steps[0] == step || c->steps[1] == step;
}

/* The newest step before `before` of which any copy is there, of such a world or of any other one; -1: none. */
static int64_t any_before(const tt_machines *n, int world, bool same, int64_t before)
{
    int64_t newest = -1;
    for (int i = 0; i < n->o.n; i++)
        for (int k = 0; takes_part(n, i) && k < n->stock[i].n; k++) {
            const tt_node_copy *c = &n->stock[i].items[k];
            for (int slot = 0; slot < 2 && (c->world == world) == same; slot++)
                if (c->steps[slot] < before)
                    newest = TT_MAXV(newest, c->steps[slot]);
        }
    return newest;
}

/* Whether each rank of the world has a copy of this step; there: room for as many flags. */
static bool is_complete(const tt_machines *n, int world, int64_t step, bool *there)
{
    int found = 0;
    memset(there, 0, (size_t)world * sizeof *there);
    for (int i = 0; i < n->o.n; i++)
        for (int k = 0; takes_part(n, i) && k < n->stock[i].n; k++) {
            const tt_node_copy *c = &n->stock[i].items[k];
            if (c->world != world || !has_step(c, step) || there[c->rank])
                continue;
            there[c->rank] = true;
            found++;
        }
    return found == world;
}

int64_t tt_nodes_newest_copy(const tt_machines *n, int world)
{
    bool *there = n->peers ? calloc((size_t)world, sizeof *there) : NULL;
    int64_t step = there ? any_before(n, world, true, INT64_MAX) : -1;
    while (step >= 0 && !is_complete(n, world, step, there))
        step = any_before(n, world, true, step);
    free(there);
    return step;
}

static bool has_copy(const tt_node_stock *s, int rank, int world, int64_t step)
{
    for (int k = 0; k < s->n; k++)
        if (s->items[k].rank == rank && s->items[k].world == world && has_step(&s->items[k], step))
            return true;
    return false;
}

/* The newest step of which this node alone has copies of all ranks of some mesh, which has *world ranks; -1: none. */
static int64_t newest_of_node(const tt_machines *n, int node, int *world)
{
    const tt_node_stock *s = &n->stock[node];
    int64_t newest = -1;
    for (int k = 0; k < s->n; k++) {
        const tt_node_copy *c = &s->items[k];
        for (int slot = 0; slot < 2; slot++) {
            int rank = 0;
            while (rank < c->world && has_copy(s, rank, c->world, c->steps[slot]))
                rank++;
            if (rank < c->world || c->steps[slot] <= newest)
                continue;
            newest = c->steps[slot];
            *world = c->world;
        }
    }
    return newest;
}

int64_t tt_nodes_own_copy(const tt_machines *n)
{
    int world;
    return n->peers && tt_nodes_here(n) == 1 ? newest_of_node(n, 0, &world) : -1;
}

/* ---- node 0: who gets copies from whom ---- */

/* Where other nodes reach this one. One that has connected by the loopback is on node 0's machine. */
static void address_of(const tt_machines *n, int node, char out[64])
{
    const char *from = n->links[node].from;
    const bool here = node == 0 || !strncmp(from, "127.", 4) || !strcmp(from, "::1") ||
                      !strncmp(from, "::ffff:127.", 11);
    snprintf(out, 64, "%s", here ? n->o.address : from);
}

void tt_nodes_add_fetches(tt_machines *n, const tt_node_message *m)
{
    tt_peers_fetch *all =
        realloc(n->fetches, (size_t)(n->n_fetches + m->n_copies + 1) * sizeof *all);
    if (!all)
        return;
    n->fetches = all;
    for (int k = 0; k < m->n_copies; k++) {
        tt_peers_fetch *f = &all[n->n_fetches++];
        *f = (tt_peers_fetch){.rank = m->copies[k].rank, .port = m->neighbour_port};
        snprintf(f->host, sizeof f->host, "%s", m->neighbour);
    }
}

static void send_fetches(tt_machines *n, int node, tt_node_message *m)
{
    if (m->n_copies && node)
        tt_node_send(&n->links[node], *m);
    else if (m->n_copies)
        tt_nodes_add_fetches(n, m);
    m->n_copies = 0;
}

/* What the node lacks of its ranks' copies and the other one has. */
static void fetch_from(tt_machines *n, int node, int other)
{
    tt_node_message m = tt_nodes_message(n, TT_NODE_FETCH, TT_OK, "");
    m.copies_step = n->copies_step;
    address_of(n, other, m.neighbour);
    m.neighbour_port = n->stock[other].port;
    for (int k = 0; k < n->local; k++) {
        const int rank = n->place[node] * n->local + k;
        bool there = has_copy(&n->stock[node], rank, n->world, n->copies_step);
        for (int i = 0; i < other; i++) /* another node gives it */
            there = there || (i != node && takes_part(n, i) &&
                              has_copy(&n->stock[i], rank, n->world, n->copies_step));
        if (there || !has_copy(&n->stock[other], rank, n->world, n->copies_step))
            continue;
        m.copies[m.n_copies++] = (tt_node_copy){.rank = rank, .world = n->world};
        if (m.n_copies == TT_NODE_COPIES_MOST)
            send_fetches(n, node, &m);
    }
    send_fetches(n, node, &m);
}

/* A node that has all ranks of this start may have all copies of another mesh: two nodes have those of each other. */
static void take_other_mesh(tt_machines *n)
{
    for (int i = 0; i < n->o.n && n->n_now == 1; i++) {
        int world = 0;
        const int64_t step = takes_part(n, i) ? newest_of_node(n, i, &world) : -1;
        if (step <= n->copies_step)
            continue;
        n->copies_step = step;
        n->copies_world = world;
    }
}

void tt_nodes_plan_copies(tt_machines *n, int64_t least)
{
    n->copies_world = n->world;
    n->copies_step = least < 0 ? -1 : tt_nodes_newest_copy(n, n->world);
    if (!n->peers || least < 0)
        return;
    take_other_mesh(n);
    if (n->copies_step < least)
        n->copies_step = -1;
    const int64_t other = any_before(n, n->world, false, INT64_MAX);
    if (n->copies_step < 0 && other > least)
        tt_log(TT_INFO, "supervisor",
               "the copies in memory of step %lld are of another mesh; goes on from the checkpoint "
               "of step %lld",
               (long long)other, (long long)least);
    const bool same = n->copies_step >= 0 && n->copies_world == n->world;
    for (int i = 0; same && i < n->o.n; i++)
        for (int k = 0; takes_part(n, i) && k < n->o.n; k++)
            if (k != i && takes_part(n, k))
                fetch_from(n, i, k);
}

void tt_nodes_fill_start(const tt_machines *n, int node, tt_node_message *m)
{
    m->copies_step = n->copies_step;
    m->copies_world = n->copies_world;
    m->neighbour[0] = 0;
    m->neighbour_port = 0;
    for (int i = 0; n->peers && n->n_now > 1 && i < n->o.n; i++)
        if (takes_part(n, i) && n->place[i] == (n->place[node] + 1) % n->n_now &&
            n->stock[i].port) {
            address_of(n, i, m->neighbour);
            m->neighbour_port = n->stock[i].port;
        }
}

/* ---- each node: a start ---- */

void tt_nodes_hear_start(tt_machines *n, const tt_node_message *m)
{
    n->copies_step = m->copies_step;
    n->copies_world = m->copies_world;
    n->neighbour_port = m->neighbour_port;
    snprintf(n->neighbour, sizeof n->neighbour, "%s", m->neighbour);
}

const int *tt_nodes_begin_copies(tt_machines *n)
{
    tt_peers_start s = {.start = n->start,
                        .me = n->o.me,
                        .place = n->my_place,
                        .nodes = n->n_now,
                        .local = n->local,
                        .world = n->world,
                        .step = n->copies_step,
                        .from_world = n->copies_world,
                        .neighbour_port = n->neighbour_port,
                        .fetches = n->fetches,
                        .n_fetches = n->n_fetches,
                        .signal_fd = n->signals->fd};
    snprintf(s.neighbour, sizeof s.neighbour, "%s", n->neighbour);
    return n->peers ? tt_peers_begin(n->peers, &s) : NULL;
}

const int *tt_nodes_copies_before(const tt_machines *n, int *count)
{
    *count = 0;
    return n->peers ? tt_peers_before(n->peers, count) : NULL;
}

void tt_nodes_tidy_copies(tt_machines *n)
{
    if (n->peers)
        tt_peers_tidy(n->peers);
}
