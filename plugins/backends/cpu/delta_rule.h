/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_DELTA_RULE_H
#define TT_CPU_DELTA_RULE_H
#include "cpu.h"

/* The gated delta rule in chunks of at most CHUNK tokens of one head. With G the cumulative sum of g in
 * the chunk, L[i,j] = exp(G[i] - G[j]) for j <= i, S the state before the chunk and m = exp(G):
 *   X = V - m K S    (1 + A) D = beta X    A = beta (K Kᵀ) L strictly below the diagonal
 *   O = m Q S + (Q Kᵀ L) D    S' = m[last] S + Kᵀ (m[last] / m) D
 * D are the rows that the tokens add to the state. Source: Yang et al. 2024, arXiv:2406.06484 and
 * arXiv:2412.06464. */
#define DELTA_CHUNK 64

/* A call: K groups of R heads; the operands are rows of tokens. */
typedef struct delta_rule {
    cpu_backend own; /* without BLAS */
    const float *q, *k, *v, *g, *beta, *dout;
    float *out, *dq, *dk, *dv, *dgates, *state;
    const int32_t *seg, *pos;
    int64_t tokens, groups, heads, kd, vd;
    int64_t *runs; /* [n_runs + 1]: first tokens; a token of a run continues the one before it */
    int64_t n_runs;
    char *memory; /* of all threads */
    size_t per_thread;
    int64_t kept; /* chunks whose states the derivative keeps */
} delta_rule;

/* What a thread computes in. C = DELTA_CHUNK. */
typedef struct delta_work {
    float *sums, *from_start, *to_end;  /* [C]: -G, exp(G), exp(G[last] - G) */
    float *decay, *qk, *kk, *lower;     /* [C,C]: L, Q Kᵀ L, K Kᵀ L, -A */
    float *x, *d;                       /* [C,vd]: X and D */
    float *state;                       /* [kd,vd] */
    float *dstate, *states;             /* of the derivative: [kd,vd], [kept,kd,vd] */
    float *dd, *values, *keys, *square; /* [C,vd], [C,vd], [C,kd], [C,C] */
    double *dsums;                      /* [C] the derivative of G; terms of it cancel */
    void *gemm;
} delta_work;

/* A chunk of one head: its n tokens from t on, and what is before them. */
typedef struct delta_chunk {
    int64_t t, n, group, head;
    bool begins; /* the state before it is zero */
} delta_chunk;

static inline int64_t delta_key(const delta_rule *r, const delta_chunk *c)
{
    return (c->t * r->groups + c->group) * r->kd;
}
static inline int64_t delta_gate(const delta_rule *r, const delta_chunk *c)
{
    return (c->t * r->groups + c->group) * r->heads + c->head;
}

/* c [m,n] = or += a [m,k] b [k,n] */
void cpu_delta_product(const delta_rule *r, const delta_work *w, int64_t m, int64_t n, int64_t k,
                       cpu_mat a, cpu_mat b, float *c, int64_t ldc, bool add);
/* L, the products of keys and queries, X and D of a chunk, from w->state. */
void cpu_delta_inside(const delta_rule *r, const delta_work *w, const delta_chunk *c);
/* w->state after the chunk; overwrites w->values. */
void cpu_delta_advance(const delta_rule *r, const delta_work *w, const delta_chunk *c);
/* The derivative of one group of heads in run number `run`. */
void cpu_delta_group_bwd(const delta_rule *r, const delta_work *w, int64_t run, int64_t group);

#endif
