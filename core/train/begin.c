/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/begin.h"
#include "interchange/interchange.h"
#include "train/loop.h"
#include <stdlib.h>
#include <string.h>

/* The weights that a run starts from, and what its checkpoints need not have because it is there. */

const char *tt_begin_newest(tt_arena *a, const char *path)
{
    const char *steps = tt_path_join(a, path, "checkpoint");
    int64_t *step = NULL;
    size_t n = 0;
    if (!tt_path_exists(tt_path_join(a, path, "run.json")) ||
        tt_ckpt_list(steps, a, &step, &n, NULL) != TT_OK || !n)
        return path;
    return tt_arena_printf(a, "%s/step-%lld", steps, (long long)step[n - 1]);
}

bool tt_begin_is_hf(const tt_setup *s, const char *path)
{
    return s->core.checkpoint.initial_load_in_hf || tt_hf_has_weights(path);
}

/* Some folders are loaded whole and under their own names. */
tt_status tt_begin_check(const tt_setup *s, const char *path, tt_error *err)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const bool state = !c->initial_load_model_only;
    const char *what = state ? "a whole state (checkpoint.initial_load_model_only)"
                       : tt_adapter_is_folder(path) ? "an adapter"
                                                    : NULL;
    if (state && !c->initial_load_strict)
        return tt_job_fail(s->job, "checkpoint.initial_load_strict", err,
                           "%s is loaded whole; leave this out", what);
    if (what && c->initial_load_rename.n)
        return tt_job_fail(s->job, "checkpoint.initial_load_rename", err,
                           "%s is loaded with its own names; leave this out", what);
    return TT_OK;
}

/* An adapter belongs on the weights of model.hf. */
static tt_status load_adapter(tt_rank *r, const char *path, bool report, tt_error *err)
{
    const char *base = r->s->core.hf;
    if (!base || !tt_hf_has_weights(base))
        return TT_FAIL(err, TT_EINVAL,
                       "%s is an adapter: model.hf must name the folder with the weights that it "
                       "belongs to",
                       path);
    const tt_ckpt_matching all = {.report = report};
    TT_TRY(tt_rank_load_hf(r, base, &all, err));
    TT_TRY(tt_rank_load_adapter(r, path, report, err));
    if (report)
        tt_log(TT_INFO, "checkpoint", "weights: %s (Hugging Face's), adapters: %s", base, path);
    return TT_OK;
}

tt_status tt_begin_load(tt_rank *r, const char *path, bool report, tt_error *err)
{
    const tt_checkpoint_config *c = &r->s->core.checkpoint;
    const tt_ckpt_matching how = {
        .rename = &c->initial_load_rename, .partial = !c->initial_load_strict, .report = report};
    if (tt_adapter_is_folder(path))
        return load_adapter(r, path, report, err);
    return tt_begin_is_hf(r->s, path) ? tt_rank_load_hf(r, path, &how, err)
                                      : tt_rank_load_initial(r, path, &how, err);
}

/* ---- frozen parameters that a step leaves out ---- */

static tt_status load_frozen(tt_rank *r, const char *step_folder, const char *from, bool report,
                             tt_error *err)
{
    const char *job = r->s->core.checkpoint.initial_load_path;
    if (!tt_path_exists(from) && job) /* it has been moved, and the job names the new place */
        from = tt_begin_newest(r->arena, tt_path_join(r->arena, tt_job_dir(r->s->job), job));
    if (tt_begin_load(r, from, false, err) != TT_OK)
        return tt_error_context(err,
                                "%s leaves out frozen parameters (checkpoint.save_frozen), which "
                                "come from %s",
                                step_folder, from);
    if (report)
        tt_log(TT_INFO, "checkpoint", "%s leaves out frozen parameters: they are those of %s",
               step_folder, from);
    return TT_OK;
}

tt_status tt_begin_load_step(tt_rank *r, const char *step_folder, const tt_trainer_state *st,
                             const tt_load_opts *o, tt_error *err)
{
    bool lacks = false;
    if (st->frozen_from)
        TT_TRY(tt_rank_lacks_frozen(r, step_folder, &lacks, err));
    if (!lacks)
        return tt_rank_load(r, step_folder, o, err);
    TT_TRY(load_frozen(r, step_folder, st->frozen_from, o->report, err));
    return tt_rank_load_trained(r, step_folder, o, err);
}

void tt_loop_leave_frozen(tt_loop *l, const char *path)
{
    char *whole = l->s->core.checkpoint.save_frozen ? NULL : realpath(path, NULL);
    l->frozen_from = whole ? tt_arena_str(l->rank.arena, whole) : NULL;
    free(whole);
}

void tt_loop_save_frozen(tt_loop *l, const char *why)
{
    l->frozen_from = NULL;
    if (l->main && !l->s->core.checkpoint.save_frozen)
        tt_log(TT_INFO, "checkpoint",
               "checkpoint.save_frozen: from here on checkpoints have the frozen parameters, too: "
               "%s",
               why);
}

/* Do two jobs differ in what is frozen? */
static bool freezes_others(const char *diff)
{
    static const char *const of[] = {"model.", "converters", "training.trainable", "spec:"};
    for (const char *line = diff; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        for (size_t i = 0; i < TT_COUNT(of); i++)
            if (!strncmp(line, of[i], strlen(of[i])))
                return true;
    }
    return false;
}

void tt_loop_resume_frozen(tt_loop *l, const tt_trainer_state *st)
{
    tt_str diff = {0};
    if (l->s->core.checkpoint.save_frozen)
        return;
    tt_job_changes(st->job_json, l->s->job, &diff);
    l->frozen_from = st->frozen_from;
    if (!st->frozen_from)
        tt_loop_save_frozen(l, "the step that is resumed does not say where else they are");
    else if (freezes_others(tt_str_get(&diff)))
        tt_loop_save_frozen(l, "this job may freeze others than the one before");
    tt_str_free(&diff);
}
