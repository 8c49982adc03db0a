/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "graph/rewrite.h"
#include "passes/passes.h"
#include <string.h>

/* expert_loads: how many slots each expert has in a step, for the logs and for the biases of routers. The forward
 * counts (expert_count), so what is computed again does not count twice. The layers of a stage share
 * one accumulator [layers, E] of f64, which the epilogue reduces once; stage 0, which rank 0 has, gets
 * the sums that are logged. */

static bool is_read(const tt_graph *g, const tt_expert_load *l)
{
    bool read = l->name != NULL;
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        read = read || g->buffer_updates.items[i].stat == l->counts;
    return read;
}

static bool can_share(const tt_value *a, const tt_value *b)
{
    return a->node->when->stage == b->node->when->stage &&
           a->type.dims[0].size == b->type.dims[0].size && tt_placement_equal(&a->place, &b->place);
}

/* [layers, E], cut and pending as counts [E] are */
static tt_state *loads_accumulator(tt_graph *g, const char *name, const tt_value *counts,
                                   int layers)
{
    const tt_dim dims[2] = {TT_DIM(layers, NULL), counts->type.dims[0]};
    const tt_type type = {
        .dtype = TT_F64, .n_dims = 2, .dims = {dims[0], dims[1]}
    };
    tt_placement place = counts->place;
    place.n[1] = counts->place.n[0];
    memcpy(place.atom[1], counts->place.atom[0], sizeof place.atom[0]);
    place.n[0] = 0;
    memset(place.atom[0], 0, sizeof place.atom[0]);
    return tt_state_new(g, TT_STATE_ACCUMULATOR, tt_arena_printf(g->arena, "%s.accumulated", name),
                        &type, &place);
}

/* `whole` of these layers on stage 0, where the host reads it. */
static const char *give_host(tt_builder *b, const char *name, tt_value *whole)
{
    const tt_placement replicated = {0};
    tt_builder_at(b, TT_EPILOGUE, 0, -1, name);
    tt_value *v = tt_transfer_direct(b, whole, 0);
    tt_state *m =
        tt_state_new(tt_builder_graph(b), TT_STATE_METRIC, name, &whole->type, &replicated);
    m->for_host = true;
    m->stages |= 1;
    tt_state_assign(b, m, v);
    return m->name;
}

/* The loads that share an accumulator with load `at`, the first of them. */
static void sum_loads(tt_builder *b, size_t at, bool *done)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_value *first = g->loads.items[at].counts;
    const int stage = first->node->when->stage;
    const char *name = tt_arena_printf(g->arena, "experts.%zu", at);
    const tt_placement replicated = {0};
    bool logged = false;
    int n = 0;
    for (size_t i = at; i < g->loads.n; i++)
        n += !done[i] && is_read(g, &g->loads.items[i]) &&
             can_share(first, g->loads.items[i].counts);
    tt_state *sums = loads_accumulator(g, name, first, n);
    n = 0;
    for (size_t i = at; i < g->loads.n; i++) {
        tt_expert_load *l = &g->loads.items[i];
        if (done[i] || !is_read(g, l) || !can_share(first, l->counts))
            continue;
        tt_builder_at(b, TT_FORWARD, stage, l->counts->node->block, name);
        tt_accumulate_copies(b, sums, n, l->counts);
        l->row = n++;
        logged = logged || l->name;
        done[i] = true;
    }
    tt_builder_at(b, TT_EPILOGUE, stage, -1, name);
    tt_value *whole = tt_redistribute(b, tt_state_read(b, sums), &replicated);
    const char *metric = logged ? give_host(b, name, whole) : NULL;
    for (size_t i = at; i < g->loads.n; i++)
        if (done[i] && !g->loads.items[i].whole) {
            g->loads.items[i].whole = whole;
            g->loads.items[i].metric = g->loads.items[i].name ? metric : NULL;
        }
}

tt_status tt_pass_expert_loads(tt_builder *b, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    bool *done = tt_arena_array(g->arena, g->loads.n + 1, sizeof *done);
    if (!g->loads.n)
        return TT_OK;
    tt_builder_follow(b, true);
    for (size_t i = 0; i < g->loads.n; i++)
        if (!done[i] && is_read(g, &g->loads.items[i]))
            sum_loads(b, i, done);
    for (size_t i = 0; i < g->buffer_updates.n; i++)
        for (size_t l = 0; l < g->loads.n; l++)
            if (g->buffer_updates.items[i].stat == g->loads.items[l].counts &&
                g->buffer_updates.items[i].whole_sum)
                g->buffer_updates.items[i].load = (int)l + 1;
    tt_builder_follow(b, false);
    TT_TRY(tt_builder_finish(b, err));
    return tt_graph_verify(g, "expert_loads", err);
}
