/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/measure.h"
#include "graph/copies.h"
#include "graph/rewrite.h"
#include "passes/norm.h"
#include <string.h>
#include <ttrun/ops.h>

/* measure: what measured steps compute beside training: sums over each parameter's gradient, value and
 * change, and the largest logit of attention. All of it is in nodes whose tt_when is `measured`, so other
 * steps do not run it. Each rank computes what it has; the host adds up (core/train/measure.c), so the
 * program has no further collective. */

/* A metric of v's box, which the measured node writes. */
static tt_state *new_metric(tt_builder *b, tt_measured_kind kind, size_t number, const tt_value *v)
{
    static const char *const names[] = {"gradient", "weight", "update", "logits"};
    tt_graph *g = tt_builder_graph(b);
    const char *name = tt_arena_printf(g->arena, "measured.%s.%zu", names[kind], number);
    tt_state *s = tt_state_new(g, TT_STATE_METRIC, name, &v->type, &v->place);
    s->for_host = true;
    return s;
}

static void measure_add(tt_builder *b, const tt_measured *m)
{
    tt_graph *g = tt_builder_graph(b);
    tt_vec_push(g->arena, &g->measured, *m);
}

void tt_measure_stack(tt_builder *b, tt_measured_kind kind, const tt_stack *s, int first,
                      tt_value *x)
{
    tt_value *sums = NULL;
    x = tt_cast(b, x, TT_F32);
    tt_op(b, "member_stats", &x, 1, NULL, &sums, 1);
    if (tt_builder_error(b))
        return;
    tt_state *state = new_metric(b, kind, tt_builder_graph(b)->measured.n, sums);
    tt_state_assign(b, state, sums);
    state->stages |= UINT64_C(1) << tt_stage_of_stack(s);
    measure_add(b, &(tt_measured){.kind = kind, .state = state, .stack = s, .first = first});
}

void tt_measure_gradients(tt_builder *b, tt_value *const *grads)
{
    const tt_graph *g = tt_builder_graph(b);
    for (size_t i = 0; i < g->stacks.n; i++) {
        const tt_stack *s = g->stacks.items[i];
        if (!grads[i])
            continue;
        tt_builder_at(b, TT_EPILOGUE, tt_stage_of_stack(s), -1, "measure");
        tt_builder_measured(b, true);
        tt_measure_stack(b, TT_MEASURED_GRADIENT, s, 0, grads[i]);
        tt_measure_stack(b, TT_MEASURED_WEIGHT, s, 0, tt_state_read(b, s->param));
        tt_builder_measured(b, false);
    }
}

/* ---- attention's largest logit ---- */

/* The maximum of an attention node's heads over all micro-batches. sum: of the same node of another
 * micro-batch; NULL: this is the first one. */
static void accumulate_logits(tt_builder *b, const tt_node *n, bool every_step, tt_state *sum)
{
    tt_graph *g = tt_builder_graph(b);
    tt_attrs_attention a = *(const tt_attrs_attention *)n->attrs;
    tt_value *const in[6] = {n->in[0], n->in[1], n->in[3], n->in[4], n->in[5], n->in[6]};
    tt_value *heads = NULL;
    const char *name = tt_arena_printf(g->arena, "measured.heads.%zu", g->logits.n);
    a.softcap = a.dropout = 0;
    a.bias = 0;
    tt_builder_at(b, TT_FORWARD, n->when->stage, n->block, n->scope);
    tt_builder_measured(b, !every_step);
    tt_op(b, "attention_max", in, 6, &a, &heads, 1);
    if (tt_builder_error(b))
        return;
    if (sum) {
        tt_accumulate(b, sum, -1, heads);
        return;
    }
    sum = tt_state_new(g, TT_STATE_ACCUMULATOR, name, &heads->type, &heads->place);
    sum->accumulate_max = true;
    tt_accumulate(b, sum, -1, heads);
    const tt_measured m = {.kind = TT_MEASURED_LOGITS, .state = sum, .scope = n->scope};
    tt_vec_push(g->arena, &g->logits, m);
}

/* In the epilogue of a measured step the accumulated maxima become metrics of their stages. */
static void write_logits(tt_builder *b)
{
    tt_graph *g = tt_builder_graph(b);
    for (size_t i = 0; i < g->logits.n && !tt_builder_error(b); i++) {
        tt_measured m = g->logits.items[i];
        const int stage = __builtin_ctzll(m.state->stages);
        tt_builder_at(b, TT_EPILOGUE, stage, -1, m.scope);
        tt_builder_measured(b, true);
        tt_value *heads = tt_state_read(b, m.state);
        m.state = new_metric(b, TT_MEASURED_LOGITS, i, heads);
        tt_state_assign(b, m.state, heads);
        m.state->stages |= UINT64_C(1) << stage;
        measure_add(b, &m);
    }
}

tt_status tt_pass_measure_logits(tt_builder *b, bool every_step, bool metrics, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const size_t n = g->nodes.n;
    const uint8_t *copies = tt_graph_copies_of_values(g, g->arena);
    size_t seen[TT_MAX_INTERLEAVED] = {0}; /* by copy: attention nodes, each after that of copy 0 */
    tt_node **list = tt_arena_array(g->arena, n + 1, sizeof *list);
    TT_VEC(tt_node *) all = {0};
    memcpy(list, g->nodes.items, n * sizeof *list);
    tt_builder_follow(b, true);
    for (size_t i = 0; i < n && !tt_builder_error(b); i++) {
        const size_t first = g->nodes.n;
        tt_vec_push(g->arena, &all, list[i]);
        if (list[i]->op != &tt_op_attention || list[i]->role == TT_NODE_EXPANDED)
            continue;
        const int c = g->interleaved ? __builtin_ctz(copies[list[i]->out[0]->id] | 1u << 7) : 0;
        tt_state *sum = c ? g->logits.items[seen[c]].state : NULL;
        seen[c]++;
        accumulate_logits(b, list[i], every_step, sum);
        for (size_t k = first; k < g->nodes.n; k++) /* directly behind, while q and k are there */
            tt_vec_push(g->arena, &all, g->nodes.items[k]);
    }
    if (!tt_builder_error(b)) {
        g->nodes.items = all.items;
        g->nodes.n = all.n;
        g->nodes.cap = all.cap;
        if (metrics)
            write_logits(b);
    }
    tt_builder_measured(b, false);
    tt_builder_follow(b, false);
    tt_builder_at(b, TT_FORWARD, g->n_stages - 1, -1, "measure");
    TT_TRY(tt_builder_finish(b, err));
    return tt_graph_verify(g, "measure", err);
}
