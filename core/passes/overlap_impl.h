/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_OVERLAP_IMPL_H
#define TT_OVERLAP_IMPL_H
#include "passes/passes.h"
#include "plan/plan.h"

/* Private to overlap: one list that a rank runs, and which of its nodes can move. */

#define SLACK 2.0 /* collectives begin as if they took so many times as long: costs are estimates */

typedef struct tt_overlap_list {
    tt_graph *g;
    const tt_machine *machine;
    tt_node **at; /* [n], in the order before the pass */
    int n;
    int *readers, *first_reader; /* of index i: from readers[first_reader[i]] to before the next */
    int *index;                  /* by value id of a root: its node in this list, -1 = none */
    int *own;                    /* by value id: its node in this list, -1 = none */
    int *run;                    /* by index: number of its block in the order of the list */
    int *run_begin;              /* by run */
    double *cost, *time;         /* by index; time: of all before it without collectives */
    bool *early, *sink;
    bool *feeds; /* an early update reads it */
    int *place;  /* early: the index before which it begins */
    /* the new order */
    tt_node **out;
    int n_out;
    bool *done;
    double *over; /* by index: the time at which a collective is over */
    double now, link;
    int *held, n_held; /* sinks that have no position yet */
} tt_overlap_list;

/* overlap_turns.c: interleaved micro-batches take turns within a block; l is described again. */
void tt_overlap_take_turns(tt_overlap_list *l, tt_arena *a);

/* overlap_list.c */
void tt_overlap_list_init(tt_overlap_list *l, tt_arena *a); /* g, machine, at, n are set */
void tt_overlap_find_places(tt_overlap_list *l);            /* of early collectives */
double tt_overlap_duration(const tt_graph *g, const tt_node *n, const tt_machine *m);
bool tt_overlap_crosses_link(const tt_node *n);
bool tt_overlap_movable(const tt_graph *g, const tt_node *n); /* worth beginning early */
/* The index of the node that makes v, or the value of which v is a view; -1: no node of this
 * list. If a node of the list fills a state (hoisted parameters), or adds to it in the epilogue (gradients of
 * replicas), that node makes the state's value. */
int tt_overlap_producer(const tt_overlap_list *l, const tt_value *v);
bool tt_overlap_has_effect(const tt_node *n);                    /* adds to an accumulator */
bool tt_overlap_same_target(const tt_node *a, const tt_node *b); /* do both add to one place? */
bool tt_overlap_carries(const tt_node *n); /* passes a gradient on without computing */

#endif
