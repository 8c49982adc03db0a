/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "interchange/assets.h"
#include "interchange/hf_context.h"
#include "train/loop.h"
#include "train/reference.h"
#include <math.h>
#include <string.h>

/* Opens the tokenizer, the loaders and the stream of batches of one rank. */

/* Whether the ids that the model has no row for are special tokens, which plain text does not have, and
 * neither begins nor ends a document. */
static bool only_special_beyond(const tt_tokenizer_vt *vt, void *self,
                                const tt_tokenizer_info *info, int64_t vocab)
{
    char text[8];
    if (info->bos >= vocab || info->eos >= vocab)
        return false;
    for (int64_t id = vocab; id < info->vocab_size; id++)
        if (vt->decode(self, (int32_t)id, text, sizeof text) > 0)
            return false;
    return true;
}

/* Says what was looked for. */
static tt_status no_tokenizer(const tt_setup *s, tt_error *err)
{
    static const char *const names[] = {TT_TOKENIZER_FILES};
    const char *path = s->core.hf_assets_path;
    const char *folder = path ? tt_path_join(s->arena, tt_job_dir(s->job), path) : NULL;
    tt_str list = {0};
    if (!folder && tt_setup_foreign_weights(s))
        return tt_job_fail(
            s->job, "tokenizer", err,
            "the weights are those of %s, whose ids are no bytes, and the job names no "
            "tokenizer: set model.hf to that folder, which gives all of it, or "
            "tokenizer.name hf and tokenizer.path, or --tokenizer.name byte",
            tt_setup_foreign_weights(s));
    if (!folder)
        return tt_job_fail(s->job, "tokenizer", err,
                           "this needs a tokenizer, and the spec has none: set tokenizer.name");
    for (size_t i = 0; i < TT_COUNT(names); i++)
        tt_str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const tt_status st = tt_job_fail(
        s->job, "tokenizer", err,
        "this needs a tokenizer, and %s has none that can be read (looked for: %s); put "
        "one there, set tokenizer.path, or --tokenizer.name byte for ids that are bytes",
        folder, tt_str_get(&list));
    tt_str_free(&list);
    return st;
}

/* Whether the tokenizer is the spec's own, with weights that another program has made. */
static bool falls_back(const tt_setup *s)
{
    return !tt_job_has(s->job, "tokenizer") && !s->core.hf_assets_path &&
           !strcmp(s->tokenizer.name, "byte") && tt_setup_foreign_weights(s);
}

tt_status tt_setup_tokenizer(const tt_setup *s, void **self, tt_tokenizer_info *info, tt_error *err)
{
    const tt_model_vt *model = s->model.component->vtable;
    if (!s->has_tokenizer)
        return no_tokenizer(s, err);
    const tt_tokenizer_vt *vt = s->tokenizer.component->vtable;
    TT_TRY(TT_PLUGIN_CALL(vt->open(s->tokenizer.config, self, err), err, "tokenizer",
                          s->tokenizer.name));
    *info = (tt_tokenizer_info){.struct_size = sizeof *info};
    vt->info(*self, info);
    const int64_t vocab = model->vocab_size(s->model.config);
    if (info->vocab_size <= vocab / 2 && falls_back(s)) {
        vt->close(*self);
        *self = NULL;
        return no_tokenizer(s, err);
    }
    if (info->vocab_size <= vocab)
        return TT_OK;
    if (only_special_beyond(vt, *self, info, vocab)) {
        tt_log(
            TT_INFO, "data",
            "the model has no row for %lld special token%s of the tokenizer, from id %lld on: text "
            "with one is refused",
            (long long)(info->vocab_size - vocab), info->vocab_size - vocab == 1 ? "" : "s",
            (long long)vocab);
        return TT_OK;
    }
    vt->close(*self);
    *self = NULL;
    return tt_job_fail(s->job, "model.args.vocab_size", err,
                       "%lld is less than the tokenizer's %lld: set it to that value or more",
                       (long long)vocab, (long long)info->vocab_size);
}

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
        .tokenizer_path = tt_assets_tokenizer(l->s),
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
    if (vt->needs_tokenizer && l->o->resume)
        tt_assets_use_kept_tokenizer(l->s, l->s->core.dump_folder);
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
