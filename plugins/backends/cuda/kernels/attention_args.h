/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The argument of the kernels of attention and its derivatives; the launcher (C) and the kernels share it.
 *   T = n_q queries, S = n_k keys, H = heads, K = kv_heads, all of this rank
 *   q [T,H*hd]  k [S,K*hd]  v [S,K*dv]  out, dout [T,H*dv]  lse f32 [T,H]  sinks [H]  bias f32 [H,n_bias]
 * For tiles that are skipped, the tokens are seen as spans of ATTN_SPAN: min pos, max pos, min seg, max seg of each. */
#define ATTN_SPAN 16
#define ATTN_ROWS 128 /* stats has room for a multiple of it */

/* attention_args.halves: which operands are bf16; the others are f32. */
#define ATTN_Q 1   /* also dq */
#define ATTN_K 2   /* also dk */
#define ATTN_V 4   /* also dv */
#define ATTN_OUT 8 /* also dout */
#define ATTN_SINKS 16
#define ATTN_KEYS 32 /* of a cache */
#define ATTN_VALUES 64

typedef struct attention_args {
    const void *q, *k, *v, *dout, *sinks; /* sinks: NULL: none */
    void *out, *dq, *dk, *dv;
    float *lse;
    const float *bias; /* NULL: none */
    float *dbias;
    double *bias_sums; /* [parts][H][n_bias] */
    const int *pos_q, *seg_q, *pos_k, *seg_k;
    int *spans_q, *spans_k; /* [spans][4] */
    int *
        order; /* of the outer tiles, those that see most first: [tiles][4]: the tile, the first inner tile that it sees,
                   behind the last one, 0; attention_order in attention_help.cu. NULL: in ascending order, and all inner tiles are looked at */
    float *
        stats; /* [H][rows, a multiple of ATTN_ROWS][2]: log2(e) * lse, and the sum of out * dout */
    long long n_q, n_k, rows;
    long long head_begin, kv_begin,
        group; /* global index of the first head, kv head; query heads per kv head */
    int heads, kv_heads, hd, dv_dim, window, n_bias;
    float scale, softcap, cap_unit; /* cap_unit: 2 log2(e) / softcap */
    int causal, bias_zero, halves, parts;
    int raw; /* 1: a score is scale * q·k with scale > 0 and nothing else */
    /* dropout, by attention_plain.cu alone; random.h of include/ttrun says which weights it drops */
    int drops;                 /* 1: there is dropout */
    unsigned drop_limit;       /* tt_dropout_limit */
    float kept;                /* 1 / (1 - p) */
    unsigned long long stream; /* the number of its stream */
    const int *token_index;    /* [T] */
    const void *seed, *step;   /* u64 and f64, on the device */
} attention_args;

/* attention_cached: `a` has q, k, v, pos_q, out of the n_q new tokens; S = slots sequences of blocks * 32 positions. */
typedef struct attention_cached_args {
    attention_args a;
    void *keys, *values; /* [S,K,blocks,hd,32], [S,K,blocks*32,dv] */
    const int *slot;
    float *
        parts; /* [parts_n][T][H][2 + dv]: top, sum of weights, weighted sum of values; parts_n 1: none */
    long long slots, blocks, part; /* part: positions of a part, a multiple of 32 */
    int parts_n, head_parts;       /* head_parts: blocks for the query heads of a kv head */
} attention_cached_args;
