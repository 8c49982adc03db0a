/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SCHEDULE_IMPL_H
#define TT_SCHEDULE_IMPL_H
#include "pipeline/schedule.h"

/* Shared by the files of core/pipeline. */

void tt_schedule_push(tt_schedule *s, int rank, tt_action_kind kind, int stage, int micro);

/* The actions that an action waits for: at most two, on its own stage or a neighbouring one. */
int tt_action_needs(const tt_schedule *s, const tt_action *a, tt_action out[2]);
/* The neighbouring stage that receives the result, -1 = none. */
int tt_action_to(const tt_schedule *s, const tt_action *a);
/* The index of an action's result in an array of 3 · stages · micro-batches (B has the result of
 * I). / */
static inline size_t tt_action_key(const tt_schedule *s, const tt_action *a)
{
    const size_t part = a->kind == TT_ACTION_F ? 0 : a->kind == TT_ACTION_W ? 2 : 1;
    return (part * (size_t)s->n_stages + (size_t)a->stage) * (size_t)s->n_micro + (size_t)a->micro;
}

/* A rank's stages and micro-batches round by round, in a round chunk by chunk, in a chunk
 * micro-batch by micro-batch. Rounds: max(1, m / p), as even as possible, larger first (P7). */
typedef struct tt_place_in_time {
    int stage, micro;
} tt_place_in_time;
tt_place_in_time *tt_depth_first(const tt_schedule *s, int rank, bool backward, tt_arena *a);
int tt_first_round(const tt_schedule *s);
/* `warm` forwards, then one forward one backward, then the remaining backwards. lag < 0: backwards
 * are B; else I, each W `lag` steps after its I, and what is left of W at the end. */
void tt_steady(tt_schedule *s, int rank, const tt_place_in_time *f, const tt_place_in_time *b,
               int warm, int lag);

typedef void tt_schedule_generator(tt_schedule *s, tt_arena *a);
tt_schedule_generator tt_gpipe, tt_one_f_one_b, tt_interleaved, tt_looped_bfs,
    tt_interleaved_zero_bubble, tt_zbv, tt_dualpipev;

#endif
