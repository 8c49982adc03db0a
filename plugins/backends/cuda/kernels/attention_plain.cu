/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_plain.h"

/* attention and its derivatives in f32 (attention_plain.h). A block has ROWS outer rows of one head and COLS columns of one
 * result (blockIdx.z): of out or dq for queries, of dk or dv for keys. Scores are computed anew for each of these; sums are in
 * ascending order of heads and rows. */

#define OUT 0
#define DQ 1
#define DK 2
#define DV 3

/* The thread's part of a tile: the number of its first outer and inner row, and whether the outer ones are keys. */
typedef struct part {
    i64 x, y;
    int head, keys, row, col; /* row, col: in the tile */
    u64 drop_key;
} part;

TT_DEV float score(const attention_args &a, const part &t, float x, int i, int j, float *slope)
{
    int index;
    return plain_score(a, x, t.keys ? t.y + 16 * j : t.x + i, t.keys ? t.x + i : t.y + 16 * j,
                       t.head, slope, &index);
}

/* What dropout makes of a weight of the tile. */
TT_DEV float kept(const attention_args &a, const part &t, int i, int j)
{
    return t.keys ? plain_kept(a, t.drop_key, t.y + 16 * j, t.x + i, t.head)
                  : plain_kept(a, t.drop_key, t.x + i, t.y + 16 * j, t.head);
}

/* room->tile = the weights, relative to the rows' new tops; sums and acc follow. */
TT_DEV void softmax(const attention_args &a, plain_room *room, const part &t, float (*s)[4],
                    float (*acc)[COLS / 16], float *top, float *sum)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float most = top[i], add = 0.0f, slope;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s[i][j] = score(a, t, s[i][j], i, j, &slope);
            most = fmaxf(most, s[i][j]);
        }
        for (int o = 8; o > 0; o >>= 1)
            most = fmaxf(most, tt_shuffle_xor(most, o));
        const float at = most == -INF ? 0.0f : most, f = exp2f(top[i] - at);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float p = exp2f(s[i][j] - at);
            room->tile[t.row + i][t.col + 16 * j] = p == 0.0f ? p : p * kept(a, t, i, j);
            add += p;
        }
        for (int o = 8; o > 0; o >>= 1)
            add += tt_shuffle_xor(add, o);
        top[i] = most;
        sum[i] = fmaf(sum[i], f, add);
#pragma unroll
        for (int j = 0; j < COLS / 16; j++)
            acc[i][j] *= f;
    }
}

/* room->tile = p, or ds before the scale. */
template <int WHAT>
TT_DEV void weigh(const attention_args &a, plain_room *room, const part &t, const float (*s)[4],
                  const float (*d)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const i64 query = t.keys ? t.y + 16 * j : t.x + i;
            const float *stats = a.stats + ((i64)t.head * a.rows + (query < a.n_q ? query : 0)) * 2;
            float slope;
            const float z = score(a, t, s[i][j], i, j, &slope),
                        p = z == -INF ? 0.0f : exp2f(z - stats[0]),
                        f = z == -INF ? 0.0f : kept(a, t, i, j);
            room->tile[t.row + i][t.col + 16 * j] =
                WHAT == DV ? p * f : p * (d[i][j] * f - stats[1]) * slope;
        }
}

/* What acc is multiplied by, and *lse. */
TT_DEV float finish(const attention_args &a, float top, float sum, int head, float *lse)
{
    const float sink = a.sinks ? attn_load(a.sinks, head, a.halves & ATTN_SINKS) * LOG2E : -INF;
    const float up = fmaxf(top, sink), f = up == -INF ? 1.0f : exp2f(top - up);
    const float l = fmaf(sum, f, sink == -INF ? 0.0f : exp2f(sink - up));
    *lse = l == 0.0f ? -INF : fmaf(up, LN2, logf(l));
    return l == 0.0f ? 0.0f : f / l;
}

template <int WHAT> TT_DEV void plain(const attention_args &a)
{
    constexpr bool KEYS = WHAT == DK || WHAT == DV;
    plain_room *room = (plain_room *)tt_shared;
    const int n_heads = KEYS ? a.kv_heads : a.heads, outer = (int)(blockIdx.x % (u32)n_heads),
              c0 = (int)blockIdx.z * COLS;
    const int kv = KEYS ? outer : attn_kv_head(a, outer), row = (int)threadIdx.x / 16 * 4,
              col = (int)threadIdx.x % 16;
    const i64 first = (i64)(blockIdx.x / (u32)n_heads) * ROWS, n = KEYS ? a.n_k : a.n_q;
    float acc[4][COLS / 16] = {}, top[4], sum[4] = {};
    int begin = outer, end = outer + 1;
    const u64 drop_key = plain_drop_key(a);
    if (KEYS)
        attn_heads_of(a, kv, &begin, &end);
    for (int i = 0; i < 4; i++)
        top[i] = -INF;
    for (int head = begin; head < end; head++) {
        const plain_rows q = plain_q(a, head), k = plain_k(a, kv), v = plain_v(a, kv),
                         dout = plain_dout(a, head);
        attn_walk w;
        attn_walk_begin(&w, 0);
        for (int whole, t;
             (t = attn_walk_next<KEYS, ROWS, ROWS>(&w, a, blockIdx.x, n_heads, &whole)) >= 0;) {
            const i64 inner = (i64)t * ROWS;
            const part here = {first + row, inner + col, head, KEYS, row, col, drop_key};
            float s[4][4];
            plain_dots(s, room, KEYS ? k : q, first, KEYS ? q : k, inner);
            if constexpr (WHAT == OUT)
                softmax(a, room, here, s, acc, top, sum);
            else {
                float d[4][4] = {};
                if (WHAT != DV)
                    plain_dots(d, room, KEYS ? v : dout, first, KEYS ? dout : v, inner);
                weigh<WHAT>(a, room, here, s, d);
            }
            plain_load<COLS>(room->rows,
                             WHAT == OUT  ? v
                             : WHAT == DQ ? k
                             : WHAT == DK ? q
                                          : dout,
                             inner, c0);
            tt_sync(); /* tile and rows are here; the next dots begin with a barrier, too */
            plain_mix(acc, room);
        }
    }
    const int width = WHAT == DQ || WHAT == DK ? a.hd : a.dv_dim;
    const int half = a.halves & (WHAT == OUT  ? ATTN_OUT
                                 : WHAT == DQ ? ATTN_Q
                                 : WHAT == DK ? ATTN_K
                                              : ATTN_V);
    void *to = WHAT == OUT ? a.out : WHAT == DQ ? a.dq : WHAT == DK ? a.dk : a.dv;
    for (int i = 0; i < 4 && first + row + i < n; i++) {
        const i64 at = (first + row + i) * n_heads + outer;
        float f = WHAT == DV ? 1.0f : a.scale;
        if (WHAT == OUT) {
            float lse;
            f = finish(a, top[i], sum[i], outer, &lse);
            if (col == 0 && blockIdx.z == 0)
                a.lse[at] = lse;
        }
        for (int j = 0; j < COLS / 16 && c0 + col + 16 * j < width; j++)
            attn_store(to, at * width + c0 + col + 16 * j, half, acc[i][j] * f);
    }
}

TT_KERNEL(256, attention_plain_out, attention_args a)
{
    plain<OUT>(a);
}
TT_KERNEL(256, attention_plain_dq, attention_args a)
{
    plain<DQ>(a);
}
TT_KERNEL(256, attention_plain_dk, attention_args a)
{
    plain<DK>(a);
}
TT_KERNEL(256, attention_plain_dv, attention_args a)
{
    plain<DV>(a);
}
