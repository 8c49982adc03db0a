/* SPDX-License-Identifier: Apache-2.0 */
#include "train/measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = TT_MEASURED_LOGITS, SUMS = 4 };                    /* of a parameter */
enum { SQUARES, NOT_FINITE, ZEROS, SATURATED };                   /* as the op member_stats */
enum { GRAD_NORM, WEIGHT_NORM, WEIGHT_RMS, UPDATE_RATIO, PARTS }; /* of a parameter or layer */

typedef struct group { /* a parameter, or the parameters of a layer */
    const char *name, *metrics[PARTS];
    double elements;
} group;

struct tt_measures {
    tt_arena *arena;
    const tt_setup *s;
    int64_t step;
    bool updated;
    int n_params;  /* of the graph; those without a gradient have no sums */
    double *sums;  /* [n_params][KINDS][SUMS] */
    int *group_of; /* by parameter; -1: none */
    TT_VEC(group) groups;
    TT_VEC(const char *) layers; /* of logits: metrics' names */
    int *layer;                  /* by entry of tt_graph.measured */
    double *largest;             /* by layer */
};

static bool wants_norms(const tt_setup *s)
{
    return s->core.metrics.norms != TT_NORMS_OFF;
}

size_t tt_measures_most(const tt_setup *s)
{
    const tt_graph *g = s->graph;
    return g->measured.n ? (size_t)PARTS * (g->params.n + 1) + g->measured.n + 1 : 0;
}

/* "model.layers.3" of "model.layers.3.mlp.up_proj.weight"; the name itself where no part of it is a number. */
static const char *layer_of(tt_arena *a, const char *name)
{
    for (const char *p = name; *p; p += strcspn(p, "."), p += *p == '.') {
        const size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
        if (n && n == digits)
            return tt_arena_strn(a, name, (size_t)(p + n - name));
    }
    return name;
}

static int group_at(tt_measures *m, const char *name)
{
    static const char *const names[PARTS] = {"grad_norms", "weight_norms", "weight_rms",
                                             "update_ratios"};
    for (size_t i = 0; i < m->groups.n; i++)
        if (!strcmp(m->groups.items[i].name, name))
            return (int)i;
    group new = {.name = name};
    for (int i = 0; i < PARTS; i++)
        new.metrics[i] = tt_arena_printf(m->arena, "%s/%s", names[i], name);
    tt_vec_push(m->arena, &m->groups, new);
    return (int)m->groups.n - 1;
}

/* The attention nodes of a block may be several (a ring's steps): they are one layer. */
static int layer_at(tt_measures *m, const char *scope)
{
    const char *name =
        tt_arena_printf(m->arena, "attention_max_logits/%s", layer_of(m->arena, scope));
    for (size_t i = 0; i < m->layers.n; i++)
        if (!strcmp(m->layers.items[i], name))
            return (int)i;
    tt_vec_push(m->arena, &m->layers, name);
    return (int)m->layers.n - 1;
}

tt_measures *tt_measures_new(const tt_setup *s)
{
    const tt_graph *g = s->graph;
    if (!g->measured.n)
        return NULL;
    tt_arena *a = tt_arena_new();
    tt_measures *m = tt_arena_alloc(a, sizeof *m);
    *m = (tt_measures){.arena = a, .s = s, .n_params = (int)g->params.n};
    m->sums = tt_arena_array(a, g->params.n * KINDS * SUMS + 1, sizeof *m->sums);
    m->group_of = tt_arena_array(a, g->params.n + 1, sizeof *m->group_of);
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        const bool layers = s->core.metrics.norms == TT_NORMS_LAYER;
        m->group_of[i] = -1;
        if (p->frozen || !wants_norms(s))
            continue;
        m->group_of[i] = group_at(m, layers ? layer_of(a, p->name) : p->name);
        m->groups.items[m->group_of[i]].elements += (double)tt_type_numel(&p->type);
    }
    m->layer = tt_arena_array(a, g->measured.n + 1, sizeof *m->layer);
    for (size_t i = 0; i < g->measured.n; i++)
        if (g->measured.items[i].kind == TT_MEASURED_LOGITS)
            m->layer[i] = layer_at(m, g->measured.items[i].scope);
    m->largest = tt_arena_array(a, m->layers.n + 1, sizeof *m->largest);
    return m;
}

void tt_measures_free(tt_measures *m)
{
    if (m)
        tt_arena_free(m->arena);
}

int64_t tt_measures_step(const tt_measures *m)
{
    return m->step;
}

/* ---- taking ---- */

static double *sums_of(const tt_measures *m, int param, int kind)
{
    return m->sums + ((size_t)param * KINDS + (size_t)kind) * SUMS;
}

static void take_stack(const tt_measures *m, const tt_measured *e, const float *at,
                       const tt_tensor *box)
{
    for (int64_t i = 0; i < box->shape[0]; i++) {
        const tt_param_info *p = e->stack->members[e->first + box->begin[0] + i];
        double *to = sums_of(m, p->number, (int)e->kind);
        for (int j = 0; j < SUMS; j++)
            to[j] += (double)at[i * SUMS + j];
    }
}

tt_status tt_measures_take(tt_measures *m, const tt_rank *r, int64_t step, bool updated,
                           double loss_scale, tt_error *err)
{
    const tt_graph *g = m->s->graph;
    const size_t n = (size_t)m->n_params * KINDS * SUMS;
    memset(m->sums, 0, n * sizeof *m->sums);
    for (size_t i = 0; i < m->layers.n; i++)
        m->largest[i] = -(double)INFINITY;
    TT_TRY(tt_exec_read_metrics(r->exec, err));
    for (size_t i = 0; i < g->measured.n; i++) {
        const tt_measured *e = &g->measured.items[i];
        tt_tensor box;
        const float *at = tt_exec_metric_data(r->exec, e->state->name, &box);
        if (!at || (e->kind == TT_MEASURED_UPDATE && !updated))
            continue;
        if (e->kind != TT_MEASURED_LOGITS) {
            take_stack(m, e, at, &box);
            continue;
        }
        double *to = &m->largest[m->layer[i]];
        for (int64_t h = 0; h < box.shape[0]; h++)
            *to = (double)at[h] > *to ? (double)at[h] : *to;
    }
    if (n)
        TT_TRY(tt_dist_reduce(&r->dist, m->sums, (int64_t)n, TT_F64, TT_SUM, err));
    if (m->layers.n)
        TT_TRY(tt_dist_reduce(&r->dist, m->largest, (int64_t)m->layers.n, TT_F64, TT_MAX, err));
    for (int i = 0; loss_scale > 0 && i < m->n_params; i++)
        sums_of(m, i, TT_MEASURED_GRADIENT)[SQUARES] /= loss_scale * loss_scale;
    m->step = step;
    m->updated = updated;
    return TT_OK;
}

/* ---- norms ---- */

static double sum_of_squares(const tt_measures *m, int of, int kind)
{
    double sum = 0;
    for (int i = 0; i < m->n_params; i++)
        if (m->group_of[i] == of)
            sum += sums_of(m, i, kind)[SQUARES];
    return sum;
}

static double measure_part(const tt_measures *m, int of, int part)
{
    const double weight = sum_of_squares(m, of, TT_MEASURED_WEIGHT);
    switch (part) {
    case GRAD_NORM:
        return sqrt(sum_of_squares(m, of, TT_MEASURED_GRADIENT));
    case WEIGHT_NORM:
        return sqrt(weight);
    case WEIGHT_RMS:
        return sqrt(weight / TT_MAXV(m->groups.items[of].elements, 1));
    default:
        return weight > 0 ? sqrt(sum_of_squares(m, of, TT_MEASURED_UPDATE) / weight) : (double)NAN;
    }
}

static double weight_norm(const tt_measures *m)
{
    double sum = 0;
    for (int i = 0; i < m->n_params; i++)
        sum += sums_of(m, i, TT_MEASURED_WEIGHT)[SQUARES];
    return sqrt(sum);
}

size_t tt_measures_metrics(const tt_measures *m, tt_metric *out)
{
    size_t n = 0;
    if (m->groups.n)
        out[n++] = (tt_metric){"weight_norm", weight_norm(m)};
    for (int part = 0; part < PARTS; part++)
        for (size_t i = 0; (part != UPDATE_RATIO || m->updated) && i < m->groups.n; i++)
            out[n++] = (tt_metric){m->groups.items[i].metrics[part], measure_part(m, (int)i, part)};
    for (size_t i = 0; i < m->layers.n; i++)
        out[n++] = (tt_metric){m->layers.items[i], m->largest[i]};
    return n;
}

/* ---- the check ---- */

typedef struct found {
    double elements, count, most; /* most: of one parameter, which is `worst` */
    int params;                   /* that have any */
    const tt_param_info *worst;
} found;

static found measure_find(const tt_measures *m, int kind, int sum)
{
    found f = {0};
    for (int i = 0; i < m->n_params; i++) {
        const tt_param_info *p = m->s->graph->params.items[i];
        const double n = sums_of(m, i, kind)[sum];
        f.elements += p->frozen ? 0 : (double)tt_type_numel(&p->type);
        f.count += n;
        f.params += n > 0;
        if (n > f.most) {
            f.most = n;
            f.worst = p;
        }
    }
    return f;
}

/* "; 2 parameters' gradients have NaN or Inf, most model.norm.weight (3 of 96 elements)" */
static bool tell_bad(const tt_measures *m, int kind, int sum, tt_str *out)
{
    const found f = measure_find(m, kind, sum);
    if (!f.params)
        return false;
    tt_str_printf(out, "%s%s of %d parameter%s have %s, most in %s (%.0f of %lld elements)",
                  out->n ? "; " : "", kind == TT_MEASURED_GRADIENT ? "gradients" : "values",
                  f.params, f.params == 1 ? "" : "s",
                  sum == NOT_FINITE ? "NaN or Inf" : "elements beyond 65504", f.worst->name, f.most,
                  (long long)tt_type_numel(&f.worst->type));
    return true;
}

bool tt_measures_check(const tt_measures *m, tt_str *out)
{
    static const int bad[][2] = {
        {TT_MEASURED_WEIGHT,   NOT_FINITE},
        {TT_MEASURED_GRADIENT, NOT_FINITE},
        {TT_MEASURED_WEIGHT,   SATURATED },
        {TT_MEASURED_GRADIENT, SATURATED }
    };
    bool any = false;
    for (size_t i = 0; i < TT_COUNT(bad); i++)
        any |= tell_bad(m, bad[i][0], bad[i][1], out);
    const found g = measure_find(m, TT_MEASURED_GRADIENT, ZEROS),
                w = measure_find(m, TT_MEASURED_WEIGHT, ZEROS);
    if (!any)
        tt_str_add(out, "no NaN, Inf or element beyond 65504");
    tt_str_printf(out, "; zeros: %.3g %% of gradients", 100 * g.count / TT_MAXV(g.elements, 1));
    if (g.worst)
        tt_str_printf(out, " (most in %s)", g.worst->name);
    tt_str_printf(out, ", %.3g %% of values", 100 * w.count / TT_MAXV(w.elements, 1));
    if (w.worst)
        tt_str_printf(out, " (most in %s)", w.worst->name);
    return any;
}
