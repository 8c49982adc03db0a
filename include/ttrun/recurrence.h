/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_RECURRENCE_H
#define TTRUN_RECURRENCE_H
#include <ttrun/builder.h>

/* Builder functions of ops that go along a sequence or a dim element by element. builder.h includes this
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
