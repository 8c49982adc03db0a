/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ROWS_H
#define TT_ROWS_H
#include "graph/graph.h"

/* Redistributes that move only the rows that the graph counts (R8; docs/design/experts.md). */

/* tt_redistribute() of a value of which only rows are needed: where the step is an all-to-all on the host, `rows` says how
 * many of the second dim, from its begin on, each member sends to each other one; the others are not
 * defined afterwards. rows: i32 [groups, senders, k * receivers]; a receiver's k numbers are added up. sent
 * and received: it as the sender has it, and as the receiver has it. Inputs 1 and 2 of the node. */
tt_value *tt_redistribute_rows(tt_builder *b, tt_value *v, const tt_placement *to, tt_value *sent,
                               tt_value *received);
/* The steps of a redistribute or a fetch n whose input is stored `from`. Cost of rows: those of balanced
 * routing. */
int tt_node_steps(const tt_graph *g, const tt_node *n, const tt_placement *from,
                  tt_lower_step steps[TT_MAX_STEPS]);
/* Does n send rows only, by the counts that are its inputs 1 and 2? */
bool tt_node_sends_rows(const tt_node *n);

#endif
