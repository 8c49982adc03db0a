/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXPERT_COPY_H
#define TT_EXPERT_COPY_H
#include "graph/rewrite.h"

/* expert_copy: copies of the layers with experts of a described graph, for the passes expert_replicas and
 * expert_passes. A layer is expert_route, then what depends on it, up to expert_slots. */

typedef struct tt_expert_copy {
    tt_builder *b;
    tt_graph *g;
    tt_value **instead; /* by id of a value of the graph as it was: what later nodes read for it */
    tt_value **copy;    /* … what the copy that is made now has instead; NULL: the value itself */
    bool *depends, *needed;
    int n_values;
    TT_VEC(tt_node *) list;
} tt_expert_copy;

tt_expert_copy tt_expert_copy_make(tt_builder *b);
/* What later nodes read for v, and the same for all operands of n. */
tt_value *tt_expert_copy_now(const tt_expert_copy *s, tt_value *v);
void tt_expert_copy_now_all(const tt_expert_copy *s, tt_node *n);
/* Moves the nodes that the builder has made from `first` on to the list. */
void tt_expert_copy_take(tt_expert_copy *s, size_t first);
/* A copy of n in which operands are as s->copy says. again: as in tt_builder_again(). */
void tt_expert_copy_node(tt_expert_copy *s, const tt_node *n, const void *attrs, bool again);
/* Finds what depends on the route, the node of this index of n, and of that what the slots need. Returns the
 * index of expert_slots; 0: there is none, or it is no part of this route's layer alone. */
size_t tt_expert_copy_find(tt_expert_copy *s, size_t route, size_t n);
/* Did tt_expert_copy_find() find it? */
bool tt_expert_copy_has(const tt_expert_copy *s, const tt_node *n);
/* The list becomes the graph's nodes, and what the graph names becomes what later nodes read for it. */
void tt_expert_copy_finish(tt_expert_copy *s);

#endif
