/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_GRAPH_REWRITE_H
#define TT_GRAPH_REWRITE_H
#include "graph/graph.h"

/* Functions that passes and the plan, which work after describe(), need in addition to graph.h. */

/* The nodes that are built next have, or no longer have, tt_when.in_chunk_loop and TT_NODE_INNER. */
void tt_builder_chunk_loop(tt_builder *b, bool in);
void tt_builder_inner(tt_builder *b, bool inner);
/* The float values that are built next are computed again by the backward, whatever the mode. */
void tt_builder_again(tt_builder *b, bool again);

/* y, which inner nodes have computed from x, with the derivative of x itself. */
tt_value *tt_straight_through(tt_builder *b, tt_value *x, tt_value *y);

/* n's op, which the backend has a kernel for, written out on these operands by its decomposition; placed as it
 * would be without the kernel. */
void tt_op_written_out(tt_builder *b, const tt_node *n, tt_value *const *in, tt_value **outs);

/* The redistribute node r reads v instead of what it read, and is one of v's placements. */
void tt_redistribute_from(tt_builder *b, tt_node *r, tt_value *v);

/* The state of this kind and name; NULL: there is none. States of two kinds may have one name: a
 * model may call a buffer "lr". */
tt_state *tt_graph_state(const tt_graph *g, tt_state_kind kind, const char *name);
/* Replaces each value that the graph itself names (outputs, losses, metrics, statistics of buffers, the loss,
 * gradients that no accumulator keeps) by now(user, value). */
void tt_graph_replace_named(tt_graph *g, tt_value *(*now)(const void *user, tt_value *v),
                            const void *user);
/* The rule of a node, also of one that a late pass has made without it, which is parsed to *room. NULL: it has
 * none. */
const tt_rule *tt_node_rule(const tt_node *n, tt_rule *room);
/* Has v a row per token, so that the chunk loop can compute some of its rows at a time? */
bool tt_value_per_token(const tt_graph *g, const tt_value *v);

/* ops/elements.c: of one token, how the elements of n's one result depend on those of operand i. */
typedef enum tt_elements_kind {
    TT_ELEMENTS_UNKNOWN,
    TT_ELEMENTS_MOVED, /* element e is a multiple of from[e]; -1: it comes from another operand */
    TT_ELEMENTS_ADDED, /* of a sum: it changes by a factor if from[e] of every operand does */
    TT_ELEMENTS_MULTIPLIED, /* of a product: if from[e] of one operand does */
    TT_ELEMENTS_NORMALIZED  /* a factor on the operand does not change the result */
} tt_elements_kind;
typedef struct tt_elements {
    tt_elements_kind kind;
    int64_t mixed; /* each run of so many elements is mixed among themselves; 0: none is */
} tt_elements;
/* from: an entry for each element of the result. An operand without a dim of tokens has all its elements. */
tt_elements tt_node_elements(const tt_node *n, int i, int64_t *from);
int64_t tt_operand_elements(const tt_node *n, int i); /* of one for which `from` is known */
int64_t tt_result_elements(const tt_node *n);

#endif
