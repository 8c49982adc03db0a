/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_plain.h"

/* What runs beside the kernels of attention: spans, stats, the derivative of the bias, attention_merge. */

/* spans_q and spans_k, a thread each. */
TT_KERNEL(128, attention_spans, attention_args a)
{
    const i64 spans_q = (a.n_q + ATTN_SPAN - 1) / ATTN_SPAN,
              i = (i64)blockIdx.x * 128 + threadIdx.x;
    const bool keys = i >= spans_q;
    const i64 span = keys ? i - spans_q : i, n = keys ? a.n_k : a.n_q;
    const int *pos = keys ? a.pos_k : a.pos_q, *seg = keys ? a.seg_k : a.seg_q;
    int *to = (keys ? a.spans_k : a.spans_q) + 4 * span;
    if (span * ATTN_SPAN >= n)
        return;
    int x[4] = {0x7fffffff, -0x7fffffff - 1, 0x7fffffff, -0x7fffffff - 1};
    for (i64 t = span * ATTN_SPAN; t < (span + 1) * ATTN_SPAN && t < n; t++) {
        x[0] = pos[t] < x[0] ? pos[t] : x[0];
        x[1] = pos[t] > x[1] ? pos[t] : x[1];
        x[2] = seg[t] < x[2] ? seg[t] : x[2];
        x[3] = seg[t] > x[3] ? seg[t] : x[3];
    }
    for (int e = 0; e < 4; e++)
        to[e] = x[e];
}

/* order, in two kernels. reach [tiles][4], a warp for each outer tile of `outer` rows: how many inner tiles of `inner` rows
 * it may see, the first one, behind the last one, 0. */
TT_KERNEL(256, attention_reach, attention_args a, int *reach, int keys, int outer, int inner)
{
    const i64 tile = (i64)blockIdx.x * 8 + threadIdx.x / 32, n = keys ? a.n_k : a.n_q,
              n_inner = keys ? a.n_q : a.n_k, tiles = (n_inner + inner - 1) / inner;
    const int lane = (int)threadIdx.x % 32;
    if (tile * outer >= n)
        return;
    int x[4], y[4], count = 0, first = 0, end = 0;
    attn_extremes(keys ? a.spans_k : a.spans_q, tile * outer, outer, n, x);
    for (i64 i = lane; i - lane < tiles; i += 32) {
        int some = 0;
        if (i < tiles) {
            attn_extremes(keys ? a.spans_q : a.spans_k, i * inner, inner, n_inner, y);
            some = keys ? attn_some(a, y, x) : attn_some(a, x, y);
        }
        const u32 seen = tt_ballot(some);
        for (int bit = 0; bit < 32; bit++)
            if (seen >> bit & 1) {
                end = (int)(i - lane) + bit + 1;
                first = count ? first : end - 1;
                count++;
            }
    }
    if (lane < 4)
        reach[4 * tile + lane] = lane == 0 ? count : lane == 1 ? first : lane == 2 ? end : 0;
}

/* A thread for each tile looks for its place. With few blocks the longest, begun last, would run alone. */
TT_KERNEL(128, attention_order, const int *reach, int *order, int tiles)
{
    const int tile = (int)(blockIdx.x * 128 + threadIdx.x);
    if (tile >= tiles)
        return;
    const int count = reach[4 * (i64)tile];
    i64 place = 0;
    for (int i = 0; i < tiles; i++) {
        const int other = reach[4 * (i64)i];
        place += other > count || (other == count && i < tile);
    }
    order[4 * place] = tile;
    for (int e = 1; e < 4; e++)
        order[4 * place + e] = reach[4 * (i64)tile + e];
}

/* stats, a warp for each row and head. A query without keys gets lse +inf, so that its weights are 0, as do rows past n_q. */
TT_KERNEL(256, attention_stats, attention_args a)
{
    const i64 i = (i64)blockIdx.x * 8 + threadIdx.x / 32, row = i / a.heads;
    const int head = (int)(i % a.heads), lane = (int)threadIdx.x % 32, half = a.halves & ATTN_OUT;
    if (row >= a.rows)
        return;
    float sum = 0.0f;
    for (int d = lane; row < a.n_q && d < a.dv_dim; d += 32) {
        const i64 at = (row * a.heads + head) * a.dv_dim + d;
        sum = fmaf(attn_load(a.out, at, half), attn_load(a.dout, at, half), sum);
    }
    sum = tt_warp_sum(sum);
    if (lane != 0)
        return;
    const float lse = row < a.n_q ? a.lse[row * a.heads + head] : -INF;
    float *to = a.stats + ((i64)head * a.rows + row) * 2;
    to[0] = lse == -INF ? INF : lse * LOG2E;
    to[1] = sum;
}

/* bias_sums of a part (blockIdx.x) and head (blockIdx.y): the part has every parts-th tile of queries. An index of the bias
 * belongs to four threads, which look for it in the tile of ds; so each sum has one order. */
TT_KERNEL(256, attention_bias_parts, attention_args a)
{
    plain_room *room = (plain_room *)tt_shared;
    const int head = (int)blockIdx.y, kv = attn_kv_head(a, head), row = (int)threadIdx.x / 16 * 4,
              col = (int)threadIdx.x % 16;
    const plain_rows q = plain_q(a, head), k = plain_k(a, kv), v = plain_v(a, kv),
                     dout = plain_dout(a, head);
    const u64 drop_key = plain_drop_key(a);
    double *sums = a.bias_sums + ((i64)blockIdx.x * a.heads + head) * a.n_bias;
    for (i64 i = threadIdx.x; i < a.n_bias; i += PLAIN_THREADS)
        sums[i] = 0.0;
    for (i64 first = (i64)blockIdx.x * ROWS; first < a.n_q; first += (i64)a.parts * ROWS) {
        attn_walk w;
        attn_walk_begin(&w, 0);
        for (int whole, t;
             (t = attn_walk_next<false, ROWS, ROWS>(&w, a, (u32)(first / ROWS), 1, &whole)) >= 0;) {
            const i64 inner = (i64)t * ROWS;
            float s[4][4], d[4][4], slope;
            int x[4], y[4];
            plain_dots(s, room, q, first, k, inner);
            plain_dots(d, room, dout, first, v, inner);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    const i64 query = first + row + i;
                    const float *stats = a.stats + ((i64)head * a.rows + query) * 2;
                    const float z = plain_score(a, s[i][j], query, inner + col + 16 * j, head,
                                                &slope, &room->index[row + i][col + 16 * j]);
                    const float f =
                        z == -INF ? 0.0f
                                  : plain_kept(a, drop_key, query, inner + col + 16 * j, head);
                    room->tile[row + i][col + 16 * j] =
                        z == -INF ? 0.0f : exp2f(z - stats[0]) * (d[i][j] * f - stats[1]);
                }
            tt_sync(); /* tile and index are here, and the last tile's sums are done */
            attn_extremes(a.spans_q, first, ROWS, a.n_q, x);
            attn_extremes(a.spans_k, inner, ROWS, a.n_k, y);
            const int last = attn_bias_at(a, x[1] - y[0]);
            for (int at = attn_bias_at(a, x[0] - y[1]); at <= last; at += PLAIN_THREADS / 4) {
                const int index = at + (int)threadIdx.x / 4;
                float sum = 0.0f;
                for (int r = (int)threadIdx.x % 4; r < ROWS; r += 4)
                    for (int c = 0; c < ROWS; c++)
                        sum += room->index[r][c] == index ? room->tile[r][c] : 0.0f;
                sum += tt_shuffle_xor(sum, 1);
                sum += tt_shuffle_xor(sum, 2);
                if (threadIdx.x % 4 == 0 && index <= last)
                    sums[index] += (double)sum;
            }
        }
    }
}

/* dbias: the sum over parts. */
TT_KERNEL(256, attention_bias_sum, attention_args a)
{
    const i64 n = (i64)a.heads * a.n_bias, i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    double sum = 0.0;
    for (int p = 0; p < a.parts; p++)
        sum += a.bias_sums[p * n + i];
    a.dbias[i] = (float)sum;
}

/* attention_merge: out [n,dv], lse [n] of each of two sets of keys -> out, lse; a warp a row. halves: bit i: operand i is
 * bf16; bits 4, 5: the results. */
TT_KERNEL(256, attention_merge, const void *out0, const void *lse0, const void *out1,
          const void *lse1, void *out, void *lse, i64 n, i64 dv, int halves)
{
    const int lane = (int)threadIdx.x % 32;
    for (i64 i = (i64)blockIdx.x * 8 + threadIdx.x / 32; i < n; i += (i64)gridDim.x * 8) {
        const float a = attn_load(lse0, i, halves & 2), b = attn_load(lse1, i, halves & 8),
                    top = tt_max(a, b);
        const bool none = top == INF || top == -INF;
        const float p = none ? 0.0f : expf(a - top), q = none ? 0.0f : expf(b - top),
                    sum = none ? 1.0f : p + q;
        for (i64 d = i * dv + lane; d < (i + 1) * dv; d += 32) {
            const float x = attn_load(out0, d, halves & 1), y = attn_load(out1, d, halves & 4);
            attn_store(out, d, halves & 16, none ? 0.0f : (x * p + y * q) / sum);
        }
        if (lane == 0)
            attn_store(lse, i, halves & 32, none ? top : top + logf(sum));
    }
}
