/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_KERNELS_H
#define TT_PLAN_KERNELS_H
#include "base/base.h"
#include <ttrun/backend.h>

/* Finds the kernel that runs an op. Nothing else asks the backend for kernels. */

typedef struct tt_kernels {
    const tt_backend_vt *backend;
    TT_VEC(const tt_kernel *) plugins; /* used before the backend's; one per op */
} tt_kernels;

/* NULL = there is none. self: the backend's instance; NULL: none exists yet. */
const tt_kernel *tt_find_kernel(const tt_kernels *k, void *self, const char *op);

#endif
