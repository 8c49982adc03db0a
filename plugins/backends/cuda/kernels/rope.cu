/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* Rotary positions: the pair j of each head is rotated by pos inv[j]. A thread has some pairs of one
 * token, computes their cosine and sine once and rotates them in every head. x, y [T, heads * hd];
 * y may be x. */

#define TT_PAIRS 128 /* of one launch, at most */
struct tt_rope {
    double inv[TT_PAIRS];  /* of the pairs first … first + n - 1 */
    i64 tokens, width;     /* width: elements of a row */
    int first, n, pairs;   /* pairs: of all launches, half of rotary_dim */
    int head_dim, threads; /* threads: a power of two, how many share a token's pairs */
    int interleaved, rest; /* rest: copies the elements behind the pairs, too */
    float factor, sine;    /* of the cosines and the sines */
};

/* The cosine and sine of angle: quarter turns are taken off in f64, so that large positions are as
 * exact as small ones; then Taylor's series up to r^9 and r^10, for |r| <= pi / 4. */
TT_DEV void turn(double angle, float *cosine, float *sine)
{
    const double quarters = rint(angle * 0.63661977236758134);
    const float r = (float)fma(-quarters, 1.5707963267948966, angle), s = r * r;
    const int q = (int)((i64)quarters & 3);
    float co = fmaf(s, -1.0f / 3628800.0f, 1.0f / 40320.0f),
          si = fmaf(s, 1.0f / 362880.0f, -1.0f / 5040.0f);
    co = fmaf(s, co, -1.0f / 720.0f);
    co = fmaf(s, co, 1.0f / 24.0f);
    co = fmaf(s, co, -0.5f);
    co = fmaf(s, co, 1.0f);
    si = fmaf(s, si, 1.0f / 120.0f);
    si = fmaf(s, si, -1.0f / 6.0f);
    si = fmaf(r * s, si, r);
    *cosine = q == 0 ? co : q == 1 ? -si : q == 2 ? -co : si;
    *sine = q == 0 ? si : q == 1 ? co : q == 2 ? -si : -co;
}

template <class T, int V>
TT_DEV void rotate_unit(const T *x, T *y, int apart, const float *co, const float *si)
{
    float u[V], v[V];
    tt_load_unit<V>(u, x);
    tt_load_unit<V>(v, x + apart);
    for (int k = 0; k < V; k++) {
        const float p = u[k] * co[k] - v[k] * si[k];
        v[k] = v[k] * co[k] + u[k] * si[k];
        u[k] = p;
    }
    tt_store_unit<V>(y, u);
    tt_store_unit<V>(y + apart, v);
}

/* V pairs at a time; with V > 1 the halves of a head are V consecutive elements, not interleaved. */
template <class T, int V>
TT_DEV void rope(const tt_rope &a, const T *x, const int *pos, T *y, int head_blocks)
{
    const int rows = 256 / a.threads, lane = (int)threadIdx.x % a.threads;
    const i64 t = (i64)((int)blockIdx.x / head_blocks) * rows + threadIdx.x / a.threads;
    const int step = head_blocks * a.head_dim,
              width = (int)a.width - (int)blockIdx.x % head_blocks * a.head_dim;
    float co[V], si[V];
    if (t >= a.tokens)
        return;
    const double p = (double)pos[t];
    x += t * a.width + a.width - width;
    y += t * a.width + a.width - width;
    TT_UNROLL(1)
    for (int j = lane * V; j < a.n; j += a.threads * V) {
        for (int k = 0; k < V; k++) {
            turn(p * a.inv[j + k], &co[k], &si[k]);
            co[k] *= a.factor;
            si[k] *= a.sine;
        }
        const bool halves = V > 1 || !a.interleaved;
        const int at = halves ? a.first + j : 2 * (a.first + j), apart = halves ? a.pairs : 1;
        TT_UNROLL(1)
        for (int h = 0; h < width; h += step)
            rotate_unit<T, V>(x + h + at, y + h + at, apart, co, si);
    }
    if (!a.rest || x == y)
        return;
    for (int h = 0; h < width; h += step)
        TT_UNROLL(1)
    for (int j = 2 * a.pairs + lane; j < a.head_dim; j += a.threads)
        y[h + j] = x[h + j];
}

#define ROPE(T, t)                                                                                 \
    TT_KERNEL(256, rope_##t, tt_rope a, const T *x, const int *pos, T *y, int head_blocks,         \
              int wide)                                                                            \
    {                                                                                              \
        if (wide)                                                                                  \
            rope<T, tt_unit<T>::n>(a, x, pos, y, head_blocks);                                     \
        else                                                                                       \
            rope<T, 1>(a, x, pos, y, head_blocks);                                                 \
    }

ROPE(float, f32)
ROPE(bf16, bf16)
