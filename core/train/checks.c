/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replay.h"

/* debug.check_products: what the checksums of products say. */

static void tell_wrong(const tt_loop *l, const tt_exec_checked *k)
{
    if (k->first)
        tt_log(
            TT_ERROR, "train",
            "step %lld, rank %d, micro-batch %d: a product of %s in \"%s\" does not have the sum "
            "that its operands have (debug.check_products; %lld such parts of products): a "
            "processor, memory or a kernel is faulty",
            (long long)l->step, l->rank.dist.rank, k->micro, k->first->op, k->first->scope,
            (long long)k->sums.wrong);
}

/* Of all ranks. [collective] */
static tt_status take_checked(tt_loop *l, tt_checks *all, tt_error *err)
{
    const tt_exec_checked k = tt_exec_take_checked(l->rank.exec);
    int64_t n[2] = {k.sums.products, k.sums.wrong};
    tell_wrong(l, &k);
    TT_TRY(tt_dist_reduce(&l->rank.dist, n, 2, TT_I64, TT_SUM, err));
    *all = (tt_checks){n[0], n[1]};
    return TT_OK;
}

static tt_status stops(const tt_loop *l, const char *why, tt_error *err)
{
    return TT_FAIL(
        err, TT_ENUMERIC,
        "step %lld: products are wrong on the ranks named above%s. The last checkpoint is "
        "from before this step",
        (long long)l->step, why);
}

tt_status tt_replay_check_products(tt_loop *l, tt_feed *feed, tt_error *err)
{
    const tt_check_products policy = l->s->core.debug.check_products;
    tt_checks all;
    if (policy == TT_CHECK_OFF)
        return TT_OK;
    TT_TRY(take_checked(l, &all, err));
    if (feed && !all.products) {
        (void)tt_job_fail(l->s->job, "debug.check_products", err,
                          "the kernels of backend %s check no product of this job; set it to "
                          "\"off\", or take backend cpu and operands of float32 or bfloat16",
                          l->s->backend.name);
        return TT_EUNSUPPORTED;
    }
    if (!all.wrong)
        return TT_OK;
    if (!feed || policy == TT_CHECK_STOP)
        return stops(l, feed ? "" : ", in the update, which has changed its inputs", err);
    TT_TRY(tt_exec_micro_batches(l->rank.exec, l->step, tt_feed_fill, feed, err));
    TT_TRY(take_checked(l, &all, err));
    if (all.wrong)
        return stops(l, ", and again when they were computed again", err);
    if (l->main)
        tt_log(TT_WARN, "train",
               "step %lld: computed again, all products have their sums, and training goes on",
               (long long)l->step);
    return TT_OK;
}
