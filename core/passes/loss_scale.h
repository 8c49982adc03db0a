/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_LOSS_SCALE_H
#define TT_PASSES_LOSS_SCALE_H
#include "graph/graph.h"

/* loss_scale: the loss is multiplied by a power of two, and gradients are divided by it in the
 * epilogue, so that they do not underflow in float16. */

#define TT_LEAST_LOSS_SCALE 1.0 /* a step that is not finite with it is an error */
#define TT_LARGEST_LOSS_SCALE 0x1p60
typedef struct tt_loss_scale_opts {
    double initial; /* 0: the loss is not scaled */
    int64_t window; /* it is doubled after so many finite steps in a row; 0: it never changes */
} tt_loss_scale_opts;
/* f32 states: the scale; finite steps since it changed, NULL if it never changes. */
typedef struct tt_loss_scale {
    tt_state *scale, *good;
    int64_t window;
} tt_loss_scale;
void tt_loss_scale_make(tt_graph *g, const tt_loss_scale_opts *o);
tt_value *tt_loss_scaled(tt_builder *b, tt_value *v);
tt_value *tt_loss_unscale(tt_builder *b); /* 1 / scale; NULL: the loss is not scaled */
/* Sets tt_node.scaled, once the order of the nodes is final. */
void tt_loss_scale_mark(tt_graph *g);
/* Changes the scale at the end of the epilogue. finite: by stage, 1 if loss and gradients are finite, else 0;
 * NULL: the stage does not know. */
void tt_loss_scale_update(tt_builder *b, tt_value *const *finite);

#endif
