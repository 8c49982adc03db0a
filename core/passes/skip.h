/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_SKIP_H
#define TT_PASSES_SKIP_H
#include "graph/graph.h"

/* skip: how many steps updated nothing, as state of the program, so that optimizers do not count them. */

/* A number that training keeps beside the parameters: f32, on all stages, saved with the optimizer's states. */
tt_state *tt_trainer_number(tt_graph *g, const char *name, double value);
/* From here on skipped steps are counted (tt_graph.skipped). */
void tt_skip_make(tt_graph *g);
/* The number of this update, 1 for the first: steps that were skipped do not count. NULL: none is. */
tt_value *tt_steps_done(tt_builder *b);
/* Counts at the end of the epilogue. ok: by stage, as tt_graph.ok; NULL: the stage has none. */
void tt_skip_update(tt_builder *b, tt_value *const *ok);

#endif
