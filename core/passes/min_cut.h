/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MIN_CUT_H
#define TT_MIN_CUT_H
#include "base/base.h"

/* The minimum cut of a small network with a source (node 0) and a sink (node 1). The same edges in the
 * same order give the same cut on every rank. */
typedef struct tt_network tt_network;

tt_network *tt_network_new(tt_arena *a, int n_nodes);
/* capacity INFINITY: the edge is never cut. */
void tt_network_edge(tt_network *n, int from, int to, double capacity);
/* Marks the nodes on the source's side, as few as a minimum cut can have there. */
void tt_network_cut(tt_network *n, bool *source_side);

#endif
