/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* softmax and its derivative, cross-entropy, and the three parts of it that ranks compute which share
 * a vocabulary. A group of G threads has a row of n elements; what is read of it once, is read once.
 * An index is global: column 0 of this rank is `begin`. */

#define LOG2_E 1.4426950408889634f

TT_DEV float e_to(float x)
{
    return exp2f(x * LOG2_E);
}

/* A sum of e^x as sum e^max, so that no term overflows. max ignores NaN, and sum does not. */
struct tt_exp_sum {
    float max, sum;
};

/* Over the group: the largest x and Σ e^(x - max). */
template <int G> TT_DEV tt_exp_sum exp_sum_of(tt_exp_sum s, float *room)
{
    const float most = tt_group_max<G>(s.max, room);
    s.sum = tt_group_sum<G>(
        s.max > -TT_INFINITY || s.sum != s.sum ? s.sum * e_to(s.max - most) : 0.0f, room);
    s.max = most;
    if (most == TT_INFINITY || most == -TT_INFINITY)
        s.sum += most - most; /* NaN */
    return s;
}

/* Adds a unit: one exponential more than its elements. */
template <int V, bool W> TT_DEV void add_exp(tt_exp_sum &s, const float *v, int left)
{
    float most = s.max, sum = 0.0f;
    for (int k = 0; k < V; k++)
        most = (W || k < left) && v[k] > most ? v[k] : most;
    for (int k = 0; k < V; k++)
        sum += (!W && k >= left) || v[k] == -TT_INFINITY ? 0.0f : e_to(v[k] - most);
    s.sum = (s.max == -TT_INFINITY ? s.sum : s.sum * e_to(s.max - most)) + sum;
    s.max = most;
}

template <class T, int V, bool W, int G>
TT_DEV tt_exp_sum row_exp_sum(tt_row<T, V, W> &x, int n, int lane, float *room)
{
    tt_exp_sum s = {-TT_INFINITY, 0.0f};
    float v[V];
    TT_UNROLL(2)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        x.first(v, i, left);
        add_exp<V, W>(s, v, left);
    }
    return exp_sum_of<G>(s, room);
}

template <class T, int V, bool W, int G>
TT_DEV void softmax_row(const T *in, T *out, i64 rows, int n, int cached)
{
    const i64 r = tt_group_row<G>(rows);
    const int lane = (int)threadIdx.x % G;
    float v[V];
    if (r < 0)
        return;
    tt_row<T, V, W> x = {in + r * n, cached ? tt_row_cache<T, G>(n, 1) : (T *)0};
    const tt_exp_sum s = row_exp_sum<T, V, W, G>(x, n, lane, tt_room());
    const float inv = 1.0f / s.sum;
    TT_UNROLL(2)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        x.again(v, i, left);
        for (int k = 0; k < V; k++)
            v[k] = expf(v[k] - s.max) * inv;
        tt_store_part<V, W>(out + r * n + i, v, left);
    }
}

/* dx = y (dy - Σ y dy) */
template <class T, int V, bool W, int G>
TT_DEV void softmax_bwd_row(const T *y, const T *dy, T *out, i64 rows, int n, int cached)
{
    const i64 r = tt_group_row<G>(rows);
    const int lane = (int)threadIdx.x % G;
    float u[V], d[V], dot = 0.0f;
    if (r < 0)
        return;
    T *const cache = cached ? tt_row_cache<T, G>(n, 2) : (T *)0;
    tt_row<T, V, W> ry = {y + r * n, cache}, rd = {dy + r * n, cached ? cache + n : (T *)0};
    TT_UNROLL(2)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        ry.first(u, i, left);
        rd.first(d, i, left);
        for (int k = 0; k < V; k++)
            dot += u[k] * d[k];
    }
    dot = tt_group_sum<G>(dot, tt_room());
    TT_UNROLL(2)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        ry.again(u, i, left);
        rd.again(d, i, left);
        for (int k = 0; k < V; k++)
            u[k] *= d[k] - dot;
        tt_store_part<V, W>(out + r * n + i, u, left);
    }
}

/* The local column of a global index, or -1: another rank has it, or it is negative. */
TT_DEV int column_of(int index, i64 begin, int n)
{
    const i64 at = (i64)index - begin;
    return index >= 0 && at >= 0 && at < n ? (int)at : -1;
}

template <class T, int V, bool W, int G>
TT_DEV void cross_entropy_row(const T *in, const int *labels, float *nll, float *lse, i64 rows,
                              int n, i64 begin)
{
    const i64 r = tt_group_row<G>(rows);
    if (r < 0)
        return;
    tt_row<T, V, W> x = {in + r * n, (T *)0};
    const tt_exp_sum s = row_exp_sum<T, V, W, G>(x, n, (int)threadIdx.x % G, tt_room());
    if (threadIdx.x % G)
        return;
    const float all = s.max + logf(s.sum);
    const int label = labels[r], at = column_of(label, begin, n);
    lse[r] = all;
    nll[r] = label < 0 ? 0.0f : at < 0 ? all : all - tt_load(in + r * n + at);
}

/* max_last, or, if m is there, sum_exp: Σ e^(x - m). */
template <class T, int V, bool W, int G>
TT_DEV void vocabulary_row(const T *in, const void *m, int half, float *out, i64 rows, int n)
{
    const i64 r = tt_group_row<G>(rows);
    float v[V], most = -TT_INFINITY, sum = 0.0f;
    if (r < 0)
        return;
    const float less = m ? tt_load_any(m, r, half) : 0.0f;
    TT_UNROLL(2)
    for (int i = ((int)threadIdx.x % G) * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        tt_load_part<V, W>(v, in + r * n + i, left);
        for (int k = 0; k < V; k++)
            if (!W && k >= left)
                continue;
            else if (m)
                sum += e_to(v[k] - less);
            else
                most = tt_max(most, v[k]);
    }
    sum = m ? tt_group_sum<G>(sum, tt_room()) : tt_group_max<G>(most, tt_room());
    if (threadIdx.x % G == 0)
        out[r] = sum;
}

#define ROWS(T, t, G, g)                                                                           \
    TT_KERNEL(256, softmax_##g##_##t, const T *x, T *y, i64 rows, int n, int cached, int wide)     \
    {                                                                                              \
        if (wide)                                                                                  \
            softmax_row<T, tt_unit<T>::n, true, G>(x, y, rows, n, cached);                         \
        else                                                                                       \
            softmax_row<T, tt_unit<T>::n, false, G>(x, y, rows, n, cached);                        \
    }                                                                                              \
    TT_KERNEL(256, softmax_bwd_##g##_##t, const T *y, const T *dy, T *dx, i64 rows, int n,         \
              int cached, int wide)                                                                \
    {                                                                                              \
        if (wide)                                                                                  \
            softmax_bwd_row<T, tt_unit<T>::n, true, G>(y, dy, dx, rows, n, cached);                \
        else                                                                                       \
            softmax_bwd_row<T, tt_unit<T>::n, false, G>(y, dy, dx, rows, n, cached);               \
    }                                                                                              \
    TT_KERNEL(256, cross_entropy_##g##_##t, const T *x, const int *labels, float *nll, float *lse, \
              i64 rows, int n, i64 begin, int wide)                                                \
    {                                                                                              \
        if (wide)                                                                                  \
            cross_entropy_row<T, tt_unit<T>::n, true, G>(x, labels, nll, lse, rows, n, begin);     \
        else                                                                                       \
            cross_entropy_row<T, tt_unit<T>::n, false, G>(x, labels, nll, lse, rows, n, begin);    \
    }                                                                                              \
    TT_KERNEL(256, vocabulary_##g##_##t, const T *x, const void *m, int half, float *y, i64 rows,  \
              int n, int wide)                                                                     \
    {                                                                                              \
        if (wide)                                                                                  \
            vocabulary_row<T, tt_unit<T>::n, true, G>(x, m, half, y, rows, n);                     \
        else                                                                                       \
            vocabulary_row<T, tt_unit<T>::n, false, G>(x, m, half, y, rows, n);                    \
    }

ROWS(float, f32, 32, warp)
ROWS(float, f32, 256, block)
ROWS(bf16, bf16, 32, warp)
ROWS(bf16, bf16, 256, block)

/* ---- element by element: `pieces` blocks have a row ---- */

/* (softmax(x) - onehot(label)) d, 0 where the label is negative. out may be x. */
template <class T, int V, bool W>
TT_DEV void cross_entropy_bwd_piece(const T *x, const int *labels, const void *lse, int half_lse,
                                    const void *dnll, int half_d, T *out, int n, int pieces,
                                    i64 begin)
{
    const i64 r = (i64)blockIdx.x / pieces;
    const int piece = (int)((i64)blockIdx.x % pieces), label = labels[r],
              at = column_of(label, begin, n);
    const float all = tt_load_any(lse, r, half_lse), d = tt_load_any(dnll, r, half_d);
    TT_UNROLL(2)
    for (int i = (piece * 256 + (int)threadIdx.x) * V; i < n; i += pieces * 256 * V) {
        const int left = tt_left<V, W>(i, n);
        float v[V];
        if (label >= 0)
            tt_load_part<V, W>(v, x + r * n + i, left);
        for (int k = 0; k < V; k++)
            v[k] = label < 0 ? 0.0f : (e_to(v[k] - all) - (i + k == at ? 1.0f : 0.0f)) * d;
        tt_store_part<V, W>(out + r * n + i, v, left);
    }
}

template <class T, int V, bool W>
TT_DEV void pick_bwd_piece(const int *labels, const void *dy, int half, T *out, int n, int pieces,
                           i64 begin)
{
    const i64 r = (i64)blockIdx.x / pieces;
    const int piece = (int)((i64)blockIdx.x % pieces), at = column_of(labels[r], begin, n);
    const float d = tt_load_any(dy, r, half);
    for (int i = (piece * 256 + (int)threadIdx.x) * V; i < n; i += pieces * 256 * V) {
        const int left = tt_left<V, W>(i, n);
        float v[V];
        for (int k = 0; k < V; k++)
            v[k] = i + k == at ? d : 0.0f;
        tt_store_part<V, W>(out + r * n + i, v, left);
    }
}

#define PIECES(T, t)                                                                               \
    TT_KERNEL(256, cross_entropy_bwd_##t, const T *x, const int *labels, const void *lse,          \
              int half_lse, const void *dnll, int half_d, T *dx, int n, int pieces, i64 begin,     \
              int wide)                                                                            \
    {                                                                                              \
        if (wide)                                                                                  \
            cross_entropy_bwd_piece<T, tt_unit<T>::n, true>(x, labels, lse, half_lse, dnll,        \
                                                            half_d, dx, n, pieces, begin);         \
        else                                                                                       \
            cross_entropy_bwd_piece<T, tt_unit<T>::n, false>(x, labels, lse, half_lse, dnll,       \
                                                             half_d, dx, n, pieces, begin);        \
    }                                                                                              \
    TT_KERNEL(256, pick_bwd_##t, const int *labels, const void *dy, int half, T *dx, int n,        \
              int pieces, i64 begin, int wide)                                                     \
    {                                                                                              \
        if (wide)                                                                                  \
            pick_bwd_piece<T, tt_unit<T>::n, true>(labels, dy, half, dx, n, pieces, begin);        \
        else                                                                                       \
            pick_bwd_piece<T, tt_unit<T>::n, false>(labels, dy, half, dx, n, pieces, begin);       \
    }                                                                                              \
    TT_KERNEL(256, pick_##t, const T *x, const int *labels, float *y, i64 rows, int n, i64 begin)  \
    {                                                                                              \
        const i64 r = (i64)blockIdx.x * 256 + threadIdx.x;                                         \
        if (r < rows) {                                                                            \
            const int at = column_of(labels[r], begin, n);                                         \
            y[r] = at < 0 ? 0.0f : tt_load(x + r * n + at);                                        \
        }                                                                                          \
    }

PIECES(float, f32)
PIECES(bf16, bf16)
