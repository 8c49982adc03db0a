/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The argument of the kernels of delta_rule; the launcher (C) and the kernels share it. T tokens, K groups of R heads:
 *   q, k [T,K,dk]  v, out, dout [T,K,R,dv]  g, beta [T,K,R]  seg, pos [T]  dgates f32 [T,K,2,R]
 * A launch computes `n_groups` groups from `first` on; what lies in scratch is theirs alone, by head of the launch and
 * chunk of DELTA_CHUNK tokens. */
#define DELTA_CHUNK 64
#define DELTA_THREADS 256
/* Floats of `inside`: Q Kᵀ L, (1 + A)^-1, and of each token exp(G), exp(G[last] - G), G, and where its segment begins. */
#define DELTA_INSIDE (2 * DELTA_CHUNK * DELTA_CHUNK + 4 * DELTA_CHUNK)

/* delta_args.halves: which operands are bf16; the others are f32. */
#define DELTA_Q 1 /* also dq */
#define DELTA_K 2 /* also dk */
#define DELTA_V 4 /* also dv */
#define DELTA_G 8
#define DELTA_BETA 16
#define DELTA_OUT 32 /* also dout */

typedef struct delta_args {
    const void *q, *k, *v, *g, *beta, *dout;
    const int *seg, *pos; /* cached: seg is the slot */
    void *out, *dq, *dk, *dv;
    float *dgates;
    float *inside;           /* [heads][chunks][DELTA_INSIDE] */
    float *states, *dstates; /* [heads][chunks][dk][dv]: before and behind each chunk */
    float *rows, *drows;     /* [heads][chunks][DELTA_CHUNK][dv]: D and its derivative */
    float *dq_sum, *dk_sum;  /* [T,K,dk]: sums over the heads of a group */
    float *state;            /* cached: [slots,K,R,dk,dv] */
    long long tokens, chunks, slots;
    int groups, heads, dk_dim, dv_dim; /* K, R */
    int first, n_groups;
    int halves, tiles,
        in_shared; /* tiles: of DELTA_CHUNK columns of dv; in_shared: a tile of a state */
} delta_args;
