/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <string.h>

/* When to save; saver.c does the work. */

const char *tt_loop_step_folders(const tt_loop *l, tt_arena *a)
{
    return tt_path_join(a, l->s->core.dump_folder, l->s->core.checkpoint.folder);
}

/* The optimizer's state that is evaluated in place of the parameters; NULL: none is. */
static const char *averaged_state(const tt_graph *g)
{
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->evaluated)
            return g->states.items[i]->suffix;
    return NULL;
}

static tt_dtype weights_as(tt_export_dtype d)
{
    return d == TT_EXPORT_AUTO   ? TT_N_DTYPES
           : d == TT_EXPORT_F32  ? TT_F32
           : d == TT_EXPORT_BF16 ? TT_BF16
                                 : TT_F16;
}

/* job: what tt_saver_opts points to, until the call has returned. */
static tt_saver_opts saver_opts(tt_loop *l, tt_str *job)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    tt_job_print(l->s->job, false, job);
    return (tt_saver_opts){
        .rank = &l->rank,
        .folder = tt_loop_step_folders(l, l->rank.programs),
        .held = l->folder,
        .state = {.job_json = tt_str_get(job),
                  .model_fingerprint = l->s->model_fingerprint,
                  .tokenizer_fingerprint = l->data.tokenizer_info.fingerprint,
                  .converters_of_job = tt_loop_has_own_converters(l) ? l->swap.of_job : NULL,
                  .converters = tt_loop_has_own_converters(l) ? l->swap.list : NULL,
                  .averaged = averaged_state(l->s->graph),
                  .frozen_from = l->frozen_from,
                  .initial_identity = l->initial_identity,
                  .world = l->s->world},
        .keep = {.latest = c->keep_latest_k,
                  .every = c->keep_every,
                  .bytes = (int64_t)(c->keep_gb * 1e9),
                  .snapshots = c->snapshot_interval > 0                                                      },
        .after_save = c->after_save,
        .published = c->hf_interval > 0 ? tt_loop_save_hf : NULL,
        .ended = tt_loop_hooks_saved,
        .user = l,
        .goes_on = c->on_error == TT_ON_ERROR_CONTINUE,
        .background = c->async_mode != TT_ASYNC_DISABLED,
        .weights_as = weights_as(c->export_dtype),
        .limit_s = (double)c->save_timeout_seconds
    };
}

tt_status tt_loop_open_saver(tt_loop *l, tt_error *err)
{
    tt_str job = {0};
    l->saved_ns = tt_now_ns();
    if (tt_checkpoint_off(&l->s->core.checkpoint))
        return TT_OK;
    if (l->main && l->s->core.checkpoint.async_mode == TT_ASYNC_PINNED)
        tt_log(TT_INFO, "checkpoint",
               "checkpoint.async_mode: async_with_pinned_mem is the same as async: a thread of "
               "each rank, not a process, copies the state beside the next forward and writes it");
    const tt_saver_opts o = saver_opts(l, &job);
    const tt_status s = tt_saver_new(&o, &l->saver, err);
    tt_str_free(&job);
    return s;
}

tt_status tt_loop_follow_saver(tt_loop *l, tt_error *err)
{
    tt_str job = {0};
    if (!l->saver)
        return TT_OK;
    const tt_saver_opts o = saver_opts(l, &job);
    const tt_status s = tt_saver_follow(l->saver, &o, err);
    tt_str_free(&job);
    return s;
}

double tt_loop_job_lr(const tt_loop *l)
{
    return *tt_optimizer_rate(l->s->optimizer.component, l->s->optimizer.config);
}

bool tt_loop_has_own_lr(const tt_loop *l)
{
    const double job = tt_loop_job_lr(l);
    return l->lr_base < job || l->lr_base > job;
}

bool tt_loop_has_own_converters(const tt_loop *l)
{
    return strcmp(l->swap.list, l->swap.of_job) != 0;
}

tt_trainer_state tt_loop_trainer_state(const tt_loop *l)
{
    return (tt_trainer_state){.step = l->step,
                              .tokens_seen = l->tokens_seen,
                              .samples_seen = l->samples_seen,
                              .last_loss = l->loss,
                              .validation_due = l->validation_due,
                              .since = l->since,
                              .train_seconds = tt_loop_train_seconds(l),
                              .optimizer_from = l->optimizer_from,
                              .schedule_from = l->schedule_from,
                              .has_lr = tt_loop_has_own_lr(l),
                              .lr = l->lr_base,
                              .lr_of_job = tt_loop_job_lr(l)};
}

/* A step that is exported, or the last one, is whole, so that it can be used without the run. */
static tt_saved_part part_to_save(const tt_loop *l, bool model_only)
{
    const int64_t exported = l->s->core.checkpoint.hf_interval;
    const bool used = l->step == l->steps || (exported > 0 && l->step % exported == 0);
    return model_only ? TT_SAVE_WEIGHTS : l->frozen_from && !used ? TT_SAVE_TRAINED : TT_SAVE_WHOLE;
}

tt_status tt_loop_save(tt_loop *l, bool model_only, bool snapshot, tt_error *err)
{
    bool ready = true;
    const int64_t t0 = tt_now_ns();
    tt_trainer_state st = tt_loop_trainer_state(l);
    st.losses = l->losses.items;
    st.n_losses = l->losses.n;
    st.snapshot = snapshot;
    TT_TRY(tt_saver_await(l->saver, l->step, &ready, err));
    if (!ready) {
        l->t.checkpoint += tt_seconds_since(t0);
        return TT_OK;
    }
    /* of a step before: those who wait for it are told */
    tt_loop_answer_save(l);
    tt_loop_hooks_save(l);
    TT_TRY(tt_saver_start(l->saver, &st, part_to_save(l, model_only), err));
    l->saved_ns = t0;
    l->ctl_saving = l->ctl_saves;
    l->ctl_saves = false;
    if (l->s->core.checkpoint.async_mode == TT_ASYNC_DISABLED)
        TT_TRY(tt_saver_finish(l->saver, err));
    l->t.checkpoint += tt_seconds_since(t0);
    return TT_OK;
}

void tt_loop_wait_staged(tt_loop *l)
{
    const int64_t t0 = tt_now_ns();
    if (l->saver)
        tt_saver_wait_staged(l->saver);
    tt_loop_peer_wait(l);
    l->t.checkpoint += tt_seconds_since(t0);
}

tt_status tt_loop_save_progress(tt_loop *l, int32_t all, tt_error *err)
{
    return l->saver ? tt_saver_advance(l->saver, all, err) : TT_OK;
}

tt_status tt_loop_save_meanwhile(tt_loop *l, tt_error *err)
{
    if (!l->saver || !tt_saver_in_flight(l->saver))
        return TT_OK;
    const tt_dist *d = &l->rank.dist;
    int32_t all = tt_saver_poll(l->saver);
    TT_TRY(tt_dist_reduce(d, &all, 1, TT_I32, TT_MAX, err));
    return tt_saver_advance(l->saver, all, err);
}

tt_status tt_loop_finish_save(tt_loop *l, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    if (l->saver)
        TT_TRY(tt_saver_finish(l->saver, err));
    l->t.checkpoint += tt_seconds_since(t0);
    return TT_OK;
}

tt_status tt_loop_finish_last_save(tt_loop *l, tt_error *err)
{
    TT_TRY(tt_loop_finish_save(l, err));
    const char *why = l->saver ? tt_saver_failure(l->saver) : NULL;
    return why ? TT_FAIL(err, TT_EIO, "the last checkpoint, of step %lld, is not saved: %s",
                         (long long)l->step, why)
               : TT_OK;
}

/* Whether the samples of the newest step ended an epoch whose number is a multiple of `every`. */
static bool ended_epoch(const tt_loop *l, int64_t every)
{
    const int64_t each = TT_MAXV(l->n_samples, (int64_t)1),
                  before = l->next_sample - l->step_samples;
    return l->next_sample / each / every > before / each / every;
}

/* Besides snapshots. */
static bool step_due(const tt_loop *l)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const bool steps = c->interval_type == TT_INTERVAL_STEPS && c->interval > 0;
    if (c->interval_type == TT_INTERVAL_EPOCHS && c->interval > 0 && ended_epoch(l, c->interval))
        return true;
    return tt_loop_due(l, l->step, steps ? c->interval : INT64_MAX) ||
           tt_loop_due(l, l->step, c->hf_interval) ||
           (l->step == 1 && c->enable_first_step_checkpoint);
}

bool tt_loop_save_due(const tt_loop *l, bool *snapshot)
{
    const int64_t every = l->s->core.checkpoint.snapshot_interval;
    const bool due = l->saver && step_due(l);
    *snapshot = l->saver && !due && every > 0 && l->step % every == 0;
    return due || *snapshot;
}

bool tt_loop_save_time(const tt_loop *l)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    return l->saver && c->interval_type == TT_INTERVAL_SECONDS && c->interval > 0 &&
           tt_seconds_since(l->saved_ns) >= (double)c->interval;
}
