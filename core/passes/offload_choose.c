/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload_impl.h"
#include <stdlib.h>
#include <string.h>

/* Chooses which values are offloaded: those of the oldest blocks first, because they are kept longest,
 * and of a block the largest first. AUTO takes a value if all copies, one after the other at the speed
 * of the machine's link to host memory, are then over before the program would wait for them. */

#define LEAST_BYTES 4096 /* a smaller copy costs more than it frees */
#define LEAST_STARTS 2   /* AUTO: a copy takes at least as long as so many kernels take to start */

static int oldest_first(const void *a, const void *b)
{
    const tt_offload_value *x = *(tt_offload_value *const *)a, *y = *(tt_offload_value *const *)b;
    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->value->id > y->value->id) - (x->value->id < y->value->id);
}

/* ---- do all copies hide? ---- */

static void find_times(tt_offload_stage *s)
{
    for (int k = 0; k < OFFLOAD_LISTS; k++) {
        tt_offload_list *l = &s->list[k];
        l->time = tt_arena_array(s->a, (size_t)l->n + 1, sizeof *l->time);
        for (int i = 0; i < l->n; i++) {
            const tt_node *n = s->g->nodes.items[l->at[i]];
            const tt_seconds t = tt_node_seconds(s->g, n, s->o->machine);
            l->time[i + 1] = l->time[i] + t.compute + (n->async ? 0 : t.comm);
        }
    }
}

static double seconds_of(const tt_offload_stage *s, const tt_offload_value *c)
{
    const tt_machine *m = s->o->machine;
    return m->op_latency + (m->host_bandwidth > 0 ? (double)c->bytes / m->host_bandwidth : 0);
}

static bool copies_hide(const tt_offload_stage *s)
{
    const tt_offload_list *l = &s->list[OFFLOAD_F];
    double now = 0;
    for (int i = 0; i < s->n; i++) {
        const tt_offload_value *c = &s->values[i];
        if (!c->chosen)
            continue;
        now = TT_MAXV(now, l->time[c->copied + 1]) + seconds_of(s, c);
        if (now > l->time[c->freed])
            return false;
    }
    return true;
}

typedef struct fetch {
    int fetched, read;
    double seconds;
} fetch;

static int by_fetch(const void *a, const void *b)
{
    const fetch *x = a, *y = b;
    return x->fetched != y->fetched ? (x->fetched > y->fetched) - (x->fetched < y->fetched)
                                    : (x->read > y->read) - (x->read < y->read);
}

static bool fetches_hide(const tt_offload_stage *s, int part, fetch *room)
{
    const tt_offload_list *l = &s->list[part];
    double now = 0;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->values[i].chosen && s->values[i].fetched[part] < l->n)
            room[n++] = (fetch){s->values[i].fetched[part], s->values[i].read[part],
                                seconds_of(s, &s->values[i])};
    if (n)
        qsort(room, (size_t)n, sizeof *room, by_fetch);
    for (int i = 0; i < n; i++) {
        now = TT_MAXV(now, l->time[room[i].fetched]) + room[i].seconds;
        if (now > l->time[room[i].read])
            return false;
    }
    return true;
}

/* ---- the choice ---- */

static bool worth(const tt_offload_stage *s, const tt_offload_value *c)
{
    const tt_machine *m = s->o->machine;
    return c->bytes >= LEAST_BYTES &&
           (s->o->mode != TT_OFFLOAD_AUTO ||
            (double)c->bytes >= LEAST_STARTS * m->op_latency * m->host_bandwidth);
}

void tt_offload_choose(tt_offload_stage *s)
{
    const bool hidden = s->o->mode == TT_OFFLOAD_AUTO;
    tt_offload_value **order = tt_arena_array(s->a, (size_t)s->n + 1, sizeof *order);
    fetch *room = tt_arena_array(s->a, (size_t)s->n + 1, sizeof *room);
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++)
        order[i] = &s->values[i];
    qsort(order, (size_t)s->n, sizeof(tt_offload_value *), oldest_first);
    if (hidden)
        find_times(s);
    for (int i = 0; i < s->n; i++) {
        tt_offload_value *c = order[i];
        if (!worth(s, c) || (s->o->most_bytes > 0 && sum + c->bytes > s->o->most_bytes))
            continue;
        c->chosen = true;
        if (hidden && (!copies_hide(s) || !fetches_hide(s, OFFLOAD_I, room) ||
                       !fetches_hide(s, OFFLOAD_W, room)))
            c->chosen = false;
        sum += c->chosen ? c->bytes : 0;
    }
}
