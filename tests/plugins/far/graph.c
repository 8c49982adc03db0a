/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"
#include <stdlib.h>

/* Graphs: work that was put on captured queues, as a list in the order in which it was put there.
 * launch puts a copy of the list on a queue; what came from other queues than the first goes to
 * queues of the graph's own. */

typedef struct far_item {
    int queue; /* 0: the queue that was captured; the others joined */
    far_node *node;
} far_item;

struct tt_device_graph {
    far_rank *rank;
    far_item *items;
    int n_items, room;
    tt_device_queue *captured[FAR_QUEUES], *own[FAR_QUEUES]; /* [0] of own is not used */
    int n_queues;
};

int far_graph_add(tt_device_graph *g, int queue, far_node *n)
{
    if (g->n_items == g->room) {
        g->room = 2 * g->room + 64;
        g->items = realloc(g->items, (size_t)g->room * sizeof *g->items);
        if (!g->items)
            far_misuse("no host memory for a graph of %d items", g->room);
    }
    g->items[g->n_items] = (far_item){queue, n};
    return g->n_items++;
}

tt_status far_graph_join(tt_device_graph *g, tt_device_queue *q, tt_error *err)
{
    if (q->capture)
        return TT_FAIL(err, TT_EINVAL, "far: a queue of one capture waits for work of another");
    q->capture = g;
    q->captured_as = g->n_queues;
    g->captured[g->n_queues++] = q;
    return TT_OK;
}

static void far_graph_drop(tt_device_graph *g)
{
    for (int i = 0; i < g->n_items; i++)
        far_node_drop(g->items[i].node);
    free(g->items);
    free(g);
}

tt_status far_capture_begin(void *self, tt_device_queue *q, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "capture_begin", err));
    tt_status s = far_check_queue(r, q, "capture_begin", err);
    if (s == TT_OK && q->capture)
        s = TT_FAIL(err, TT_EBUSY, "far: capture_begin on a queue that is being captured");
    if (s == TT_OK) {
        tt_device_graph *g = far_calloc(1, sizeof *g);
        g->rank = r;
        s = far_graph_join(g, q, err);
    }
    return far_end(r, s);
}

/* All work of queues that joined must be before the end of the first queue, through waits. */
static tt_status far_check_joined(const tt_device_graph *g, tt_error *err)
{
    bool *before = far_calloc((size_t)g->n_items, sizeof *before);
    bool open[FAR_QUEUES] = {true}; /* the queue's items further down are before the end */
    int alone = -1;
    for (int i = g->n_items - 1; i >= 0; i--) {
        const far_item *it = &g->items[i];
        if (before[i])
            open[it->queue] = true;
        if (open[it->queue] && it->node->kind == FAR_WAIT)
            before[it->node->of_item] = true;
        else if (!open[it->queue] && alone < 0)
            alone = i;
    }
    free(before);
    if (alone < 0)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL,
                   "far: capture_end: \"%s\" on a queue that joined the capture is not awaited by "
                   "the queue of capture_begin",
                   g->items[alone].node->name);
}

tt_status far_capture_end(void *self, tt_device_queue *q, tt_device_graph **out, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "capture_end", err));
    tt_status s = far_check_queue(r, q, "capture_end", err);
    if (s == TT_OK && (!q->capture || q->captured_as != 0))
        s = TT_FAIL(err, TT_EINVAL, "far: capture_end on a queue on which no capture began");
    if (s == TT_OK) {
        tt_device_graph *g = q->capture;
        s = far_check_joined(g, err);
        for (int i = 0; i < g->n_queues; i++)
            g->captured[i]->capture = NULL;
        for (tt_device_event *e = r->events; e; e = e->next)
            if (e->capture == g)
                e->capture = NULL;
        if (s == TT_OK) {
            *out = g;
            r->n_graphs++;
        } else {
            far_graph_drop(g);
        }
    }
    return far_end(r, s);
}

static tt_status far_launch_items(tt_device_graph *g, tt_device_queue *q, far_node **copies,
                                  tt_error *err)
{
    for (int i = 0; i < g->n_items; i++) {
        const far_item *it = &g->items[i];
        far_node *n = copies[i] = far_node_again(it->node);
        if (n->kind == FAR_WAIT)
            n->target = far_node_ref(copies[it->node->of_item]);
        TT_TRY(far_attach(it->queue ? g->own[it->queue] : q, far_node_ref(n), err));
    }
    return TT_OK;
}

tt_status far_launch(void *self, tt_device_graph *g, tt_device_queue *q, tt_error *err)
{
    far_rank *r = self;
    for (int i = 1; g && i < g->n_queues; i++)
        if (!g->own[i])
            TT_TRY(far_queue_new(r, 0, &g->own[i], err));
    TT_TRY(far_begin(r, "launch", err));
    tt_status s = far_check_queue(r, q, "launch", err);
    if (s == TT_OK && !g)
        s = TT_FAIL(err, TT_EINVAL, "far: launch of no graph");
    if (s == TT_OK && q->capture)
        s = TT_FAIL(err, TT_EUNSUPPORTED, "far: launch on a queue that is being captured");
    if (s == TT_OK) {
        far_node **copies = far_calloc((size_t)g->n_items, sizeof(far_node *));
        s = far_launch_items(g, q, copies, err);
        for (int i = 0; i < g->n_items; i++)
            far_node_drop(copies[i]);
        free(copies);
    }
    return far_end(r, s);
}

void far_graph_free(void *self, tt_device_graph *g)
{
    if (!g)
        return;
    for (int i = 1; i < g->n_queues; i++)
        far_queue_free(self, g->own[i]);
    far_begin_or_die(self, "graph_free");
    g->rank->n_graphs--;
    far_graph_drop(g);
    far_unlock();
}
