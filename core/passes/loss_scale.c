/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"
#include "plan/plan.h"

/* loss_scale: a factor on the loss, so that gradients do not underflow in float16. It is state of the
 * program, as R7 wants it: the host decides nothing, and late numbers (metrics.lag) change no bit. The
 * rule is torch.amp.GradScaler's: after a step whose gradients are not finite the scale is halved, and
 * that step updates nothing; after `window` steps in a row that are finite it is doubled. All scales
 * are powers of two, so scaling and unscaling round nothing. */

void tt_loss_scale_make(tt_graph *g, const tt_loss_scale_opts *o)
{
    if (o->initial <= 0)
        return;
    g->loss_scale = tt_arena_alloc(g->arena, sizeof *g->loss_scale);
    *g->loss_scale = (tt_loss_scale){
        .scale = tt_trainer_number(g, "optimizer.loss_scale", o->initial),
        .good = o->window ? tt_trainer_number(g, "optimizer.loss_scale_good_steps", 0) : NULL,
        .window = o->window,
    };
    if (o->window)
        tt_skip_make(g);
}

tt_value *tt_loss_scaled(tt_builder *b, tt_value *v)
{
    const tt_loss_scale *s = tt_builder_graph(b)->loss_scale;
    return s ? tt_mul(b, v, tt_state_read(b, s->scale)) : v;
}

tt_value *tt_loss_unscale(tt_builder *b)
{
    const tt_loss_scale *s = tt_builder_graph(b)->loss_scale;
    return s ? tt_div(b, tt_const(b, 1, TT_F32), tt_state_read(b, s->scale)) : NULL;
}

/* Gradients are passed on by accumulators, whose additions precede their readers. */
void tt_loss_scale_mark(tt_graph *g)
{
    if (!g->loss_scale || !g->loss_scale->window)
        return;
    bool *sums = tt_arena_array(g->arena, g->states.n + 1, sizeof *sums); /* by state id */
    sums[g->loss_scale->scale->id] = true;
    for (size_t i = 0; i < g->nodes.n; i++) {
        tt_node *n = g->nodes.items[i];
        const tt_state *s = n->op == &tt_op_state ? n->state : NULL;
        if (n->when->region > TT_EPILOGUE)
            continue;
        n->scaled = s && sums[s->id];
        for (int j = 0; j < n->n_in; j++)
            n->scaled = n->scaled || n->in[j]->node->scaled;
        for (int k = 0; n->scaled && (s = tt_plan_written(n, k)); k++)
            sums[s->id] = true;
    }
}

/* ok: f32, 1 if the step's gradients are finite, else 0. */
static void adapt(tt_builder *b, const tt_loss_scale *s, tt_value *ok)
{
    tt_value *one = tt_const(b, 1, TT_F32), *zero = tt_const(b, 0, TT_F32);
    tt_value *scale = tt_state_read(b, s->scale), *finite = tt_less(b, zero, ok);
    /* ok is 0 or 1: after a step that is not finite the count begins again at 0 */
    tt_value *good = tt_mul(b, tt_add(b, tt_state_read(b, s->good), one), ok);
    tt_value *full = tt_less_equal(b, tt_const(b, (double)s->window, TT_F32), good);
    tt_value *least = tt_const(b, TT_LEAST_LOSS_SCALE, TT_F32);
    tt_value *less = tt_maximum(b, tt_mul(b, scale, tt_const(b, 0.5, TT_F32)), least);
    tt_value *more = tt_minimum(b, tt_mul(b, scale, tt_const(b, 2, TT_F32)),
                                tt_const(b, TT_LARGEST_LOSS_SCALE, TT_F32));
    scale = tt_select(b, finite, tt_select(b, full, more, scale), less);
    tt_state_assign(b, s->scale, scale);
    tt_state_assign(b, s->good, tt_select(b, full, zero, good));
}

static void report_scale(tt_builder *b, const tt_loss_scale *s, int stage)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_placement whole = {0};
    const tt_type f32 = {.dtype = TT_F32};
    tt_state *metric = tt_graph_state(g, TT_STATE_METRIC, TT_METRIC_LOSS_SCALE);
    if (!metric)
        metric = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_LOSS_SCALE, &f32, &whole);
    tt_builder_at(b, TT_EPILOGUE, stage, -1, "loss_scale");
    tt_state_assign(b, metric, tt_state_read(b, s->scale));
    metric->stages |= UINT64_C(1) << stage;
}

void tt_loss_scale_update(tt_builder *b, tt_value *const *finite)
{
    const tt_graph *g = tt_builder_graph(b);
    const tt_loss_scale *s = g->loss_scale;
    for (int st = 0; s && st < g->n_stages; st++)
        if (finite[st])
            report_scale(b, s, st);
    /* a rank with several stages has one scale, so the lowest of them changes it */
    uint64_t below = 0;
    for (int st = 0; s && s->window && st < g->n_stages; st++) {
        if (!finite[st])
            continue;
        tt_builder_at(b, TT_EPILOGUE, st, -1, "loss_scale");
        tt_builder_replicated(b, below);
        adapt(b, s, finite[st]);
        tt_builder_replicated(b, 0);
        below |= UINT64_C(1) << st;
    }
}
