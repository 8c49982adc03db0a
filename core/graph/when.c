/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/when.h"
#include "graph/graph.h"

/* The interned tt_when objects of a graph, in lists by stage. */

typedef struct tt_when_entry {
    tt_when when;
    struct tt_when_entry *next;
} tt_when_entry;

bool tt_when_same_times(const tt_when *a, const tt_when *b)
{
    return a == b ||
           (tt_when_same_part(a, b) && a->in_chunk_loop == b->in_chunk_loop &&
            a->per_step == b->per_step && a->measured == b->measured &&
            a->early_update == b->early_update && a->replicated_stages == b->replicated_stages);
}

static bool when_equal(const tt_when *a, const tt_when *b)
{
    return tt_when_same_times(a, b) && a->recomputed == b->recomputed;
}

/* A stage has about ten objects; a list has the objects of every TT_WHEN_LISTS-th stage. */
static int when_list(const tt_when *w)
{
    return w->stage % TT_WHEN_LISTS;
}

static const tt_when_entry *when_find(const tt_graph *g, const tt_when *w)
{
    const tt_when_entry *e = g->whens.list[when_list(w)];
    while (e && !when_equal(&e->when, w))
        e = e->next;
    return e;
}

bool tt_when_is_interned(const tt_graph *g, const tt_when *w)
{
    const tt_when_entry *e = w ? when_find(g, w) : NULL;
    return e && &e->when == w;
}

const tt_when *tt_when_intern(tt_graph *g, tt_when w)
{
    const tt_when_entry *known = when_find(g, &w);
    if (known)
        return &known->when;
    tt_when_entry **list = &g->whens.list[when_list(&w)];
    tt_when_entry *e = tt_arena_alloc(g->arena, sizeof *e);
    *e = (tt_when_entry){.when = w, .next = *list};
    *list = e;
    return &e->when;
}
