/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include "train/replay.h"
#include <string.h>

/* debug.replay_on next: a rank computes the micro-batches of the next rank of an axis, and then its own. Both ranks
 * have the same weights, so what they contribute to sums over the axis must have the same bits (trail.c). The
 * sums themselves need not: they add up contributions in the order of the ranks. The own run comes last, so
 * that training goes on from it. */

typedef struct swapped {
    tt_loop *l;
    tt_feed *own, other;         /* other: the next rank's micro-batches, at this rank's place */
    int next, before;            /* ranks of the world; before: whose next one is this rank */
    int n;                       /* numbers of a trail */
    uint64_t *own_trail, *trail; /* trail: of the other's micro-batches */
    uint64_t *got;               /* of this rank's micro-batches, as the one before has it */
    int64_t *counts[2];          /* by rank, of an exchange: sent, received */
    int64_t *differing;          /* by rank: numbers of own_trail that are not those of got */
} swapped;

/* The rank that is `shift` ahead of a rank on the axis. group: room for the axis's ranks. */
static int rank_ahead(const tt_mesh *m, const tt_atom_list *axis, int rank, int shift, int *group)
{
    const int n = tt_mesh_group(m, rank, axis, group);
    int at = 0;
    while (group[at] != rank)
        at++;
    return group[(at + shift + n) % n];
}

/* n elements to one rank, and n from another. */
static tt_status exchange(const swapped *w, int to, const void *send, int from, void *recv,
                          int64_t n, tt_dtype dtype, tt_error *err)
{
    const tt_dist *d = &w->l->rank.dist;
    for (int r = 0; r < d->world; r++) {
        w->counts[0][r] = r == to ? n : 0;
        w->counts[1][r] = r == from ? n : 0;
    }
    return d->vt->all_to_all(d->all, send, w->counts[0], recv, w->counts[1], dtype, err);
}

static tt_status exchange_array(const swapped *w, tt_arena *a, int32_t *const *mine,
                                int32_t **theirs, int64_t n, tt_error *err)
{
    if (!*mine)
        return TT_OK;
    *theirs = tt_arena_array(a, (size_t)n + 1, sizeof **theirs);
    return exchange(w, w->before, *mine, w->next, *theirs, n, TT_I32, err);
}

static tt_status exchange_batch(const swapped *w, tt_arena *a, const tt_batch *b, tt_batch *out,
                                tt_error *err)
{
    const int64_t n = b->n_tokens;
    *out = *b;
    TT_TRY(exchange(w, w->before, &b->first_token, w->next, &out->first_token, 1, TT_I64, err));
    TT_TRY(exchange_array(w, a, &b->ids, &out->ids, n, err));
    TT_TRY(exchange_array(w, a, &b->labels, &out->labels, n, err));
    TT_TRY(exchange_array(w, a, &b->pos, &out->pos, n, err));
    TT_TRY(exchange_array(w, a, &b->seg, &out->seg, n, err));
    for (int i = 0; b->inputs && i < b->inputs->n; i++) {
        int32_t *mine = b->more[i], *theirs = NULL;
        TT_TRY(exchange_array(w, a, &mine, &theirs,
                              b->inputs->items[i].per_sample ? n / b->seq_len : n, err));
        out->more[i] = theirs;
    }
    return TT_OK;
}

static tt_status run_trail(swapped *w, tt_feed *feed, uint64_t *trail, int *n, tt_error *err)
{
    tt_exec *x = w->l->rank.exec;
    tt_exec_leave_trail(x, tt_atom_list_mask(&tt_mesh_data_axis(&w->l->s->mesh)->atoms), trail);
    const tt_status s = tt_exec_micro_batches(x, w->l->step, tt_feed_fill, feed, err);
    if (s == TT_OK)
        return tt_exec_end_trail(x, n, err);
    tt_exec_leave_trail(x, 0, NULL);
    return s;
}

/* The other's micro-batches, then the own ones. *all: differing numbers of all ranks. */
static tt_status run_both(swapped *w, int64_t *all, tt_error *err)
{
    const tt_dist *d = &w->l->rank.dist;
    int n[2];
    *all = 0;
    TT_TRY(run_trail(w, &w->other, w->trail, &n[0], err));
    TT_TRY(run_trail(w, w->own, w->own_trail, &n[1], err));
    TT_TRY(exchange(w, w->next, w->trail, w->before, w->got, w->n, TT_I64, err));
    if (!n[0] || !n[1])
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "debug.replay_on: rank %d contributes to no sum over %s that another rank could "
            "compute; set it to \"same\"",
            d->rank, tt_mesh_data_axis(&w->l->s->mesh)->name);
    memset(w->differing, 0, (size_t)d->world * sizeof *w->differing);
    for (int i = 0; i < w->n; i++)
        w->differing[d->rank] += w->got[i] != w->own_trail[i];
    TT_TRY(tt_dist_reduce(d, w->differing, d->world, TT_I64, TT_SUM, err));
    for (int r = 0; r < d->world; r++)
        *all += w->differing[r];
    return TT_OK;
}

static void tell_differing(const swapped *w)
{
    const int rank = w->l->rank.dist.rank;
    const char *scope, *op;
    int i = 0;
    if (!w->differing[rank])
        return;
    while (w->got[i] == w->own_trail[i])
        i++;
    op = tt_exec_trail_name(w->l->rank.exec, i, &scope);
    tt_log(
        TT_ERROR, "train",
        "step %lld: rank %d computed the micro-batches of rank %d with other bits than that rank "
        "in %lld contributions to sums, one of them of %s in \"%s\"",
        (long long)w->l->step, w->before, rank, (long long)w->differing[rank], op, scope);
}

/* A rank that is wrong differs twice, from the one before it and from the next one. */
static tt_status name_faulty(const swapped *w, tt_arena *a, tt_error *err)
{
    const tt_mesh *m = &w->l->s->mesh;
    const tt_atom_list *axis = &tt_mesh_data_axis(&w->l->s->mesh)->atoms;
    const int world = w->l->rank.dist.world;
    int *group = tt_arena_array(a, (size_t)world, sizeof *group);
    bool *twice = tt_arena_array(a, (size_t)world, sizeof *twice),
         *seen = tt_arena_array(a, (size_t)world, sizeof *seen), some = false, others = false;
    for (int r = 0; r < world; r++) {
        const int next = rank_ahead(m, axis, r, 1, group);
        twice[r] = w->differing[r] && w->differing[next];
        seen[r] = w->differing[r] || w->differing[next];
    }
    for (int r = 0; r < world; r++) {
        some |= twice[r];
        others |= seen[r] && !twice[r];
    }
    const bool clear = some && others;
    tt_str ranks = {0};
    tt_replay_print_ranks(clear ? twice : seen, world, &ranks);
    const tt_status s = TT_FAIL(
        err, TT_ENUMERIC,
        "step %lld: computed on two ranks each, twice, and their bits differ: %s %s; "
        "train without that machine. The last checkpoint is from before this step",
        (long long)w->l->step, clear ? "both neighbours contradict rank" : "one is wrong of rank",
        tt_str_get(&ranks));
    tt_str_free(&ranks);
    return s;
}

static tt_status compare_ranks(swapped *w, tt_arena *a, tt_error *err)
{
    int64_t n;
    TT_TRY(run_both(w, &n, err));
    if (!n)
        return TT_OK;
    tell_differing(w);
    TT_TRY(run_both(w, &n, err));
    if (n)
        return name_faulty(w, a, err);
    if (w->l->main)
        tt_log(TT_WARN, "train",
               "step %lld: computed on both ranks again, the bits are equal, and training goes on "
               "from them; steps that were not computed again may have been wrong without a sign",
               (long long)w->l->step);
    return TT_OK;
}

static tt_status open_swapped(tt_loop *l, tt_feed *feed, tt_arena *a, swapped *w, tt_error *err)
{
    const tt_atom_list *axis = &tt_mesh_data_axis(&l->s->mesh)->atoms;
    const size_t world = (size_t)l->rank.dist.world, m = (size_t)l->s->micro_batches;
    tt_batch *micro = tt_arena_array(a, m, sizeof *micro);
    int *group = tt_arena_array(a, world, sizeof *group);
    *w = (swapped){.l = l,
                   .own = feed,
                   .other = *feed,
                   .next = rank_ahead(&l->s->mesh, axis, l->rank.dist.rank, 1, group),
                   .before = rank_ahead(&l->s->mesh, axis, l->rank.dist.rank, -1, group),
                   .n = tt_exec_trail_length(l->rank.exec)};
    w->own_trail = tt_arena_array(a, 3 * (size_t)w->n + 1, sizeof *w->trail);
    w->trail = w->own_trail + w->n;
    w->got = w->trail + w->n;
    w->counts[0] = tt_arena_array(a, 3 * world, sizeof *w->differing);
    w->counts[1] = w->counts[0] + world;
    w->differing = w->counts[1] + world;
    w->other.micro = micro;
    for (size_t i = 0; i < m; i++)
        TT_TRY(exchange_batch(w, a, &feed->micro[i], &micro[i], err));
    return TT_OK;
}

tt_status tt_replay_on_next(tt_loop *l, tt_feed *feed, tt_error *err)
{
    swapped w;
    tt_arena *a = tt_arena_new();
    tt_status s = open_swapped(l, feed, a, &w, err);
    if (s == TT_OK)
        s = compare_ranks(&w, a, err);
    tt_arena_free(a);
    return s;
}
