/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ASYNC_TP_IMPL_H
#define TT_ASYNC_TP_IMPL_H
#include "passes/passes.h"

/* Inside of async_tp: which products go together (async_tp.c), and what they become (async_tp_emit.c). */

typedef TT_VEC(tt_node *) tt_nodes_vec;

typedef struct async_tp {
    tt_graph *g;
    tt_readers readers;   /* of the graph as it was */
    int *when;            /* by index: 2 i + 1 where it stands, 2 j where it was put before j */
    bool *taken, *gone;   /* by index: product of a group; no longer where it stands */
    tt_nodes_vec *before; /* by index: what now stands before it */
    int *filler;          /* by state: the index that writes it, -1 = none */
} async_tp;

typedef struct rows {    /* of what may be computed row by row */
    int letter;          /* of its rule: its rows */
    bool product;        /* of matrices; else pointwise */
    bool in[TT_MAX_INS]; /* operands that have these rows */
} rows;

typedef struct group { /* around one gather or reduce-scatter */
    tt_node *c;
    int *products, n; /* by index, ascending where it matters */
    int n_pieces;
    tt_placement cut; /* of the value that is gathered, or scattered to: piece 0's rows */
    int first;        /* the atoms of its rows from here on are the ring */
} group;

/* Can n be computed row by row? */
bool tt_async_tp_rows(const tt_node *n, rows *out);
bool tt_async_tp_read_inside(const async_tp *p, const group *gr, const tt_value *v);

/* async_tp_emit.c */
void tt_async_tp_put(async_tp *p, tt_node *n, int index,
                     int at); /* node `index`, before index at */
void tt_async_tp_emit_gather(async_tp *p, const group *gr, int index, int at);
void tt_async_tp_emit_reduction(async_tp *p, const group *gr, int index, int at);

#endif
