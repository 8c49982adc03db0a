/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "graph/rewrite.h"
#include "passes/passes.h"

/* buffers: while the micro-batches run, the statistic of each buffer is summed where the forward
 * makes it, or its maximum is kept. Once per step, after the update, the buffer gets the value that
 * its function returns. */

tt_status tt_pass_buffer_sums(tt_builder *b, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    for (size_t i = 0; i < g->buffer_updates.n; i++) {
        tt_buffer_entry *e = &g->buffer_updates.items[i];
        const tt_value *v = e->stat;
        if (e->sum || e->load)
            continue;
        tt_builder_at(b, v->node->when->region, v->node->when->stage, v->node->block,
                      e->state->name);
        e->sum = tt_state_new(g, TT_STATE_ACCUMULATOR,
                              tt_arena_printf(g->arena, "%s.accumulated", e->state->name), &v->type,
                              &v->place);
        e->sum->accumulate_max = e->max;
        tt_accumulate_copies(b, e->sum, -1, e->stat);
    }
    return tt_builder_finish(b, err);
}

/* The sum of an expert_load's layer: a row of the sums of several layers. */
static tt_value *sum_of_load(tt_builder *b, const tt_expert_load *l)
{
    const tt_dim *d = l->whole->type.dims;
    tt_value *v = d[0].size > 1 ? tt_slice(b, l->whole, 0, l->row, l->row + 1) : l->whole;
    return tt_reshape(b, v, &d[1], 1);
}

/* What the buffer's function gets. */
static tt_value *statistic_of(tt_builder *b, const tt_buffer_entry *e, tt_state *inv_micro)
{
    if (e->load)
        return sum_of_load(b, &tt_builder_graph(b)->loads.items[e->load - 1]);
    tt_placement to = {0};
    bool same = e->state->type.n_dims == e->sum->type.n_dims;
    for (int d = 0; same && d < e->sum->type.n_dims; d++)
        same = e->state->type.dims[d].size == e->sum->type.dims[d].size;
    if (same) /* the update of a sharded buffer is sharded in the same way */
        to = e->state->place;
    tt_value *sum = tt_redistribute(b, tt_state_read(b, e->sum), &to);
    return e->max || e->whole_sum ? sum : tt_mul(b, sum, tt_state_read(b, inv_micro));
}

/* Updates the buffer on one of the stages that read it. A rank that also has a lower one of
 * these stages has updated it there. */
static void update_buffer(tt_builder *b, const tt_buffer_entry *e, tt_value *mean, uint64_t stages,
                          int stage)
{
    tt_state *s = e->state;
    tt_builder_replicated(b, stages & ((UINT64_C(1) << stage) - 1));
    tt_builder_at(b, TT_EPILOGUE, stage, -1, s->name);
    tt_value *stat = tt_transfer_direct(b, mean, stage);
    tt_builder_at(b, TT_POST_UPDATE, stage, -1, s->name);
    tt_value *v = e->fn(b, tt_state_read(b, s), stat, e->user);
    if (tt_builder_lacks(b, v, "the update of a buffer: what its function returned"))
        v = tt_placeholder(b);
    bool same = v->type.n_dims == s->type.n_dims;
    for (int d = 0; same && d < s->type.n_dims; d++)
        same = v->type.dims[d].size == s->type.dims[d].size;
    if (!same)
        tt_builder_fail(b, TT_EINVAL, "the new value of buffer %s has other dims than it", s->name);
    tt_state_assign(b, s, v);
    tt_builder_replicated(b, 0);
}

tt_status tt_pass_buffers(tt_builder *b, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_placement whole = {0};
    const tt_type scalar = {.dtype = TT_F32};
    tt_state *inv_micro = tt_graph_state(g, TT_STATE_SCALAR, TT_SCALAR_INV_MICRO);
    if (!g->buffer_updates.n)
        return TT_OK;
    if (!inv_micro)
        inv_micro = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_INV_MICRO, &scalar, &whole);
    tt_builder_follow(b, true);
    for (size_t i = 0; i < g->buffer_updates.n; i++) {
        const tt_buffer_entry *e = &g->buffer_updates.items[i];
        const int from = e->stat->node->when->stage;
        const uint64_t stages = e->state->stages ? e->state->stages : UINT64_C(1) << from;
        tt_builder_at(b, TT_EPILOGUE, from, -1, e->state->name);
        tt_value *mean = statistic_of(b, e, inv_micro);
        for (int st = 0; st < g->n_stages; st++)
            if (stages >> st & 1)
                update_buffer(b, e, mean, stages, st);
    }
    tt_builder_follow(b, false);
    TT_TRY(tt_builder_finish(b, err));
    return tt_graph_verify(g, "buffers", err);
}
