/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DIST_REDUCE_H
#define TT_DIST_REDUCE_H
#include "base/base.h"
#include <ttrun/comm.h>

/* out[i] = xs[0][i] op xs[1][i] op …, in that order: the bits every transport gives. bf16 is added
 * in f32 and rounded once. out may be xs[0]; n = 0 asks only for the error. Errors name a dtype
 * that cannot be reduced.   [any-thread] */
tt_status tt_reduce_members(void *out, const void *const *xs, int n_members, int64_t n,
                            tt_dtype dtype, tt_reduce op, tt_error *err);

#endif
