/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* 1F1B: warm-up forwards, then one forward and one backward in turn, then the remaining backwards
 * (Narayanan et al. 2021, arXiv:2104.04473). The interleaved and zero-bubble schedules use this
 * too. / */

void tt_steady(tt_schedule *s, int rank, const tt_place_in_time *f, const tt_place_in_time *b,
               int warm, int lag)
{
    const int n = s->n_stages / s->n_ranks * s->n_micro;
    warm = TT_MIN(warm, n);
    for (int i = 0; i < warm; i++)
        tt_schedule_push(s, rank, TT_ACTION_F, f[i].stage, f[i].micro);
    for (int i = 0; i < n; i++) {
        if (warm + i < n)
            tt_schedule_push(s, rank, TT_ACTION_F, f[warm + i].stage, f[warm + i].micro);
        tt_schedule_push(s, rank, lag < 0 ? TT_ACTION_B : TT_ACTION_I, b[i].stage, b[i].micro);
        if (lag >= 0 && i >= lag)
            tt_schedule_push(s, rank, TT_ACTION_W, b[i - lag].stage, b[i - lag].micro);
    }
    for (int i = TT_MAXV(n - lag, 0); lag > 0 && i < n; i++)
        tt_schedule_push(s, rank, TT_ACTION_W, b[i].stage, b[i].micro);
}

static int n_rounds(const tt_schedule *s)
{
    return TT_MAXV(s->n_micro / s->n_ranks, 1);
}

int tt_first_round(const tt_schedule *s)
{
    return (s->n_micro + n_rounds(s) - 1) / n_rounds(s);
}

tt_place_in_time *tt_depth_first(const tt_schedule *s, int rank, bool backward, tt_arena *a)
{
    const int p = s->n_ranks, v = s->n_stages / p, n = n_rounds(s);
    tt_place_in_time *out = tt_arena_array(a, (size_t)v * (size_t)s->n_micro, sizeof *out);
    int at = 0, first = 0;
    for (int g = 0; g < n; g++) {
        const int size = s->n_micro / n + (g < s->n_micro % n);
        for (int c = 0; c < v; c++)
            for (int m = first; m < first + size; m++)
                out[at++] = (tt_place_in_time){(backward ? v - 1 - c : c) * p + rank, m};
        first += size;
    }
    return out;
}

void tt_one_f_one_b(tt_schedule *s, tt_arena *a)
{
    for (int r = 0; r < s->n_ranks; r++)
        tt_steady(s, r, tt_depth_first(s, r, false, a), tt_depth_first(s, r, true, a),
                  s->n_ranks - 1 - r, -1);
}
