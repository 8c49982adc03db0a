/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SCHEDULE_H
#define TT_SCHEDULE_H
#include "base/base.h"

/* core/pipeline: a schedule is data: per pipeline rank, the list of actions on (stage,
 * micro-batch). Without a pipeline it is forward and backward of each micro-batch in turn. */

typedef enum tt_action_kind { TT_ACTION_F, TT_ACTION_B } tt_action_kind;
typedef struct tt_action {
    tt_action_kind kind;
    int stage, micro;
} tt_action;

typedef struct tt_schedule {
    const char *name;
    int n_ranks, n_stages, n_micro;
    tt_action **actions; /* by pipeline rank */
    int *n_actions;
    int *stage_rank; /* by stage */
} tt_schedule;

/* name: "1F1B", "GPipe". n_ranks 1 gives F0 B0 F1 B1 … whatever the name. One stage a rank. */
tt_status tt_schedule_make(const char *name, int n_ranks, int n_micro, tt_arena *a,
                           tt_schedule **out, tt_error *err);
/* Complete, ordered (F before B, stage order, micro-batches ascending a stage) and free of deadlock
 * where sends never wait. */
tt_status tt_schedule_check(const tt_schedule *s, tt_error *err);
/* Do all ranks finish when each action first receives n_messages from its neighbour stage and at
 * last sends as many to the other, a send waiting while more than n_buffers of its stage and
 * direction are not yet received? */
bool tt_schedule_runs(const tt_schedule *s, int n_messages, int n_buffers);
/* Most micro-batches of a stage whose F ran and whose B did not. */
int tt_schedule_in_flight(const tt_schedule *s, int stage);
/* Idle share of the longest rank with these durations of F and B. */
double tt_schedule_bubble(const tt_schedule *s, double f, double b);
/* One row a rank, one column a time unit. */
void tt_schedule_draw(const tt_schedule *s, tt_str *out);

#endif
