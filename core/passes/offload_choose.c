/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/offload_impl.h"
#include <stdlib.h>
#include <string.h>

/* Chooses which values are offloaded: those of the oldest blocks first, because they are kept longest,
 * and of a block the largest first. AUTO takes a value if all copies, one after the other at the speed
 * of the machine's link to host memory, are then over before the program would wait for them. SHARES does
 * the same of each block up to its share; then it takes the values whose copies may be late, too. */

#define LEAST_STARTS 2 /* a hidden copy takes at least as long as so many kernels take to start */

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

bool tt_offload_worth(const tt_machine *m, int64_t bytes)
{
    return bytes >= TT_OFFLOAD_LEAST_BYTES &&
           (double)bytes >= LEAST_STARTS * m->op_latency * m->host_bandwidth;
}

typedef struct offload_choice {
    tt_offload_stage *s;
    tt_offload_value **order;
    fetch *room;
    int64_t sum, *of_block; /* bytes chosen */
} offload_choice;

static tt_offload_share share_of(const offload_choice *k, const tt_offload_value *c)
{
    const tt_offload_opts *o = k->s->o;
    if (o->mode == TT_OFFLOAD_SHARES)
        return c->block < o->shares.n ? o->shares.of[c->block] : (tt_offload_share){0};
    return (tt_offload_share){.bytes = INT64_MAX, .late = o->mode == TT_OFFLOAD_ALL};
}

/* hidden: takes values whose copies hide, else all that the shares allow. */
static void offload_take(offload_choice *k, bool hidden)
{
    tt_offload_stage *s = k->s;
    for (int i = 0; i < s->n; i++) {
        tt_offload_value *c = k->order[i];
        const tt_offload_share share = share_of(k, c);
        if (c->chosen || !(hidden || share.late) || c->bytes < TT_OFFLOAD_LEAST_BYTES ||
            (hidden && !tt_offload_worth(s->o->machine, c->bytes)) ||
            c->bytes > share.bytes - k->of_block[c->block] ||
            (s->o->most_bytes > 0 && k->sum + c->bytes > s->o->most_bytes))
            continue;
        c->chosen = true;
        if (hidden && (!copies_hide(s) || !fetches_hide(s, OFFLOAD_I, k->room) ||
                       !fetches_hide(s, OFFLOAD_W, k->room)))
            c->chosen = false;
        if (c->chosen) {
            k->sum += c->bytes;
            k->of_block[c->block] += c->bytes;
        }
    }
}

void tt_offload_choose(tt_offload_stage *s)
{
    const size_t n = (size_t)s->n + 1;
    offload_choice k = {.s = s,
                        .order = tt_arena_array(s->a, n, sizeof *k.order),
                        .room = tt_arena_array(s->a, n, sizeof *k.room),
                        .of_block =
                            tt_arena_array(s->a, (size_t)s->g->n_blocks + 1, sizeof *k.of_block)};
    for (int i = 0; i < s->n; i++)
        k.order[i] = &s->values[i];
    qsort(k.order, (size_t)s->n, sizeof(tt_offload_value *), oldest_first);
    if (s->o->mode != TT_OFFLOAD_ALL) {
        find_times(s);
        offload_take(&k, true);
    }
    if (s->o->mode != TT_OFFLOAD_AUTO)
        offload_take(&k, false);
}
