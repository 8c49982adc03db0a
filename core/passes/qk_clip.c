/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/qk_clip.h"
#include "graph/rewrite.h"
#include "passes/passes.h"
#include "pipeline/schedule.h"
#include <string.h>

/* QK-clip: gamma = tau / max(largest logit, tau) of each head, in the epilogue, and what the rows of a stack's
 * parameters are multiplied by. A logit at most tau gives exactly 1. */

/* ---- largest logits → gamma ---- */

static tt_qk_attention *attention_of(const tt_graph *g, const tt_measured *m)
{
    for (size_t i = 0; i < g->qk_clip->attentions.n; i++)
        if (!strcmp(g->qk_clip->attentions.items[i].scope, m->scope ? m->scope : ""))
            return &g->qk_clip->attentions.items[i];
    return NULL;
}

/* May the largest logits of both be reduced as one value? */
static bool logits_alike(const tt_measured *a, const tt_measured *b)
{
    return a->state->stages == b->state->stages &&
           a->state->type.dims[0].size == b->state->type.dims[0].size &&
           tt_placement_equal(&a->state->place, &b->state->place);
}

/* [n, heads] of the n states that are like number `at`, whole on every rank. */
static tt_value *reduced_logits(tt_builder *b, size_t at, bool *done)
{
    const tt_graph *g = tt_builder_graph(b);
    const tt_measured *first = &g->logits.items[at];
    const tt_placement whole = {0};
    const tt_dim dims[2] = {TT_DIM(1, NULL), first->state->type.dims[0]};
    tt_value **rows = tt_arena_array(g->arena, g->logits.n + 1, sizeof(tt_value *));
    int n = 0;
    for (size_t i = at; i < g->logits.n; i++) {
        if (done[i] || !logits_alike(first, &g->logits.items[i]))
            continue;
        rows[n++] = tt_reshape(b, tt_state_read(b, g->logits.items[i].state), dims, 2);
        done[i] = true;
    }
    return tt_redistribute(b, tt_concat(b, rows, n, 0), &whole);
}

/* Of a layer with several attention nodes (a ring's steps) the largest logits are those of all. */
static tt_value *logits_of_layers(tt_builder *b, size_t at, const bool *before, tt_value *rows,
                                  int *n_layers)
{
    const tt_graph *g = tt_builder_graph(b);
    tt_qk_attention **layer = tt_arena_array(g->arena, g->logits.n + 1, sizeof *layer);
    tt_value **of = tt_arena_array(g->arena, g->logits.n + 1, sizeof(tt_value *));
    int row = 0, n = 0;
    for (size_t i = at; i < g->logits.n; i++) {
        tt_qk_attention *mine = attention_of(g, &g->logits.items[i]);
        int k = 0;
        if (before[i] || !logits_alike(&g->logits.items[at], &g->logits.items[i]))
            continue;
        tt_value *x = tt_slice(b, rows, 0, row, row + 1);
        row++;
        while (k < n && layer[k] != mine)
            k++;
        of[k] = k < n ? tt_maximum(b, of[k], x) : x;
        layer[k] = mine;
        n = TT_MAXV(n, k + 1);
        mine->row = k;
        mine->stage = __builtin_ctzll(g->logits.items[i].state->stages);
    }
    *n_layers = n;
    return n == row ? rows : tt_concat(b, of, n, 0);
}

/* Sets the gammas of all layers whose logits are like number `at`, and returns how many heads are above tau. */
static tt_value *gammas_like(tt_builder *b, size_t at, bool *done)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_qk_clip *c = g->qk_clip;
    const int stage = __builtin_ctzll(g->logits.items[at].state->stages);
    int n = 0;
    tt_builder_at(b, TT_EPILOGUE, stage, -1, "qk_clip");
    bool *before = tt_arena_dup(g->arena, done, g->logits.n * sizeof *before);
    tt_value *rows = reduced_logits(b, at, done);
    tt_value *most = logits_of_layers(b, at, before, rows, &n);
    tt_value *tau = tt_const(b, c->tau, TT_F32);
    tt_value **gamma = tt_arena_array(g->arena, 3, sizeof(tt_value *));
    gamma[2] = tt_div(b, tau, tt_maximum(b, most, tau));
    gamma[1] = tt_sqrt(b, gamma[2]);
    for (size_t i = at; i < g->logits.n; i++)
        if (!before[i] && done[i])
            attention_of(g, &g->logits.items[i])->gamma = (tt_value *const *)gamma;
    tt_value *mask = tt_cast(b, tt_less(b, tau, most), TT_F32), *count = NULL;
    for (size_t i = 0; i < c->attentions.n; i++) { /* normalized queries are not counted */
        const tt_qk_attention *a = &c->attentions.items[i];
        if (a->gamma != (tt_value *const *)gamma || !a->clipped)
            continue;
        tt_value *x = tt_sum_all(b, tt_slice(b, mask, 0, a->row, a->row + 1));
        count = count ? tt_add(b, count, x) : x;
    }
    return count;
}

/* The metric has the sum over all stages on each of them. */
static void write_count(tt_builder *b, tt_value *const *by_stage)
{
    tt_graph *g = tt_builder_graph(b);
    const tt_type f32 = {.dtype = TT_F32};
    const tt_placement whole = {0};
    tt_state *m = tt_state_new(g, TT_STATE_METRIC, TT_METRIC_QK_CLIP, &f32, &whole);
    tt_value *counts[TT_MAX_STAGES];
    int n = 0;
    for (int st = 0; st < g->n_stages; st++)
        if (by_stage[st])
            counts[n++] = by_stage[st];
    for (int st = 0; st < g->n_stages && n; st++) {
        tt_builder_at(b, TT_EPILOGUE, st, -1, "qk_clip");
        tt_state_assign(b, m, g->n_stages > 1 ? tt_stage_sum(b, counts, n) : counts[0]);
        m->stages |= UINT64_C(1) << st;
    }
}

void tt_qk_clip_gammas(tt_builder *b)
{
    const tt_graph *g = tt_builder_graph(b);
    bool *done = tt_arena_array(g->arena, g->logits.n + 1, sizeof *done);
    tt_value *by_stage[TT_MAX_STAGES] = {0};
    if (!g->qk_clip)
        return;
    for (size_t i = 0; i < g->logits.n && !tt_builder_error(b); i++) {
        if (done[i])
            continue;
        const int st = __builtin_ctzll(g->logits.items[i].state->stages);
        tt_value *count = gammas_like(b, i, done);
        if (count)
            by_stage[st] = by_stage[st] ? tt_add(b, by_stage[st], count) : count;
    }
    write_count(b, by_stage);
}

/* ---- gamma → factors of rows ---- */

/* Consecutive heads whose rows look the same: n_parts runs of rows with one power each. */
typedef struct heads_like {
    int64_t first, n, rows; /* rows of one head */
    int n_parts;
    int64_t *width;
    uint8_t *power;
} heads_like;

static bool same_rows(const heads_like *a, const heads_like *b)
{
    const size_t n = (size_t)a->n_parts;
    return a->n_parts == b->n_parts && !memcmp(a->width, b->width, n * sizeof *a->width) &&
           !memcmp(a->power, b->power, n * sizeof *a->power);
}

/* The rows of one head, which begin at row `at`, with the rows after them that belong to no head. */
static heads_like next_head(tt_arena *a, const tt_qk_param *p, int64_t at)
{
    heads_like h = {.first = 0, .n = 1};
    int64_t end = at;
    while (end < p->n_rows && !p->power[end])
        end++;
    if (end < p->n_rows)
        h.first = p->head[end];
    while (end < p->n_rows && (!p->power[end] || p->head[end] == h.first))
        end++;
    h.rows = end - at;
    h.width = tt_arena_array(a, (size_t)h.rows + 1, sizeof *h.width);
    h.power = tt_arena_array(a, (size_t)h.rows + 1, sizeof *h.power);
    for (int64_t r = at; r < end; r++) {
        if (r == at || p->power[r] != h.power[h.n_parts - 1])
            h.power[h.n_parts++] = p->power[r];
        h.width[h.n_parts - 1]++;
    }
    return h;
}

/* [layers, rows] of these heads, of `layers` layers from `row` on */
static tt_value *factor_of_heads(tt_builder *b, const tt_qk_attention *at, const heads_like *h,
                                 int layers)
{
    tt_value *parts[TT_MAX_INS];
    tt_value **all =
        h->n_parts <= TT_MAX_INS
            ? parts
            : tt_arena_array(tt_builder_graph(b)->arena, (size_t)h->n_parts, sizeof(tt_value *));
    const tt_dim L = TT_DIM(layers, NULL), H = TT_DIM(h->n, NULL);
    for (int i = 0; i < h->n_parts; i++) {
        const tt_dim one[3] = {L, H, TT_DIM(1, NULL)}, wide[3] = {L, H, TT_DIM(h->width[i], NULL)};
        tt_value *x = tt_const(b, 1, TT_F32);
        if (h->power[i]) {
            x = tt_slice(b, at->gamma[h->power[i]], 0, at->row, at->row + layers);
            x = tt_reshape(b, tt_slice(b, x, 1, h->first, h->first + h->n), one, 3);
        }
        all[i] = tt_broadcast_to(b, x, wide, 3);
    }
    const tt_dim flat[2] = {L, TT_DIM(h->n * h->rows, NULL)};
    return tt_reshape(b, tt_concat(b, all, h->n_parts, 2), flat, 2);
}

/* [layers, rows] of p; the layers have the same rows. */
static tt_value *factor_of_rows(tt_builder *b, const tt_qk_clip *c, const tt_qk_param *p,
                                int layers)
{
    tt_arena *a = tt_builder_graph(b)->arena;
    TT_VEC(tt_value *) runs = {0};
    for (int64_t r = 0; r < p->n_rows;) {
        heads_like h = next_head(a, p, r);
        r += h.rows;
        while (r < p->n_rows) {
            const heads_like next = next_head(a, p, r);
            if (next.first != h.first + h.n || !same_rows(&h, &next))
                break;
            h.n++;
            r += next.rows;
        }
        tt_vec_push(a, &runs, factor_of_heads(b, &c->attentions.items[p->attention], &h, layers));
    }
    return tt_concat(b, runs.items, (int)runs.n, 1);
}

static const tt_qk_param *clipped_param(const tt_qk_clip *c, const tt_param_info *p)
{
    for (size_t i = 0; i < c->params.n; i++)
        if (c->params.items[i].param == p)
            return &c->params.items[i];
    return NULL;
}

/* Is q in the layer `after` layers later, with the rows of p? */
static bool continues_run(const tt_qk_clip *c, const tt_qk_param *p, const tt_qk_param *q,
                          int after)
{
    if (!p || !q)
        return !p && !q;
    const tt_qk_attention *x = &c->attentions.items[p->attention],
                          *y = &c->attentions.items[q->attention];
    const size_t n = (size_t)p->n_rows;
    return x->gamma == y->gamma && y->row == x->row + after && p->n_rows == q->n_rows &&
           p->bias == q->bias && !memcmp(p->head, q->head, n * sizeof *p->head) &&
           !memcmp(p->power, q->power, n * sizeof *p->power);
}

/* The dims of members of the stack that have one factor each: rows of a weight, all elements of a bias. */
static tt_value *as_stored(tt_builder *b, const tt_stack *s, tt_value *x, int n, bool bias)
{
    tt_type t = s->param->type;
    t.dims[0].size = n;
    for (int d = 2; d < t.n_dims && !bias; d++)
        t.dims[d] = TT_DIM(1, NULL);
    return tt_reshape(b, x, t.dims, t.n_dims);
}

tt_value *tt_qk_clip_factor(tt_builder *b, const tt_stack *s, int first, int n)
{
    const tt_graph *g = tt_builder_graph(b);
    const tt_qk_clip *c = g->qk_clip;
    const tt_qk_param *any = NULL;
    TT_VEC(tt_value *) runs = {0};
    for (int i = first; c && i < first + n && !any; i++)
        any = clipped_param(c, s->members[i]);
    if (!any || tt_builder_error(b))
        return NULL;
    for (int i = first, k; i < first + n; i = k) {
        const tt_qk_param *p = clipped_param(c, s->members[i]);
        for (k = i + 1; k < first + n; k++)
            if (!continues_run(c, p, clipped_param(c, s->members[k]), k - i))
                break;
        const tt_dim dims[2] = {TT_DIM(k - i, NULL), TT_DIM(any->n_rows, NULL)};
        tt_value *x = p ? factor_of_rows(b, c, p, k - i)
                        : tt_broadcast_to(b, tt_const(b, 1, TT_F32), dims, 2);
        tt_vec_push(g->arena, &runs, as_stored(b, s, x, k - i, any->bias));
    }
    tt_placement place = s->param->place;
    for (int d = 2; d < s->param->type.n_dims && !any->bias; d++) {
        place.n[d] = 0;
        memset(place.atom[d], 0, sizeof place.atom[d]);
    }
    return tt_redistribute(b, tt_concat(b, runs.items, (int)runs.n, 0), &place);
}
