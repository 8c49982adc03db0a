/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* GPipe and its form with several stages per rank: every stage runs all micro-batches at once. */

/* All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). The micro-batches of the
 * backwards ascend too (P5). */
void tt_gpipe(tt_schedule *s, tt_arena *a)
{
    (void)a;
    for (int r = 0; r < s->n_ranks; r++)
        for (int b = 0; b < 2; b++)
            for (int m = 0; m < s->n_micro; m++)
                tt_schedule_push(s, r, b ? TT_ACTION_B : TT_ACTION_F, r, m);
}

/* The same with several stages per rank: breadth first, the backwards from the last stage on
 * (Lamy-Poirier 2022, arXiv:2211.05953). */
void tt_looped_bfs(tt_schedule *s, tt_arena *a)
{
    const int p = s->n_ranks, v = s->n_stages / p;
    (void)a;
    for (int r = 0; r < p; r++) {
        for (int c = 0; c < v; c++)
            for (int m = 0; m < s->n_micro; m++)
                tt_schedule_push(s, r, TT_ACTION_F, c * p + r, m);
        for (int c = v - 1; c >= 0; c--)
            for (int m = 0; m < s->n_micro; m++)
                tt_schedule_push(s, r, TT_ACTION_B, c * p + r, m);
    }
}
