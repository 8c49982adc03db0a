/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SCHEDULE_IMPL_H
#define TT_SCHEDULE_IMPL_H
#include "pipeline/schedule.h"

/* Inside of core/pipeline. */

/* Lists are empty, with room for every action. turns: the V map, else stage s is on rank s mod p.
 */
tt_schedule *tt_schedule_new(tt_arena *a, const char *name, int n_ranks, int n_chunks, int n_micro,
                             bool turns);
void tt_schedule_push(tt_schedule *s, int rank, tt_action_kind kind, int stage, int micro);

/* What an action waits for: at most two earlier parts, on its own stage or of a neighbour. */
int tt_action_needs(const tt_schedule *s, const tt_action *a, tt_action out[2]);
/* The neighbour stage that gets the result, -1 = none. */
int tt_action_to(const tt_schedule *s, const tt_action *a);
/* Place of what an action gives (B gives what I gives), in an array of 3 · stages · micro-batches.
 */
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
