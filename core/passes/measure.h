/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_MEASURE_H
#define TT_PASSES_MEASURE_H
#include "graph/graph.h"
#include "passes/passes.h"

/* For the pass update: the sums of measured steps (measure.c), of values that lie where the stack's parameters
 * are stored: the members from `first` on. The builder's nodes are measured. */
void tt_measure_stack(tt_builder *b, tt_measured_kind kind, const tt_stack *s, int first,
                      tt_value *x);
/* In the epilogue, of each stack with a gradient: of that and of the parameters. grads: by stack, or NULL. */
void tt_measure_gradients(tt_builder *b, tt_value *const *grads);

#endif
