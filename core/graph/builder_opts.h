/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BUILDER_OPTS_H
#define TT_BUILDER_OPTS_H
#include "base/base.h"
#include "graph/op.h"
#include <ttrun/backend.h>
#include <ttrun/dataloader.h>

/* What a builder is made for. */

/* Dtypes (R6): of parameters as stored, of parameters and activations as computed with, of what
 * gradients are reduced in. All zero: f32 throughout. */
typedef struct tt_precision {
    tt_dtype param, compute, reduce;
} tt_precision;

/* How an op that mixes tokens meets those of its sequence on other ranks. */
typedef enum tt_context {
    TT_CONTEXT_GATHER, /* keys and values are gathered */
    TT_CONTEXT_RING,   /* keys and values go round a ring of them */
    TT_CONTEXT_HEADS,  /* Ulysses: its heads are cut instead of its tokens */
} tt_context;

typedef struct tt_builder_opts {
    const tt_op_table *ops;
    tt_builder_use use;
    const tt_input_info *inputs; /* the loader's own, besides the four; NULL = none */
    int n_inputs;
    int64_t tokens, sequences; /* of the token dim: tokens per micro-batch, in equal sequences */
    tt_precision precision;
    tt_context context;
    /* Does the backend have a kernel? NULL = every op has. Ops without decompose. */
    bool (*has_kernel)(void *user, const char *op);
    bool (*supports)(void *user, const tt_kernel_call *c); /* its kernel; NULL = all dtypes */
    void *has_kernel_user;
    /* Converters: the replacement of a linear, or NULL. */
    tt_value *(*convert_linear)(void *user, tt_builder *b, const char *param, tt_value *x,
                                tt_value *w);
    void *convert_user;
} tt_builder_opts;

#endif
