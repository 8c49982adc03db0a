/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* Schedules on a V: rank r has stage r on the way down (chunk 0) and stage 2p-1-r on the way up
 * (chunk 1). Steps are written as in the papers: "F0 I1 W1 B0", each for the chunk's next
 * micro-batch; "W" belongs to the oldest I whose W is still missing. */

typedef struct walker {
    tt_schedule *s;
    int rank, stage[2];
    int next[TT_N_ACTIONS][2]; /* micro-batch by kind and chunk; B counts as I, and as W */
    tt_place_in_time *todo;    /* I done, W not */
    int n_todo;
} walker;

static walker zbv_start(tt_schedule *s, int rank, tt_arena *a)
{
    walker w = {
        .s = s, .rank = rank, .stage = {rank, 2 * s->n_ranks - 1 - rank}
    };
    w.todo = tt_arena_array(a, 2 * (size_t)s->n_micro + 1, sizeof *w.todo);
    return w;
}

static void drop(walker *w, int i)
{
    for (w->n_todo--; i < w->n_todo; i++)
        w->todo[i] = w->todo[i + 1];
}

static void oldest_weight(walker *w)
{
    if (!w->n_todo)
        return;
    const tt_place_in_time t = w->todo[0];
    drop(w, 0);
    tt_schedule_push(w->s, w->rank, TT_ACTION_W, t.stage, t.micro);
    w->next[TT_ACTION_W][t.stage == w->stage[1]]++;
}

static void one(walker *w, tt_action_kind kind, int chunk)
{
    const int micro = w->next[kind == TT_ACTION_B ? TT_ACTION_I : kind][chunk]++;
    const int stage = w->stage[chunk];
    if (micro >=
        w->s->n_micro) /* exists only in the longer schedule that this one is cut from (P7) */
        return;
    tt_schedule_push(w->s, w->rank, kind, stage, micro);
    if (kind == TT_ACTION_I)
        w->todo[w->n_todo++] = (tt_place_in_time){stage, micro};
    if (kind == TT_ACTION_B)
        w->next[TT_ACTION_W][chunk]++;
    for (int i = 0; kind == TT_ACTION_W && i < w->n_todo; i++)
        if (w->todo[i].stage == stage && w->todo[i].micro == micro)
            drop(w, i--);
}

static void go(walker *w, const char *steps)
{
    for (; *steps; steps++) {
        if (*steps == ' ')
            continue;
        const bool any = steps[0] == 'W' && (steps[1] < '0' || steps[1] > '1');
        if (any)
            oldest_weight(w);
        else
            one(w,
                *steps == 'F'   ? TT_ACTION_F
                : *steps == 'B' ? TT_ACTION_B
                : *steps == 'I' ? TT_ACTION_I
                                : TT_ACTION_W,
                steps[1] - '0');
        steps += !any;
    }
}

static void repeat(walker *w, int n, const char *steps)
{
    for (int i = 0; i < n; i++)
        go(w, steps);
}

/* ZB-V (Qi et al. 2024, arXiv:2405.15362): the memory of 1F1B, no bubble after the warm-up if F, I
 * and W take equal time. Fewer micro-batches than 2p-1: the schedule of 2p-1 without those that do
 * not exist. */
void tt_zbv(tt_schedule *s, tt_arena *a)
{
    const int p = s->n_ranks, n = TT_MAXV(s->n_micro, 2 * p - 1);
    for (int r = 0; r < p; r++) {
        walker w = zbv_start(s, r, a);
        repeat(&w, 2 * (p - r) - 1, "F0");
        repeat(&w, r, "F1 F0");
        repeat(&w, p - r, "F1 I1 W1");
        while (w.next[TT_ACTION_F][1] < n) {
            if (w.next[TT_ACTION_F][0] < n)
                go(&w, "F0");
            go(&w, "I0 W0 F1 I1 W1");
        }
        repeat(&w, r, "I0 I1");
        repeat(&w, p - r, "I0 W0");
        while (w.next[TT_ACTION_W][1] < n || w.next[TT_ACTION_W][0] < n) {
            if (w.next[TT_ACTION_W][1] < n)
                go(&w, "W1");
            if (w.next[TT_ACTION_W][0] < n)
                go(&w, "W0");
        }
    }
}

/* DualPipeV in its eight published steps (DeepSeek-AI 2025, DualPipe's "cut in half"); a pair that
 * may overlap stands as F, then B. At least 2p micro-batches. */
void tt_dualpipev(tt_schedule *s, tt_arena *a)
{
    const int p = s->n_ranks;
    for (int r = 0; r < p; r++) {
        walker w = zbv_start(s, r, a);
        const int behind = p - r - 1;
        repeat(&w, 2 * behind, "F0");
        repeat(&w, r + 1, "F0 F1");
        repeat(&w, behind, "I1 W F1");
        repeat(&w, s->n_micro - 2 * p + r + 1, "F0 B1 F1 B0");
        repeat(&w, behind, "B1 F1 B0");
        for (int i = 0; i < r + 1; i++) { /* the second half of these splits I from W */
            const int late = i - (r + 1) / 2;
            go(&w, late > 0 || (late == 0 && r % 2) ? "I1" : "B1");
            go(&w, late >= 0 ? "I0" : "B0");
        }
        repeat(&w, behind, "W I0");
        while (w.n_todo)
            go(&w, "W");
    }
}
