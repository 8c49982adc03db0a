/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_KERNELS_H
#define TT_PLAN_KERNELS_H
#include "base/base.h"
#include <ttrun/backend.h>

/* Which kernel runs an op: the one place that asks the backend for kernels. */

typedef struct tt_kernels {
    const tt_backend_vt *backend;
    TT_VEC(const tt_kernel *) plugins; /* these go before the backend's; one per op */
} tt_kernels;

/* NULL = there is none. self NULL: a static question. */
const tt_kernel *tt_find_kernel(const tt_kernels *k, void *self, const char *op);

#endif
