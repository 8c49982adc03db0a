/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SCHEDULE_H
#define TT_SCHEDULE_H
#include "base/base.h"

/* core/pipeline: a schedule is data: per pipeline rank, an ordered list of actions on (stage,
 * micro-batch), and a map of stages to ranks. Nothing else in ttrun knows 1F1B from ZBV. Generators
 * make such lists, one checker proves them, one cost model draws them; programs.h derives sends,
 * receives and slots. */

/* I is the part of the backward for which the previous stage waits (the input gradient), W the rest
 * (the weight gradients); B is I and then W as one action. */
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
    bool ascends;    /* every stage accumulates micro-batches in ascending order, so the bits do not
                        depend on the schedule (P5) */
} tt_schedule;

#define TT_MAX_STAGES 64       /* the stages of a parameter are a 64-bit set */
#define TT_MAX_MICRO (1 << 16) /* per schedule, whose lists are in memory */

/* A kind of schedule. Names match without regard to case and underscores. */
typedef struct tt_schedule_kind {
    const char *name;
    bool turns; /* stages run down the ranks and up again: the first and the last are on rank 0 */
    int min_chunks, max_chunks, usual_chunks; /* stages per rank */
} tt_schedule_kind;
tt_status tt_schedule_find(const char *name, const tt_schedule_kind **out, tt_error *err);

/* Makes a checked schedule with n_chunks stages on each of n_ranks; 0 = usual_chunks. */
tt_status tt_schedule_make(const char *name, int n_ranks, int n_chunks, int n_micro, tt_arena *a,
                           tt_schedule **out, tt_error *err);
/* Reads a schedule: one row per rank, cells like 2F0 (<stage><F|B|I|W><micro-batch>), empty = a
 * bubble. The text determines the numbers of ranks, stages and micro-batches. where: the file, for
 * errors. The schedule is checked, except for the order of accumulation, which `ascends` records.
 */
tt_status tt_schedule_read_csv(const char *text, size_t n, const char *where, tt_arena *a,
                               tt_schedule **out, tt_error *err);
void tt_schedule_write_csv(const tt_schedule *s, tt_str *out);
/* A schedule of only the forwards of n_micro micro-batches, on the same ranks: for validation. */
tt_schedule *tt_schedule_forward(const tt_schedule *s, int n_micro, tt_arena *a);

/* Checks that the schedule is complete, each action is on its stage's rank and in order, and there
 * is no cycle; bits: also that micro-batches ascend (P5). */
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

/* A simulated run: each rank runs its list in order, and an action starts when its rank is free and
 * its inputs have arrived. */
typedef struct tt_run {
    double makespan;
    double *busy;    /* by rank */
    tt_event *order; /* all actions by (end, rank, position): the global order of P1 */
    int n;
} tt_run;
/* Fails if a rank waits for ever. */
tt_status tt_schedule_run(const tt_schedule *s, const tt_costs *c, tt_arena *a, tt_run *out,
                          tt_error *err);
/* The same without the order: the makespan, and the idle share of all ranks' time. */
tt_status tt_schedule_time(const tt_schedule *s, const tt_costs *c, double *makespan,
                           double *bubble, tt_error *err);
double tt_schedule_bubble(const tt_schedule *s, const tt_costs *c);

/* The classes of values that a micro-batch holds on a stage: values of the forward that I reads
 * (slot), values of the forward that W reads (keep), values of I that W reads (wgrad). */
typedef enum tt_hold { TT_HOLD_SLOT, TT_HOLD_KEEP, TT_HOLD_WGRAD, TT_N_HOLDS } tt_hold;
/* How many micro-batches hold values of this class at once, at most, according to the lists. */
int tt_schedule_in_flight(const tt_schedule *s, int stage, tt_hold hold);

/* ---- drawing ---- */
/* Prints "rank 0: 0F0 0F1 …", one line per rank. */
void tt_schedule_print(const tt_schedule *s, tt_str *out);
/* Draws the run as a self-contained SVG, with one row per rank and one box per action. */
void tt_schedule_draw_svg(const tt_schedule *s, const tt_run *run, tt_str *out);

#endif
