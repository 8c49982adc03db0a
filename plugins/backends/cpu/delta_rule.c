/* SPDX-License-Identifier: Apache-2.0 */
#include "delta_rule.h"
#include <string.h>

/* delta_rule, its derivative and its cached form, whose task is a head. Else a task is a run of tokens that continue each
 * other and one head, or one group of heads for the derivative; it goes through the run's chunks in order, so the bits do not depend on the
 * number of threads. Naive twin: backends/reference/delta_rule.c. */

enum { Q, K, V, G, BETA, SEG, POS, LAST };
#define BLOCK 16 /* rows that are solved one by one; those before them are one product */

void cpu_delta_product(const delta_rule *r, const delta_work *w, int64_t m, int64_t n, int64_t k,
                       cpu_mat a, cpu_mat b, float *c, int64_t ldc, bool add)
{
    const cpu_gemm_call g = {
        .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = ldc, .add = add};
    cpu_gemm(&r->own, NULL, &g, w->gemm);
}

/* d = (1 + A)^-1 d, with w->lower = -A */
static void solve(const delta_rule *r, const delta_work *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i / BLOCK * BLOCK;
        const float *row = w->lower + i * DELTA_CHUNK;
        if (i == at && at > 0)
            cpu_delta_product(r, w, cpu_min(BLOCK, n - at), r->vd, at,
                              (cpu_mat){row, DELTA_CHUNK, 1}, (cpu_mat){w->d, r->vd, 1},
                              w->d + at * r->vd, r->vd, true);
        for (int64_t j = at; j < i; j++)
            for (int64_t e = 0; e < r->vd; e++)
                w->d[i * r->vd + e] += row[j] * w->d[j * r->vd + e];
    }
}

static void make_decays(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const float *g = r->g + delta_gate(r, c);
    float sum = 0.0f;
    for (int64_t i = 0; i < c->n; i++) {
        if (i > 0 || !c->begins)
            sum += g[i * r->groups * r->heads];
        w->sums[i] = -sum;
        r->own.isa->exp_sub(i + 1, w->sums, -sum, 1.0f, w->decay + i * DELTA_CHUNK);
    }
    for (int64_t i = 0; i < c->n; i++) {
        const float zero = 0.0f;
        w->to_end[i] = w->decay[(c->n - 1) * DELTA_CHUNK + i];
        r->own.isa->exp_sub(1, &zero, w->sums[i], 1.0f, w->from_start + i);
    }
}

void cpu_delta_inside(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t n = c->n, ldk = r->groups * r->kd, step = r->groups * r->heads;
    const cpu_mat q = {r->q + delta_key(r, c), ldk, 1}, k = {r->k + delta_key(r, c), ldk, 1},
                  k_across = {k.p, 1, ldk};
    const float *v = r->v + delta_gate(r, c) * r->vd, *beta = r->beta + delta_gate(r, c);
    make_decays(r, w, c);
    cpu_delta_product(r, w, n, n, r->kd, q, k_across, w->qk, DELTA_CHUNK, false);
    cpu_delta_product(r, w, n, n, r->kd, k, k_across, w->kk, DELTA_CHUNK, false);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = i * DELTA_CHUNK + j;
            w->qk[at] = j <= i ? w->qk[at] * w->decay[at] : 0.0f;
            w->kk[at] = j < i ? w->kk[at] * w->decay[at] : 0.0f;
            w->lower[at] = -beta[i * step] * w->kk[at];
        }
    if (!c->begins)
        cpu_delta_product(r, w, n, r->vd, r->kd, k, (cpu_mat){w->state, r->vd, 1}, w->x, r->vd,
                          false);
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < r->vd; e++) {
            float *x = &w->x[i * r->vd + e];
            *x = v[i * step * r->vd + e] - (c->begins ? 0.0f : w->from_start[i] * *x);
            w->d[i * r->vd + e] = beta[i * step] * *x;
        }
    solve(r, w, n);
}

void cpu_delta_advance(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const float whole = w->from_start[c->n - 1];
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t e = 0; e < r->vd; e++)
            w->values[i * r->vd + e] = w->to_end[i] * w->d[i * r->vd + e];
    for (int64_t i = 0; i < r->kd * r->vd; i++)
        w->state[i] = c->begins ? 0.0f : whole * w->state[i];
    cpu_delta_product(r, w, r->kd, r->vd, c->n,
                      (cpu_mat){r->k + delta_key(r, c), 1, r->groups * r->kd},
                      (cpu_mat){w->values, r->vd, 1}, w->state, r->vd, true);
}

static void chunk_output(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t ld = r->groups * r->heads * r->vd;
    float *out = r->out + delta_gate(r, c) * r->vd;
    if (c->begins) {
        for (int64_t i = 0; i < c->n; i++)
            memset(out + i * ld, 0, (size_t)r->vd * sizeof(float));
    } else {
        cpu_delta_product(r, w, c->n, r->vd, r->kd,
                          (cpu_mat){r->q + delta_key(r, c), r->groups * r->kd, 1},
                          (cpu_mat){w->state, r->vd, 1}, out, ld, false);
        for (int64_t i = 0; i < c->n; i++)
            for (int64_t e = 0; e < r->vd; e++)
                out[i * ld + e] *= w->from_start[i];
    }
    cpu_delta_product(r, w, c->n, r->vd, c->n, (cpu_mat){w->qk, DELTA_CHUNK, 1},
                      (cpu_mat){w->d, r->vd, 1}, out, ld, true);
}

/* ---- memory ---- */

static delta_rule rule_of(const tt_kernel_call *c)
{
    const int64_t *v = c->in[V].shape;
    return (delta_rule){.q = c->in[Q].data,
                        .k = c->in[K].data,
                        .v = c->in[V].data,
                        .g = c->in[G].data,
                        .beta = c->in[BETA].data,
                        .seg = c->in[SEG].data,
                        .pos = c->in[POS].data,
                        .tokens = v[0],
                        .groups = v[1],
                        .heads = v[2],
                        .kd = c->in[Q].shape[2],
                        .vd = v[3]};
}

/* Lays a thread's arrays out from `at` on; returns their bytes. */
static size_t delta_lay_out(const delta_rule *r, char *at, delta_work *w)
{
    const int64_t n = DELTA_CHUNK, state = r->kd * r->vd;
    const bool back = r->kept > 0;
    const struct {
        float **array;
        int64_t size;
    } arrays[] = {
        {&w->sums,       n                   },
        {&w->from_start, n                   },
        {&w->to_end,     n                   },
        {&w->decay,      n * n               },
        {&w->qk,         n * n               },
        {&w->kk,         n * n               },
        {&w->lower,      n * n               },
        {&w->x,          n * r->vd           },
        {&w->d,          n * r->vd           },
        {&w->values,     n * r->vd           },
        {&w->state,      state               },
        {&w->dstate,     back ? state : 0    },
        {&w->states,     r->kept * state     },
        {&w->dd,         back ? n * r->vd : 0},
        {&w->keys,       back ? n * r->kd : 0},
        {&w->square,     back ? n * n : 0    },
    };
    size_t bytes = 0;
    for (size_t i = 0; i < TT_COUNT(arrays); i++) {
        *arrays[i].array = at ? (float *)(void *)(at + bytes) : NULL;
        bytes += cpu_align((size_t)arrays[i].size * sizeof(float));
    }
    w->dsums = at ? (double *)(void *)(at + bytes) : NULL;
    bytes += cpu_align((size_t)n * sizeof(double));
    w->gemm = at ? at + bytes : NULL;
    const int64_t widest = cpu_max(n, cpu_max(r->kd, r->vd));
    return bytes + cpu_align(cpu_gemm_scratch(widest, widest, widest, 1));
}

static size_t run_bytes(const delta_rule *r)
{
    return cpu_align((size_t)(r->tokens + 1) * sizeof(int64_t));
}

static size_t delta_scratch(const tt_kernel_call *c, int n_threads, int64_t kept)
{
    delta_rule r = rule_of(c);
    delta_work w;
    r.kept = kept;
    return run_bytes(&r) + (size_t)n_threads * delta_lay_out(&r, NULL, &w);
}

static int64_t n_chunks(int64_t tokens)
{
    return (tokens + DELTA_CHUNK - 1) / DELTA_CHUNK;
}

static size_t forward_scratch(const tt_kernel_call *c, int n_threads)
{
    return delta_scratch(c, n_threads, 0);
}
static size_t backward_scratch(const tt_kernel_call *c, int n_threads)
{
    return delta_scratch(c, n_threads, cpu_max(1, n_chunks(c->in[V].shape[0])));
}

/* Finds the runs, and shares the memory out. */
static delta_rule begin(void *self, const tt_kernel_call *c, int64_t kept)
{
    delta_rule r = rule_of(c);
    delta_work w;
    r.own = *(const cpu_backend *)self;
    r.own.blas = false;
    r.kept = kept;
    r.runs = c->scratch;
    r.memory = (char *)c->scratch + run_bytes(&r);
    r.per_thread = delta_lay_out(&r, NULL, &w);
    for (int64_t t = 0; t < r.tokens; t++)
        if (t == 0 || r.seg[t - 1] != r.seg[t] || r.pos[t - 1] != r.pos[t] - 1)
            r.runs[r.n_runs++] = t;
    r.runs[r.n_runs] = r.tokens;
    return r;
}

/* ---- kernels ---- */

static void forward(void *arg, int64_t begin_, int64_t end, int thread)
{
    const delta_rule *r = arg;
    const int64_t heads = r->groups * r->heads;
    delta_work w;
    (void)delta_lay_out(r, r->memory + (size_t)thread * r->per_thread, &w);
    for (int64_t i = begin_; i < end; i++) {
        const int64_t *run = r->runs + i / heads, h = i % heads;
        for (int64_t t = run[0]; t < run[1]; t += DELTA_CHUNK) {
            const delta_chunk c = {t, cpu_min(DELTA_CHUNK, run[1] - t), h / r->heads, h % r->heads,
                                   t == run[0]};
            cpu_delta_inside(r, &w, &c);
            chunk_output(r, &w, &c);
            if (t + DELTA_CHUNK < run[1])
                cpu_delta_advance(r, &w, &c);
        }
    }
}

static tt_status run_delta_rule(void *self, const tt_kernel_call *c, tt_error *err)
{
    delta_rule r = begin(self, c, 0);
    (void)err;
    r.out = c->out[0].data;
    tt_parallel_for(c->pool, r.n_runs * r.groups * r.heads, 1, forward, &r);
    return TT_OK;
}

static void backward(void *arg, int64_t begin_, int64_t end, int thread)
{
    const delta_rule *r = arg;
    delta_work w;
    (void)delta_lay_out(r, r->memory + (size_t)thread * r->per_thread, &w);
    for (int64_t i = begin_; i < end; i++)
        cpu_delta_group_bwd(r, &w, i / r->groups, i % r->groups);
}

/* The same operands and do -> dq, dk, dv, dgates [T,K,2,R] */
static tt_status run_delta_rule_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    delta_rule r = begin(self, c, cpu_max(1, n_chunks(c->in[V].shape[0])));
    (void)err;
    r.dout = c->in[LAST].data;
    r.dq = c->out[0].data;
    r.dk = c->out[1].data;
    r.dv = c->out[2].data;
    r.dgates = c->out[3].data;
    tt_parallel_for(c->pool, r.n_runs * r.groups, 1, backward, &r);
    return TT_OK;
}

/* Tokens of sequences seg[t], of which state [S,K,R,kd,vd] has what is before. They are added one by one, not in
 * chunks: so the bits of a sequence do not depend on how its tokens are shared out over calls, with a prompt that is
 * computed in pieces, or after a part of it that the cache has. */
static void continued(void *arg, int64_t begin_, int64_t end, int thread)
{
    const delta_rule *r = arg;
    const int64_t size = r->kd * r->vd, heads = r->groups * r->heads;
    (void)thread;
    for (int64_t h = begin_; h < end; h++)
        for (int64_t t = 0; t < r->tokens; t++) {
            const int64_t gate = t * heads + h, key = (t * r->groups + h / r->heads) * r->kd;
            float *out = r->out + gate * r->vd, decay = 0.0f;
            if (r->seg[t] < 0) {
                memset(out, 0, (size_t)r->vd * sizeof(float));
                continue;
            }
            float *state = r->state + (r->seg[t] * heads + h) * size;
            if (r->pos[t] > 0)
                r->own.isa->exp_sub(1, r->g + gate, 0.0f, 1.0f, &decay);
            else
                memset(state, 0, (size_t)size * sizeof(float));
            r->own.isa->delta_token(r->kd, r->vd, r->q + key, r->k + key, r->v + gate * r->vd,
                                    decay, r->beta[gate], state, out);
        }
}

static tt_status run_delta_rule_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    TT_TRY(cpu_begin_cached(c, SEG, err));
    delta_rule r = rule_of(c);
    r.own = *(const cpu_backend *)self;
    r.out = c->out[0].data;
    r.state = c->out[1].data;
    tt_parallel_for(c->pool, r.groups * r.heads, 1, continued, &r);
    return TT_OK;
}

const cpu_kernel cpu_kernels_delta_rule[] = {
    CPU_KERNEL("delta_rule", run_delta_rule, forward_scratch, 0, 0),
    CPU_KERNEL("delta_rule_bwd", run_delta_rule_bwd, backward_scratch, 0, 0),
    CPU_KERNEL("delta_rule_cached", run_delta_rule_cached, NULL, 0, 0),
    CPU_KERNEL_END,
};
