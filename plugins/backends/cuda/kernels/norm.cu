/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* rms_norm, layer_norm (CENTRED) and their derivatives. A group of G threads has a row of n elements:
 * x [rows, n], w and b [n] in f32 or, if half, bf16. cached: the row stays in shared memory. */

struct tt_mean {
    float per_element, eps; /* 1 / n */
};

/* The mean of the row, or 0, and 1 / sqrt(mean((x - mean)²) + eps). */
struct tt_moments {
    float mean, inv;
};

template <class T, int V, bool W, int G, bool CENTRED>
TT_DEV tt_moments moments(tt_row<T, V, W> &x, int n, int lane, tt_mean how, float *room)
{
    float v[V], sum = 0.0f, squares = 0.0f;
    tt_moments m = {0.0f, 0.0f};
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        x.first(v, i, left);
        for (int k = 0; k < V; k++) {
            sum += v[k];
            squares += v[k] * v[k];
        }
    }
    if (CENTRED) {
        m.mean = tt_group_sum<G>(sum, room) * how.per_element;
        squares = 0.0f;
        for (int i = lane * V; i < n; i += G * V) {
            const int left = tt_left<V, W>(i, n);
            x.again(v, i, left);
            for (int k = 0; k < V; k++)
                if (W || k < left)
                    squares += (v[k] - m.mean) * (v[k] - m.mean);
        }
    }
    m.inv = rsqrtf(tt_group_sum<G>(squares, room) * how.per_element + how.eps);
    return m;
}

template <class T, int V, bool W, int G, bool CENTRED>
TT_DEV void norm_row(const T *in, const void *w, int half_w, const void *b, int half_b, T *out,
                     i64 rows, int n, tt_mean how, int cached)
{
    const i64 r = tt_group_row<G>(rows);
    const int lane = (int)threadIdx.x % G;
    if (r < 0)
        return;
    tt_row<T, V, W> x = {in + r * n, cached ? tt_row_cache<T, G>(n, 1) : (T *)0};
    const tt_moments m = moments<T, V, W, G, CENTRED>(x, n, lane, how, tt_room());
    for (int i = lane * V; i < n; i += G * V) {
        float v[V], f[V], c[V];
        const int left = tt_left<V, W>(i, n);
        x.again(v, i, left);
        tt_load_part_any<V, W>(f, w, i, half_w, left);
        if (CENTRED)
            tt_load_part_any<V, W>(c, b, i, half_b, left);
        for (int k = 0; k < V; k++)
            v[k] = CENTRED ? (v[k] - m.mean) * m.inv * f[k] + c[k] : v[k] * m.inv * f[k];
        tt_store_part<V, W>(out + r * n + i, v, left);
    }
}

#define NORM(T, t, name, centred, g, G)                                                            \
    TT_KERNEL(256, name##_##g##_##t, const T *x, const void *w, int half_w, const void *b,         \
              int half_b, T *y, i64 rows, int n, tt_mean how, int cached, int wide)                \
    {                                                                                              \
        if (wide)                                                                                  \
            norm_row<T, tt_unit<T>::n, true, G, centred>(x, w, half_w, b, half_b, y, rows, n, how, \
                                                         cached);                                  \
        else                                                                                       \
            norm_row<T, tt_unit<T>::n, false, G, centred>(x, w, half_w, b, half_b, y, rows, n,     \
                                                          how, cached);                            \
    }

/* ---- derivatives ----
 * A block has `tile` consecutive rows. h = (x - mean) inv, g = dy w,
 * dx = inv (g - [mean(g)] - h mean(g h)), dw = Σ dy h, db = Σ dy; each thread sums the columns of its
 * units over the group's rows into part [n] (db: [2 n]), and the block's sum is
 * partial [blockIdx.x, 1 or 2, n]. */
template <class T, int V, bool W, int G, bool CENTRED>
TT_DEV void norm_bwd_row(tt_row<T, V, W> &x, tt_row<T, V, W> &dy, const void *w, int half, T *dx,
                         float *part, int n, int lane, tt_mean how, float *room)
{
    const tt_moments m = moments<T, V, W, G, CENTRED>(x, n, lane, how, room);
    float u[V], d[V], f[V], o[V], sg = 0.0f, sgh = 0.0f;
    TT_UNROLL(1)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        x.again(u, i, left);
        dy.first(d, i, left);
        tt_load_part_any<V, W>(f, w, i, half, left);
        for (int k = 0; k < V; k++) {
            sg += d[k] * f[k];
            sgh += d[k] * f[k] * ((u[k] - m.mean) * m.inv);
        }
    }
    const float mg = CENTRED ? tt_group_sum<G>(sg, room) * how.per_element : 0.0f;
    const float mgh = tt_group_sum<G>(sgh, room) * how.per_element;
    TT_UNROLL(1)
    for (int i = lane * V; i < n; i += G * V) {
        const int left = tt_left<V, W>(i, n);
        x.again(u, i, left);
        dy.again(d, i, left);
        tt_load_part_any<V, W>(f, w, i, half, left);
        tt_load_part<V, W>(o, part + i, left);
        for (int k = 0; k < V; k++) {
            const float h = (u[k] - m.mean) * m.inv;
            o[k] += d[k] * h;
            u[k] = m.inv * (d[k] * f[k] - mg - h * mgh);
        }
        tt_store_part<V, W>(part + i, o, left);
        tt_store_part<V, W>(dx + i, u, left);
        if (CENTRED) {
            tt_load_part<V, W>(o, part + n + i, left);
            for (int k = 0; k < V; k++)
                o[k] += d[k];
            tt_store_part<V, W>(part + n + i, o, left);
        }
    }
}

/* shared_sums: the groups' sums are in shared memory, behind the caches, else (one group) in partial. */
template <class T, int V, bool W, int G, bool CENTRED>
TT_DEV void norm_bwd_tile(const T *x, const void *w, int half, const T *dy, T *dx, float *partial,
                          i64 rows, int n, i64 tile, tt_mean how, int cached, int shared_sums)
{
    const int groups = 256 / G, group = (int)threadIdx.x / G, lane = (int)threadIdx.x % G;
    const int width = CENTRED ? 2 * n : n;
    float *const to = partial + (i64)blockIdx.x * width;
    const i64 caches = cached ? (2 * (i64)n * groups * (i64)sizeof(T) + 15) / 16 * 16 : 0;
    float *const sums = shared_sums ? (float *)(void *)(tt_shared + 128 + caches) : to;
    float *const part = sums + (shared_sums ? group * width : 0);
    T *const cache = cached ? tt_row_cache<T, G>(n, 2) : (T *)0;
    for (int i = lane * V; i < n; i += G * V)
        for (int k = 0; k < tt_left<V, W>(i, n); k++) {
            part[i + k] = 0.0f;
            if (CENTRED)
                part[n + i + k] = 0.0f;
        }
    const i64 end = ((i64)blockIdx.x + 1) * tile < rows ? ((i64)blockIdx.x + 1) * tile : rows;
    TT_UNROLL(1)
    for (i64 r = (i64)blockIdx.x * tile + group; r < end; r += groups) {
        tt_row<T, V, W> rx = {x + r * n, cache}, rdy = {dy + r * n, cached ? cache + n : (T *)0};
        norm_bwd_row<T, V, W, G, CENTRED>(rx, rdy, w, half, dx + r * n, part, n, lane, how,
                                          tt_room());
    }
    tt_sync();
    for (int i = (int)threadIdx.x; shared_sums && i < width; i += 256) {
        float sum = 0.0f;
        TT_UNROLL(1)
        for (int k = 0; k < groups; k++)
            sum += sums[k * width + i];
        to[i] = sum;
    }
}

#define NORM_BWD(T, t, name, centred, g, G)                                                        \
    TT_KERNEL(TT_ROOMY, name##_bwd_##g##_##t, const T *x, const void *w, int half, const T *dy,    \
              T *dx, float *partial, i64 rows, int n, i64 tile, tt_mean how, int cached,           \
              int shared_sums, int wide)                                                           \
    {                                                                                              \
        if (wide)                                                                                  \
            norm_bwd_tile<T, tt_unit<T>::n, true, G, centred>(x, w, half, dy, dx, partial, rows,   \
                                                              n, tile, how, cached, shared_sums);  \
        else                                                                                       \
            norm_bwd_tile<T, tt_unit<T>::n, false, G, centred>(x, w, half, dy, dx, partial, rows,  \
                                                               n, tile, how, cached, shared_sums); \
    }

#define BOTH(T, t, name, centred)                                                                  \
    NORM(T, t, name, centred, warp, 32)                                                            \
    NORM(T, t, name, centred, block, 256)                                                          \
    NORM_BWD(T, t, name, centred, warp, 32)                                                        \
    NORM_BWD(T, t, name, centred, block, 256)

BOTH(float, f32, rms_norm, false)
BOTH(bf16, bf16, rms_norm, false)
BOTH(float, f32, layer_norm, true)
BOTH(bf16, bf16, layer_norm, true)
