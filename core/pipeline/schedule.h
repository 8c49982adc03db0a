/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SCHEDULE_H
#define TT_SCHEDULE_H
#include "base/base.h"

/* core/pipeline: a schedule is data: per pipeline rank, an ordered list of actions on (stage,
 * micro-batch), and a map of stages to ranks. Nothing else in ttrun knows 1F1B from ZBV. Generators
 * make such lists, one checker proves them, one cost model draws them; programs.h derives sends,
 * receives and slots. */

/* B is I, then W, as one action. I: what the stage before waits for. W: the rest of the backward.
 */
typedef enum tt_action_kind {
    TT_ACTION_F,
    TT_ACTION_B,
    TT_ACTION_I,
    TT_ACTION_W,
    TT_N_ACTIONS
} tt_action_kind;
#define TT_ACTION_LETTERS "FBIW"

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
    bool splits;     /* has I and W */
    bool ascends;    /* micro-batches are accumulated in ascending order on every stage: the bits do
                        not depend on the schedule (P5) */
} tt_schedule;

#define TT_MAX_STAGES 64       /* a parameter's stage set is a word */
#define TT_MAX_MICRO (1 << 16) /* of a schedule: lists are held whole */

/* What a name stands for. Names match without regard to case and underscores. */
typedef struct tt_schedule_kind {
    const char *name;
    bool turns; /* stages run down the ranks and up again: the first and the last are on rank 0 */
    int min_chunks, max_chunks, usual_chunks; /* stages a rank */
} tt_schedule_kind;
tt_status tt_schedule_find(const char *name, const tt_schedule_kind **out, tt_error *err);

/* n_chunks stages on each of n_ranks; 0 = as many as usual. Checked. */
tt_status tt_schedule_make(const char *name, int n_ranks, int n_chunks, int n_micro, tt_arena *a,
                           tt_schedule **out, tt_error *err);
/* One row a rank, cells like 2F0 (<stage><F|B|I|W><micro-batch>), empty = a bubble; ranks, stages
 * and micro-batches are what the text says. where: the file, for errors. Checked but for the order
 * of accumulation, which `ascends` tells. */
tt_status tt_schedule_read_csv(const char *text, size_t n, const char *where, tt_arena *a,
                               tt_schedule **out, tt_error *err);
void tt_schedule_write_csv(const tt_schedule *s, tt_str *out);
/* The forwards alone, of n_micro micro-batches, on the same ranks: validation. */
tt_schedule *tt_schedule_forward(const tt_schedule *s, int n_micro, tt_arena *a);

/* Complete, each action on its stage's rank, in order, free of cycles; bits: ascending (P5). */
tt_status tt_schedule_check(const tt_schedule *s, bool bits, tt_error *err);

/* ---- cost ---- */

typedef struct tt_stage_cost {
    double f, i, w; /* B takes i + w */
} tt_stage_cost;
typedef struct tt_costs {
    const tt_stage_cost *stage; /* by stage; NULL: 1, 1, 1 */
    double comm;                /* latency of a message between ranks */
} tt_costs;
double tt_action_cost(const tt_costs *c, const tt_action *a);

typedef struct tt_event {
    double start, end;
    int rank, at; /* actions[rank][at] */
    tt_action action;
} tt_event;

/* Virtual time: each rank does its list in order, an action starts when its rank is free and its
 * inputs are there. */
typedef struct tt_run {
    double makespan;
    double *busy;    /* by rank */
    tt_event *order; /* all actions by (end, rank, place): the global order of P1 */
    int n;
} tt_run;
/* Fails where the lists cannot be finished. */
tt_status tt_schedule_run(const tt_schedule *s, const tt_costs *c, tt_arena *a, tt_run *out,
                          tt_error *err);
/* The same without the order: how long, and the idle share of all ranks' time. */
tt_status tt_schedule_time(const tt_schedule *s, const tt_costs *c, double *makespan,
                           double *bubble, tt_error *err);
double tt_schedule_bubble(const tt_schedule *s, const tt_costs *c);

/* What micro-batches hold on a stage: values of the forward that I reads (slot), that W reads
 * (keep), values of I that W reads (wgrad). */
typedef enum tt_hold { TT_HOLD_SLOT, TT_HOLD_KEEP, TT_HOLD_WGRAD, TT_N_HOLDS } tt_hold;
/* Most micro-batches that hold values of this class at once, by the lists alone. */
int tt_schedule_in_flight(const tt_schedule *s, int stage, tt_hold hold);

/* ---- drawing ---- */
/* "rank 0: 0F0 0F1 …", a line a rank. */
void tt_schedule_print(const tt_schedule *s, tt_str *out);
/* The run as a self-contained SVG, a row a rank, a box an action. */
void tt_schedule_draw_svg(const tt_schedule *s, const tt_run *run, tt_str *out);

#endif
