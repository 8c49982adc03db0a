/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

/* conv1d: y[t] = Σ_j w[:, K-1-j] x[t-j] over the taps that count. x [T, D], w [D, K]. A thread has a
 * channel and `piece` tokens. */
struct tt_conv {
    const void *w;
    const int *seg, *pos;
    i64 tokens, width, piece;
    int half_w, taps;
};

/* Does tap j count for token t? Only if token t - j is in the same segment, j positions before. */
TT_DEV bool counts(const tt_conv &a, i64 t, int j)
{
    return j <= t && t < a.tokens && a.seg[t - j] == a.seg[t] && a.pos[t - j] == a.pos[t] - j;
}
TT_DEV float tap_of(const tt_conv &a, i64 d, int j)
{
    return tt_load_any(a.w, d * a.taps + a.taps - 1 - j, a.half_w);
}

/* The channel and the first token of this thread: blocks [pieces, tiles of 256 channels]. */
TT_DEV i64 channel_of(const tt_conv &a, i64 *first)
{
    const int tiles = (int)((a.width + 255) / 256);
    *first = (int)blockIdx.x / tiles * a.piece;
    return (i64)((int)blockIdx.x % tiles) * 256 + threadIdx.x;
}

/* back: dx[t] = Σ_j w[:, K-1-j] dy[t+j], x is dy. */
template <class T, bool BACK> TT_DEV void convolve(const tt_conv &a, const T *x, T *y)
{
    i64 first;
    const i64 d = channel_of(a, &first);
    if (d >= a.width)
        return;
    TT_UNROLL(1)
    for (i64 t = first; t < first + a.piece && t < a.tokens; t++) {
        float sum = 0.0f;
        TT_UNROLL(1)
        for (int j = 0; j < a.taps; j++)
            if (BACK ? counts(a, t + j, j) : counts(a, t, j))
                sum += tap_of(a, d, j) * tt_load(x + (BACK ? t + j : t - j) * a.width + d);
        tt_store(y + t * a.width + d, sum);
    }
}

/* partial [pieces, D, K]: Σ over the piece's tokens of dy[t] x[t-j]. */
template <class T>
TT_DEV void convolve_dw(const tt_conv &a, const T *x, const T *dy, float *partial)
{
    i64 first;
    const i64 d = channel_of(a, &first);
    if (d >= a.width)
        return;
    float *const to = partial + (first / a.piece * a.width + d) * a.taps;
    for (int j = 0; j < a.taps; j++) {
        float sum = 0.0f;
        TT_UNROLL(4)
        for (i64 t = first; t < first + a.piece && t < a.tokens; t++)
            if (counts(a, t, j))
                sum += tt_load(dy + t * a.width + d) * tt_load(x + (t - j) * a.width + d);
        to[a.taps - 1 - j] = sum;
    }
}

/* Decoding: seg holds the slot of each token's sequence; the state [slots, rows, D] keeps the row of
 * position p at p mod rows. A slot that the state has no room for is no sequence. */
template <class T>
TT_DEV void convolve_cached(const tt_conv &a, const T *x, T *y, void *state, int half, i64 slots,
                            i64 rows)
{
    const i64 d = (i64)blockIdx.x * 256 + threadIdx.x;
    for (i64 t = 0; t < a.tokens && d < a.width; t++) {
        const i64 slot = a.seg[t], pos = a.pos[t];
        const bool is = slot >= 0 && slot < slots && pos >= 0;
        const float v = tt_load(x + t * a.width + d);
        float sum = 0.0f;
        for (int j = 0; is && j < a.taps && j <= pos; j++) {
            const i64 at = (slot * rows + (pos - j) % rows) * a.width + d;
            sum += tap_of(a, d, j) * (j ? tt_load_any(state, at, half) : v);
        }
        if (is)
            tt_store_any(state, (slot * rows + pos % rows) * a.width + d, half, v);
        tt_store(y + t * a.width + d, sum);
    }
}

#define CONV(T, t)                                                                                 \
    TT_KERNEL(256, conv_##t, tt_conv a, const T *x, T *y)                                          \
    {                                                                                              \
        convolve<T, false>(a, x, y);                                                               \
    }                                                                                              \
    TT_KERNEL(256, conv_dx_##t, tt_conv a, const T *dy, T *dx)                                     \
    {                                                                                              \
        convolve<T, true>(a, dy, dx);                                                              \
    }                                                                                              \
    TT_KERNEL(256, conv_dw_##t, tt_conv a, const T *x, const T *dy, float *partial)                \
    {                                                                                              \
        convolve_dw(a, x, dy, partial);                                                            \
    }                                                                                              \
    TT_KERNEL(256, conv_cached_##t, tt_conv a, const T *x, T *y, void *state, int half, i64 slots, \
              i64 rows)                                                                            \
    {                                                                                              \
        convolve_cached(a, x, y, state, half, slots, rows);                                        \
    }
CONV(float, f32)
CONV(bf16, bf16)
