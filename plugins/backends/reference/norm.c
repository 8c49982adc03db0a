/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>

/* Norms and softmax over rows of n elements. n is the weight's size, so a norm over heads has
 * several rows per token. */

typedef struct rows {
    int64_t n, count;
} rows;

static rows norm_rows(const tt_kernel_call *c)
{
    rows r = {.n = c->in[1].shape[0], .count = 0};
    if (r.n > 0)
        r.count = tt_tensor_numel(&c->in[0]) / r.n;
    return r;
}

static double eps_of(const tt_kernel_call *c)
{
    return ((const tt_attrs_norm *)c->attrs)->eps;
}

static double inverse_root(const tt_kernel_call *c, int64_t at, int64_t n, double mean)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double x = ref_load(&c->in[0], at + j) - mean;
        sum += x * x;
    }
    return 1.0 / sqrt(sum / (double)n + eps_of(c));
}

static double mean_of(const tt_kernel_call *c, int64_t at, int64_t n)
{
    double sum = 0.0;
    for (int64_t j = 0; j < n; j++)
        sum += ref_load(&c->in[0], at + j);
    return sum / (double)n;
}

tt_status ref_rms_norm(void *backend, const tt_kernel_call *c, tt_error *err)
{
    rows r = norm_rows(c);
    (void)backend, (void)err;
    for (int64_t i = 0; i < r.count; i++) {
        double inv = inverse_root(c, i * r.n, r.n, 0.0);
        for (int64_t j = 0; j < r.n; j++)
            ref_store(&c->out[0], i * r.n + j,
                      ref_load(&c->in[0], i * r.n + j) * inv * ref_load(&c->in[1], j));
    }
    return TT_OK;
}

tt_status ref_layer_norm(void *backend, const tt_kernel_call *c, tt_error *err)
{
    rows r = norm_rows(c);
    (void)backend, (void)err;
    for (int64_t i = 0; i < r.count; i++) {
        double mean = mean_of(c, i * r.n, r.n), inv = inverse_root(c, i * r.n, r.n, mean);
        for (int64_t j = 0; j < r.n; j++) {
            double h = (ref_load(&c->in[0], i * r.n + j) - mean) * inv;
            ref_store(&c->out[0], i * r.n + j, h * ref_load(&c->in[1], j) + ref_load(&c->in[2], j));
        }
    }
    return TT_OK;
}

/* dx of both norms (centred: layer_norm), row by row: h = (x - mean) r, g = dy w,
 * dx = r (g - [mean(g)] - h mean(g h)). */
static void norm_dx(const tt_kernel_call *c, rows r, bool centred)
{
    for (int64_t i = 0; i < r.count; i++) {
        int64_t at = i * r.n;
        double mean = centred ? mean_of(c, at, r.n) : 0.0, inv = inverse_root(c, at, r.n, mean),
               mg = 0.0, mgh = 0.0;
        for (int64_t j = 0; j < r.n; j++) {
            double g = ref_load(&c->in[2], at + j) * ref_load(&c->in[1], j);
            mg += g;
            mgh += g * (ref_load(&c->in[0], at + j) - mean) * inv;
        }
        mg = centred ? mg / (double)r.n : 0.0;
        mgh /= (double)r.n;
        for (int64_t j = 0; j < r.n; j++) {
            double g = ref_load(&c->in[2], at + j) * ref_load(&c->in[1], j);
            double h = (ref_load(&c->in[0], at + j) - mean) * inv;
            ref_store(&c->out[0], at + j, inv * (g - mg - h * mgh));
        }
    }
}

/* dw = Σ dy h and db = Σ dy, one column at a time; the statistics of the rows are recomputed. */
enum { N_COLUMNS = 64 };

/* Some columns at a time, so that a row's mean and root are computed once for all of them; each sum has its terms in order. */
static void norm_dw(const tt_kernel_call *c, rows r, bool centred)
{
    for (int64_t j = 0; j < r.n; j += N_COLUMNS) {
        const int64_t width = r.n - j < N_COLUMNS ? r.n - j : N_COLUMNS;
        double dw[N_COLUMNS] = {0}, db[N_COLUMNS] = {0};
        for (int64_t i = 0; i < r.count; i++) {
            const double mean = centred ? mean_of(c, i * r.n, r.n) : 0.0,
                         inv = inverse_root(c, i * r.n, r.n, mean);
            for (int64_t w = 0; w < width; w++) {
                const double dy = ref_load(&c->in[2], i * r.n + j + w);
                dw[w] += dy * (ref_load(&c->in[0], i * r.n + j + w) - mean) * inv;
                db[w] += dy;
            }
        }
        for (int64_t w = 0; w < width; w++) {
            ref_store(&c->out[1], j + w, dw[w]);
            if (centred)
                ref_store(&c->out[2], j + w, db[w]);
        }
    }
}

tt_status ref_rms_norm_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    norm_dx(c, norm_rows(c), false);
    norm_dw(c, norm_rows(c), false);
    return TT_OK;
}

tt_status ref_layer_norm_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    norm_dx(c, norm_rows(c), true);
    norm_dw(c, norm_rows(c), true);
    return TT_OK;
}

tt_status ref_softmax(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    int64_t n = x->shape[x->n_dims - 1], count = n > 0 ? tt_tensor_numel(x) / n : 0;
    (void)backend, (void)err;
    for (int64_t i = 0; i < count; i++) {
        double m = -(double)INFINITY, sum = 0.0;
        for (int64_t j = 0; j < n; j++)
            m = fmax(m, ref_load(x, i * n + j));
        for (int64_t j = 0; j < n; j++)
            sum += exp(ref_load(x, i * n + j) - m);
        for (int64_t j = 0; j < n; j++)
            ref_store(&c->out[0], i * n + j, exp(ref_load(x, i * n + j) - m) / sum);
    }
    return TT_OK;
}

tt_status ref_softmax_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *y = &c->in[0], *dy = &c->in[1];
    int64_t n = y->shape[y->n_dims - 1], count = n > 0 ? tt_tensor_numel(y) / n : 0;
    (void)backend, (void)err;
    for (int64_t i = 0; i < count; i++) {
        double dot = 0.0;
        for (int64_t j = 0; j < n; j++)
            dot += ref_load(y, i * n + j) * ref_load(dy, i * n + j);
        for (int64_t j = 0; j < n; j++)
            ref_store(&c->out[0], i * n + j,
                      ref_load(y, i * n + j) * (ref_load(dy, i * n + j) - dot));
    }
    return TT_OK;
}
