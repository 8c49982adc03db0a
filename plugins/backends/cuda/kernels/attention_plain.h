/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by multiply-adds in f32: any dtypes, any head size. Scores of ROWS outer and ROWS inner rows are computed over
 * DEPTH elements of heads at a time; what they weigh is COLS columns wide. A thread has rows 4 * (i / 16) + 0…3 and columns
 * i % 16 + 0, 16, …, where i is its number. */
#pragma once
#include "attention.h"
#include "random_words.h"

enum { ROWS = 64, DEPTH = 32, COLS = 128, PLAIN_THREADS = 256 };
/* In shared memory. The launchers know its size: 66304 bytes. */
typedef struct plain_room {
    float x[ROWS][DEPTH + 1], y[ROWS][DEPTH + 1];
    float tile[ROWS][ROWS + 1];
    union {
        float rows[ROWS][COLS];
        int index[ROWS][ROWS + 1];
    };
} plain_room;

static_assert(sizeof(plain_room) == 66304, "CUDA_ATTN_PLAIN_SHARED");

/* The rows of one head. */
typedef struct plain_rows {
    const void *data;
    i64 at, ld, n; /* element of row 0; elements from row to row; rows */
    int d, half;
} plain_rows;

TT_DEV plain_rows plain_rows_of(const void *data, int head, int heads, int d, i64 n, int half)
{
    return plain_rows{data, (i64)head * d, (i64)heads * d, n, d, half};
}
TT_DEV plain_rows plain_q(const attention_args &a, int head)
{
    return plain_rows_of(a.q, head, a.heads, a.hd, a.n_q, a.halves & ATTN_Q);
}
TT_DEV plain_rows plain_dout(const attention_args &a, int head)
{
    return plain_rows_of(a.dout, head, a.heads, a.dv_dim, a.n_q, a.halves & ATTN_OUT);
}
TT_DEV plain_rows plain_k(const attention_args &a, int kv)
{
    return plain_rows_of(a.k, kv, a.kv_heads, a.hd, a.n_k, a.halves & ATTN_K);
}
TT_DEV plain_rows plain_v(const attention_args &a, int kv)
{
    return plain_rows_of(a.v, kv, a.kv_heads, a.dv_dim, a.n_k, a.halves & ATTN_V);
}

/* Columns [c0, c0 + N) of rows [first, first + ROWS); what is missing is zero. */
template <int N, int LD>
TT_DEV void plain_load(float (*to)[LD], const plain_rows &x, i64 first, int c0)
{
    for (int i = (int)threadIdx.x; i < ROWS * N; i += PLAIN_THREADS) {
        const int r = i / N, c = i % N;
        to[r][c] = first + r < x.n && c0 + c < x.d
                       ? attn_load(x.data, x.at + (first + r) * x.ld + c0 + c, x.half)
                       : 0.0f;
    }
}

/* s[4][4] = x yᵀ */
TT_DEV void plain_dots(float (*s)[4], plain_room *room, const plain_rows &x, i64 first_x,
                       const plain_rows &y, i64 first_y)
{
    const int row = (int)threadIdx.x / 16 * 4, col = (int)threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = 0.0f;
    for (int d = 0; d < x.d; d += DEPTH) {
        tt_sync(); /* nobody reads x and y any more */
        plain_load<DEPTH>(room->x, x, first_x, d);
        plain_load<DEPTH>(room->y, y, first_y, d);
        tt_sync(); /* they are here */
#pragma unroll 4
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[i][j] = fmaf(room->x[row + i][k], room->y[col + 16 * j][k], s[i][j]);
    }
}

/* acc[4][COLS / 16] += tile * rows */
TT_DEV void plain_mix(float (*acc)[COLS / 16], const plain_room *room)
{
    const int row = (int)threadIdx.x / 16 * 4, col = (int)threadIdx.x % 16;
#pragma unroll 2
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < COLS / 16; j++)
                acc[i][j] = fmaf(room->tile[row + i][k], room->rows[k][col + 16 * j], acc[i][j]);
}

/* One pair's score from q·k, in units of log2, -inf if it is not seen; *slope as in attn_score; *index: of its bias. */
TT_DEV float plain_score(const attention_args &a, float x, i64 query, i64 key, int head,
                         float *slope, int *index)
{
    *index = -1;
    *slope = 0.0f;
    if (query >= a.n_q || key >= a.n_k)
        return -INF;
    const int back = a.pos_q[query] - a.pos_k[key];
    if (!attn_sees(a, back, a.seg_q[query], a.seg_k[key]))
        return -INF;
    x = attn_score_f32(a, x, slope);
    if (!a.bias)
        return x;
    *index = attn_bias_at(a, back);
    return x + a.bias[(i64)head * a.n_bias + *index] * LOG2E;
}

/* The key of dropout's numbers: tt_dropout_key. 0 without dropout. */
TT_DEV u64 plain_drop_key(const attention_args &a)
{
    if (!a.drops)
        return 0;
    const u64 seed = *(const u64 *)a.seed, step = (u64)(i64) * (const double *)a.step;
    u32 c[4] = {(u32)seed, (u32)(seed >> 32), (u32)step, (u32)(step >> 32)};
    random_words(a.stream, c);
    return (u64)c[1] << 32 | c[0];
}

/* What dropout multiplies the weight of a pair by; both exist. head: of this rank. */
TT_DEV float plain_kept(const attention_args &a, u64 drop_key, i64 query, i64 key, int head)
{
    if (!a.drops)
        return 1.0f;
    const u32 at = (u32)a.pos_k[key];
    u32 c[4] = {(u32)a.token_index[query], (u32)(a.head_begin + head), at / 4, 1};
    random_words(drop_key, c);
    const u32 word = at % 4 == 0 ? c[0] : at % 4 == 1 ? c[1] : at % 4 == 2 ? c[2] : c[3];
    return word >= a.drop_limit ? a.kept : 0.0f;
}
