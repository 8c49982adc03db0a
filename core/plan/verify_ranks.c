/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Checks all ranks of a mesh against each other before any of them runs: no rank waits for ever,
 * and the operands that members of a group give to a collective match. */

static bool has_async(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->async)
            return true;
    return false;
}

/* A transfer must change neither the type nor the placement of its value. */
static tt_status check_transfers(const tt_graph *g, tt_error *err)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_transfer)
            continue;
        const tt_value *from = n->in[0], *to = n->out[0];
        bool same = from->type.dtype == to->type.dtype && from->type.n_dims == to->type.n_dims &&
                    tt_placement_equal(&from->place, &to->place);
        for (int d = 0; same && d < to->type.n_dims; d++)
            same = from->type.dims[d].size == to->type.dims[d].size &&
                   from->type.dims[d].unit == to->type.dims[d].unit &&
                   from->type.dims[d].lines == to->type.dims[d].lines;
        if (!same)
            return TT_FAIL(err, TT_EINTERNAL,
                           "stage %d sends %%%d in another shape than stage %d receives it in",
                           from->node->when->stage, from->id, n->when->stage);
    }
    return TT_OK;
}

static tt_status finish(const tt_graph *g, const tt_messages_opts *o, int n_buffers, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_messages w;
    tt_error why = {0};
    tt_status s = tt_plan_messages(g, o, a, &w, &why);
    if (s == TT_OK)
        s = tt_messages_run(&w, n_buffers, &why);
    tt_arena_free(a);
    if (s == TT_OK)
        return TT_OK;
    return TT_FAIL(err, TT_EINTERNAL, "the ranks' programs (%s) do not fit together: %s",
                   o->programs->schedule->name, why.text);
}

tt_status tt_plan_check_ranks(const tt_graph *g, const tt_programs *p,
                              const tt_programs *unbuffered, const tt_program *outlines,
                              tt_error *err)
{
    if (!g->mesh || g->mesh->world < 2)
        return TT_OK;
    TT_TRY(check_transfers(g, err));
    TT_TRY(tt_plan_check_sizes(g, err));
    tt_arena *a = tt_arena_new();
    tt_messages_opts o = {.outlines = outlines ? outlines : tt_program_outlines(g, p->schedule, a)};
    const int last = has_async(g) ? TT_CONCURRENT_AT_WAIT : TT_CONCURRENT_QUEUES;
    tt_status s = TT_OK;
    for (int how = TT_CONCURRENT_QUEUES; s == TT_OK && how <= last; how++) {
        o.concurrency = (tt_concurrency)how;
        o.programs = p;
        s = finish(g, &o, TT_BUFFERED_SENDS, err);
        o.programs = unbuffered;
        if (s == TT_OK && unbuffered)
            s = finish(g, &o, 0, err);
    }
    tt_arena_free(a);
    return s;
}
