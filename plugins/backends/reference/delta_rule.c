/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <string.h>

/* delta_rule token by token, its derivative and its cached form. q, k [T,K,dk], v [T,K,R,dv], g, beta
 * [T,K,R], seg (slot), pos [T], then do [T,K,R,dv] or the state [S,K,R,dk,dv]. */

enum { Q, K, V, G, BETA, SEG, POS };

typedef struct rule {
    const tt_tensor *in;
    int64_t tokens, groups, heads, dk, dv;
} rule;

/* What one token of one head is computed from, and where its elements are. */
typedef struct step {
    int64_t key, value, gate; /* the first elements in q and k; in v; in g and beta */
    double decay, beta;
} step;

static rule rule_of(const tt_kernel_call *c)
{
    const int64_t *v = c->in[V].shape;
    return (rule){c->in, v[0], v[1], v[2], c->in[Q].shape[2], v[3]};
}

static bool continues(const rule *r, int64_t t) /* token t the segment of token t - 1 */
{
    const tt_tensor *seg = &r->in[SEG], *pos = &r->in[POS];
    return t > 0 && t < r->tokens && ref_index(seg, t - 1) == ref_index(seg, t) &&
           ref_index(pos, t - 1) == ref_index(pos, t) - 1;
}

static step step_of(const rule *r, int64_t t, int64_t group, int64_t head)
{
    const int64_t row = t * r->groups + group, gate = row * r->heads + head;
    return (step){row * r->dk, gate * r->dv, gate, exp(ref_load(&r->in[G], gate)),
                  ref_load(&r->in[BETA], gate)};
}

/* s = S[t] from prev = S[t-1], or from zero if prev is NULL. delta [dv] = beta (v - exp(g) S[t-1]ᵀ k) */
static void delta_advance(const rule *r, const step *p, const double *prev, double *s,
                          double *delta)
{
    for (int64_t j = 0; j < r->dv; j++) {
        double known = 0.0;
        for (int64_t i = 0; prev && i < r->dk; i++)
            known += p->decay * prev[i * r->dv + j] * ref_load(&r->in[K], p->key + i);
        delta[j] = p->beta * (ref_load(&r->in[V], p->value + j) - known);
        for (int64_t i = 0; i < r->dk; i++)
            s[i * r->dv + j] = (prev ? p->decay * prev[i * r->dv + j] : 0.0) +
                               ref_load(&r->in[K], p->key + i) * delta[j];
    }
}

static double read_column(const rule *r, const step *p, const double *s, int64_t j) /* o[j] */
{
    double o = 0.0;
    for (int64_t i = 0; i < r->dk; i++)
        o += s[i * r->dv + j] * ref_load(&r->in[Q], p->key + i);
    return o;
}

size_t ref_delta_rule_scratch(const tt_kernel_call *c, int n_threads)
{
    const rule r = rule_of(c);
    (void)n_threads;
    return (size_t)(r.dk * r.dv + r.dv) * sizeof(double);
}

tt_status ref_delta_rule(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const rule r = rule_of(c);
    double *s = c->scratch, *delta = s + r.dk * r.dv;
    (void)backend, (void)err;
    for (int64_t h = 0; h < r.groups * r.heads; h++)
        for (int64_t t = 0; t < r.tokens; t++) {
            const step p = step_of(&r, t, h / r.heads, h % r.heads);
            delta_advance(&r, &p, continues(&r, t) ? s : NULL, s, delta);
            for (int64_t j = 0; j < r.dv; j++)
                ref_store(&c->out[0], p.value + j, read_column(&r, &p, s, j));
        }
    return TT_OK;
}

/* ---- derivative ---- */

typedef struct gradients {
    double *s;       /* [T,dk,dv] the state after each token */
    double *ds;      /* [dk,dv] the derivative of the state */
    double *delta;   /* [T,dv] */
    double *dq, *dk; /* [T,dk] sums over the heads of a group */
    double *ddelta;  /* [dv] */
} gradients;

static gradients gradients_in(const rule *r, double *at)
{
    gradients g = {.s = at};
    g.ds = g.s + r->tokens * r->dk * r->dv;
    g.delta = g.ds + r->dk * r->dv;
    g.dq = g.delta + r->tokens * r->dv;
    g.dk = g.dq + r->tokens * r->dk;
    g.ddelta = g.dk + r->tokens * r->dk;
    return g;
}

size_t ref_delta_rule_bwd_scratch(const tt_kernel_call *c, int n_threads)
{
    const rule r = rule_of(c);
    (void)n_threads;
    return (size_t)((r.tokens + 1) * (r.dk * r.dv + r.dv) + 2 * r.tokens * r.dk) * sizeof(double);
}

/* Adds what o[t] = S[t]ᵀ q and S[t] = P + k deltaᵀ give, P = exp(g) S[t-1]. */
static void back_of_output(const rule *r, const step *p, const gradients *g, int64_t t)
{
    const double *s = g->s + t * r->dk * r->dv, *delta = g->delta + t * r->dv;
    memset(g->ddelta, 0, (size_t)r->dv * sizeof(double));
    for (int64_t i = 0; i < r->dk; i++)
        for (int64_t j = 0; j < r->dv; j++) {
            const double d = ref_load(&r->in[7], p->value + j);
            double *ds = &g->ds[i * r->dv + j];
            g->dq[t * r->dk + i] += s[i * r->dv + j] * d;
            *ds += ref_load(&r->in[Q], p->key + i) * d;
            g->dk[t * r->dk + i] += *ds * delta[j];
            g->ddelta[j] += *ds * ref_load(&r->in[K], p->key + i);
        }
}

/* Then what delta = beta (v - Pᵀ k) and P give; ds becomes that of S[t-1]. Returns dg. */
static double back_of_state(const rule *r, const step *p, const gradients *g, int64_t t)
{
    const double *prev = continues(r, t) ? g->s + (t - 1) * r->dk * r->dv : NULL;
    double dg = 0.0;
    for (int64_t i = 0; i < r->dk; i++)
        for (int64_t j = 0; j < r->dv; j++) {
            const double known = prev ? p->decay * prev[i * r->dv + j] : 0.0;
            double *ds = &g->ds[i * r->dv + j];
            const double dp = *ds - ref_load(&r->in[K], p->key + i) * p->beta * g->ddelta[j];
            g->dk[t * r->dk + i] -= known * p->beta * g->ddelta[j];
            dg += dp * known;
            *ds = prev ? p->decay * dp : 0.0;
        }
    return dg;
}

static double back_of_rate(const rule *r, const step *p, const gradients *g, int64_t t)
{ /* dbeta = ddelta · (v - Pᵀ k) */
    const double *prev = continues(r, t) ? g->s + (t - 1) * r->dk * r->dv : NULL;
    double sum = 0.0;
    for (int64_t j = 0; j < r->dv; j++) {
        double rest = ref_load(&r->in[V], p->value + j);
        for (int64_t i = 0; prev && i < r->dk; i++)
            rest -= p->decay * prev[i * r->dv + j] * ref_load(&r->in[K], p->key + i);
        sum += g->ddelta[j] * rest;
    }
    return sum;
}

static void back_of_head(const rule *r, const gradients *g, int64_t group, int64_t head,
                         const tt_tensor *out)
{
    const int64_t state = r->dk * r->dv;
    for (int64_t t = 0; t < r->tokens; t++) {
        const step p = step_of(r, t, group, head);
        delta_advance(r, &p, continues(r, t) ? g->s + (t - 1) * state : NULL, g->s + t * state,
                      g->delta + t * r->dv);
    }
    memset(g->ds, 0, (size_t)state * sizeof(double));
    for (int64_t t = r->tokens - 1; t >= 0; t--) {
        const step p = step_of(r, t, group, head);
        const int64_t gates = (t * r->groups + group) * 2 * r->heads + head;
        back_of_output(r, &p, g, t);
        for (int64_t j = 0; j < r->dv; j++)
            ref_store(&out[2], p.value + j, p.beta * g->ddelta[j]);
        ref_store(&out[3], gates + r->heads, back_of_rate(r, &p, g, t));
        ref_store(&out[3], gates, back_of_state(r, &p, g, t));
    }
}

/* The same operands and do -> dq, dk, dv, dgates [T,K,2,R] */
tt_status ref_delta_rule_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const rule r = rule_of(c);
    const gradients g = gradients_in(&r, c->scratch);
    (void)backend, (void)err;
    for (int64_t group = 0; group < r.groups; group++) {
        memset(g.dq, 0, (size_t)(2 * r.tokens * r.dk) * sizeof(double));
        for (int64_t head = 0; head < r.heads; head++)
            back_of_head(&r, &g, group, head, c->out);
        for (int64_t t = 0; t < r.tokens; t++)
            for (int64_t i = 0; i < r.dk; i++) {
                const int64_t at = (t * r.groups + group) * r.dk + i;
                ref_store(&c->out[0], at, g.dq[t * r.dk + i]);
                ref_store(&c->out[1], at, g.dk[t * r.dk + i]);
            }
    }
    return TT_OK;
}

/* ---- decoding ---- */

tt_status ref_delta_rule_cached(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const rule r = rule_of(c);
    const int64_t state = r.dk * r.dv;
    double *s = c->scratch, *delta = s + state;
    (void)backend;
    TT_TRY(ref_begin_cached(c, SEG, err));
    for (int64_t t = 0; t < r.tokens; t++)
        for (int64_t h = 0; h < r.groups * r.heads; h++) {
            const int64_t slot = ref_index(&c->in[SEG], t);
            const step p = step_of(&r, t, h / r.heads, h % r.heads);
            const int64_t at = (slot * r.groups * r.heads + h) * state;
            const bool more = slot >= 0 && ref_index(&c->in[POS], t) > 0;
            for (int64_t i = 0; more && i < state; i++)
                s[i] = ref_load(&c->out[1], at + i);
            delta_advance(&r, &p, more ? s : NULL, s, delta);
            for (int64_t i = 0; slot >= 0 && i < state; i++)
                ref_store(&c->out[1], at + i, s[i]);
            for (int64_t j = 0; j < r.dv; j++)
                ref_store(&c->out[0], p.value + j, slot >= 0 ? read_column(&r, &p, s, j) : 0.0);
        }
    return TT_OK;
}
