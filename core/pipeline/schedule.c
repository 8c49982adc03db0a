/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"
#include <ctype.h>
#include <string.h>
#include <ttrun/option.h>

/* Names of schedules and the maps of stages to ranks. Each family of schedules has its own file. */

typedef struct known {
    tt_schedule_kind kind;
    tt_schedule_generator *generate;
    int micro_per_rank; /* the least number of micro-batches per rank */
} known;

static const known schedules[] = {
    {{"1F1B", false, 1, 1, 1},                              tt_one_f_one_b,             0},
    {{"GPipe", false, 1, 1, 1},                             tt_gpipe,                   0},
    {{"Interleaved1F1B", false, 1, TT_MAX_STAGES, 2},       tt_interleaved,             0},
    {{"InterleavedZeroBubble", false, 1, TT_MAX_STAGES, 2}, tt_interleaved_zero_bubble, 0},
    {{"ZBVZeroBubble", true, 2, 2, 2},                      tt_zbv,                     0},
    {{"DualPipeV", true, 2, 2, 2},                          tt_dualpipev,               2},
    {{"LoopedBFS", false, 1, TT_MAX_STAGES, 2},             tt_looped_bfs,              0},
};

/* Other names of the schedules: in torch before 2.6, in torchtitan's files of 2025, in papers. */
static const char *const aliases[][2] = {
    {"FlexibleInterleaved1F1B", "Interleaved1F1B"      },
    {"Interleaved",             "Interleaved1F1B"      },
    {"ZB1P",                    "InterleavedZeroBubble"},
    {"ZeroBubble",              "InterleavedZeroBubble"},
    {"ZBV",                     "ZBVZeroBubble"        },
    {"BFS",                     "LoopedBFS"            },
};

static bool same_name(const char *x, const char *y)
{
    if (!strncmp(x, "Schedule", 8)) /* torch's class names */
        x += 8;
    for (;; x++, y++) {
        while (*x == '_')
            x++;
        if (tolower((unsigned char)*x) != tolower((unsigned char)*y))
            return false;
        if (!*x)
            return true;
    }
}

static const known *find(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(aliases); i++)
        if (same_name(name, aliases[i][0]))
            name = aliases[i][1];
    for (size_t i = 0; i < TT_COUNT(schedules); i++)
        if (same_name(name, schedules[i].kind.name))
            return &schedules[i];
    return NULL;
}

static tt_status unknown(const char *name, tt_error *err)
{
    char all[256] = "";
    size_t n = 0;
    for (size_t i = 0; i < TT_COUNT(schedules); i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "",
                              schedules[i].kind.name);
    return TT_FAIL(err, TT_EINVAL, "unknown pipeline schedule \"%s\" (known: %s)", name, all);
}

tt_status tt_schedule_find(const char *name, const tt_schedule_kind **out, tt_error *err)
{
    const known *k = find(name);
    if (!k)
        return unknown(name, err);
    *out = &k->kind;
    return TT_OK;
}

/* Makes a schedule with empty lists that have room for every action. turns: stages are mapped as a
 * V; else stage s is on rank s mod p. */
static tt_schedule *schedule_new(tt_arena *a, const char *name, int n_ranks, int n_chunks,
                                 int n_micro, bool turns)
{
    tt_schedule *s = tt_arena_alloc(a, sizeof *s);
    s->name = tt_arena_str(a, name);
    s->n_ranks = n_ranks;
    s->n_stages = n_ranks * n_chunks;
    s->n_micro = n_micro;
    s->actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->actions);
    s->n_actions = tt_arena_array(a, (size_t)n_ranks, sizeof *s->n_actions);
    s->stage_rank = tt_arena_array(a, (size_t)s->n_stages, sizeof *s->stage_rank);
    for (int r = 0; r < n_ranks; r++)
        s->actions[r] =
            tt_arena_array(a, 3 * (size_t)n_chunks * (size_t)n_micro, sizeof **s->actions);
    for (int i = 0; i < s->n_stages; i++)
        s->stage_rank[i] = turns && i >= n_ranks ? 2 * n_ranks - 1 - i : i % n_ranks;
    return s;
}

static tt_status check_sizes(const known *k, int n_ranks, int n_chunks, int n_micro, tt_error *err)
{
    if (n_ranks < 1 || n_micro < 1)
        return TT_FAIL(err, TT_EINVAL, "a schedule needs a rank and a micro-batch, got %d and %d",
                       n_ranks, n_micro);
    if (n_chunks < k->kind.min_chunks || n_chunks > k->kind.max_chunks) {
        if (k->kind.min_chunks == k->kind.max_chunks)
            return TT_FAIL(err, TT_EINVAL, "%s has %d stage%s per rank, not %d", k->kind.name,
                           k->kind.min_chunks, k->kind.min_chunks > 1 ? "s" : "", n_chunks);
        return TT_FAIL(err, TT_EINVAL, "%s has %d to %d stages per rank, not %d", k->kind.name,
                       k->kind.min_chunks, k->kind.max_chunks, n_chunks);
    }
    if (n_ranks > TT_MAX_STAGES / n_chunks)
        return TT_FAIL(err, TT_EINVAL, "%d stages on each of %d ranks are more than %d", n_chunks,
                       n_ranks, TT_MAX_STAGES);
    if (n_micro > TT_MAX_MICRO)
        return TT_FAIL(err, TT_EINVAL, "%d micro-batches are more than %d", n_micro, TT_MAX_MICRO);
    if (n_micro < k->micro_per_rank * n_ranks)
        return TT_FAIL(
            err, TT_EINVAL, "%s needs at least %d micro-batches (%d for each of %d ranks), got %d",
            k->kind.name, k->micro_per_rank * n_ranks, k->micro_per_rank, n_ranks, n_micro);
    return TT_OK;
}

tt_status tt_schedule_make(const char *name, int n_ranks, int n_chunks, int n_micro, tt_arena *a,
                           tt_schedule **out, tt_error *err)
{
    const known *k = find(name);
    if (!k)
        return unknown(name, err);
    if (n_chunks == 0)
        n_chunks = k->kind.usual_chunks;
    TT_TRY(check_sizes(k, n_ranks, n_chunks, n_micro, err));
    tt_schedule *s = schedule_new(a, k->kind.name, n_ranks, n_chunks, n_micro, k->kind.turns);
    k->generate(s, a);
    TT_TRY(tt_schedule_check(s, true, err));
    s->ascends = true;
    *out = s;
    return TT_OK;
}

tt_schedule *tt_schedule_forward(const tt_schedule *s, int n_micro, tt_arena *a)
{
    tt_schedule *f = schedule_new(a, s->name, s->n_ranks, s->n_stages, n_micro, false);
    f->n_stages = s->n_stages;
    f->ascends = true;
    for (int i = 0; i < s->n_stages; i++)
        f->stage_rank[i] = s->stage_rank[i];
    for (int m = 0; m < n_micro; m++)
        for (int i = 0; i < s->n_stages; i++)
            tt_schedule_push(f, s->stage_rank[i], TT_ACTION_F, i, m);
    return f;
}
