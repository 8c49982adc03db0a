/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include "train/setup_impl.h"
#include <math.h>

/* Tokenizer, loaders and the stream of batches of one rank. */

tt_status tt_setup_tokenizer(const tt_setup *s, void **self, tt_tokenizer_info *info, tt_error *err)
{
    const tt_tokenizer_vt *vt = s->tokenizer.component->vtable;
    const tt_model_vt *model = s->model.component->vtable;
    TT_TRY(vt->open(s->tokenizer.config, self, err));
    *info = (tt_tokenizer_info){.struct_size = sizeof *info};
    vt->info(*self, info);
    const int64_t vocab = model->vocab_size(s->model.config);
    if (info->vocab_size <= vocab)
        return TT_OK;
    vt->close(*self);
    *self = NULL;
    return tt_job_fail(s->job, "model.args.vocab_size", err,
                       "%lld is less than the tokenizer's %lld: set it to that or more",
                       (long long)vocab, (long long)info->vocab_size);
}

static void on_progress(void *user, const char *what, double fraction)
{
    tt_loop *l = user;
    if (!l->has_progress) {
        tt_progress_init(&l->progress, what, 0, 1000, l->o->verbose < 0);
        l->has_progress = true;
    }
    tt_progress_update(&l->progress, (int64_t)(1000 * fraction), (double)NAN, (double)NAN);
}

static tt_status open_loader(tt_loop *l, const tt_part *p, const char *section, void **self,
                             tt_error *err)
{
    const tt_dataloader_vt *vt = p->component->vtable;
    const tt_model_vt *model = l->s->model.component->vtable;
    tt_error why = {0};
    const tt_dataloader_env env = {
        .struct_size = sizeof env,
        .seq_len = l->s->core.training.seq_len,
        .vocab_size = model->vocab_size(l->s->model.config),
        .tokenizer = l->tokenizer ? l->s->tokenizer.component->vtable : NULL,
        .tokenizer_self = l->tokenizer,
        .job_dir = tt_job_dir(l->s->job),
        .progress = l->main && l->o->progress ? on_progress : NULL,
        .progress_user = l,
    };
    const tt_status s = vt->open(p->config, &env, self, &why);
    if (l->has_progress)
        tt_progress_finish(&l->progress);
    l->has_progress = false;
    if (s == TT_OK)
        return TT_OK;
    tt_setup_fail(l->s->job, section, why.text, err);
    err->code = s;
    return s;
}

tt_status tt_loop_open_data(tt_loop *l, tt_error *err)
{
    const tt_dataloader_vt *vt = l->s->dataloader.component->vtable;
    if (vt->needs_tokenizer)
        TT_TRY(tt_setup_tokenizer(l->s, &l->tokenizer, &l->tokenizer_info, err));
    TT_TRY(open_loader(l, &l->s->dataloader, "dataloader", &l->loader, err));
    if (!l->s->has_validation)
        return TT_OK;
    return open_loader(l, &l->s->validation_data, "validation.dataloader", &l->validation_loader,
                       err);
}

tt_status tt_loop_open_stream(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    const tt_model_vt *model = s->model.component->vtable;
    const tt_stream_opts o = {
        .loader = vt,
        .loader_self = l->loader,
        .order = {vt->n_samples(l->loader), s->data_seed, s->shuffle},
        .seq_len = s->core.training.seq_len,
        .local = s->local,
        .micro_batches = s->micro_batches,
        .global_batch = s->global_batch,
        .data_rank = l->rank.data_rank,
        .data_world = s->data_world,
        .first_sample = l->samples_seen,
        .n_steps = s->core.training.steps - l->step,
        .vocab_size = model->vocab_size(s->model.config),
        .depth = 2,
    };
    return tt_stream_new(&o, &l->stream, err);
}

void tt_loop_close_data(tt_loop *l)
{
    if (l->stream)
        tt_stream_free(l->stream);
    if (l->loader)
        ((const tt_dataloader_vt *)l->s->dataloader.component->vtable)->close(l->loader);
    if (l->validation_loader)
        ((const tt_dataloader_vt *)l->s->validation_data.component->vtable)
            ->close(l->validation_loader);
    if (l->tokenizer)
        ((const tt_tokenizer_vt *)l->s->tokenizer.component->vtable)->close(l->tokenizer);
    l->stream = NULL;
    l->loader = l->validation_loader = l->tokenizer = NULL;
}
