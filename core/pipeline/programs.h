/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PROGRAMS_H
#define TT_PROGRAMS_H
#include "pipeline/messages.h"
#include "pipeline/schedule.h"

/* Derives from a schedule each rank's program, messages included, and the slots of its values.
 *
 * P1: let G be all actions by their end in the abstract run, each followed at once by its message.
 * A rank's program is the projection of G on it. A projection of one serial run cannot deadlock,
 * even where each send and receive blocks; both ends get the same order on every pair and group.
 * Neighbouring stages on one rank (where a V turns) pass values locally, without an item. */

typedef enum tt_item_kind {
    TT_ITEM_RUN,
    TT_ITEM_SEND,
    TT_ITEM_RECV,
    TT_ITEM_WAIT /* for the completion of a posted send */
} tt_item_kind;

typedef struct tt_item {
    tt_item_kind kind;
    tt_action action; /* of a message: the action that produces it, F or I (I also stands for B) */
    int peer;         /* pipeline rank */
} tt_item;

typedef struct tt_programs {
    const tt_schedule *schedule;
    tt_item **items; /* by pipeline rank */
    int *n_items;
    bool posted; /* see tt_issue */
} tt_programs;

typedef struct tt_issue {
    /* Posts do not wait: a receive stands right behind its message in G, and a wait for the send
     * n_buffers messages ago before a buffer's next writer (0: no waits).
     * Not posted: n_buffers messages of a directed pair do not wait for their receiver, a receive
     * does wait. So it stands as late as G stays a serial run: before its reader, or before the
     * message that would find the buffers full (0 buffers: right behind its message). */
    bool posted;
    int n_buffers;
} tt_issue;
tt_programs *tt_programs_make(const tt_schedule *s, const tt_run *run, const tt_issue *o,
                              tt_arena *a);
/* Prints "2F0 >2F0@1 <1I0@0 ~2F0@1 …", one line per rank. */
void tt_programs_print(const tt_programs *p, tt_str *out);

/* Simulates programs that are not posted: a receive waits for its message, which takes costs.comm,
 * and a send waits for a free buffer. Gives the makespan. */
tt_status tt_programs_replay(const tt_programs *p, const tt_costs *c, int n_buffers, tt_arena *a,
                             double *makespan, tt_error *err);
/* The idle share of all ranks' time in it. */
tt_status tt_programs_bubble(const tt_programs *p, const tt_costs *c, int n_buffers, tt_arena *a,
                             double *bubble, tt_error *err);

/* ---- slots (R9, P3) ---- */

/* Send buffers, where sends are posted, after the classes of tt_hold. */
enum { TT_HOLD_OUT_F = TT_N_HOLDS, TT_HOLD_OUT_I, TT_N_LIVES };

/* The lifetime of a micro-batch's values of one class on a stage: from the receive (or the local
 * transfer, or the first writer) to the last reader, as positions in the rank's program. */
typedef struct tt_life {
    int hold, stage, micro;
    int first, last, reader; /* reader: of send buffers the send; last: its wait */
    int slot;
} tt_life;
typedef struct tt_slots { /* of one rank */
    tt_life *lives;
    int n;
    int *count; /* [stage * TT_N_LIVES + hold]: slots, which is the most alive at once */
} tt_slots;
void tt_slots_make(const tt_programs *p, int rank, tt_arena *a, tt_slots *out);

/* Checks of posted programs that the last reader of each slot happens before the next writer, in
 * the partial order of one compute queue and one communication queue per rank. events: a post waits
 * for an event of the compute queue; waits: WAIT items join the compute queue with the send. slots:
 * by rank. */
tt_status tt_slots_check(const tt_programs *p, const tt_slots *slots, bool events, bool waits,
                         tt_error *err);

/* The messages of programs, n_values each. */
void tt_programs_messages(const tt_programs *p, int n_values, tt_arena *a, tt_messages *out);

#endif
