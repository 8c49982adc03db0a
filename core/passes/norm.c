/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/norm.h"
#include <math.h>

/* Order p: (sum of |g|^p)^(1/p), as torch.nn.utils.clip_grad_norm_ with norm_type p. For orders other than 1, 2
 * and infinity the elements are divided by the largest one first, so that no power underflows. */

int tt_stage_of_stack(const tt_stack *s)
{
    return s->param->stages ? __builtin_ctzll(s->param->stages) : 0;
}

static bool is_max(double order)
{
    return isinf(order);
}

static bool is_general(double order)
{
    return !is_max(order) && (order < 1 || order > 1) && (order < 2 || order > 2);
}

static tt_value *combine(tt_builder *b, double order, tt_value *x, tt_value *y)
{
    return !x ? y : is_max(order) ? tt_maximum(b, x, y) : tt_add(b, x, y);
}

static tt_value *max_all(tt_builder *b, tt_value *x)
{
    for (int d = tt_value_type(x)->n_dims - 1; d >= 0; d--)
        x = tt_max(b, x, d, 0);
    return x;
}

/* Of the members [i, i + 1) of a stack's gradient. inverse: of the largest element; for a general order. */
static tt_value *of_member(tt_builder *b, tt_value *grad, int i, int n, double order,
                           tt_value *inverse)
{
    tt_value *x = n > 1 ? tt_slice(b, grad, 0, i, i + 1) : grad;
    x = tt_abs(b, tt_cast(b, x, TT_F32));
    if (is_max(order))
        return max_all(b, x);
    if (inverse)
        x = tt_pow(b, tt_mul(b, x, inverse), tt_const(b, order, TT_F32));
    return tt_sum_all(b, x);
}

/* A member at a time, so that what it needs beside the gradients is small. */
static tt_value *of_stack(tt_builder *b, const tt_stack *s, tt_value *grad, double order,
                          tt_value *inverse)
{
    tt_value *all = NULL;
    if (!is_max(order) && !inverse && order > 1)
        return tt_sum_squares(b, grad);
    for (int i = 0; i < s->n; i++)
        all = combine(b, order, all, of_member(b, grad, i, s->n, order, inverse));
    return all;
}

/* The part of a stage; NULL: it has no gradients. */
static tt_value *of_stage(tt_builder *b, tt_value *const *grads, const tt_update_opts *o, int stage,
                          double order, tt_value *inverse)
{
    const tt_placement whole = {0};
    tt_graph *g = tt_builder_graph(b);
    tt_value *clipped = NULL, *others = NULL;
    tt_builder_at(b, TT_EPILOGUE, stage, -1, "norm");
    for (size_t i = 0; i < g->stacks.n; i++) {
        const tt_stack *s = g->stacks.items[i];
        if (!grads[i] || tt_stage_of_stack(s) != stage)
            continue;
        if (o->groups[s->group + 1].unclipped)
            others = combine(b, 2, others, tt_sum_squares(b, grads[i]));
        else
            clipped = combine(b, order, clipped, of_stack(b, s, grads[i], order, inverse));
    }
    clipped = clipped ? tt_redistribute(b, clipped, &whole) : NULL;
    if (!others)
        return clipped;
    others = tt_scale(b, tt_redistribute(b, others, &whole), 0.0); /* NaN if one is not finite */
    return clipped ? tt_add(b, clipped, others) : others;
}

/* The parts of all stages that have gradients; returns how many. inverse: by stage. */
static int parts(tt_builder *b, tt_value *const *grads, const tt_update_opts *o, double order,
                 tt_value *const *inverse, tt_value **out)
{
    const int n_stages = tt_builder_graph(b)->n_stages;
    int n = 0;
    for (int st = 0; st < n_stages; st++) {
        tt_value *x = of_stage(b, grads, o, st, order, inverse ? inverse[st] : NULL);
        if (x)
            out[n++] = x;
    }
    return n;
}

/* Combines the stages' parts, where the builder is. */
static tt_value *of_stages(tt_builder *b, tt_value *const *stages, int n, double order)
{
    tt_value *all = NULL;
    if (!is_max(order))
        return tt_stage_sum(b, stages, n);
    for (int i = 0; i < n; i++) /* a sum of one stage's part is that part, on every stage */
        all = combine(b, order, all, tt_stage_sum(b, &stages[i], 1));
    return all;
}

void tt_norm_stages(tt_builder *b, tt_value *const *grads, const tt_update_opts *o, tt_norm *out)
{
    tt_value *maxima[TT_MAX_STAGES], *inverse[TT_MAX_STAGES] = {0};
    const double order = o->norm_order > 0 ? o->norm_order : 2;
    *out = (tt_norm){.order = order};
    if (is_general(order)) {
        const int n = parts(b, grads, o, (double)INFINITY, NULL, maxima);
        for (int st = 0; n && st < tt_builder_graph(b)->n_stages; st++) {
            tt_builder_at(b, TT_EPILOGUE, st, -1, "norm");
            tt_value *m = out->largest[st] = of_stages(b, maxima, n, (double)INFINITY);
            tt_value *least = tt_const(b, 1e-30, TT_F32);
            inverse[st] = tt_div(b, tt_const(b, 1, TT_F32), tt_maximum(b, m, least));
        }
    }
    out->n = parts(b, grads, o, order, inverse, out->stages);
}

tt_value *tt_norm_whole(tt_builder *b, const tt_norm *n, int stage)
{
    tt_value *x = of_stages(b, n->stages, n->n, n->order);
    if (!is_general(n->order))
        return n->order > 1 && !is_max(n->order) ? tt_sqrt(b, x) : x;
    return tt_mul(b, tt_pow(b, x, tt_const(b, 1 / n->order, TT_F32)), n->largest[stage]);
}
