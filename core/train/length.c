/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* How long a run is: training.steps, or epochs of its data, whose samples are counted when the loader
 * is open. */

static tt_epochs epochs_of(const tt_setup *s, int64_t n_samples)
{
    return (tt_epochs){n_samples, s->global_batch};
}

/* The number of epochs that end the run; dataloader.infinite false alone is one. */
static double total_epochs(const tt_setup *s)
{
    const double n = s->core.training.num_train_epochs;
    return isnan(n) ? 1 : n;
}

/* The steps of a run that has done `step` steps and taken `seen` samples. */
static tt_status count_steps(const tt_setup *s, int64_t n_samples, int64_t step, int64_t seen,
                             int64_t *out, tt_error *err)
{
    const tt_training_config *t = &s->core.training;
    const tt_epochs e = epochs_of(s, n_samples);
    int64_t end;
    if (tt_epochs_samples(&e, total_epochs(s), &end, err) != TT_OK)
        return tt_job_fail(s->job, "training.num_train_epochs", err, "%s", err->text);
    const int64_t steps = step + tt_epochs_steps(&e, seen, end);
    const bool bounded = isnan(t->num_train_epochs) && t->steps != INT64_MIN;
    *out = bounded ? TT_MIN(steps, TT_MAXV(t->steps, step)) : steps;
    return TT_OK;
}

tt_status tt_loop_derive_steps(const tt_setup *s, int64_t n_samples, tt_error *err)
{
    char text[32];
    int64_t steps;
    if (!tt_setup_by_epoch(s) || n_samples < 1)
        return TT_OK;
    TT_TRY(count_steps(s, n_samples, 0, 0, &steps, err));
    snprintf(text, sizeof text, "%lld", (long long)steps);
    return tt_job_derive(s->job, "training.steps", text,
                         isnan(s->core.training.num_train_epochs) ? "dataloader.infinite"
                                                                  : "training.num_train_epochs",
                         err);
}

/* Ranks that count different numbers of samples would take different numbers of steps. [collective] */
static tt_status agree_on(tt_dist *d, int64_t n, tt_error *err)
{
    int64_t v[2] = {n, -n};
    TT_TRY(tt_dist_reduce(d, v, 2, TT_I64, TT_MAX, err));
    if (v[0] == -v[1])
        return TT_OK;
    return TT_FAIL(
        err, TT_EINVAL,
        "the ranks' dataloaders have %lld to %lld samples: give all ranks the same files",
        (long long)-v[1], (long long)v[0]);
}

/* A step of weights alone ends a run, and begins another one. */
static tt_status check_states(const tt_loop *l, tt_error *err)
{
    if (!l->weights_alone || l->step >= l->steps)
        return TT_OK;
    return TT_FAIL(err, TT_ENOTFOUND,
                   "step %lld was saved without the optimizer's states "
                   "(checkpoint.last_save_model_only), so the run cannot go on from there to step "
                   "%lld: name it as checkpoint.initial_load_path of a run in another dump_folder, "
                   "or begin the states anew with checkpoint.exclude_from_loading [\"optimizer\"]",
                   (long long)l->step, (long long)l->steps);
}

/* each: steps of an epoch. rest: samples of its last step. */
static void tell_length(const tt_loop *l, int64_t each, int64_t rest)
{
    const tt_training_config *t = &l->s->core.training;
    tt_setup_notice_warmup(l->s, l->steps);
    if (isnan(t->num_train_epochs) && l->steps < t->steps)
        tt_log(TT_WARN, "data",
               "the data end after step %lld, before training.steps %lld (dataloader.infinite is "
               "false)",
               (long long)l->steps, (long long)t->steps);
    tt_log(TT_INFO, "data",
           "%g epoch%s of %lld sample%s, %lld step%s each: %lld steps in all; an epoch's last "
           "step has %lld sample%s",
           l->epochs, l->epochs > 1 ? "s" : "", (long long)l->n_samples,
           l->n_samples == 1 ? "" : "s", (long long)each, each == 1 ? "" : "s", (long long)l->steps,
           (long long)rest, rest == 1 ? "" : "s");
}

static tt_status find_length(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    l->n_samples = vt->n_samples(l->data.loader);
    l->next_sample = l->samples_seen;
    l->steps = s->core.training.steps;
    l->by_epoch = tt_setup_by_epoch(s);
    l->epoch = l->told_epoch = l->samples_seen / TT_MAXV(l->n_samples, (int64_t)1);
    if (!l->by_epoch)
        return TT_OK;
    if (l->n_samples < 1)
        return TT_FAIL(err, TT_EINVAL, "dataloader: there is no sample");
    TT_TRY(agree_on(&l->rank.dist, l->n_samples, err));
    TT_TRY(count_steps(s, l->n_samples, l->step, l->samples_seen, &l->steps, err));
    const tt_epochs e = epochs_of(s, l->n_samples);
    const int64_t each = tt_epoch_steps(&e);
    l->epochs = TT_MIN(total_epochs(s), (double)l->steps / (double)each);
    if (isfinite(s->core.training.num_train_epochs))
        l->epochs = s->core.training.num_train_epochs;
    if (l->main)
        tell_length(l, each, tt_epoch_rest(&e, (each - 1) * e.batch));
    return TT_OK;
}

tt_status tt_loop_length(tt_loop *l, tt_error *err)
{
    TT_TRY(find_length(l, err));
    return check_states(l, err);
}

int64_t tt_loop_step_samples(const tt_loop *l)
{
    const tt_epochs e = epochs_of(l->s, l->n_samples);
    return l->by_epoch ? tt_epoch_rest(&e, l->next_sample) : e.batch;
}

/* Data that begins again gives a line, at most one per metrics.log_freq steps. */
void tt_loop_tell_epoch(tt_loop *l)
{
    const int64_t since = l->known_step - l->told_step;
    if (l->epoch <= l->told_epoch || (l->told_step && since < l->s->core.metrics.log_freq))
        return;
    if (l->main)
        tt_log(TT_INFO, "data", "step %lld: the data begins again, epoch %lld",
               (long long)l->known_step, (long long)l->epoch);
    l->told_epoch = l->epoch;
    l->told_step = l->known_step;
}
