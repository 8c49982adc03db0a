/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DIST_REDUCE_H
#define TT_DIST_REDUCE_H
#include "base/base.h"
#include <ttrun/comm.h>

/* acc[i] = acc[i] op x[i]; bf16 adds in f32 and rounds once. An error names a dtype that cannot be reduced. */
tt_status tt_reduce_into(void *acc, const void *x, int64_t n, tt_dtype dtype, tt_reduce op, tt_error *err);

#endif
