/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

/* attention_cached: attention_cached_write puts the new tokens' keys and values into the cache; attention_cached then has a
 * block for each (token, kv head, CACHED_HEADS of its query heads), each part of the positions (blockIdx.y) and CACHED_COLS
 * columns of values (blockIdx.z); attention_cached_join sums up the parts. A warp takes every fourth block of
 * TT_CACHE_BLOCK positions, a lane one of its positions for the scores and some columns for the values. Nothing after a
 * sequence's last token is read. */

enum { CACHED_HEADS = 8, CACHED_COLS = 128, CACHED_WARPS = 4, BLOCK = 32 };

typedef struct cached_token {
    i64 slot, first, end; /* positions that it sees; without a sequence none */
    int wrong;            /* the cache has no such sequence or position */
} cached_token;

TT_DEV cached_token token_of(const attention_cached_args &c, i64 t)
{
    const i64 slot = c.slot[t], pos = c.a.pos_q[t];
    cached_token s = {slot, 0, 0,
                      slot >= c.slots || (slot >= 0 && (pos < 0 || pos >= c.blocks * BLOCK))};
    if (slot < 0 || s.wrong)
        return s;
    s.first = c.a.window > 0 && pos >= c.a.window ? pos - c.a.window + 1 : 0;
    s.end = pos + 1;
    return s;
}

TT_KERNEL(256, attention_cached_write, attention_cached_args c)
{
    const int hd = c.a.hd, dv = c.a.dv_dim, heads = c.a.kv_heads, halves = c.a.halves;
    const i64 all = c.a.n_q * heads * (hd + dv);
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < all; i += (i64)gridDim.x * 256) {
        const i64 row = i / (hd + dv), d = i % (hd + dv), t = row / heads, pos = c.a.pos_q[t];
        const cached_token s = token_of(c, t);
        if (s.end == 0)
            continue;
        const i64 at = (s.slot * heads + row % heads) * c.blocks;
        if (d < hd)
            attn_store(c.keys, ((at + pos / BLOCK) * hd + d) * BLOCK + pos % BLOCK,
                       halves & ATTN_KEYS, attn_load(c.a.k, row * hd + d, halves & ATTN_K));
        else
            attn_store(c.values, (at * BLOCK + pos) * dv + d - hd, halves & ATTN_VALUES,
                       attn_load(c.a.v, row * dv + d - hd, halves & ATTN_V));
    }
}

/* In shared memory: q [CACHED_HEADS][hd], then this; acc in COLS columns, to be divided by sum. */
typedef struct cached_room {
    float p[CACHED_WARPS][CACHED_HEADS][BLOCK];
    float acc[CACHED_WARPS][CACHED_HEADS][CACHED_COLS];
    float top[CACHED_WARPS][CACHED_HEADS], sum[CACHED_WARPS][CACHED_HEADS];
} cached_room;

/* What one block of keys adds: weights into p, relative to the new tops; f: what earlier sums are multiplied by. */
template <bool HALF>
TT_DEV void cached_scores(const attention_cached_args &c, const float *q, i64 keys, i64 pos, i64 at,
                          bool in, int head, int heads, float (*p)[BLOCK], float *top, float *sum,
                          float *f)
{
    const int lane = (int)threadIdx.x % 32, hd = c.a.hd;
    float s[CACHED_HEADS] = {};
    for (int d = 0; d < hd; d++) {
        const float x = in ? attn_load(c.keys, keys + (i64)d * BLOCK + lane, HALF) : 0.0f;
#pragma unroll
        for (int h = 0; h < CACHED_HEADS; h++)
            s[h] = fmaf(q[h * hd + d], x, s[h]);
    }
#pragma unroll
    for (int h = 0; h < CACHED_HEADS; h++) {
        float slope;
        s[h] = in && h < heads ? attn_score_f32(c.a, s[h], &slope) : -INF;
        if (c.a.bias && in && h < heads)
            s[h] +=
                c.a.bias[(i64)(head + h) * c.a.n_bias + attn_bias_at(c.a, (int)(pos - at))] * LOG2E;
        const float most = fmaxf(top[h], tt_warp_max(s[h])), base = most == -INF ? 0.0f : most,
                    w = exp2f(s[h] - base);
        f[h] = exp2f(top[h] - base);
        top[h] = most;
        sum[h] = fmaf(sum[h], f[h], tt_warp_sum(w));
        p[h][lane] = w;
    }
}

/* A warp's share of positions [first, end) for `heads` query heads from `head` on; columns from c0. */
template <bool KEYS, bool VALUES>
TT_DEV void cached_warp(const attention_cached_args &c, const float *q, cached_room *room,
                        i64 cache, i64 pos, i64 first, i64 end, int head, int heads, int c0)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, dv = c.a.dv_dim;
    float acc[CACHED_HEADS][CACHED_COLS / 32] = {}, top[CACHED_HEADS], sum[CACHED_HEADS] = {},
                                          f[CACHED_HEADS];
#pragma unroll
    for (int h = 0; h < CACHED_HEADS; h++)
        top[h] = -INF;
    for (i64 b = first / BLOCK + warp; b * BLOCK < end; b += CACHED_WARPS) {
        const i64 at = b * BLOCK + lane;
        cached_scores<KEYS>(c, q, (cache + b) * c.a.hd * BLOCK, pos, at, at >= first && at < end,
                            head, heads, room->p[warp], top, sum, f);
        tt_sync_warp(); /* p is here */
#pragma unroll
        for (int h = 0; h < CACHED_HEADS; h++)
#pragma unroll
            for (int j = 0; j < CACHED_COLS / 32; j++)
                acc[h][j] *= f[h];
        const int from = first > b * BLOCK ? (int)(first - b * BLOCK) : 0,
                  to = end - b * BLOCK < BLOCK ? (int)(end - b * BLOCK) : BLOCK;
        for (int i = from; i < to; i++) {
            const i64 row = (cache * BLOCK + b * BLOCK + i) * dv + c0 + lane;
#pragma unroll
            for (int j = 0; j < CACHED_COLS / 32; j++) {
                const float v =
                    c0 + lane + 32 * j < dv ? attn_load(c.values, row + 32 * j, VALUES) : 0.0f;
#pragma unroll
                for (int h = 0; h < CACHED_HEADS; h++)
                    acc[h][j] = fmaf(room->p[warp][h][i], v, acc[h][j]);
            }
        }
        tt_sync_warp(); /* nobody reads p any more */
    }
#pragma unroll
    for (int h = 0; h < CACHED_HEADS; h++) {
#pragma unroll
        for (int j = 0; j < CACHED_COLS / 32; j++)
            room->acc[warp][h][lane + 32 * j] = acc[h][j];
        if (lane == 0) {
            room->top[warp][h] = top[h];
            room->sum[warp][h] = sum[h];
        }
    }
}

/* The element of out, from the sum of weights and of weighted values, relative to top. */
TT_DEV void cached_give(const attention_cached_args &c, const cached_token &s, i64 t, int head,
                        int col, float top, float sum, float value)
{
    const i64 at = (t * c.a.heads + head) * c.a.dv_dim + col;
    const float sink =
        c.a.sinks ? attn_load(c.a.sinks, head, c.a.halves & ATTN_SINKS) * LOG2E : -INF;
    const float up = fmaxf(top, sink), f = up == -INF ? 1.0f : exp2f(top - up);
    const float l = fmaf(sum, f, sink == -INF ? 0.0f : exp2f(sink - up));
    /* A token that the cache has no room for becomes NaN, which somebody notices. */
    attn_store(c.a.out, at, c.a.halves & ATTN_OUT,
               s.wrong                   ? INF - INF
               : s.end == 0 || l == 0.0f ? 0.0f
                                         : value * f / l);
}

TT_KERNEL(128, attention_cached, attention_cached_args c)
{
    const int hd = c.a.hd, dv = c.a.dv_dim, c0 = (int)blockIdx.z * CACHED_COLS;
    float *q = (float *)tt_shared;
    cached_room *room = (cached_room *)(q + CACHED_HEADS * hd);
    const i64 t = blockIdx.x / (u32)(c.a.kv_heads * c.head_parts);
    const int kv = (int)(blockIdx.x / (u32)c.head_parts % (u32)c.a.kv_heads);
    int head, end;
    attn_heads_of(c.a, kv, &head, &end);
    head += (int)(blockIdx.x % (u32)c.head_parts) * CACHED_HEADS;
    const int heads = end - head < CACHED_HEADS ? end - head : CACHED_HEADS;
    if (heads <= 0)
        return; /* the whole block */
    const cached_token s = token_of(c, t);
    const i64 from = blockIdx.y * c.part, to = from + c.part,
              first = s.first > from ? s.first : from;
    const i64 last = s.end < to ? s.end : to, cache = (s.slot * c.a.kv_heads + kv) * c.blocks;
    for (int i = (int)threadIdx.x; i < CACHED_HEADS * hd; i += 128)
        q[i] = i / hd < heads ? attn_load(c.a.q, (t * c.a.heads + head + i / hd) * hd + i % hd,
                                          c.a.halves & ATTN_Q)
                              : 0.0f;
    tt_sync();
    const int keys = c.a.halves & ATTN_KEYS, values = c.a.halves & ATTN_VALUES;
    if (keys && values)
        cached_warp<true, true>(c, q, room, cache, s.end - 1, first, last, head, heads, c0);
    else if (keys)
        cached_warp<true, false>(c, q, room, cache, s.end - 1, first, last, head, heads, c0);
    else if (values)
        cached_warp<false, true>(c, q, room, cache, s.end - 1, first, last, head, heads, c0);
    else
        cached_warp<false, false>(c, q, room, cache, s.end - 1, first, last, head, heads, c0);
    tt_sync();
    const int col = (int)threadIdx.x; /* of CACHED_COLS, which are the threads */
    for (int h = 0; h < heads; h++) {
        float top = -INF, sum = 0.0f, value = 0.0f;
        for (int w = 0; w < CACHED_WARPS; w++)
            top = fmaxf(top, room->top[w][h]);
        for (int w = 0; w < CACHED_WARPS; w++) {
            const float f =
                room->top[w][h] == -INF ? top == -INF ? 1.0f : 0.0f : exp2f(room->top[w][h] - top);
            sum = fmaf(room->sum[w][h], f, sum);
            value = fmaf(room->acc[w][h][col], f, value);
        }
        if (c0 + col >= dv)
            continue;
        if (c.parts_n == 1)
            cached_give(c, s, t, head + h, c0 + col, top, sum, value);
        else {
            float *to_part =
                c.parts + (((i64)blockIdx.y * c.a.n_q + t) * c.a.heads + head + h) * (dv + 2);
            to_part[2 + c0 + col] = value;
            to_part[0] = top; /* the same in all threads and columns */
            to_part[1] = sum;
        }
    }
}

/* A warp for each (token, query head). */
TT_KERNEL(256, attention_cached_join, attention_cached_args c)
{
    const int dv = c.a.dv_dim;
    const i64 rows = c.a.n_q * c.a.heads, row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows)
        return;
    const cached_token s = token_of(c, row / c.a.heads);
    float top = -INF, sum = 0.0f;
    for (int p = 0; p < c.parts_n; p++)
        top = fmaxf(top, c.parts[(p * rows + row) * (dv + 2)]);
    for (int p = 0; p < c.parts_n; p++) {
        const float *x = c.parts + (p * rows + row) * (dv + 2);
        sum = fmaf(x[1], x[0] == -INF ? top == -INF ? 1.0f : 0.0f : exp2f(x[0] - top), sum);
    }
    for (int d = (int)threadIdx.x % 32; d < dv; d += 32) {
        float value = 0.0f;
        for (int p = 0; p < c.parts_n; p++) {
            const float *x = c.parts + (p * rows + row) * (dv + 2);
            value =
                fmaf(x[2 + d], x[0] == -INF ? top == -INF ? 1.0f : 0.0f : exp2f(x[0] - top), value);
        }
        cached_give(c, s, row / c.a.heads, (int)(row % c.a.heads), d, top, sum, value);
    }
}

/* ---- latent_cached: all heads have the key [hd] of a position, whose first dv elements are the value ----
 * The cache is [S,P,hd] in keys. A block has a token, LATENT_HEADS heads, a part of the positions (blockIdx.y) and LATENT_COLS
 * columns (blockIdx.z); `rows` positions at a time are in shared memory, where a warp computes the scores of a head
 * and a thread sums columns of all heads. */

enum { LATENT_HEADS = 8, LATENT_COLS = 512, LATENT_THREADS = 256, LATENT_ROWS = 16 };

TT_KERNEL(256, latent_cached_write, attention_cached_args c)
{
    const int hd = c.a.hd;
    const i64 all = c.a.n_q * hd;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < all; i += (i64)gridDim.x * 256) {
        const cached_token s = token_of(c, i / hd);
        if (s.end != 0)
            attn_store(c.keys, (s.slot * c.blocks * BLOCK + s.end - 1) * hd + i % hd,
                       c.a.halves & ATTN_KEYS, attn_load(c.a.k, i, c.a.halves & ATTN_K));
    }
}

/* In shared memory: this, then q [LATENT_HEADS][hd] and keys [rows][hd]. */
typedef struct latent_room {
    float p[LATENT_HEADS][LATENT_ROWS];
    float f[LATENT_HEADS], top[LATENT_HEADS],
        sum[LATENT_HEADS]; /* f: what earlier sums are multiplied by */
} latent_room;

/* The weights of n positions from `at` on for the warp's head, relative to its new top. */
TT_DEV void latent_scores(const attention_cached_args &c, latent_room *room, const float *q,
                          const float *keys, int head, int heads, i64 back, int n, float *top,
                          float *sum)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, hd = c.a.hd;
    float mine = -INF, slope;
    for (int r = 0; r < n; r++) {
        float dot = 0.0f;
        for (int d = lane; d < hd; d += 32)
            dot = fmaf(q[warp * hd + d], keys[r * hd + d], dot);
        dot = tt_warp_sum(dot);
        if (lane == r && warp < heads) {
            mine = attn_score_f32(c.a, dot, &slope);
            if (c.a.bias)
                mine +=
                    c.a.bias[(i64)(head + warp) * c.a.n_bias + attn_bias_at(c.a, (int)(back - r))] *
                    LOG2E;
        }
    }
    const float most = fmaxf(*top, tt_warp_max(mine)), base = most == -INF ? 0.0f : most,
                w = exp2f(mine - base), f = exp2f(*top - base);
    *sum = fmaf(*sum, f, tt_warp_sum(w));
    *top = most;
    if (lane < LATENT_ROWS)
        room->p[warp][lane] = w;
    if (lane == 0)
        room->f[warp] = f;
}

TT_KERNEL(256, latent_cached, attention_cached_args c, int rows)
{
    latent_room *room = (latent_room *)tt_shared;
    const int hd = c.a.hd, dv = c.a.dv_dim, x = (int)threadIdx.x,
              c0 = (int)blockIdx.z * LATENT_COLS;
    float *q = (float *)(room + 1), *keys = q + LATENT_HEADS * hd;
    const i64 t = blockIdx.x / (u32)c.head_parts;
    const int head = (int)(blockIdx.x % (u32)c.head_parts) * LATENT_HEADS,
              heads = c.a.heads - head < LATENT_HEADS ? c.a.heads - head : LATENT_HEADS;
    const cached_token s = token_of(c, t);
    const i64 from = blockIdx.y * c.part, to = from + c.part,
              first = s.first > from ? s.first : from, last = s.end < to ? s.end : to,
              cache = s.slot * c.blocks * BLOCK;
    float acc[LATENT_HEADS][LATENT_COLS / LATENT_THREADS] = {}, top = -INF, sum = 0.0f;
    for (int i = x; i < LATENT_HEADS * hd; i += LATENT_THREADS)
        q[i] = i / hd < heads
                   ? attn_load(c.a.q, (t * c.a.heads + head) * hd + i, c.a.halves & ATTN_Q)
                   : 0.0f;
    for (i64 at = first; at < last; at += rows) {
        const int n = last - at < rows ? (int)(last - at) : rows;
        tt_sync(); /* nobody reads keys and weights any more */
        for (int i = x; i < n * hd; i += LATENT_THREADS)
            keys[i] = attn_load(c.keys, (cache + at) * hd + i, c.a.halves & ATTN_KEYS);
        tt_sync(); /* they are here, and q */
        latent_scores(c, room, q, keys, head, heads, s.end - 1 - at, n, &top, &sum);
        tt_sync();
        for (int h = 0; h < LATENT_HEADS; h++)
            for (int j = 0; j < LATENT_COLS / LATENT_THREADS; j++) {
                const int col = c0 + x + j * LATENT_THREADS;
                acc[h][j] *= room->f[h];
                for (int r = 0; r < n && col < dv; r++)
                    acc[h][j] = fmaf(room->p[h][r], keys[r * hd + col], acc[h][j]);
            }
    }
    if (x % 32 == 0) {
        room->top[x / 32] = top;
        room->sum[x / 32] = sum;
    }
    tt_sync();
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < LATENT_COLS / LATENT_THREADS; j++) {
            const int col = c0 + x + j * LATENT_THREADS;
            if (col >= dv)
                continue;
            if (c.parts_n == 1) {
                cached_give(c, s, t, head + h, col, room->top[h], room->sum[h], acc[h][j]);
                continue;
            }
            float *part =
                c.parts + (((i64)blockIdx.y * c.a.n_q + t) * c.a.heads + head + h) * (dv + 2);
            part[0] = room->top[h]; /* the same in all threads and columns */
            part[1] = room->sum[h];
            part[2 + col] = acc[h][j];
        }
}
