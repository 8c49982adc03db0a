/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_RECURRENCE_H
#define TTRUN_RECURRENCE_H
#include <ttrun/builder.h>

/* Builder functions of ops that go along a sequence or a dim. builder.h includes this
 * header. tt_conv1d is there. */

#ifdef __cplusplus
extern "C" {
#endif

/* Linear recurrence along tokens within a segment: h[t] = a[t]·h[t-1] + x[t] for each element, and
 * h[t] = x[t] at a segment's first token. x [T,..] of rank 2 or more: [T,D,N] (Mamba), [T,H,dk,dv]
 * (gated linear attention). a has x's dims or size 1, which stretches: [T,H,1,1] is a decay per token
 * and head, [1,H,1,1] one per head. A stretched token dim and stretched trailing dims take no memory.
 * The state is f32; halves are rounded when h is stored. Gradient: a, x. Reads "seg" and "pos".
 * Tokens of a sequence are whole (context parallelism gathers them); other dims may be cut. */
TT_EXPORT tt_value *tt_scan(tt_builder *b, tt_value *a, tt_value *x);
/* Gated delta rule (Yang et al. 2024, arXiv:2412.06464) along tokens within a segment. Each head has a state
 * S [dk,dv], zero before a segment's first token:
 *   S[t] = exp(g) S[t-1] + k (beta (v - exp(g) S[t-1]ᵀ k))ᵀ    o[t] = S[t]ᵀ q
 * q, k [T,K,dk]: K groups, which all heads of a group share. v [T,K,H,dv]: H heads in a group. g [T,K,H],
 * the log of the decay, at most 0; beta [T,K,H]. Returns o [T,K,H,dv]. The state is f32. Gradient: all five.
 * Reads "seg" and "pos". Tokens of a sequence are whole, as for tt_scan; the groups may be cut. */
TT_EXPORT tt_value *tt_delta_rule(tt_builder *b, tt_value *q, tt_value *k, tt_value *v, tt_value *g,
                                  tt_value *beta);
typedef struct tt_cumsum_opts {
    int reverse;   /* 1: from the end: y[i] = Σ_{j>=i} x[j]                  */
    int exclusive; /* 1: without the element itself: y[i] = Σ_{j<i} x[j]     */
} tt_cumsum_opts;
/* Cumulative sum along dim (negative: counted from the end), which is not the token dim: for sums
 * along a sequence reshape [T] to [T.lines, T.size / T.lines] first. Halves are rounded once. */
TT_EXPORT tt_value *tt_cumsum(tt_builder *b, tt_value *x, int dim, const tt_cumsum_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
