/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of attention share: which tiles see each other, the scores of a tile, tiles in shared memory.
 * "Outer" rows belong to a block; it walks over tiles of "inner" rows. Keys are outer or inner, queries the other. */
#pragma once
#include "attention_args.h"
#include "dialect.h"

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define INF tt_bits_float(0x7f800000u)

TT_DEV float attn_exp2(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* 1 / x to 1 ulp: a division is 20 instructions at each place. */
TT_DEV float attn_inverse(float x)
{
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

/* x, but nothing that was computed from it earlier is used again: registers that a long loop would keep are free in it. */
TT_DEV u32 attn_again(u32 x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

TT_DEV float attn_load(const void *p, i64 i, int half)
{
    return half ? tt_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}
TT_DEV void attn_store(void *p, i64 i, int half, float v)
{
    if (half)
        ((bf16 *)p)[i] = tt_bf16(v);
    else
        ((float *)p)[i] = v;
}

/* The local kv head of a local query head. */
TT_DEV int attn_kv_head(const attention_args &a, int head)
{
    return (int)((a.head_begin + head) / a.group - a.kv_begin);
}
/* The local query heads [*begin, *end) of a local kv head; it may have none. */
TT_DEV void attn_heads_of(const attention_args &a, int kv, int *begin, int *end)
{
    const i64 first = (a.kv_begin + kv) * a.group - a.head_begin, last = first + a.group;
    *begin = (int)(first < 0 ? 0 : first > a.heads ? a.heads : first);
    *end = (int)(last < 0 ? 0 : last > a.heads ? a.heads : last);
}

/* ---- which pairs are seen ---- */

/* Positions are not negative, so that their differences are ints. */
TT_DEV bool attn_sees(const attention_args &a, int back, int query_seg, int key_seg)
{
    return query_seg == key_seg && (back >= 0 || !a.causal) && (a.window == 0 || back < a.window);
}

/* The extremes of n tokens from the first on, of `all` tokens. */
TT_DEV void attn_extremes(const int *spans, i64 first, int n, i64 all, int *x)
{
    x[0] = x[2] = 0x7fffffff;
    x[1] = x[3] = -0x7fffffff - 1;
    for (i64 i = first / ATTN_SPAN;
         i < (first + n + ATTN_SPAN - 1) / ATTN_SPAN && i * ATTN_SPAN < all; i++) {
        const int *s = spans + 4 * i;
        x[0] = s[0] < x[0] ? s[0] : x[0];
        x[1] = s[1] > x[1] ? s[1] : x[1];
        x[2] = s[2] < x[2] ? s[2] : x[2];
        x[3] = s[3] > x[3] ? s[3] : x[3];
    }
}

/* May any of the queries with extremes q see any of the keys with extremes k? Do all of them see all? */
TT_DEV bool attn_some(const attention_args &a, const int *q, const int *k)
{
    return k[3] >= q[2] && k[2] <= q[3] && (!a.causal || k[0] <= q[1]) &&
           (a.window == 0 || (i64)q[0] - k[1] < a.window);
}
TT_DEV bool attn_all(const attention_args &a, const int *q, const int *k)
{
    return q[2] == q[3] && k[2] == k[3] && q[2] == k[2] && (!a.causal || k[1] <= q[0]) &&
           (a.window == 0 || (i64)q[1] - k[0] < a.window);
}

/* Where the outer rows of a block are, and the inner tiles [begin, end) that they may see. */
typedef struct attn_place {
    i64 first;
    int head, begin, end;
} attn_place;

template <bool KEYS_OUTER, int OUTER, int INNER>
TT_DEV attn_place attn_place_of(const attention_args &a, u32 block, int heads)
{
    attn_place p;
    p.head = (int)(block % (u32)heads);
    if (a.order) {
        const int *o = a.order + 4 * (i64)(block / (u32)heads);
        p.first = (i64)o[0] * OUTER;
        p.begin = o[1];
        p.end = o[2];
    } else {
        p.first = (i64)(block / (u32)heads) * OUTER;
        p.begin = 0;
        p.end = (int)(((KEYS_OUTER ? a.n_q : a.n_k) + INNER - 1) / INNER);
    }
    return p;
}

/* The tiles of INNER rows that a tile of OUTER rows may see, in ascending order; 32 are looked at at a time. */
typedef struct attn_walk {
    int base;
    u32 some, all;
} attn_walk;

/* begin: the first tile to look at */
TT_DEV void attn_walk_begin(attn_walk *w, int begin)
{
    w->base = begin - 32;
    w->some = w->all = 0;
}

/* The number of the next tile, or -1; *whole: no pair of it has to be masked. block, heads: as attn_place_of takes them,
 * which is called again, so that nothing stays in registers in between. Called by whole warps. */
template <bool KEYS_OUTER, int OUTER, int INNER>
TT_DEV int attn_walk_next(attn_walk *w, const attention_args &a, u32 block, int heads, int *whole)
{
    while (w->some == 0) {
        const attn_place at = attn_place_of<KEYS_OUTER, OUTER, INNER>(a, attn_again(block), heads);
        const i64 outer = at.first;
        w->base += 32;
        if (w->base >= at.end)
            return -1;
        const int i = w->base + (int)(threadIdx.x % 32);
        int some = 0, all = 0;
        if (i < at.end) {
            int x[4], y[4];
            const i64 inner = (i64)i * INNER;
            attn_extremes(KEYS_OUTER ? a.spans_k : a.spans_q, outer, OUTER,
                          KEYS_OUTER ? a.n_k : a.n_q, x);
            attn_extremes(KEYS_OUTER ? a.spans_q : a.spans_k, inner, INNER,
                          KEYS_OUTER ? a.n_q : a.n_k, y);
            some = KEYS_OUTER ? attn_some(a, y, x) : attn_some(a, x, y);
            all = KEYS_OUTER ? attn_all(a, y, x) : attn_all(a, x, y) && inner + INNER <= a.n_k;
        }
        w->some = tt_ballot(some);
        w->all = tt_ballot(all);
    }
    int bit = 0; /* the lowest of some */
    for (int s = 16; s > 0; s >>= 1)
        if ((w->some & ((1u << s) - 1) << bit) == 0)
            bit += s;
    w->some &= w->some - 1;
    *whole = w->all >> bit & 1;
    return w->base + bit;
}

/* ---- scores ---- */

/* From x = q·k: the score in units of log2, without bias; *slope: its derivative by scale * q·k, without log2. */
TT_DEV float attn_score(const attention_args &a, float x, float *slope)
{
    x *= a.scale;
    *slope = 1.0f;
    if (a.softcap > 0.0f) {
        const float r = 1.0f - 2.0f * attn_inverse(attn_exp2(x * a.cap_unit) + 1.0f);
        *slope = 1.0f - r * r;
        x = a.softcap * r;
    }
    return x * LOG2E;
}
/* The same, to the last bits of f32. */
TT_DEV float attn_score_f32(const attention_args &a, float x, float *slope)
{
    x *= a.scale;
    *slope = 1.0f;
    if (a.softcap > 0.0f) {
        const float r = tanhf(x / a.softcap);
        *slope = 1.0f - r * r;
        x = a.softcap * r;
    }
    return x * LOG2E;
}
/* The index of the bias of a pair, from the query's position minus the key's. */
TT_DEV int attn_bias_at(const attention_args &a, int back)
{
    return back < -a.bias_zero              ? 0
           : back >= a.n_bias - a.bias_zero ? a.n_bias - 1
                                            : back + a.bias_zero;
}
