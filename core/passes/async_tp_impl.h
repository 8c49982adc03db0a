/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASYNC_TP_IMPL_H
#define TT_ASYNC_TP_IMPL_H
#include "passes/passes.h"

/* Private to async_tp: async_tp.c finds the groups of products, async_tp_emit.c emits their
 * pieces. */

typedef TT_VEC(tt_node *) tt_nodes_vec;

typedef struct async_tp {
    tt_graph *g;
    tt_readers readers; /* of the graph before the pass */
    int *when;          /* by index: 2 i + 1 at its own position, 2 j where it was moved before j */
    bool *taken, *gone; /* by index: it is a product of a group; it has moved */
    tt_nodes_vec *before; /* by index: nodes that now stand before it */
    int *filler;          /* by state: index of the node that writes it, -1 = none */
} async_tp;

typedef struct rows {    /* of a node that can be computed row by row */
    int letter;          /* of its rule: the rows */
    bool product;        /* a matrix product; else pointwise */
    bool in[TT_MAX_INS]; /* operands that have these rows */
} rows;

typedef struct group { /* around one gather or reduce-scatter */
    tt_node *c;
    int *products, n; /* by index */
    int n_pieces;
    tt_placement cut; /* of the collective's sharded value: piece 0's rows */
    int first;        /* the ring is the atoms of its rows from here on */
} group;

/* Can n be computed row by row? */
bool tt_async_tp_rows(const tt_node *n, rows *out);
bool tt_async_tp_read_inside(const async_tp *p, const group *gr, const tt_value *v);

/* async_tp_emit.c */
void tt_async_tp_put(async_tp *p, tt_node *n, int index,
                     int at); /* moves node `index` before index `at` */
void tt_async_tp_emit_gather(async_tp *p, const group *gr, int index, int at);
void tt_async_tp_emit_reduction(async_tp *p, const group *gr, int index, int at);

#endif
