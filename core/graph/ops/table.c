/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* The table of the core's ops, sorted by name. */

static const tt_op_def *const core_ops[] = {
#define TT_CORE_OP(name) &tt_op_##name,
#include "ops.def"
#undef TT_CORE_OP
};

const tt_op_def *const *tt_core_ops(size_t *n)
{
    *n = sizeof core_ops / sizeof core_ops[0];
    return core_ops;
}
