/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PIECES_IMPL_H
#define TT_PIECES_IMPL_H
#include "passes/passes.h"

/* Inside of pieces: which products go together (pieces.c), and what they become (pieces_emit.c). */

typedef TT_VEC(tt_node *) tt_nodes_vec;

typedef struct pieces {
    tt_graph *g;
    tt_readers readers;   /* of the graph as it was */
    int *when;            /* by index: 2 i + 1 where it stands, 2 j where it was put before j */
    bool *taken, *gone;   /* by index: product of a group; no longer where it stands */
    tt_nodes_vec *before; /* by index: what now stands before it */
    int *filler;          /* by state: the index that writes it, -1 = none */
} pieces;

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
bool tt_pieces_rows(const tt_node *n, rows *out);
bool tt_pieces_read_inside(const pieces *p, const group *gr, const tt_value *v);

/* pieces_emit.c */
void tt_pieces_put(pieces *p, tt_node *n, int index, int at); /* node `index`, before index at */
void tt_pieces_emit_gather(pieces *p, const group *gr, int index, int at);
void tt_pieces_emit_reduction(pieces *p, const group *gr, int index, int at);

#endif
