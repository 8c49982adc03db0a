/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_HIDDEN_H
#define TT_PLAN_HIDDEN_H
#include "cost/cost.h"

/* Nodes one after the other, async collectives beside them, those of a group one by one: what
 * passes at each node, waits for what it needs included, is added to at[]. exposed: communication
 * that nothing is computed beside. */
typedef struct tt_list_seconds {
    double total, comm, exposed;
} tt_list_seconds;
tt_list_seconds tt_nodes_seconds(const tt_graph *g, tt_node *const *nodes, int n,
                                 const tt_machine *m, double *at);

#endif
