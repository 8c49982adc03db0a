/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* One training step: fetch the batch, count its tokens, run the micro-batches, compute and clip the
 * gradient norm, update the parameters. */

/* One reduction gives the number of counted tokens of the global batch, and whether every rank
 * could read its data. */
static tt_status count_tokens(tt_loop *l, const tt_batch *micro, tt_status fetched,
                              int64_t *counted, tt_error *err)
{
    int64_t v[2] = {0, fetched != TT_OK};
    for (int64_t m = 0; fetched == TT_OK && l->rank.counts && m < l->s->micro_batches; m++)
        v[0] += micro[m].counted;
    if (l->rank.dist.vt) {
        tt_error e = {0};
        const tt_status s = l->rank.dist.vt->all_reduce(l->rank.dist.all, v, 2, TT_I64, TT_SUM, &e);
        if (fetched == TT_OK && s != TT_OK)
            *err = e;
        if (fetched == TT_OK && s != TT_OK)
            return s;
    }
    if (fetched != TT_OK)
        return fetched;
    if (v[1])
        TT_TRY(tt_loop_settle(l, err)); /* the failure comes after that step */
    if (v[1])
        return TT_FAIL(err, TT_ECOMM, "another rank could not read its data");
    if (!v[0] && l->main)
        tt_log(TT_WARN, "train",
               "step %lld: no token of the batch is counted (all labels are ignored), so the step "
               "has no loss and a zero gradient",
               (long long)l->step);
    *counted = v[0];
    return TT_OK;
}

/* What the loss is divided by: the number of counted tokens, or the sum of their weights over the global
 * batch, added in the order of the ranks. */
static tt_status sum_weights(tt_loop *l, const tt_batch *micro, int64_t counted, double *weight,
                             tt_error *err)
{
    double sum = 0;
    *weight = (double)counted;
    if (!l->s->loss_weights)
        return TT_OK;
    for (int64_t m = 0; l->rank.counts && m < l->s->micro_batches; m++)
        sum += micro[m].weight;
    TT_TRY(tt_dist_reduce(&l->rank.dist, &sum, 1, TT_F64, TT_SUM, err));
    if (counted && !(sum > 0) && l->main)
        tt_log(
            TT_WARN, "train",
            "step %lld: the weights of the batch's tokens are all 0, so the step has no loss and "
            "a zero gradient",
            (long long)l->step);
    *weight = sum;
    return TT_OK;
}

/* Steps in a row that may be skipped: then the weights themselves are likely to be the cause. */
#define MOST_SKIPPED 100

/* Gradients that overflow with a loss scale are no error: the program has halved the scale. */
static bool overflows(const tt_loop *l, double loss)
{
    const tt_loss_scale *s = l->s->graph->loss_scale;
    return s && s->window && isfinite(loss) && !isfinite(l->norm) &&
           l->loss_scale > TT_LEAST_LOSS_SCALE;
}

static const char *name_of_number(double x)
{
    return isnan(x) ? "NaN" : "Inf";
}

/* The program has not updated. loss: its sum. Says why the step was skipped. False: that is an error. */
static bool step_skips(tt_loop *l, double loss)
{
    const tt_training_config *t = &l->s->core.training;
    const long long step = l->flight.step;
    const bool finite = isfinite(loss) && isfinite(l->norm), overflow = overflows(l, loss);
    if (!overflow && !finite && !t->skip_nonfinite)
        return false;
    l->since.skipped++;
    l->skipped_in_row++;
    l->since.any_skipped = true;
    if (!l->main)
        return true;
    if (overflow)
        tt_log(TT_INFO, "train",
               "step %lld: gradients overflow in float16 with the loss scale %g, so the step is "
               "skipped; the next scale is %g",
               step, l->loss_scale, fmax(l->loss_scale / 2, TT_LEAST_LOSS_SCALE));
    else if (finite)
        tt_log(TT_WARN, "train",
               "step %lld is skipped: grad_norm is %g, and training.max_grad_norm_skip is %g", step,
               l->norm, t->max_grad_norm_skip);
    else
        tt_log(TT_WARN, "train", "step %lld is skipped: %s is %s (training.skip_nonfinite)", step,
               isfinite(loss) ? "grad_norm" : "loss",
               name_of_number(isfinite(loss) ? l->norm : loss));
    return true;
}

/* The numbers of the step in flight. The program computed whether they are finite, and did not update
 * the parameters if they are not, unless the numbers are late: so this is the only place where the host
 * looks at them. */
static tt_status read_metrics(tt_loop *l, tt_error *err)
{
    const tt_exec *x = l->rank.exec;
    const int64_t counted = l->flight.counted;
    const double sum = tt_exec_metric(x, TT_METRIC_LOSS), weight = l->flight.weight;
    l->loss = weight > 0 ? sum / weight : (double)NAN; /* no counted token: no loss */
    l->loss_max = counted ? tt_exec_metric(x, TT_METRIC_LOSS_MAX) : (double)NAN;
    l->norm = fabs(tt_exec_metric(x, TT_METRIC_NORM)); /* a NaN without a sign */
    l->loss_scale = tt_exec_metric(x, TT_METRIC_LOSS_SCALE);
    tt_loop_numbers_add(l, sum);
    if (tt_exec_metric(x, TT_METRIC_OK) > 0) {
        l->skipped_in_row = 0;
        return TT_OK;
    }
    const bool skips = step_skips(l, sum);
    if (skips && l->skipped_in_row < MOST_SKIPPED)
        return TT_OK;
    if (skips)
        return TT_FAIL(err, TT_ENUMERIC,
                       "step %lld: %d steps in a row were skipped; lower optimizer.lr, or raise "
                       "training.max_grad_norm_skip if it is set",
                       (long long)l->flight.step, MOST_SKIPPED);
    TT_TRY(tt_exec_overflow(x, err));
    return TT_FAIL(
        err, TT_ENUMERIC,
        "step %lld: %s is %s; lower optimizer.lr, or run with --debug.detect_nan true to name the "
        "first op",
        (long long)l->flight.step, isfinite(sum) ? "grad_norm" : "loss",
        name_of_number(isfinite(sum) ? l->norm : sum));
}

static tt_status take_numbers(tt_loop *l, tt_error *err)
{
    const int64_t t0 = tt_now_ns(), tokens = l->flight.samples * l->s->core.training.seq_len;
    l->flight.on = false;
    TT_TRY(tt_exec_finish_metrics(l->rank.exec, err));
    TT_TRY(tt_loop_take_measures(l, err));
    TT_TRY(read_metrics(l, err));
    l->t.optimizer += tt_seconds_since(t0);
    l->t.comm += tt_exec_comm_seconds(l->rank.exec);
    int n_axes;
    const tt_exec_axes *axes = tt_exec_comm_axes(l->rank.exec, &n_axes);
    for (int i = 0; i < n_axes; i++)
        l->t.comm_axes[i] += 1e-9 * (double)axes[i].ns;
    l->known_step = l->flight.step;
    l->epoch = l->flight.epoch;
    l->lr = l->flight.lr;
    l->tokens_seen += tokens;
    l->tokens_since += tokens;
    l->samples_seen += l->flight.samples;
    l->samples_since += l->flight.samples;
    l->step_tokens = tokens;
    tt_loop_tell_epoch(l);
    return TT_OK;
}

tt_status tt_loop_settle(tt_loop *l, tt_error *err)
{
    if (!l->flight.on)
        return TT_OK;
    TT_TRY(take_numbers(l, err));
    return tt_loop_log(l, err);
}

static double learning_rate(const tt_loop *l)
{
    const int64_t rewarm = l->began_step ? l->s->rate.rewarm_steps : 0,
                  since = l->step - l->began_step, from = l->schedule_from;
    const double rises = since < rewarm ? (double)since / (double)rewarm : 1.0;
    return l->lr_base * tt_setup_lr_factor(l->s, l->step - 1 - from, l->steps - from) * rises;
}

tt_status tt_loop_step(tt_loop *l, tt_error *err)
{
    tt_exec *x = l->rank.exec;
    const tt_batch *micro = NULL;
    tt_flight f = {.on = true, .step = l->step, .samples = tt_loop_step_samples(l)};
    int64_t t0 = tt_now_ns();
    const tt_status fetched = tt_stream_next(l->stream, &micro, &f.epoch, err);
    l->t.data += tt_seconds_since(t0);
    TT_TRY(count_tokens(l, micro, fetched, &f.counted, err));
    TT_TRY(sum_weights(l, micro, f.counted, &f.weight, err));
    l->next_sample += l->step_samples = f.samples;

    t0 = tt_now_ns();
    f.lr = learning_rate(l);
    tt_exec_set_scalar(x, TT_SCALAR_INV_TOKENS, f.weight > 0 ? 1.0 / f.weight : 1.0);
    tt_exec_set_scalar(x, TT_SCALAR_INV_MICRO, 1.0 / (double)l->s->micro_batches);
    tt_exec_set_scalar(x, TT_SCALAR_LR, f.lr);
    tt_feed feed = {micro, l->rank.data_rank * l->s->local * l->s->core.training.seq_len,
                    l->s->token_order, (int)l->s->core.training.intra_layer_micro_batch};
    tt_exec_count_from(x, l->optimizer_from);
    f.measured = tt_loop_measures(l, l->step);
    tt_exec_measure(x, f.measured);
    if (l->s->early_step) /* the backward writes parameters */
        tt_loop_wait_staged(l);
    TT_TRY(tt_loop_micro_batches(l, &feed, err));
    l->t.forward_backward += tt_seconds_since(t0);
    TT_TRY(tt_loop_settle(l, err)); /* of the step before */
    TT_TRY(tt_loop_hooks_backward(l, err));

    if (l->s->graph->loss_scale || l->s->graph->skipped) /* the epilogue writes them */
        tt_loop_wait_staged(l);
    t0 = tt_now_ns();
    TT_TRY(tt_exec_epilogue(x, err));
    l->t.optimizer += tt_seconds_since(t0);
    tt_loop_wait_staged(l);

    t0 = tt_now_ns();
    TT_TRY(tt_exec_update(x, err));
    TT_TRY(tt_loop_replay_ends(l, err));
    l->t.optimizer += tt_seconds_since(t0);
    l->flight = f;
    return l->rank.late && !f.measured ? TT_OK : take_numbers(l, err);
}
