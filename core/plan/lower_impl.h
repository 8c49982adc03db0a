/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_LOWER_IMPL_H
#define TT_PLAN_LOWER_IMPL_H
#include "plan/plan_impl.h"

/* Private to lower.c and lower_places.c. */

typedef struct sync { /* the last time a queue waited for queue 0 in this section */
    int at;           /* lowering.computed at that time */
    tt_predicate predicate;
} sync;

typedef struct lowering {
    const tt_plan *plan;
    const tt_graph *g;
    int32_t coords[TT_MAX_ATOMS]; /* of the rank */
    bool bare;                    /* an outline: communication only, without places and boxes */
    tt_arena *a;
    TT_VEC(tt_instr) instrs;
    TT_VEC(tt_operand) operands;
    TT_VEC(tt_section) sections;
    TT_VEC(tt_slot_rule) slots;
    TT_VEC(tt_program_queue) queues;
    TT_VEC(tt_program_state) states;
    TT_VEC(tt_program_param) params;
    tt_map *numbers;                   /* 1 + index in params, by name of a parameter or buffer */
    TT_VEC(const tt_node *) transfers; /* of micro-batches */
    int *operand_of;                   /* by value id; -1: none yet */
    int *over;                         /* by node id: the event at the end of an async collective */
    bool *implied;                     /* by node id: nothing waits for that event (tt_wait) */
    size_t first;                      /* instruction of the section */
    int computed;                      /* instructions of queue 0 so far */
    sync synced[UINT8_MAX + 1];        /* by queue */
    int loop;                          /* the LOOP without an END_LOOP yet; -1: none */
    int n_events, n_sums, most_operands;
} lowering;

/* lower_places.c: the memory of values and states on the rank. */
int tt_lower_operand(lowering *l, const tt_value *v);
/* A state's memory, seen as `like`; member -1: the whole stack. */
int tt_lower_state(lowering *l, const tt_state *s, int member, const tt_value *like);
void tt_lower_slots(lowering *l);
void tt_lower_tables(lowering *l);

#endif
