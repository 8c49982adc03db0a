/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_REWRITE_H
#define TT_GRAPH_REWRITE_H
#include "graph/graph.h"

/* Functions of the builder for passes that build nodes after describe(), in addition to graph.h. */

/* The nodes that are built next have, or no longer have, tt_when.in_chunk_loop and TT_NODE_INNER. */
void tt_builder_chunk_loop(tt_builder *b, bool in);
void tt_builder_inner(tt_builder *b, bool inner);
/* The value that a function returns after an error. A builder that has failed builds no more nodes. */
tt_value *tt_placeholder(tt_builder *b);

#endif
