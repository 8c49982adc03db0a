/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_budget.h"
#include <limits.h>
#include <math.h>
#include <string.h>

/* activation_checkpoint.mode budget: every pipeline rank gets the level that takes the least time by the plan
 * and whose plan is within the budget. A level is judged by compiling and planning the training program with it, so
 * what is compared is what runs. All ranks' levels are tried in one program, because a rank's memory
 * depends on its own stages. The modes full and selective are tried, too, and taken where they are faster.
 * With offload auto on a device, levels that offload nothing and levels that choose both together are searched,
 * and the modes are tried with all copies that hide, too; the fastest is taken. */

#define MOST_TRIES 40   /* more than a bisection of the most levels takes */
#define SAMPLES 8       /* levels that are tried where the last one does not fit */
#define MOST_REPAIRS 16 /* of levels that together take more than each took alone */

typedef struct chooser {
    tt_setup *s;
    tt_recompute_choice *c;
    int *level, *way; /* to try next */
    int *n_levels;    /* of that way */
    int *too_much,
        *enough; /* by rank: a level whose plan takes too much, and a higher one that fits;
                                enough -1: none is known */
    double *too_much_bytes, *enough_bytes;
    double *time; /* by rank: of the best choice so far, which is c->level; INFINITY: none */
    double *host; /* … the host memory that it takes */
    double *least
        [2]; /* by rank: the fewest bytes of a choice that offloads nothing; of one that does */
    tt_recompute_cost now;
} chooser;

static double gib_of(double bytes)
{
    return bytes / (1 << 30);
}

/* Is what was tried last faster than the best so far? Of equal ones, the one that takes less host memory and
 * then less of the device's is. */
static bool budget_better(const chooser *k, int r)
{
    const double now[] = {k->now.time[r], k->now.host[r], k->now.bytes[r]},
                 best[] = {k->time[r], k->host[r], k->c->bytes[r]};
    for (size_t i = 0; i < TT_COUNT(now); i++)
        if (now[i] < best[i] || now[i] > best[i])
            return now[i] < best[i];
    return false;
}

static void note_least(chooser *k)
{
    for (int r = 0; r < k->c->n; r++) {
        double *least = &k->least[k->way[r] != TT_CUT_STAYS][r];
        *least = TT_MIN(*least, k->now.bytes[r]);
    }
}

/* Takes the levels that were tried last, where they fit and are faster than the best so far. */
static void budget_take(chooser *k)
{
    note_least(k);
    for (int r = 0; r < k->c->n; r++) {
        const double bytes = k->now.bytes[r];
        if (bytes > k->c->budget[r] || !budget_better(k, r))
            continue;
        k->time[r] = k->now.time[r];
        k->host[r] = k->now.host[r];
        k->c->bytes[r] = bytes;
        k->c->level[r] = k->level[r];
        k->c->way[r] = k->way[r];
        k->c->n_levels[r] = k->n_levels[r];
    }
}

/* Compiles and plans the levels of k->level. */
static tt_status budget_try(chooser *k, tt_error *err)
{
    tt_recompute_opts o;
    tt_arena *own = tt_arena_new();
    k->c->n_plans++;
    tt_setup_recompute_cut(k->s, k->level, k->way, 0, &o);
    const tt_status st = tt_setup_evaluate(k->s, &o, own, &k->now, err);
    tt_arena_free(own);
    return st;
}

static tt_status try_levels(chooser *k, tt_error *err)
{
    TT_TRY(budget_try(k, err));
    budget_take(k);
    return TT_OK;
}

static void set_all(chooser *k, int level, tt_cut_way way)
{
    for (int r = 0; r < k->c->n; r++) {
        k->level[r] = level;
        k->way[r] = way;
    }
}

static void note(chooser *k)
{
    for (int r = 0; r < k->c->n; r++) {
        const int level = k->level[r];
        if (k->now.bytes[r] <= k->c->budget[r]) {
            if (k->enough[r] < 0 || level < k->enough[r]) {
                k->enough[r] = level;
                k->enough_bytes[r] = k->now.bytes[r];
            }
        } else if (k->enough[r] >= 0 ? level < k->enough[r] && level > k->too_much[r]
                                     : level > k->too_much[r]) {
            k->too_much[r] = level;
            k->too_much_bytes[r] = k->now.bytes[r];
        }
    }
}

/* ---- the budgets ---- */

static double budget_of(const tt_activation_checkpoint_config *a, double none, double full)
{
    if (a->memory_gib > 0)
        return a->memory_gib * (1 << 30);
    const double most = none, least = TT_MIN(full, none);
    return a->memory_budget >= 1   ? most /* the ends are exact */
           : a->memory_budget <= 0 ? least
                                   : least + a->memory_budget * (most - least);
}

static void set_budgets(chooser *k, const double *none, const double *full)
{
    tt_recompute_choice *c = k->c;
    const size_t bytes = (size_t)c->n * sizeof(double);
    memcpy(c->none, none, bytes);
    memcpy(c->full, full, bytes);
    for (int r = 0; r < c->n; r++) {
        k->least[0][r] = k->least[1][r] = k->time[r] = (double)INFINITY;
        c->budget[r] = budget_of(&k->s->core.activation_checkpoint, none[r], full[r]);
    }
}

/* Tries the ends of a way: level 0, which computes nothing again, full and selective, which JOINT has in
 * common with HIDDEN. The first way sets the budgets. */
static tt_status try_ends(chooser *k, tt_cut_way way, bool first, tt_error *err)
{
    static const int levels[] = {0, TT_CUT_FULL, TT_CUT_SELECTIVE};
    const size_t n = way == TT_CUT_JOINT ? 1 : TT_COUNT(levels);
    tt_recompute_cost of[TT_COUNT(levels)];
    for (size_t i = 0; i < n; i++) {
        of[i] = k->now = tt_recompute_cost_new(k->s, k->s->arena);
        set_all(k, levels[i], way);
        TT_TRY(budget_try(k, err));
    }
    if (first)
        set_budgets(k, of[0].bytes, of[1].bytes);
    memcpy(k->n_levels, of[0].n_levels, (size_t)k->c->n * sizeof(int));
    for (int r = 0; r < k->c->n; r++) {
        k->too_much[r] = 0;
        k->too_much_bytes[r] = k->enough_bytes[r] = of[0].bytes[r];
        k->enough[r] = of[0].bytes[r] <= k->c->budget[r] ? 0 : -1;
    }
    for (size_t i = 0; i < n; i++) {
        k->now = of[i];
        set_all(k, levels[i], way);
        budget_take(k);
    }
    return TT_OK;
}

/* ---- the search ---- */

/* The level between the two at which the budget would be reached if memory fell evenly; near an end of a
 * long interval, the middle. */
static int between(const chooser *k, int r, bool half)
{
    const int low = k->too_much[r], high = k->enough[r];
    const double fall = k->too_much_bytes[r] - k->enough_bytes[r];
    double part = fall > 0 ? (k->too_much_bytes[r] - k->c->budget[r]) / fall : 0.5;
    if (half)
        part = 0.5;
    const int level = low + (int)ceil(part * (high - low));
    return TT_MIN(TT_MAXV(level, low + 1), high - 1);
}

static bool is_open(const chooser *k, int r)
{
    return k->enough[r] >= 0 && k->enough[r] - k->too_much[r] > 1;
}

static tt_status bisect(chooser *k, tt_error *err)
{
    for (int n = 0; n < MOST_TRIES; n++) {
        bool any = false;
        for (int r = 0; r < k->c->n; r++) {
            any = any || is_open(k, r);
            k->level[r] = is_open(k, r)       ? between(k, r, n % 3 == 2)
                          : k->enough[r] >= 0 ? k->enough[r]
                                              : k->n_levels[r];
        }
        if (!any)
            return TT_OK;
        TT_TRY(try_levels(k, err));
        note(k);
    }
    return TT_OK;
}

/* Brackets each rank's budget between a level that takes too much and one that fits. What recomputing
 * itself takes can make a higher level need more, so levels between are tried if the last does not fit. */
static tt_status bracket(chooser *k, tt_error *err)
{
    for (int i = SAMPLES; i > 0; i--) {
        bool all = true;
        for (int r = 0; r < k->c->n; r++) {
            all = all && k->enough[r] >= 0;
            k->level[r] = k->enough[r] >= 0 ? k->enough[r] : k->n_levels[r] * i / SAMPLES;
        }
        if (all)
            return TT_OK;
        TT_TRY(try_levels(k, err));
        for (int r = 0; r < k->c->n; r++)
            if (k->enough[r] < 0 && k->now.bytes[r] <= k->c->budget[r]) {
                k->enough[r] = k->level[r];
                k->enough_bytes[r] = k->now.bytes[r];
            }
    }
    return TT_OK;
}

/* ---- the end ---- */

/* The fewest bytes of a rank with which it works on all ranks. */
static double largest_least(const chooser *k, int offloads)
{
    double most = 0;
    for (int r = 0; r < k->c->n; r++)
        most = TT_MAXV(most, k->least[offloads][r]);
    return most;
}

/* On a device, tries what may take least memory without offload and with it, whatever the job's offload is. */
static tt_status try_least(chooser *k, tt_error *err)
{
    static const tt_cut_way ways[] = {TT_CUT_STAYS, TT_CUT_JOINT, TT_CUT_MOVED};
    for (size_t w = 0; w < TT_COUNT(ways); w++)
        for (int i = SAMPLES + 1; i > 0; i--) {
            set_all(k, i > SAMPLES ? TT_CUT_FULL : INT_MAX, ways[w]);
            for (int r = 0; i < SAMPLES && r < k->c->n; r++)
                k->level[r] = k->n_levels[r] * i / SAMPLES;
            TT_TRY(budget_try(k, err));
            memcpy(k->n_levels, k->now.n_levels, (size_t)k->c->n * sizeof(int));
            note_least(k);
        }
    return TT_OK;
}

static tt_status refuse(chooser *k, int r, tt_error *err)
{
    const tt_setup *s = k->s;
    const tt_recompute_choice *c = k->c;
    const tt_activation_checkpoint_config *a = &s->core.activation_checkpoint;
    char where[48] = "", apart[96] = "";
    if (c->n > 1)
        snprintf(where, sizeof where, " (on pipeline rank %d)", r);
    if (tt_setup_has_device(s)) {
        TT_TRY(try_least(k, err));
        snprintf(apart, sizeof apart, ", and %.3f GiB with activations in host memory",
                 gib_of(largest_least(k, 1)));
    }
    const bool offload = *apart && a->offload == TT_ACTIVATIONS_STAY;
    return tt_job_fail(
        s->job,
        a->memory_gib > 0 ? "activation_checkpoint.memory_gib"
                          : "activation_checkpoint.memory_budget",
        err,
        "%.3f GiB per rank cannot be reached%s: recomputing all that can be, training takes at "
        "least %.3f GiB%s; lower training.local_batch_size or seq_len, %s%sor use more ranks "
        "(parallelism.data_parallel_shard_degree, tensor_parallel_degree, …)",
        gib_of(c->budget[r]), where, gib_of(largest_least(k, 0)), apart,
        offload ? "set activation_checkpoint.offload \"auto\", " : "",
        a->store_dtype == TT_F32 && s->core.training.mixed_precision_param == TT_F32
            ? "set training.mixed_precision_param \"bfloat16\", "
            : "");
}

/* A rank of a finished choice that takes too much gets its next level, at last what takes least. */
static void next_level(const chooser *k, int r)
{
    tt_recompute_choice *c = k->c;
    if (c->level[r] >= 0 && c->level[r] < c->n_levels[r]) {
        c->level[r]++;
        return;
    }
    c->level[r] = TT_CUT_FULL;
    c->way[r] = tt_setup_offload_way(k->s) == TT_CUT_STAYS ? TT_CUT_STAYS : TT_CUT_MOVED;
}

/* Each rank's level was judged beside other levels of the other ranks, which order the messages; so the
 * choice is judged as a whole, and a rank that now takes too much gets its next level. */
static tt_status budget_settle(chooser *k, tt_error *err)
{
    tt_recompute_choice *c = k->c;
    for (int n = 0; n < MOST_REPAIRS; n++) {
        int over = -1;
        memcpy(k->level, c->level, (size_t)c->n * sizeof(int));
        memcpy(k->way, c->way, (size_t)c->n * sizeof(int));
        TT_TRY(budget_try(k, err));
        for (int r = 0; r < c->n; r++) {
            c->bytes[r] = k->now.bytes[r];
            if (c->bytes[r] <= c->budget[r])
                continue;
            over = r;
            next_level(k, r);
        }
        if (over < 0)
            return TT_OK;
        if (n == MOST_REPAIRS - 1)
            return refuse(k, over, err);
    }
    return TT_OK;
}

static void make(chooser *k, tt_setup *s)
{
    tt_arena *a = s->arena;
    tt_recompute_choice *c = k->c = tt_arena_alloc(a, sizeof *c);
    const size_t n = (size_t)s->pipeline_ranks + 1;
    int **const ints[] = {&c->level, &c->n_levels, &c->way,      &k->level,
                          &k->way,   &k->n_levels, &k->too_much, &k->enough};
    double **const doubles[] = {&c->budget,         &c->bytes,       &c->none,     &c->full,
                                &k->time,           &k->host,        &k->least[0], &k->least[1],
                                &k->too_much_bytes, &k->enough_bytes};
    for (size_t i = 0; i < TT_COUNT(ints); i++)
        *ints[i] = tt_arena_array(a, n, sizeof(int));
    for (size_t i = 0; i < TT_COUNT(doubles); i++)
        *doubles[i] = tt_arena_array(a, n, sizeof(double));
    k->s = s;
    c->n = s->pipeline_ranks;
    s->recompute_choice = c;
}

/* Tries the ends of a way and searches the levels between them. */
static tt_status search_way(chooser *k, tt_cut_way way, bool first, tt_error *err)
{
    TT_TRY(try_ends(k, way, first, err));
    if (way == TT_CUT_HIDDEN) /* the levels of JOINT have its best ones, with fewer copies */
        return TT_OK;
    TT_TRY(bracket(k, err));
    return bisect(k, err);
}

static bool all_fit(const chooser *k)
{
    bool all = true;
    for (int r = 0; r < k->c->n; r++)
        all = all && !isinf(k->time[r]);
    return all;
}

tt_status tt_setup_choose_recompute(tt_setup *s, tt_error *err)
{
    chooser k = {0};
    const tt_cut_way way = tt_setup_offload_way(s);
    make(&k, s);
    TT_TRY(search_way(&k, way == TT_CUT_JOINT ? TT_CUT_STAYS : way, true, err));
    if (way == TT_CUT_JOINT) {
        TT_TRY(search_way(&k, TT_CUT_HIDDEN, false, err));
        TT_TRY(search_way(&k, TT_CUT_JOINT, false, err));
        if (!all_fit(&k)) /* which can take a little less */
            TT_TRY(search_way(&k, TT_CUT_MOVED, false, err));
    }
    for (int r = 0; r < k.c->n; r++)
        if (isinf(k.time[r]))
            return refuse(&k, r, err);
    return budget_settle(&k, err);
}
