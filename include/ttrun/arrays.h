/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_ARRAYS_H
#define TTRUN_ARRAYS_H
#include <ttrun/builder.h>

/* Builder functions of whole numbers, indices, order and shapes. builder.h includes this header and says
 * what holds for all. A negative dim counts from the end. Floats are f32, bf16, f16 and f64. */

#ifdef __cplusplus
extern "C" {
#endif

/* The floor of x / y, and the remainder x - y floor(x / y), which has y's sign: PyTorch's
 * div(rounding_mode="floor") and remainder, for integers and floats. The floor is that of the exact
 * quotient, rounded once to the dtype. y = 0: of floats x / y and NaN; of integers the quotient is the
 * largest or smallest integer by x's sign (0 / 0 is 0) and the remainder 0. A quotient that no
 * integer holds saturates, too: INT32_MIN / -1 is INT32_MAX. tt_floor_div's derivative is 0. */
TT_EXPORT tt_value *tt_floor_div(tt_builder *b, tt_value *x, tt_value *y);
TT_EXPORT tt_value *tt_mod(tt_builder *b, tt_value *x, tt_value *y);

/* Values of dims in which each element is its index in dim, and idx i32 [..] → [..,depth] with 1 at
 * each index and 0 elsewhere; an index outside of depth gives zeros. */
TT_EXPORT tt_value *tt_iota(tt_builder *b, const tt_dim *dims, int n_dims, int dim, tt_dtype dtype);
TT_EXPORT tt_value *tt_one_hot(tt_builder *b, tt_value *idx, tt_dim depth, tt_dtype dtype);
/* The index of the largest (smallest) element of dim, i32: of equal ones the lowest, and the first NaN
 * if there is one, as in PyTorch. dim may be cut if it has at most 2^24 elements (vocab). */
TT_EXPORT tt_value *tt_argmax(tt_builder *b, tt_value *x, int dim, int keep);
TT_EXPORT tt_value *tt_argmin(tt_builder *b, tt_value *x, int dim, int keep);
/* Rows: y[i,…] = x[idx[i],…], idx i32 [n] → [n,…]; an index outside x gives zeros. */
TT_EXPORT tt_value *tt_gather(tt_builder *b, tt_value *x, tt_value *idx);
/* y [rows,…] starts as zeros, then y[idx[i],…] += x[i,…] in ascending i. */
TT_EXPORT tt_value *tt_scatter_add(tt_builder *b, tt_value *x, tt_value *idx, tt_dim rows);
/* x f [tokens], number i32 [tokens]: for each token the sum of x over the tokens of its sequence that have its
 * number; 0 where the number is negative, or not less than the tokens of a sequence. The order of tokens
 * does not matter. */
TT_EXPORT tt_value *tt_segment_sum(tt_builder *b, tt_value *x, tt_value *number);
/* The largest k elements of the last dim, descending; of equal ones the lower index comes first, and
 * NaNs are after all others.
 *   *values [..,k], dtype of x    *indices i32 [..,k] */
TT_EXPORT void tt_top_k(tt_builder *b, tt_value *x, int64_t k, tt_value **values,
                        tt_value **indices);
/* All elements of the last dim, ascending or descending. Stable: of equal ones the lower index comes
 * first; NaNs come last in both orders.   *values as x    *indices i32, as x */
TT_EXPORT void tt_sort(tt_builder *b, tt_value *x, int descending, tt_value **values,
                       tt_value **indices);

/* Columns of a basis for each symmetric matrix of a f32 [..,n,n]: eigenvectors of a, one step of orthogonal
 * iteration from q towards them, or q, as how [..,1,1] is 2, 1 or 0 (<ttrun/eigenbasis.h>). No gradient. */
TT_EXPORT tt_value *tt_eigenbasis(tt_builder *b, tt_value *a, tt_value *q, tt_value *how);

/* `before` and `after` elements `value` put before and after those of dim. */
TT_EXPORT tt_value *tt_pad(tt_builder *b, tt_value *x, int dim, int64_t before, int64_t after,
                           double value);
/* y[(i + shift) mod size] = x[i] along dim; shift may be negative. */
TT_EXPORT tt_value *tt_roll(tt_builder *b, tt_value *x, int dim, int64_t shift);
/* dim n times as long: all its elements n times in turn (PyTorch's repeat), or each element n times
 * (repeat_interleave: K heads to n K, of which n in a row are equal). */
TT_EXPORT tt_value *tt_repeat(tt_builder *b, tt_value *x, int dim, int64_t n);
TT_EXPORT tt_value *tt_repeat_interleave(tt_builder *b, tt_value *x, int dim, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
