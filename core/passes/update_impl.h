/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_UPDATE_IMPL_H
#define TT_PASSES_UPDATE_IMPL_H
#include "graph/graph.h"
#include "graph/op.h"
#include <ttrun/optimizer.h>

/* Shared by update.c, which runs the optimizer of every stack, and moments.c, which has what an optimizer's
 * describe_update() calls. */

/* The update of a stack, or of some of its members where the states are in host memory: so much of
 * them lies in device memory at a time. */
typedef struct tt_update_impl {
    tt_update public_;
    tt_stack *stack;
    int first, n;   /* members */
    tt_dtype dtype; /* of states: f32, bf16, float8 or (u8) dynamic codes */
    bool offload;
    bool known; /* another stage runs the same update and has made its states */
    bool live;  /* the parameters themselves are evaluated */
} tt_update_impl;

#endif
