/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ROWS_H
#define TT_ROWS_H
#include "graph/graph.h"

/* Redistributes that move only the rows that the graph counts (R8; docs/design/experts.md). */

#define TT_LABEL_LATER_ROWS "later_expert_rows" /* TT_LABEL_ROWS of a pass after the first */

/* tt_redistribute() of a value of which only rows are needed: where the step is an all-to-all on the host, `rows` says how
 * many of the second dim, from its begin on, each member sends to each other one; the others are not
 * defined afterwards. rows: i32 [groups, senders, k * receivers]; a receiver's k numbers are added up. sent
 * and received: it as the sender has it, and as the receiver has it. Inputs 1 and 2 of the node. */
tt_value *tt_redistribute_rows(tt_builder *b, tt_value *v, const tt_placement *to, tt_value *sent,
                               tt_value *received);
/* How many elements a rank sends in the collective n, on average; of rows, with the routing of expert_skew. */
double tt_step_elements(const tt_graph *g, const tt_node *n);
/* Of the rows that a rank has room for in a pass of experts, the share that has a slot: of the busiest rank,
 * which has `skew` times the mean. later: in a pass after the first. */
double tt_expert_rows_share(const tt_graph *g, double skew, bool later);
/* … and of the rows that a rank has room for in replicas of experts. */
double tt_replica_rows_share(const tt_graph *g, double skew);
/* Does n send rows only, by the counts that are its inputs 1 and 2? */
bool tt_node_sends_rows(const tt_node *n);

#endif
