/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* ZB-H1 (one chunk) and its interleaved form (Qi et al. 2023, arXiv:2401.10241). The warm-up has
 * one forward more per later rank, and on rank r each W comes r steps after its I, so that every
 * rank holds as many micro-batches as rank 0; the remaining W fill the end. */

void tt_interleaved_zero_bubble(tt_schedule *s, tt_arena *a)
{
    const int p = s->n_ranks, v = s->n_stages / p;
    for (int r = 0; r < p; r++)
        tt_steady(s, r, tt_depth_first(s, r, false, a), tt_depth_first(s, r, true, a),
                  (v - 1) * tt_first_round(s) + p - 1 - r, r);
}
