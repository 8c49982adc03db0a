/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "passes/passes.h"
#include "pipeline/schedule.h"
#include <float.h>

/* metrics: the numbers that a step reports about its loss, as graph ops: the sum over counted
 * tokens, and the largest mean of one sequence. They are placed in follow mode: each rank sums
 * the tokens that it has, and the epilogue reduces the sums once. */

void tt_graph_run_numbers(tt_graph *g)
{
    const tt_placement whole = {0};
    const tt_type i64 = {.dtype = TT_I64}, f64 = {.dtype = TT_F64};
    if (g->step)
        return;
    g->seed = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_SEED, &i64, &whole);
    g->step = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_STEP, &f64, &whole);
    g->seed->stages = g->step->stages = UINT64_MAX;
}

/* Accumulates v and its copies over the micro-batches without reducing it. The epilogue reduces the sum and
 * writes it to a state that the host reads. */
static void report(tt_builder *b, const char *name, tt_value *v, bool max)
{
    if (tt_builder_error(b))
        return;
    tt_graph *g = tt_builder_graph(b);
    const int at = v->node->when->stage;
    tt_builder_at(b, TT_FORWARD, at, -1, "metrics");
    tt_state *a =
        tt_state_new(g, TT_STATE_ACCUMULATOR, tt_arena_printf(g->arena, "%s.accumulated", name),
                     &v->type, &v->place);
    a->accumulate_max = max;
    tt_accumulate_copies(b, a, -1, v);
    const tt_placement whole = {0};
    tt_state *m = tt_state_new(g, TT_STATE_METRIC, name, &v->type, &whole);
    tt_value *stages[TT_MAX_STAGES];
    tt_builder_at(b, TT_EPILOGUE, at, -1, "metrics");
    tt_value *r = tt_redistribute(b, tt_state_read(b, a), &whole);
    if (g->n_stages > 1)
        stages[0] = r;
    for (int s = 0; s < g->n_stages; s++) {
        tt_builder_at(b, TT_EPILOGUE, s, -1, "metrics");
        tt_value *x = g->n_stages > 1 ? tt_stage_sum(b, stages, 1) : r;
        tt_state_assign(b, m, x);
        m->stages |= UINT64_C(1) << s;
    }
    tt_builder_at(b, TT_FORWARD, g->n_stages - 1, -1, "metrics");
}

/* An input of a micro-batch with an element per token. */
static tt_value *token_input(tt_builder *b, const char *name, int copy)
{
    tt_value *v = tt_input_per_token(b, name);
    return copy && !tt_builder_error(b) ? tt_input(b, tt_input_of_copy(tt_builder_graph(b)->arena,
                                                                       v->node->input_name, copy))
                                        : v;
}

/* The mean loss of each sequence's counted tokens, by their weights; 0 if there are none. */
static tt_value *mean_of_lines(tt_builder *b, const char *weights, tt_value *nll, int copy)
{
    tt_value *zero = tt_const(b, 0, TT_I32);
    tt_value *labels = tt_redistribute(b, token_input(b, "labels", copy), &nll->place);
    tt_value *counted = tt_cast(b, tt_less_equal(b, zero, labels), TT_F32);
    if (weights)
        counted =
            tt_mul(b, counted, tt_redistribute(b, token_input(b, weights, copy), &nll->place));
    tt_value *sums = tt_line_sum(b, nll);
    tt_value *counts = tt_line_sum(b, counted);
    tt_value *least = tt_const(b, weights ? (double)FLT_MIN : 1.0, TT_F32);
    return tt_div(b, sums, tt_maximum(b, counts, least));
}

static tt_value *with_copies(tt_graph *g, tt_value **v, int n)
{
    for (int c = 1; c < n; c++)
        tt_value_add_copy(g, v[0], v[c]);
    return v[0];
}

static tt_status check_loss(const tt_graph *g, bool *of_tokens, tt_error *err)
{
    const tt_type *t = g->loss ? &g->loss->type : NULL;
    if (!t)
        return TT_FAIL(err, TT_EINVAL, "the loss plugin returned no loss");
    *of_tokens = t->n_dims == 1 && t->dims[0].size == g->tokens;
    if (t->dtype != TT_F32 || t->n_dims != 1 || (!*of_tokens && t->dims[0].size != g->sequences))
        return TT_FAIL(err, TT_EINVAL, "the loss must be f32 [tokens] or [samples]");
    return TT_OK;
}

tt_status tt_pass_metrics(tt_builder *b, const char *weights, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    bool of_tokens = false;
    TT_TRY(check_loss(g, &of_tokens, err));
    tt_value *nll[TT_MAX_INTERLEAVED], *mean[TT_MAX_INTERLEAVED], *v[TT_MAX_INTERLEAVED] = {NULL};
    const int last = g->n_stages - 1, n = tt_value_n_copies(g->loss);
    for (int c = 0; c < n; c++) {
        nll[c] = tt_value_copy(g->loss, c);
        if (nll[c]->node->when->stage != last)
            nll[c] = tt_transfer(b, nll[c], last);
    }
    tt_builder_at(b, TT_FORWARD, last, -1, "metrics");
    tt_builder_follow(b, true);
    for (int c = 0; c < n; c++)
        mean[c] = of_tokens ? mean_of_lines(b, weights, nll[c], c) : nll[c];
    for (int c = 0; c < n; c++)
        v[c] = tt_sum_all(b, nll[c]);
    report(b, TT_METRIC_LOSS, with_copies(g, v, n), false);
    for (int c = 0; c < n; c++)
        v[c] = tt_max(b, mean[c], 0, 0);
    report(b, TT_METRIC_LOSS_MAX, with_copies(g, v, n), true);
    for (size_t i = 0; i < g->metrics.n; i++)
        report(b, g->metrics.items[i].state, g->metrics.items[i].value, false);
    tt_builder_follow(b, false);
    TT_TRY(tt_builder_finish(b, err));
    return tt_graph_verify(g, "metrics", err);
}

tt_status tt_pass_per_token(tt_builder *b, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    tt_value *v = g->loss;
    const tt_placement whole = {0};
    if (!v || v->type.dtype != TT_F32 || v->type.n_dims != 1 || v->type.dims[0].size != g->tokens)
        return TT_FAIL(err, TT_EINVAL, "reference() of the loss must return f32 [tokens]");
    const int stage = v->node->when->stage;
    tt_builder_at(b, TT_FORWARD, stage, -1, "reference");
    tt_state *s = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_PER_TOKEN, &v->type, &whole);
    s->stages = UINT64_C(1) << stage;
    tt_state_assign(b, s, tt_redistribute(b, v, &whole));
    return tt_builder_finish(b, err);
}
