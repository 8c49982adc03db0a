/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "setup/foreign.h"
#include "setup/tokenizer.h"
#include "train/loop.h"
#include "train/reference.h"
#include <math.h>
#include <string.h>

/* Opens the tokenizer, the loaders and the stream of batches of one rank. */

static void end_progress(tt_loop *l)
{
    if (l->has_progress)
        tt_progress_finish(&l->progress);
    l->has_progress = false;
}

/* Shows one progress bar per task that a loader reports. Work of an earlier start does not count
 * for the speed. */
static void on_progress(void *user, const char *what, double fraction)
{
    tt_loop *l = user;
    const int64_t done = (int64_t)(10000 * fraction);
    if (l->has_progress && strcmp(l->progress.title, what) != 0)
        end_progress(l);
    if (!l->has_progress) {
        tt_progress_init(&l->progress, what, done, 10000, l->o->verbose < 0);
        l->has_progress = true;
    }
    tt_progress_update(&l->progress, done, (double)NAN, (double)NAN);
}

static int on_stop(void *user)
{
    const tt_loop *l = user;
    return l->o->stop ? l->o->stop() : 0;
}

static tt_status open_loader(tt_loop *l, const tt_data_parts *d, const tt_part *p,
                             const char *section, int64_t seq_len, void **self, tt_error *err)
{
    const tt_dataloader_vt *vt = p->component->vtable;
    const tt_model_vt *model = l->s->model.component->vtable;
    tt_error why = {0};
    const tt_dataloader_env env = {
        .struct_size = sizeof env,
        .seq_len = seq_len,
        .vocab_size = model->vocab_size(l->s->model.config),
        .tokenizer = d->tokenizer ? l->s->tokenizer.component->vtable : NULL,
        .tokenizer_self = d->tokenizer,
        .job_dir = tt_job_dir(l->s->job),
        .progress = l->o->progress ? on_progress : NULL,
        .progress_user = l,
        .stop = on_stop,
        .stop_user = l,
        .tokenizer_path = tt_tokenizer_path(l->s),
    };
    const tt_status s =
        TT_PLUGIN_CALL(vt->open(p->config, &env, self, &why), &why, "dataloader", p->name);
    end_progress(l);
    if (s == TT_OK)
        return TT_OK;
    if (s == TT_ESIGNAL && on_stop(l)) /* a loader does not know the signal's name */
        return TT_FAIL(err, s, "stopped by %s while reading data", tt_signal_name(on_stop(l)));
    if (s == TT_ESIGNAL)
        return TT_FAIL(err, s, "%s", why.text);
    tt_setup_fail(l->s->job, section, why.text, err);
    err->code = s;
    return s;
}

static tt_status open_all(tt_loop *l, tt_data_parts *d, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    if (vt->needs_tokenizer && l->o->resume && s->foreign)
        s->foreign->use_kept_tokenizer(s, s->core.dump_folder);
    if (vt->needs_tokenizer)
        TT_TRY(tt_setup_tokenizer(l->s, &d->tokenizer, &d->tokenizer_info, err));
    TT_TRY(
        open_loader(l, d, &s->dataloader, "dataloader", s->core.training.seq_len, &d->loader, err));
    TT_TRY(tt_loop_derive_steps(s, vt->n_samples(d->loader), err));
    for (int i = 0; s->has_validation && i < s->n_validation; i++)
        TT_TRY(open_loader(l, d, &s->validation[i].data, s->validation[i].section, s->eval_seq_len,
                           &d->validation[i], err));
    return TT_OK;
}

/* The first rank-thread that gets here opens the data for all ranks of the process, so text is
 * tokenized once. It logs as rank 0, whose lines are shown. */
tt_status tt_loop_open_data(tt_loop *l, tt_error *err)
{
    tt_shared_data *all = l->shared;
    if (!all)
        return open_all(l, &l->data, err);
    pthread_mutex_lock(&all->lock);
    if (!all->opened) {
        if (all->threads)
            tt_log_set_thread_rank(0);
        all->status = open_all(l, &all->parts, &all->err);
        if (all->threads)
            tt_log_set_thread_rank(l->rank.dist.rank);
        all->opened = true;
    }
    pthread_mutex_unlock(&all->lock);
    if (all->status != TT_OK)
        return TT_FAIL(err, all->status, "%s", all->err.text);
    l->data = all->parts;
    return TT_OK;
}

tt_status tt_loop_open_stream(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    const tt_model_vt *model = s->model.component->vtable;
    tt_order order = s->data_order;
    order.n_samples = vt->n_samples(l->data.loader);
    const tt_stream_opts o = {
        .loader = vt,
        .loader_self = l->data.loader,
        .loader_name = s->dataloader.name,
        .order = order,
        .seq_len = s->core.training.seq_len,
        .local = s->local,
        .micro_batches = s->micro_batches,
        .global_batch = s->global_batch,
        .data_rank = l->rank.data_rank,
        .inputs = &s->inputs,
        .one_segment = tt_setup_one_segment(&s->dataloader),
        .data_world = s->data_world,
        .first_sample = l->samples_seen,
        .n_steps = l->steps - l->step,
        .by_epoch = l->by_epoch,
        .reference = tt_loop_reference(l, -1),
        .reference_input = s->reference_input,
        .weights = s->loss_weights,
        .vocab_size = model->vocab_size(s->model.config),
        .depth = 2,
    };
    return tt_stream_new(&o, &l->stream, err);
}

void tt_data_parts_close(tt_data_parts *d, const tt_setup *s)
{
    if (d->loader)
        ((const tt_dataloader_vt *)s->dataloader.component->vtable)->close(d->loader);
    for (int i = 0; i < s->n_validation; i++)
        if (d->validation[i])
            ((const tt_dataloader_vt *)s->validation[i].data.component->vtable)
                ->close(d->validation[i]);
    if (d->tokenizer)
        ((const tt_tokenizer_vt *)s->tokenizer.component->vtable)->close(d->tokenizer);
    *d = (tt_data_parts){0};
}

void tt_loop_close_data(tt_loop *l)
{
    if (l->stream)
        tt_stream_free(l->stream);
    l->stream = NULL;
    tt_loop_close_references(l);
    if (!l->shared)
        tt_data_parts_close(&l->data, l->s);
    l->data = (tt_data_parts){0};
}
