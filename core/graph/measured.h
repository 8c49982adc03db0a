/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MEASURED_H
#define TT_MEASURED_H
#include "graph/state.h"

/* What measured steps compute (pass measure): each rank's part, which the host adds up. */
typedef enum tt_measured_kind {
    TT_MEASURED_GRADIENT, /* of the stack's members: [n, 4], as member_stats */
    TT_MEASURED_WEIGHT,
    TT_MEASURED_UPDATE,
    TT_MEASURED_LOGITS, /* [heads], the largest logits of an attention node */
} tt_measured_kind;

typedef struct tt_measured {
    tt_measured_kind kind;
    tt_state *state;
    const struct tt_stack *stack; /* LOGITS: NULL */
    int first;                    /* the member that the sums begin with */
    const char *scope;            /* LOGITS: of the node, "model.layers.3.self_attn" */
} tt_measured;

#endif
