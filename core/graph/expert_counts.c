/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <string.h>

/* The counts of the slots of experts: one node per assignment, which the update of a router's bias and the
 * logged loads share. */

static tt_expert_load *find_load(tt_builder *b, const tt_value *assign, int64_t n_experts)
{
    for (size_t i = 0; i < b->g->loads.n; i++) {
        tt_expert_load *l = &b->g->loads.items[i];
        if (l->assign == assign && l->of == TT_LOAD && l->counts->type.dims[0].size == n_experts)
            return l;
    }
    return NULL;
}

static tt_expert_load *load_of(tt_builder *b, tt_value *assign, int64_t n_experts)
{
    const tt_attrs_dims a = {.n_dims = 1, .dims = {TT_DIM(n_experts, NULL)}};
    tt_expert_load *l = find_load(b, assign, n_experts);
    if (l)
        return l;
    tt_value *counts = NULL;
    tt_op(b, "expert_count", &assign, 1, &a, &counts, 1);
    if (b->failed)
        return NULL;
    const tt_expert_load made = {.assign = assign, .counts = counts};
    tt_vec_push(b->arena, &b->g->loads, made);
    return &b->g->loads.items[b->g->loads.n - 1];
}

tt_value *tt_expert_counts(tt_builder *b, tt_value *assign, int64_t n_experts)
{
    if (tt_local_refuses(b, "tt_expert_counts"))
        return tt_placeholder(b);
    const tt_expert_load *l = load_of(b, assign, n_experts);
    return l ? l->counts : tt_placeholder(b);
}

static bool name_is_taken(const tt_graph *g, const char *name)
{
    for (size_t i = 0; i < g->loads.n; i++)
        if (g->loads.items[i].name && !strcmp(g->loads.items[i].name, name))
            return true;
    return false;
}

/* "layers.3" of the scope "model.layers.3.mlp": up to its last number. A second layer there: "layers.3.2". */
static const char *name_of_layer(tt_builder *b)
{
    const char *s = b->scope, *end = s + strlen(s);
    if (!strncmp(s, "model.", 6))
        s += 6;
    for (const char *p = end; p > s; p--)
        if (p[-1] >= '0' && p[-1] <= '9') {
            end = p;
            break;
        }
    const char *name =
                   *s ? tt_arena_printf(b->arena, "%.*s", (int)TT_MIN(end - s, 64), s) : "experts",
               *first = name;
    for (int i = 2; name_is_taken(b->g, name); i++)
        name = tt_arena_printf(b->arena, "%s.%d", first, i);
    return name;
}

void tt_builder_log_experts(tt_builder *b, tt_value *assign, int64_t n_experts)
{
    if (b->failed || b->g->placed || b->local || !b->opts.log_experts)
        return;
    tt_expert_load *l = load_of(b, assign, n_experts);
    if (l && !l->name)
        l->name = name_of_layer(b);
}
