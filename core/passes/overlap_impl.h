/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_OVERLAP_IMPL_H
#define TT_OVERLAP_IMPL_H
#include "passes/passes.h"
#include "plan/plan.h"

/* Inside of overlap: one list that a rank runs, and what may move in it. */

#define SLACK 2.0 /* begun as early as if it took this much longer: costs are estimates */

typedef struct tt_overlap_list {
    tt_graph *g;
    const tt_machine *machine;
    tt_node **at; /* [n], as they were */
    int n;
    int *readers, *first_reader; /* by index: of index i, readers[first_reader[i] …) */
    int *index;                  /* by value id of a root: of its node in this list, -1 = not */
    int *run;                    /* by index: blocks, in the order they come */
    int *run_begin;              /* by run */
    double *cost, *time;         /* by index; time: of what stands before, collectives apart */
    bool *early, *sink;
    int *place; /* early: the index it is begun before */
    /* the new order */
    tt_node **out;
    int n_out;
    bool *done;
    double *over; /* by index: when a collective is over */
    double now, link;
    int *held, n_held; /* sinks not yet put */
} tt_overlap_list;

/* overlap_list.c */
void tt_overlap_list_init(tt_overlap_list *l, tt_arena *a); /* g, machine, at, n are set */
void tt_overlap_find_places(tt_overlap_list *l);            /* of early collectives */
double tt_overlap_duration(const tt_graph *g, const tt_node *n, const tt_machine *m);
bool tt_overlap_crosses_link(const tt_node *n);
bool tt_overlap_movable(const tt_graph *g, const tt_node *n); /* worth beginning early */
/* The index of the node that makes v, views looked through; -1: none of this list. A state that a
 * node of the list fills (hoisted parameters) is that node's. */
int tt_overlap_producer(const tt_overlap_list *l, const tt_value *v);
bool tt_overlap_has_effect(const tt_node *n); /* adds to an accumulator */
bool tt_overlap_carries(const tt_node *n);    /* hands a gradient on, without work of its own */

#endif
