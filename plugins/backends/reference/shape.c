/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <string.h>

/* Reductions, and ops that only move elements. */

static tt_status reduce(const tt_kernel_call *c, bool max)
{
    const tt_attrs_reduce *a = c->attrs;
    int64_t outer, n, inner;
    ref_split(&c->in[0], ref_dim(&c->in[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double r = max ? (double)-INFINITY : 0.0;
            for (int64_t j = 0; j < n; j++) {
                double x = ref_load(&c->in[0], (o * n + j) * inner + i);
                r = !max ? r + x : x > r || isnan(x) ? x : r;
                if (max && isnan(r))
                    break;
            }
            ref_store(&c->out[0], o * inner + i, r);
        }
    return TT_OK;
}

tt_status ref_reduce_sum(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    return reduce(c, false);
}

tt_status ref_reduce_max(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    return reduce(c, true);
}

/* A NaN is beyond every number, and the first one stays. */
tt_status ref_argmax(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_arg *a = c->attrs;
    int64_t outer, n, inner;
    (void)backend, (void)err;
    ref_split(&c->in[0], ref_dim(&c->in[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = 0;
            double best = 0.0;
            for (int64_t j = 0; j < n; j++) {
                const double x = ref_load(&c->in[0], (o * n + j) * inner + i);
                const bool beyond = a->smallest ? x < best : x > best;
                if (j == 0 || (!isnan(best) && (beyond || isnan(x)))) {
                    best = x;
                    at = j;
                }
            }
            ref_store(&c->out[0], o * inner + i, (double)at);
        }
    return TT_OK;
}

tt_status ref_line_sum(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *o = &c->out[0];
    int64_t line = o->global[0] > 0 ? x->global[0] / o->global[0] : 0;
    (void)backend, (void)err;
    for (int64_t l = 0; l < o->shape[0]; l++) {
        double sum = 0.0;
        for (int64_t i = 0; i < x->shape[0]; i++)
            if ((x->begin[0] + i) / line == o->begin[0] + l)
                sum += ref_load(x, i);
        ref_store(o, l, sum);
    }
    return TT_OK;
}

tt_status ref_segment_sum(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *number = &c->in[1];
    const int64_t n = x->shape[0], line = ((const tt_attrs_dims *)c->attrs)->dims[0].size;
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++) {
        const int64_t own = ref_index(number, i);
        double sum = 0.0;
        for (int64_t j = 0; own >= 0 && own < line && j < n; j++)
            if (ref_index(number, j) == own && (x->begin[0] + i) / line == (x->begin[0] + j) / line)
                sum += ref_load(x, j);
        ref_store(&c->out[0], i, sum);
    }
    return TT_OK;
}

tt_status ref_sum_squares(void *backend, const tt_kernel_call *c, tt_error *err)
{
    double sum = 0.0;
    int64_t n = tt_tensor_numel(&c->in[0]);
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++)
        sum += ref_load(&c->in[0], i) * ref_load(&c->in[0], i);
    ref_store(&c->out[0], 0, sum);
    return TT_OK;
}

tt_status ref_member_stats(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *o = &c->out[0];
    const int64_t n = x->shape[0] ? tt_tensor_numel(x) / x->shape[0] : 0;
    (void)backend, (void)err;
    for (int64_t m = 0; m < x->shape[0]; m++) {
        double sums[4] = {0};
        for (int64_t i = 0; i < n; i++) {
            const double v = ref_load(x, m * n + i);
            sums[0] += v * v;
            sums[1] += !isfinite(v);
            sums[2] += v == 0;
            sums[3] += isfinite(v) && fabs(v) >= 65504;
        }
        for (int64_t j = 0; j < 4; j++)
            ref_store(o, m * 4 + j, sums[j]);
    }
    return TT_OK;
}

static void move(const tt_tensor *to, int64_t i, const tt_tensor *from, int64_t j, int64_t n)
{
    size_t size = tt_dtype_size(to->dtype);
    if (n <= 0)
        return;
    if (to->dtype == from->dtype)
        memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)j * size,
               (size_t)n * size);
    else
        for (int64_t k = 0; k < n; k++)
            ref_store(to, i + k, ref_load(from, j + k));
}

tt_status ref_broadcast(void *backend, const tt_kernel_call *c, tt_error *err)
{
    int64_t index[TT_MAX_DIMS] = {0}, strides[1][TT_MAX_DIMS], at[1] = {0},
            n = tt_tensor_numel(&c->out[0]);
    (void)backend, (void)err;
    ref_strides(&c->in[0], &c->out[0], strides[0]);
    for (int64_t i = 0; i < n; i++) {
        move(&c->out[0], i, &c->in[0], at[0], 1);
        ref_step(&c->out[0], index, 1, strides, at);
    }
    return TT_OK;
}

tt_status ref_transpose(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_perm *a = c->attrs;
    const tt_tensor *x = &c->in[0];
    int64_t index[TT_MAX_DIMS] = {0}, strides[1][TT_MAX_DIMS] = {{0}}, at[1] = {0},
            n = tt_tensor_numel(x);
    int64_t from[TT_MAX_DIMS], s = 1;
    (void)backend, (void)err;
    for (int d = x->n_dims - 1; d >= 0; d--) {
        from[d] = s;
        s *= x->shape[d];
    }
    for (int d = 0; d < x->n_dims; d++)
        strides[0][d] = from[a->perm[d]];
    for (int64_t i = 0; i < n; i++) {
        move(&c->out[0], i, x, at[0], 1);
        ref_step(&c->out[0], index, 1, strides, at);
    }
    return TT_OK;
}

tt_status ref_slice(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *a = c->attrs;
    int64_t outer, n, inner, m = a->end - a->begin;
    (void)backend, (void)err;
    ref_split(&c->in[0], ref_dim(&c->in[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        move(&c->out[0], o * m * inner, &c->in[0], (o * n + a->begin) * inner, m * inner);
    return TT_OK;
}

tt_status ref_slice_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_slice *a = c->attrs;
    int64_t outer, n, inner, m = a->end - a->begin;
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    ref_split(&c->out[0], ref_dim(&c->out[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        move(&c->out[0], (o * n + a->begin) * inner, &c->in[0], o * m * inner, m * inner);
    return TT_OK;
}

tt_status ref_concat(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_concat *a = c->attrs;
    int64_t outer, n, inner, at = 0;
    int dim = ref_dim(&c->out[0], a->dim);
    (void)backend, (void)err;
    ref_split(&c->out[0], dim, &outer, &n, &inner);
    for (int k = 0; k < c->n_in; k++) {
        int64_t m = c->in[k].shape[dim];
        for (int64_t o = 0; o < outer; o++)
            move(&c->out[0], (o * n + at) * inner, &c->in[k], o * m * inner, m * inner);
        at += m;
    }
    return TT_OK;
}

tt_status ref_roll(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_roll *a = c->attrs;
    int64_t outer, n, inner;
    (void)backend, (void)err;
    ref_split(&c->in[0], ref_dim(&c->in[0], a->dim), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < n; j++)
            move(&c->out[0], (o * n + (j + a->shift) % n) * inner, &c->in[0], (o * n + j) * inner,
                 inner);
    return TT_OK;
}
