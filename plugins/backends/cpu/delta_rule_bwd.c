/* SPDX-License-Identifier: Apache-2.0 */
#include "delta_rule.h"
#include <string.h>

/* The derivative of delta_rule in the chunks of delta_rule.h. The states before the chunks are computed again and kept;
 * then the chunks are walked from the last to the first. Names: dd is the derivative of D and then, solved,
 * that of beta X; dstate that of the state after the chunk. */

#define CHUNK DELTA_CHUNK

/* d = (1 + A)^-T d, with w->lower = -A: rows from the last to the first */
static void solve_across(const delta_rule *r, const delta_work *w, int64_t n)
{
    for (int64_t i = n - 2; i >= 0; i--)
        for (int64_t j = i + 1; j < n; j++) {
            const float a = w->lower[j * CHUNK + i];
            for (int64_t e = 0; e < r->vd; e++)
                w->dd[i * r->vd + e] += a * w->dd[j * r->vd + e];
        }
}

static double dot(const delta_rule *r, int64_t n, const float *a, const float *b)
{
    return (double)r->own.isa->dot(n, a, b);
}

/* y[i] += factor scale[i] x[i] for n rows of x [n,width]; scale NULL: 1. Adds y's rows' part of the derivative of G. */
static void add_rows(int64_t n, int64_t width, const float *scale, float factor, const float *x,
                     float *y, int64_t ldy)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < width; e++)
            y[i * ldy + e] += factor * (scale ? scale[i] : 1.0f) * x[i * width + e];
}

/* dsums += factor scale[i] (rows[i] · w->keys[i]) */
static void add_sums(const delta_rule *r, const delta_work *w, const delta_chunk *c,
                     const float *scale, float factor, const float *rows)
{
    for (int64_t i = 0; i < c->n; i++)
        w->dsums[i] += (double)(factor * scale[i]) *
                       dot(r, r->kd, rows + i * r->groups * r->kd, w->keys + i * r->kd);
}

/* dd: of D, from O = … + qk D and S' = … + Kᵀ (to_end D); then solved. */
static void derive_rows(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t ld = r->groups * r->heads * r->vd;
    const cpu_mat dout = {r->dout + delta_gate(r, c) * r->vd, ld, 1},
                  k = {r->k + delta_key(r, c), r->groups * r->kd, 1};
    cpu_delta_product(r, w, c->n, r->vd, r->kd, k, (cpu_mat){w->dstate, r->vd, 1}, w->dd, r->vd,
                      false);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t e = 0; e < r->vd; e++)
            w->dd[i * r->vd + e] *= w->to_end[i];
    cpu_delta_product(r, w, c->n, r->vd, c->n, (cpu_mat){w->qk, 1, CHUNK}, dout, w->dd, r->vd,
                      true);
    solve_across(r, w, c->n);
}

/* From Q Kᵀ: with w->square = dO Dᵀ L below and on the diagonal: dq += square K, dk += squareᵀ Q. */
static void derive_scores(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t n = c->n, ldk = r->groups * r->kd, ld = r->groups * r->heads * r->vd;
    const int64_t key = delta_key(r, c);
    cpu_delta_product(r, w, n, n, r->vd, (cpu_mat){r->dout + delta_gate(r, c) * r->vd, ld, 1},
                      (cpu_mat){w->d, 1, r->vd}, w->square, CHUNK, false);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            float *s = &w->square[i * CHUNK + j];
            if (j <= i) {
                const double h = (double)*s * (double)w->qk[i * CHUNK + j];
                w->dsums[i] += h;
                w->dsums[j] -= h;
            }
            *s = j <= i ? *s * w->decay[i * CHUNK + j] : 0.0f;
        }
    cpu_delta_product(r, w, n, r->kd, n, (cpu_mat){w->square, CHUNK, 1},
                      (cpu_mat){r->k + key, ldk, 1}, r->dq + key, ldk, true);
    cpu_delta_product(r, w, n, r->kd, n, (cpu_mat){w->square, 1, CHUNK},
                      (cpu_mat){r->q + key, ldk, 1}, r->dk + key, ldk, true);
}

/* From A: with w->square = -beta (dd Dᵀ) L below the diagonal: dk += (square + squareᵀ) K. Also dbeta. */
static void derive_rates(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t n = c->n, ldk = r->groups * r->kd, step = r->groups * r->heads;
    const int64_t key = delta_key(r, c);
    const float *beta = r->beta + delta_gate(r, c);
    cpu_delta_product(r, w, n, n, r->vd, (cpu_mat){w->dd, r->vd, 1}, (cpu_mat){w->d, 1, r->vd},
                      w->square, CHUNK, false);
    for (int64_t i = 0; i < n; i++) {
        double rate = dot(r, r->vd, w->dd + i * r->vd, w->x + i * r->vd);
        for (int64_t j = 0; j < n; j++) {
            float *s = &w->square[i * CHUNK + j];
            if (j < i) {
                const double h = -(double)*s * (double)w->kk[i * CHUNK + j];
                rate += h;
                w->dsums[i] += (double)beta[i * step] * h;
                w->dsums[j] -= (double)beta[i * step] * h;
            }
            *s = j < i ? -beta[i * step] * *s * w->decay[i * CHUNK + j] : 0.0f;
        }
        r->dgates[((c->t + i) * r->groups + c->group) * 2 * r->heads + r->heads + c->head] =
            (float)rate;
    }
    const cpu_mat k = {r->k + key, ldk, 1};
    cpu_delta_product(r, w, n, r->kd, n, (cpu_mat){w->square, CHUNK, 1}, k, r->dk + key, ldk, true);
    cpu_delta_product(r, w, n, r->kd, n, (cpu_mat){w->square, 1, CHUNK}, k, r->dk + key, ldk, true);
}

/* dv = beta dd, which stays in w->dd. */
static void derive_values(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t step = r->groups * r->heads;
    const float *beta = r->beta + delta_gate(r, c);
    float *dv = r->dv + delta_gate(r, c) * r->vd;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t e = 0; e < r->vd; e++)
            dv[i * step * r->vd + e] = w->dd[i * r->vd + e] *= beta[i * step];
}

/* From S' = whole S + Kᵀ (to_end D): dk, and the sums' part of it. */
static void derive_last(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t last = c->n - 1, key = delta_key(r, c), size = r->kd * r->vd;
    double sum = 0.0;
    cpu_delta_product(r, w, c->n, r->kd, r->vd, (cpu_mat){w->d, r->vd, 1},
                      (cpu_mat){w->dstate, 1, r->vd}, w->keys, r->kd, false);
    add_rows(c->n, r->kd, w->to_end, 1.0f, w->keys, r->dk + key, r->groups * r->kd);
    for (int64_t i = 0; i < c->n; i++) {
        const double h = (double)w->to_end[i] *
                         dot(r, r->kd, r->k + key + i * r->groups * r->kd, w->keys + i * r->kd);
        w->dsums[i] -= h;
        sum += h;
    }
    w->dsums[last] += sum;
    if (!c->begins)
        w->dsums[last] += (double)w->from_start[last] * dot(r, size, w->state, w->dstate);
}

/* From X = V - m K S and O = m Q S + …: dq, dk, and dstate becomes that of S. */
static void derive_first(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    const int64_t n = c->n, ldk = r->groups * r->kd, ld = r->groups * r->heads * r->vd;
    const int64_t key = delta_key(r, c), size = r->kd * r->vd;
    const float *dout = r->dout + delta_gate(r, c) * r->vd, whole = w->from_start[n - 1];
    const cpu_mat across = {w->state, 1, r->vd};
    for (int64_t i = 0; i < size; i++)
        w->dstate[i] *= whole;
    cpu_delta_product(r, w, n, r->kd, r->vd, (cpu_mat){dout, ld, 1}, across, w->keys, r->kd, false);
    add_rows(n, r->kd, w->from_start, 1.0f, w->keys, r->dq + key, ldk);
    add_sums(r, w, c, w->from_start, 1.0f, r->q + key);
    cpu_delta_product(r, w, n, r->kd, r->vd, (cpu_mat){w->dd, r->vd, 1}, across, w->keys, r->kd,
                      false);
    add_rows(n, r->kd, w->from_start, -1.0f, w->keys, r->dk + key, ldk);
    add_sums(r, w, c, w->from_start, -1.0f, r->k + key);
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < r->vd; e++)
            w->values[i * r->vd + e] = w->from_start[i] * dout[i * ld + e];
    cpu_delta_product(r, w, r->kd, r->vd, n, (cpu_mat){r->q + key, 1, ldk},
                      (cpu_mat){w->values, r->vd, 1}, w->dstate, r->vd, true);
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < r->vd; e++)
            w->values[i * r->vd + e] = -w->from_start[i] * w->dd[i * r->vd + e];
    cpu_delta_product(r, w, r->kd, r->vd, n, (cpu_mat){r->k + key, 1, ldk},
                      (cpu_mat){w->values, r->vd, 1}, w->dstate, r->vd, true);
}

static void derive_chunk(const delta_rule *r, const delta_work *w, const delta_chunk *c)
{
    memset(w->dsums, 0, CHUNK * sizeof(double));
    cpu_delta_inside(r, w, c);
    derive_last(r, w, c);
    derive_rows(r, w, c);
    derive_scores(r, w, c);
    derive_rates(r, w, c);
    derive_values(r, w, c);
    if (!c->begins)
        derive_first(r, w, c);
    double sum = 0.0; /* g of a token is in its own sum and those after it */
    for (int64_t i = c->n - 1; i >= 0; i--) {
        sum += w->dsums[i];
        r->dgates[((c->t + i) * r->groups + c->group) * 2 * r->heads + c->head] =
            i == 0 && c->begins ? 0.0f : (float)sum;
    }
}

void cpu_delta_group_bwd(const delta_rule *r, const delta_work *w, int64_t run, int64_t group)
{
    const int64_t begin = r->runs[run], end = r->runs[run + 1], size = r->kd * r->vd;
    const int64_t chunks = (end - begin + CHUNK - 1) / CHUNK;
    for (int64_t t = begin; t < end; t++) {
        memset(r->dq + (t * r->groups + group) * r->kd, 0, (size_t)r->kd * sizeof(float));
        memset(r->dk + (t * r->groups + group) * r->kd, 0, (size_t)r->kd * sizeof(float));
    }
    for (int64_t h = 0; h < r->heads; h++) {
        delta_chunk c = {.group = group, .head = h};
        for (int64_t i = 0; i < chunks - 1; i++) {
            c.t = begin + i * CHUNK;
            c.n = CHUNK;
            c.begins = i == 0;
            cpu_delta_inside(r, w, &c);
            cpu_delta_advance(r, w, &c);
            memcpy(w->states + i * size, w->state, (size_t)size * sizeof(float));
        }
        memset(w->dstate, 0, (size_t)size * sizeof(float));
        for (int64_t i = chunks - 1; i >= 0; i--) {
            c.t = begin + i * CHUNK;
            c.n = cpu_min(CHUNK, end - c.t);
            c.begins = i == 0;
            if (i > 0)
                memcpy(w->state, w->states + (i - 1) * size, (size_t)size * sizeof(float));
            derive_chunk(r, w, &c);
        }
    }
}
