/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replay.h"
#include <stdlib.h>

/* debug.replay_interval: what the micro-batches of a step leave behind, sums of gradients and of losses, is
 * computed a second time from the same inputs and parameters. The bits must be equal (R11), so a difference
 * is a fault of a processor, of memory, of a kernel or of a transport, which no error has reported (silent
 * data corruption). A third time then decides: if each of its sums has the bits of an earlier run, training
 * goes on from it. Of the epilogue and the update each instruction runs again (exec/twice.c). */

typedef struct replay {
    tt_loop *l;
    tt_feed *feed;
    int n;             /* states of the program */
    uint64_t *hash[3]; /* of each sum among them, by run */
} replay;

static bool replay_is_due(const tt_loop *l)
{
    const int64_t every = l->s->core.debug.replay_interval;
    return every && l->step % every == 0;
}

static tt_status hash_sums(replay *r, int run, tt_error *err)
{
    for (int i = 0; i < r->n; i++)
        TT_TRY(tt_exec_hash_state(r->l->rank.exec, i, &r->hash[run][i], err));
    return TT_OK;
}

static tt_status run_again(replay *r, int run, tt_error *err)
{
    TT_TRY(tt_exec_micro_batches(r->l->rank.exec, r->l->step, tt_feed_fill, r->feed, err));
    return hash_sums(r, run, err);
}

/* How many sums of a run differ from those of each earlier one; *first: one of them. */
static int64_t differing(const replay *r, int run, int *first)
{
    int64_t n = 0;
    for (int i = r->n; i-- > 0;) {
        bool equal = false;
        for (int k = 0; k < run; k++)
            equal |= r->hash[k][i] == r->hash[run][i];
        if (!equal) {
            *first = i;
            n++;
        }
    }
    return n;
}

/* Says what this rank saw. Sums that ranks have added up differ on several of them. */
static void tell(const replay *r, int64_t mine, int first)
{
    if (mine)
        tt_log(TT_ERROR, "train",
               "step %lld computed again from the same inputs has other bits in %lld sums, one of "
               "them %s: a processor, memory, a kernel or a link of this rank, or of one whose "
               "gradients it adds, is faulty",
               (long long)r->l->step, (long long)mine, tt_exec_state_name(r->l->rank.exec, first));
}

static tt_status not_fit(const tt_loop *l, tt_error *err)
{
    return TT_FAIL(err, TT_ENUMERIC,
                   "step %lld: computed three times, with other bits the third time too; the "
                   "machine of the rank named above is not fit for training. The last checkpoint "
                   "is from before this step",
                   (long long)l->step);
}

static tt_status compare_runs(replay *r, tt_error *err)
{
    int first = 0;
    TT_TRY(hash_sums(r, 0, err));
    TT_TRY(run_again(r, 1, err));
    int64_t n = differing(r, 1, &first);
    tell(r, n, first);
    TT_TRY(tt_dist_reduce(&r->l->rank.dist, &n, 1, TT_I64, TT_SUM, err));
    if (!n)
        return TT_OK;
    TT_TRY(run_again(r, 2, err));
    n = differing(r, 2, &first);
    TT_TRY(tt_dist_reduce(&r->l->rank.dist, &n, 1, TT_I64, TT_SUM, err));
    if (n)
        return not_fit(r->l, err);
    if (r->l->main)
        tt_log(TT_WARN, "train",
               "step %lld: the third run agrees with another one, and training goes on from it; "
               "steps that were not computed again may have been wrong without a sign",
               (long long)r->l->step);
    return TT_OK;
}

static tt_status replay_here(tt_loop *l, tt_feed *feed, tt_error *err)
{
    replay r = {.l = l, .feed = feed, .n = tt_exec_n_states(l->rank.exec)};
    uint64_t *all = calloc(3 * (size_t)r.n + 1, sizeof *all);
    if (!all)
        return TT_FAIL(err, TT_ENOMEM, "no memory to compare a step with itself");
    for (int i = 0; i < 3; i++)
        r.hash[i] = all + (size_t)i * (size_t)r.n;
    const tt_status s = compare_runs(&r, err);
    free(all);
    return s;
}

tt_status tt_loop_micro_batches(tt_loop *l, tt_feed *feed, tt_error *err)
{
    const bool due = replay_is_due(l), next = l->s->core.debug.replay_on == TT_REPLAY_NEXT;
    if (due && next)
        TT_TRY(tt_replay_on_next(l, feed, err));
    else
        TT_TRY(tt_exec_micro_batches(l->rank.exec, l->step, tt_feed_fill, feed, err));
    if (due && !next)
        TT_TRY(replay_here(l, feed, err));
    TT_TRY(tt_replay_check_products(l, feed, err));
    tt_exec_run_twice(l->rank.exec, due);
    return TT_OK;
}

tt_status tt_loop_replay_ends(tt_loop *l, tt_error *err)
{
    const tt_exec_differing *d = tt_exec_differed(l->rank.exec);
    int64_t n[2] = {d->n, d->unsettled};
    TT_TRY(tt_replay_check_products(l, NULL, err));
    if (!replay_is_due(l))
        return TT_OK;
    tt_exec_run_twice(l->rank.exec, false);
    if (d->n)
        tt_log(TT_ERROR, "train",
               "the update of step %lld: %lld ops computed again from the same inputs have other "
               "bits, the first of them %s in \"%s\": a processor, memory, a kernel or a link of "
               "rank %d, or of one whose numbers it reads, is faulty",
               (long long)l->step, (long long)d->n, d->first->op, d->first->scope,
               l->rank.dist.rank);
    TT_TRY(tt_dist_reduce(&l->rank.dist, n, 2, TT_I64, TT_SUM, err));
    if (n[1])
        return not_fit(l, err);
    if (n[0] && l->main)
        tt_log(TT_WARN, "train",
               "the update of step %lld: two of three runs agree on each op, and training goes on "
               "from them",
               (long long)l->step);
    return tt_replay_compare_replicas(l, err);
}
