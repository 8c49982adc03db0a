/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"
#include <stdlib.h>

/* Events: the last record of one is a node on a queue, or an item of a graph. */

tt_status far_event_new(void *self, int timed, tt_device_event **out, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "event_new", err));
    tt_device_event *e = far_calloc(1, sizeof *e);
    *e = (tt_device_event){.rank = r, .timed = timed != 0, .next = r->events};
    *out = r->events = e;
    far_unlock();
    return TT_OK;
}

void far_event_free(void *self, tt_device_event *e)
{
    far_rank *r = self;
    if (!e)
        return;
    far_begin_or_die(r, "event_free");
    tt_device_event **at = &r->events;
    while (*at && *at != e)
        at = &(*at)->next;
    if (!*at)
        far_misuse("event_free of an event that rank %d does not have", r->rank);
    *at = e->next;
    far_node_drop(e->node);
    free(e);
    far_unlock();
}

static tt_status far_check_event(const far_rank *r, const tt_device_event *e, const char *what,
                                 tt_error *err)
{
    if (!e || e->rank != r)
        return TT_FAIL(err, TT_EINVAL, "far: %s of %s", what,
                       e ? "an event of another rank" : "no event");
    return TT_OK;
}

tt_status far_record(void *self, tt_device_event *e, tt_device_queue *q, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "record", err));
    tt_status s = far_check_event(r, e, "record", err);
    if (s == TT_OK)
        s = far_check_queue(r, q, "record", err);
    if (s == TT_OK) {
        far_node *n = far_node_new(r, FAR_RECORD, "record", 0);
        far_node_drop(e->node);
        n->timed = e->timed;
        e->node = NULL;
        e->in_graph = q->capture != NULL;
        e->capture = q->capture;
        e->n_polls = 0;
        e->patience = (int)far_random(r, 4);
        if (q->capture) {
            e->item = far_graph_add(q->capture, q->captured_as, n);
        } else {
            e->node = far_node_ref(n);
            s = far_attach(q, n, err);
        }
    }
    return far_end(r, s);
}

static const far_rank *far_event_owner(const tt_device_event *e)
{
    for (const far_rank *r = far.ranks; r; r = r->next)
        for (const tt_device_event *i = r->events; i; i = i->next)
            if (i == e)
                return r;
    return NULL;
}

static tt_status far_wait_locked(far_rank *r, tt_device_queue *q, tt_device_event *e, tt_error *err)
{
    const far_rank *owner = far_event_owner(e);
    const bool peer = owner && owner != r;
    if (!owner)
        return TT_FAIL(err, TT_EINVAL, "far: wait for %s",
                       e ? "an event that was freed" : "no event");
    TT_TRY(far_check_queue(r, q, "wait", err));
    if (peer && (q->capture || e->in_graph))
        return TT_FAIL(err, TT_EINVAL, "far: a graph cannot hold an event of another rank");
    if (e->in_graph && !e->capture)
        return TT_FAIL(err, TT_EINVAL, "far: wait for an event that was last recorded in a graph");
    if (!e->in_graph && !e->node)
        return TT_OK;
    if (q->capture && !e->in_graph)
        return TT_FAIL(err, TT_EINVAL,
                       "far: a queue that is being captured waits for an event that was recorded "
                       "before: let the queue wait before capture_begin");
    if (e->in_graph && q->capture != e->capture)
        TT_TRY(far_graph_join(e->capture, q, err));
    far_node *n = far_node_new(r, FAR_WAIT, "wait", 0);
    n->of_item = e->item;
    n->target = e->node ? far_node_ref(e->node) : NULL;
    return far_put(q, n, err);
}

tt_status far_wait(void *self, tt_device_queue *q, tt_device_event *e, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "wait", err));
    const tt_status s = far_wait_locked(r, q, e, err);
    return far_end(r, s);
}

static tt_status far_rank_status(const far_rank *r, tt_error *err)
{
    if (!r->failed)
        return TT_OK;
    if (err)
        *err = r->error;
    return r->error.code;
}

tt_status far_sync(void *self, tt_device_event *e, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "sync", err));
    tt_status s = far_check_event(r, e, "sync", err);
    if (s == TT_OK && e->in_graph)
        s = TT_FAIL(err, TT_EINVAL, "far: sync of an event that was last recorded in a graph");
    if (s == TT_OK && e->node) {
        far_node *n = far_node_ref(e->node);
        far_force(r, n, true);
        far_observe(n);
        far_node_drop(n);
    }
    if (s == TT_OK)
        s = far_rank_status(r, err);
    return far_end(r, s);
}

int far_done(void *self, tt_device_event *e)
{
    far_rank *r = self;
    far_begin_or_die(r, "done");
    if (!e || e->rank != r || e->in_graph)
        far_misuse("done of %s", e ? "an event of another rank, or of a graph" : "no event");
    if (e->node && !e->node->ran && e->n_polls++ >= e->patience)
        far_force(r, e->node, false);
    const int done = !e->node || e->node->ran || r->failed;
    if (e->node && e->node->ran)
        far_observe(e->node);
    far_unlock();
    return done;
}

int far_reaches(void *self, void *other)
{
    const far_rank *r = self, *o = other;
    return r && o && !r->is_target && !o->is_target && r->config.peers && o->config.peers;
}

static tt_status far_check_time(const far_rank *r, const tt_device_event *e, tt_error *err)
{
    TT_TRY(far_check_event(r, e, "seconds", err));
    if (!e->timed)
        return TT_FAIL(err, TT_EINVAL, "far: seconds of an event that is not timed");
    if (!e->node)
        return TT_FAIL(err, TT_EINVAL, "far: seconds of an event that was %s",
                       e->in_graph ? "recorded in a graph" : "never recorded");
    if (!e->node->observed)
        return TT_FAIL(err, TT_EBUSY, "far: seconds of an event that the host did not wait for");
    return TT_OK;
}

tt_status far_seconds(void *self, tt_device_event *from, tt_device_event *to, double *out,
                      tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "seconds", err));
    tt_status s = far_check_time(r, from, err);
    if (s == TT_OK)
        s = far_check_time(r, to, err);
    if (s == TT_OK)
        *out = ((double)to->node->time_ns - (double)from->node->time_ns) * 1e-9;
    return far_end(r, s);
}
