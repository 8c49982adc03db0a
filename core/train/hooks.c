/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* Calls the hooks of a rank. */

/* Calls `member` of every hook that has it, until one fails. */
#define CALL_ALL(l, member, argument, err)                                                         \
    for (int i_ = 0; i_ < (l)->n_hooks; i_++) {                                                    \
        const tt_hook_end *h_ = &(l)->hooks[i_];                                                   \
        if (h_->vt->member)                                                                        \
            TT_TRY(TT_PLUGIN_CALL(h_->vt->member(h_->self, (argument), (err)), (err), "hook",      \
                                  h_->name));                                                      \
    }

tt_status tt_loop_open_hooks(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_hook_env env = {sizeof env, s->core.dump_folder, l->rank.dist.rank, s->world};
    for (int i = 0; i < s->n_hooks; i++) {
        tt_hook_end h = {.vt = s->hooks[i].component->vtable, .name = s->hooks[i].name};
        if (!l->main && !h.vt->all_ranks)
            continue;
        if (h.vt->open &&
            TT_PLUGIN_CALL(h.vt->open(s->hooks[i].config, &env, &h.self, err), err, "open()", NULL))
            return tt_error_context(err, "hook %s", h.name);
        l->hooks[l->n_hooks++] = h;
    }
    return TT_OK;
}

/* Before this process has done a step: as the checkpoint says from which the run resumes. */
static tt_hook_progress progress(const tt_loop *l)
{
    const int64_t last = TT_MAXV(l->samples_seen - 1, (int64_t)0),
                  each = TT_MAXV(l->n_samples, (int64_t)1);
    return (tt_hook_progress){.struct_size = sizeof(tt_hook_progress),
                              .step = TT_MAXV(l->known_step, l->began_step),
                              .steps = l->steps,
                              .epoch = l->known_step ? l->epoch : last / each,
                              .epochs = l->by_epoch ? l->epochs : 0,
                              .tokens = l->tokens_seen,
                              .samples = l->samples_seen,
                              .loss = l->loss,
                              .grad_norm = l->norm,
                              .lr = l->lr};
}

tt_status tt_loop_hooks_start(tt_loop *l, tt_error *err)
{
    const tt_hook_progress at = progress(l);
    CALL_ALL(l, start, &at, err);
    return TT_OK;
}

tt_status tt_loop_hooks_before(tt_loop *l, tt_error *err)
{
    CALL_ALL(l, before_step, l->step, err);
    return TT_OK;
}

tt_status tt_loop_hooks_backward(tt_loop *l, tt_error *err)
{
    tt_hook_progress at = progress(l);
    at.step = l->step;
    CALL_ALL(l, after_backward, &at, err);
    return TT_OK;
}

tt_status tt_loop_hooks_after(tt_loop *l, const tt_metrics_record *r, tt_error *err)
{
    CALL_ALL(l, after_step, r, err);
    return TT_OK;
}

tt_status tt_loop_hooks_validated(tt_loop *l, const tt_metrics_record *r, tt_error *err)
{
    CALL_ALL(l, validated, r, err);
    return TT_OK;
}

static tt_status call_saved(tt_loop *l, tt_hook_saved *what, tt_error *err)
{
    const int64_t every = l->s->core.checkpoint.keep_every;
    what->struct_size = sizeof *what;
    what->at = &l->saving;
    what->step = l->saving.step;
    what->kept = what->kind == TT_SAVED_CHECKPOINT && every > 0 && what->step % every == 0;
    CALL_ALL(l, saved, what, err);
    return TT_OK;
}

void tt_loop_hooks_save(tt_loop *l)
{
    l->saving = progress(l);
    l->saving.step = l->step;
}

tt_status tt_loop_hooks_saved(void *loop, int64_t step, bool model_only, bool snapshot,
                              tt_error *err)
{
    tt_loop *l = loop;
    if (!l->n_hooks)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    tt_hook_saved what = {
        .kind = TT_SAVED_CHECKPOINT, .model_only = model_only, .snapshot = snapshot};
    what.folder = tt_arena_printf(a, "%s/step-%lld", tt_loop_step_folders(l, a), (long long)step);
    tt_status s = call_saved(l, &what, err);
    if (s == TT_OK && l->exported == step) {
        l->exported = 0;
        s = tt_loop_hooks_exported(l, step, err);
    }
    tt_arena_free(a);
    return s;
}

tt_status tt_loop_hooks_exported(tt_loop *l, int64_t step, tt_error *err)
{
    if (!l->n_hooks)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    tt_hook_saved what = {.kind = TT_SAVED_HUGGING_FACE, .model_only = 1};
    if (l->saving.step != step)
        tt_loop_hooks_save(l); /* an earlier process saved the checkpoint */
    what.folder = tt_arena_printf(a, "%s/hf/step-%lld", l->s->core.dump_folder, (long long)step);
    const tt_status s = call_saved(l, &what, err);
    tt_arena_free(a);
    return s;
}

void tt_loop_close_hooks(tt_loop *l, tt_status status, const tt_error *why)
{
    const tt_hook_progress at = progress(l);
    for (int i = 0; i < l->n_hooks; i++) {
        const tt_hook_end *h = &l->hooks[i];
        if (h->vt->end)
            h->vt->end(h->self, &at, status, status == TT_OK ? "" : why->text);
        if (h->vt->close)
            h->vt->close(h->self);
    }
    l->n_hooks = 0;
}
