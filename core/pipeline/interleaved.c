/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* 1F1B with several stages (chunks) per rank, which take turns (Narayanan et al. 2021,
 * arXiv:2104.04473). The warm-up reaches the last chunk, plus two forwards per later rank. With one
 * chunk it is 1F1B. */
void tt_interleaved(tt_schedule *s, tt_arena *a)
{
    const int p = s->n_ranks, v = s->n_stages / p;
    if (v == 1) {
        tt_one_f_one_b(s, a);
        return;
    }
    for (int r = 0; r < p; r++)
        tt_steady(s, r, tt_depth_first(s, r, false, a), tt_depth_first(s, r, true, a),
                  (v - 1) * tt_first_round(s) + 2 * (p - 1 - r), -1);
}
