/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_COPIES_H
#define TT_COPIES_H
#include "graph/graph.h"

/* Several micro-batches in one call of the program (training.intra_layer_micro_batch). The pass interleave
 * copies what a described graph computes of its inputs: copy c reads "ids#c" where the first one reads
 * "ids". The graph names the values of the first copy, and each of them knows the others. */

#define TT_MAX_INTERLEAVED 8

typedef struct tt_copies {
    int n;
    tt_value *of[TT_MAX_INTERLEAVED]; /* from of[1] on; all are the value if no input matters */
} tt_copies;

/* How many micro-batches have a value like v, and that of micro-batch c. */
int tt_value_n_copies(const tt_value *v);
tt_value *tt_value_copy(tt_value *v, int c);
/* Gives v as copies now(user, copy) of each copy of `from`; nothing happens if `from` has none. */
void tt_value_copy_from(tt_graph *g, tt_value *v, const tt_value *from,
                        tt_value *(*now)(const void *user, tt_value *v), const void *user);
/* One more copy of v, beside those that it has; it must not have one of each micro-batch yet. */
void tt_value_add_copy(tt_graph *g, tt_value *v, tt_value *copy);
/* Accumulates v, then its copies in their order. */
void tt_accumulate_copies(tt_builder *b, tt_state *s, int index, tt_value *v);
/* The name of an input for copy c, in the arena. */
const char *tt_input_of_copy(tt_arena *a, const char *name, int c);
/* The copy that reads the input of this name. */
int tt_input_copy(const char *name);
/* By value id: a bit for each copy whose inputs the value depends on; 0: it depends on parameters alone. In a
 * graph that is not interleaved the bit is that of copy 0. */
uint8_t *tt_graph_copies_of_values(const tt_graph *g, tt_arena *a);

#endif
