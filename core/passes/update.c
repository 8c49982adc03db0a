/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"
#include "graph/rewrite.h"
#include "passes/expert_replicas.h"
#include "passes/measure.h"
#include "passes/norm.h"
#include "passes/qk_clip.h"
#include "passes/update_impl.h"
#include "pipeline/schedule.h"
#include <string.h>

/* update: reduces gradients that are still partial, computes the global norm and the clip factor
 * (epilogue), then runs every stack's optimizer (R13). All of it is placed in follow mode, so
 * every node computes where the parameters are stored. */

#define LOADS 32 /* an update whose states are in host memory takes about so many parts of them */

/* A stack's gradient with the placement of its stored parameters. What is still partial is
 * reduced in the reduce dtype, as in the backward (autodiff.c). */
static tt_value *reduced_to(tt_builder *b, tt_value *v, const tt_placement *stored)
{
    const tt_dtype to = tt_builder_graph(b)->precision.reduce;
    const tt_attrs_cast a = {.to = to};
    tt_value *half = NULL;
    if (tt_placement_equal(&v->place, stored) || to != TT_BF16)
        return tt_redistribute(b, v, stored);
    tt_op(b, "cast", &v, 1, &a, &half, 1);
    return tt_cast(b, tt_redistribute(b, half, stored), TT_F32);
}

static tt_value *reduced(tt_builder *b, const tt_stack *s, tt_state *grad)
{
    return reduced_to(b, tt_state_read(b, grad), &s->param->place);
}

/* How many members of a stack are updated at a time. */
static int members_at_once(const tt_graph *g, const tt_stack *s, bool offload)
{
    int64_t all = 0;
    if (!offload)
        return s->n;
    for (size_t i = 0; i < g->stacks.n; i++)
        if (g->stacks.items[i]->grad)
            all += tt_type_numel(&g->stacks.items[i]->param->type);
    const int64_t member = TT_MAXV(tt_type_numel(&s->param->type) / s->n, (int64_t)1);
    return (int)TT_MAXV(TT_MIN(all / LOADS / member, (int64_t)s->n), (int64_t)1);
}

/* What the epilogue of a stage computes once for all its updates. */
typedef struct per_stage {
    tt_value *factor;    /* on gradients, of clipping and of the loss scale; NULL: 1 */
    tt_value *unclipped; /* of the loss scale alone, for groups that are not clipped */
    tt_value *step;      /* the number of this update; NULL: that of the step */
} per_stage;

/* The value that the update gives the members of u, as it is stored; NULL: none. */
static tt_value *updated(const tt_graph *g, const tt_update_impl *u)
{
    for (size_t k = g->nodes.n; k-- > 0;) {
        const tt_node *n = g->nodes.items[k];
        if (n->op != &tt_op_assign || n->state != u->stack->param)
            continue;
        if (u->n == u->stack->n || n->accumulate_index == u->first)
            return n->in[0];
    }
    return NULL;
}

/* The mean of the parameter over steps: ema += weight (p - ema), p after the update. */
static void average(tt_builder *b, const tt_update_impl *u, double weight)
{
    tt_value *ema = tt_optimizer_copy(b, &u->public_, "ema"), *p = NULL;
    if (!tt_builder_error(b))
        p = updated(tt_builder_graph(b), u);
    if (!p)
        return;
    tt_value *step = tt_scale(b, tt_sub(b, tt_cast(b, p, TT_F32), ema), weight);
    tt_assign(b, ema, tt_add(b, ema, step));
    tt_optimizer_evaluate(b, &u->public_, ema);
}

static void update_members(tt_builder *b, const tt_update_opts *o, tt_update_impl *u,
                           tt_value *param, tt_value *grad, const per_stage *once, tt_state *lr)
{
    tt_stack *s = u->stack;
    const tt_group *group = &o->groups[s->group + 1];
    tt_arena *a = tt_builder_graph(b)->arena;
    const bool all = u->n == s->n;
    if (!all) {
        param = tt_load(b, param, u->first, u->n);
        grad = tt_slice(b, grad, 0, u->first, u->first + u->n);
    }
    u->public_ = (tt_update){.struct_size = sizeof u->public_};
    u->public_.param = tt_cast(b, param, tt_dtype_accumulate(s->param->type.dtype));
    tt_value *factor = group->unclipped ? once->unclipped : once->factor;
    u->public_.grad = factor ? tt_mul(b, grad, factor) : grad;
    u->public_.lr = tt_state_read(b, lr);
    if (group->lr_factor < 1 || group->lr_factor > 1)
        u->public_.lr = tt_scale(b, u->public_.lr, group->lr_factor);
    u->public_.step = once->step ? once->step : tt_state_read(b, tt_builder_graph(b)->step);
    const char **names = tt_arena_array(a, (size_t)u->n + 1, sizeof *names);
    const char **tags = tt_arena_array(a, (size_t)u->n + 1, sizeof *tags);
    for (int i = 0; i < u->n; i++) {
        const tt_param_info *p = s->members[u->first + i];
        names[i] = p->name;
        tags[i] = p->tags ? p->tags : "";
    }
    u->public_.n_params = u->n;
    u->public_.names = names;
    u->public_.tags = tags;
    s->factor = tt_builder_measures(b) ? NULL : tt_qk_clip_factor(b, s, u->first, u->n);
    group->vt->describe_update(group->config, b, &u->public_);
    s->factor = NULL;
    if (o->ema_weight > 0 && !tt_builder_measures(b))
        average(b, u, o->ema_weight);
}

static void update_stack(tt_builder *b, const tt_update_opts *o, tt_stack *s, int stage,
                         tt_value *grad, const per_stage *once, tt_state *lr)
{
    const int most = members_at_once(tt_builder_graph(b), s, o->offload);
    tt_value *param = tt_state_read(b, s->param);
    for (int first = 0; first < s->n; first += most) {
        tt_update_impl u = {.stack = s,
                            .first = first,
                            .n = TT_MIN(most, s->n - first),
                            .dtype = o->state_dtype,
                            .offload = o->offload,
                            .known = stage != tt_stage_of_stack(s) ||
                                     (o->measure_updates && !tt_builder_measures(b)),
                            .live = o->live};
        update_members(b, o, &u, param, grad, once, lr);
    }
}

/* The lower stages that use the same tied parameter. A rank that has one of them updates the
 * parameter there, and not again for this stage. */
static uint64_t replicas_below(const tt_stack *s, int stage)
{
    return s->n_grads ? s->param->stages & ((UINT64_C(1) << stage) - 1) : 0;
}

/* The gradient of a tied parameter on one of its stages. The accumulators of all its stages are
 * reduced where they are and added in stage order, so every copy is updated with the same bits. */
static tt_value *tied_gradient(tt_builder *b, const tt_stack *s, tt_value *const *parts, int stage)
{
    tt_value *sum = NULL;
    tt_builder_at(b, TT_EPILOGUE, stage, -1, s->param->name);
    tt_builder_replicated(b, replicas_below(s, stage));
    for (int i = 0; i < s->n_grads; i++) {
        tt_value *g = tt_transfer_direct(b, parts[i], stage);
        sum = sum ? tt_add(b, sum, g) : g;
    }
    tt_builder_replicated(b, 0);
    return sum;
}

/* The reduced gradients of a stack, by stage that uses it. */
static void gradients(tt_builder *b, const tt_stack *s, tt_value **by_stage)
{
    tt_value *parts[TT_MAX_STAGES];
    const int n = TT_MAXV(s->n_grads, 1);
    for (int i = 0; i < n; i++) {
        tt_state *grad = s->n_grads ? s->grads[i] : s->grad;
        const int stage = s->n_grads ? __builtin_ctzll(grad->stages) : tt_stage_of_stack(s);
        tt_builder_at(b, TT_EPILOGUE, stage, -1, s->param->name);
        parts[i] = reduced(b, s, grad);
        by_stage[stage] = parts[i];
    }
    for (int st = 0; s->n_grads && st < TT_MAX_STAGES; st++)
        if (by_stage[st])
            by_stage[st] = tied_gradient(b, s, parts, st);
}

/* Of all stacks: by stage, TT_MAX_STAGES values of each, and those of the stack's own stage. */
static void all_gradients(tt_builder *b, tt_value **by_stage, tt_value **own)
{
    const tt_graph *g = tt_builder_graph(b);
    tt_replica_gradients_add(b);
    for (size_t i = 0; i < g->stacks.n; i++) {
        const tt_stack *s = g->stacks.items[i];
        if (!s->grad)
            continue;
        gradients(b, s, by_stage + TT_MAX_STAGES * i);
        own[i] = by_stage[TT_MAX_STAGES * i + (size_t)tt_stage_of_stack(s)];
    }
}

/* The values that tt_graph.ok is computed from, by stage; NULL: the stage writes no such metric. */
typedef struct checked {
    tt_value *loss[TT_MAX_STAGES], *norm[TT_MAX_STAGES];
} checked;

static checked checked_metrics(const tt_graph *g)
{
    checked c = {0};
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_assign || n->state->kind != TT_STATE_METRIC || n->when->stage < 0)
            continue;
        if (!strcmp(n->state->name, TT_METRIC_LOSS))
            c.loss[n->when->stage] = n->in[0];
        else if (!strcmp(n->state->name, TT_METRIC_NORM))
            c.norm[n->when->stage] = n->in[0];
    }
    return c;
}

/* 1 if the loss and the norm that a stage has are finite, else 0; NULL: it has neither. */
static tt_value *finite_numbers(tt_builder *b, tt_value *loss, tt_value *norm)
{
    tt_value *const both[] = {loss, norm};
    tt_value *all = NULL;
    for (size_t i = 0; i < TT_COUNT(both); i++) {
        tt_value *finite = both[i] ? tt_cast(b, tt_is_finite(b, both[i]), TT_F32) : NULL;
        all = all && finite ? tt_mul(b, all, finite) : finite ? finite : all;
    }
    return all;
}

/* Writes tt_graph.ok. Every rank computes it from the loss and the norm, which are replicated,
 * so either all ranks run the update or none does. */
static void write_ok(tt_builder *b, double skip_norm)
{
    const tt_type f32 = {.dtype = TT_F32};
    const tt_placement whole = {0};
    tt_graph *g = tt_builder_graph(b);
    const checked metrics = checked_metrics(g);
    tt_value *finite[TT_MAX_STAGES] = {0}, *by_stage[TT_MAX_STAGES] = {0};
    for (int st = 0; st < g->n_stages; st++) {
        tt_builder_at(b, TT_EPILOGUE, st, -1, "ok");
        tt_value *ok = finite[st] = finite_numbers(b, metrics.loss[st], metrics.norm[st]);
        if (!ok)
            continue;
        if (skip_norm > 0 && metrics.norm[st]) {
            tt_value *limit = tt_const(b, skip_norm, TT_F32);
            ok = tt_mul(b, ok, tt_cast(b, tt_less_equal(b, metrics.norm[st], limit), TT_F32));
        }
        if (!g->ok)
            g->ok = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_OK, &f32, &whole);
        tt_state_assign(b, g->ok, ok);
        g->ok->stages |= UINT64_C(1) << st;
        by_stage[st] = ok;
    }
    tt_loss_scale_update(b, finite);
    tt_skip_update(b, by_stage);
}

/* ---- updates in the backward ---- */

/* The gradient of a stack of one member, where and as the parameter is stored. A reduction of what no
 * accumulator has is part of the backward, which may hide it; all that follows is the early update. */
static tt_value *early_gradient(tt_builder *b, const tt_stack *s)
{
    tt_value *v = s->early_grad;
    tt_builder_at(b, TT_BACKWARD, 0, v ? v->node->block : -1, s->param->name);
    v = v ? reduced_to(b, v, &s->members[0]->stored) : NULL;
    tt_builder_early_update(b, true);
    if (!v)
        return reduced(b, s, s->grad);
    return tt_reshape(b, v, s->param->type.dims, s->param->type.n_dims);
}

/* The sums of squares of those gradients that need reductions over the same ranks. */
typedef struct square_sums {
    tt_state *state;
    int n;
} square_sums;

/* Keeps the sums of squares for the epilogue, which adds them in a fixed order: the order of the updates
 * changes no bit of the norm. */
static void keep_squares(tt_builder *b, tt_value *const *squares, size_t n, square_sums *of)
{
    tt_graph *g = tt_builder_graph(b);
    for (size_t i = 0; i < n; i++) {
        if (!squares[i] || of[i].state)
            continue;
        int members = 0;
        for (size_t k = i; k < n; k++)
            members += squares[k] && tt_placement_equal(&squares[k]->place, &squares[i]->place);
        const tt_type t = tt_stack_type(&squares[i]->type, members);
        const tt_placement place = tt_stack_placement(&squares[i]->place);
        tt_state *s =
            tt_state_new(g, TT_STATE_ACCUMULATOR,
                         tt_arena_printf(g->arena, "grad_norm.squares.%zu", i), &t, &place);
        for (size_t k = i; k < n; k++) {
            if (!squares[k] || !tt_placement_equal(&squares[k]->place, &squares[i]->place))
                continue;
            tt_builder_at(b, TT_BACKWARD, 0, -1, "norm");
            tt_builder_early_update(b, true);
            tt_accumulate(b, s, of[i].n, squares[k]);
            of[k].state = s;
            of[i].n++;
        }
    }
    tt_builder_early_update(b, false);
}

static void write_early_norm(tt_builder *b, tt_value *const *squares, size_t n, tt_state *norm)
{
    const tt_placement whole = {0};
    tt_value *all = NULL;
    square_sums *of = tt_arena_array(tt_builder_graph(b)->arena, n + 1, sizeof *of);
    keep_squares(b, squares, n, of);
    tt_builder_at(b, TT_EPILOGUE, 0, -1, "norm");
    for (size_t i = 0; i < n; i++) {
        if (!of[i].n)
            continue;
        tt_value *x = tt_sum_all(b, tt_state_read(b, of[i].state));
        x = tt_redistribute(b, x, &whole);
        all = all ? tt_add(b, all, x) : x;
    }
    if (!all)
        return;
    tt_state_assign(b, norm, tt_sqrt(b, all));
    norm->stages |= 1;
}

static tt_status finish_update(tt_builder *b, tt_error *err)
{
    tt_builder_follow(b, false);
    TT_TRY(tt_builder_finish(b, err));
    return tt_graph_verify(tt_builder_graph(b), "update", err);
}

static tt_status update_early(tt_builder *b, const tt_update_opts *o, tt_state *lr, tt_state *norm,
                              tt_error *err)
{
    const tt_graph *g = tt_builder_graph(b);
    const per_stage once = {0};
    tt_value **squares = tt_arena_array(g->arena, g->stacks.n + 1, sizeof *squares);
    for (size_t i = 0; i < g->stacks.n; i++) {
        tt_stack *s = g->stacks.items[i];
        if (!s->grad && !s->early_grad)
            continue;
        tt_value *grad = early_gradient(b, s);
        squares[i] = tt_sum_squares(b, grad);
        if (o->groups[s->group + 1].unclipped)
            squares[i] = tt_scale(b, squares[i], 0.0); /* NaN if it is not finite */
        update_stack(b, o, s, 0, grad, &once, lr);
        tt_builder_early_update(b, false);
    }
    write_early_norm(b, squares, g->stacks.n, norm);
    write_ok(b, 0);
    return finish_update(b, err);
}

tt_status tt_pass_update(tt_builder *b, const tt_update_opts *o, tt_error *err)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_placement whole = {0};
    const tt_type f64 = {.dtype = TT_F64}, f32 = {.dtype = TT_F32};
    tt_value **grads = tt_arena_array(g->arena, g->stacks.n + 1, sizeof *grads);
    tt_value **all =
        tt_arena_array(g->arena, TT_MAX_STAGES * g->stacks.n + 1, sizeof *all); /* by stage */
    per_stage once[TT_MAX_STAGES] = {0};
    tt_norm all_grads;
    tt_state *lr = tt_state_new(g, TT_STATE_SCALAR, TT_SCALAR_LR, &f64, &whole);
    tt_state *norm = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_NORM, &f32, &whole);
    tt_graph_run_numbers(g);
    if (o->skip_nonfinite || o->skip_norm > 0)
        tt_skip_make(g);
    tt_builder_follow(b, true);
    if (o->early)
        return update_early(b, o, lr, norm, err);
    all_gradients(b, all, grads);
    if (o->measure)
        tt_measure_gradients(b, grads);
    tt_qk_clip_gammas(b);
    tt_norm_stages(b, grads, o, &all_grads);
    for (int st = 0; all_grads.n && st < g->n_stages; st++) {
        tt_builder_at(b, TT_EPILOGUE, st, -1, "norm");
        tt_value *x = tt_norm_whole(b, &all_grads, st), *unscale = tt_loss_unscale(b);
        x = unscale ? tt_mul(b, x, unscale) : x;
        tt_state_assign(b, norm, x);
        norm->stages |= UINT64_C(1) << st;
        once[st] = (per_stage){unscale, unscale, tt_steps_done(b)};
        if (o->max_norm <= 0)
            continue;
        x = tt_add(b, x, tt_const(b, 1e-6, TT_F32)); /* as torch.nn.utils.clip_grad_norm_ */
        x = tt_div(b, tt_const(b, o->max_norm, TT_F32), x);
        x = tt_minimum(b, x, tt_const(b, 1, TT_F32));
        once[st].factor = unscale ? tt_mul(b, x, unscale) : x;
    }
    write_ok(b, o->skip_norm);
    for (size_t i = 0; i < TT_MAX_STAGES * g->stacks.n; i++) {
        tt_stack *s = g->stacks.items[i / TT_MAX_STAGES];
        const int stage = (int)(i % TT_MAX_STAGES);
        if (!all[i])
            continue;
        tt_builder_at(b, TT_UPDATE, stage, -1, s->param->name);
        if (o->measure_updates && stage == tt_stage_of_stack(s)) {
            tt_builder_measured(b, true); /* the same update: what it would change is measured */
            update_stack(b, o, s, stage, all[i], &once[stage], lr);
            tt_builder_measured(b, false);
        }
        tt_builder_replicated(b, replicas_below(s, stage));
        update_stack(b, o, s, stage, all[i], &once[stage], lr);
        tt_builder_replicated(b, 0);
    }
    return finish_update(b, err);
}
