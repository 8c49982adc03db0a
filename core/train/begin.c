/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/begin.h"
#include "setup/foreign.h"
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
    return s->core.checkpoint.initial_load_in_hf || tt_setup_is_foreign(s, path);
}

/* Some folders are loaded whole and under their own names. */
tt_status tt_begin_check(const tt_setup *s, const char *path, tt_error *err)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const bool state = !c->initial_load_model_only;
    const char *what = state ? "a whole state (checkpoint.initial_load_model_only)"
                       : tt_setup_is_adapter(s, path) ? "an adapter"
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
    if (!base || !tt_setup_is_foreign(r->s, base))
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
    if (tt_setup_is_adapter(r->s, path))
        return load_adapter(r, path, report, err);
    return tt_begin_is_hf(r->s, path) ? tt_rank_load_hf(r, path, &how, err)
                                      : tt_rank_load_initial(r, path, &how, err);
}

/* ---- frozen parameters that a step leaves out ---- */

/* Of the weights that the frozen parameters have in this folder. */
static tt_status identity_at(const tt_setup *s, const char *path, char hex[17], tt_error *err)
{
    tt_ckpt_reader *reader = NULL;
    const bool adapter = tt_setup_is_adapter(s, path); /* what is frozen is below it */
    if (adapter || tt_begin_is_hf(s, path))
        TT_TRY(s->foreign->open(adapter && s->core.hf ? s->core.hf : path, &reader, err));
    else
        TT_TRY(tt_ckpt_open(path, &reader, err));
    tt_ckpt_identity(reader, hex);
    tt_ckpt_close(reader);
    return TT_OK;
}

/* Where the weights are that a step leaves out: in the folder where the run found them, or, if it has been moved or has
 * others, in the one that the job names. *same: they are those that the run began with, as far as the step says. */
static const char *frozen_place(const tt_setup *s, tt_arena *a, const tt_trainer_state *st,
                                bool *same)
{
    const char *job = s->core.checkpoint.initial_load_path, *found = NULL;
    if (job)
        job = tt_begin_newest(a, tt_path_join(a, tt_job_dir(s->job), job));
    const char *const places[] = {st->frozen_from, job};
    *same = true;
    for (size_t i = 0; i < TT_COUNT(places); i++) {
        char hex[17];
        if (!places[i] || !tt_path_exists(places[i]))
            continue;
        if (!st->initial_identity ||
            (identity_at(s, places[i], hex, NULL) == TT_OK && !strcmp(hex, st->initial_identity)))
            return places[i];
        found = found ? found : places[i];
    }
    *same = !st->initial_identity || !found;
    return found ? found : st->frozen_from;
}

static tt_status load_frozen(tt_rank *r, const char *step_folder, const tt_trainer_state *st,
                             bool report, tt_error *err)
{
    bool same = true;
    const char *from = frozen_place(r->s, r->arena, st, &same);
    if (!same && !r->s->core.checkpoint.accept_changed_frozen)
        return TT_FAIL(err, TT_EINVAL,
                       "%s leaves out frozen parameters (checkpoint.save_frozen), which come from "
                       "%s, but the weights there are no longer those that the run began with: put "
                       "these back, name their folder in checkpoint.initial_load_path, or go on "
                       "with the new ones by checkpoint.accept_changed_frozen true",
                       step_folder, from);
    if (tt_begin_load(r, from, false, err) != TT_OK)
        return tt_error_context(err,
                                "%s leaves out frozen parameters (checkpoint.save_frozen), which "
                                "come from %s",
                                step_folder, from);
    if (report)
        tt_log(TT_INFO, "checkpoint", "%s leaves out frozen parameters: they are those of %s%s",
               step_folder, from,
               same ? "" : ", which has others than when the run began (accept_changed_frozen)");
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
    TT_TRY(load_frozen(r, step_folder, st, o->report, err));
    return tt_rank_load_trained(r, step_folder, o, err);
}

/* A run that resumes may load its first weights once more, for the numbers that a loss compares with. */
static tt_status keep_identity(tt_loop *l, const char *path, tt_error *err)
{
    char hex[17];
    if (!l->main) /* it writes trainer.json */
        return TT_OK;
    TT_TRY(identity_at(l->s, path, hex, err));
    if (l->resumed && l->initial_identity && strcmp(hex, l->initial_identity) != 0 &&
        !l->s->core.checkpoint.accept_changed_frozen)
        return TT_FAIL(
            err, TT_EINVAL,
            "the loss %s compares with the weights that the run began with, but those in "
            "%s are others: put the first ones back, name their folder in "
            "checkpoint.initial_load_path, or go on with the new ones by "
            "checkpoint.accept_changed_frozen true",
            l->s->loss.name, path);
    l->initial_identity = tt_arena_str(l->rank.arena, hex);
    return TT_OK;
}

tt_status tt_loop_leave_frozen(tt_loop *l, const char *path, tt_error *err)
{
    char *whole = l->s->core.checkpoint.save_frozen ? NULL : realpath(path, NULL);
    l->frozen_from = whole ? tt_arena_str(l->rank.arena, whole) : NULL;
    free(whole);
    return l->frozen_from || l->s->has_reference ? keep_identity(l, path, err) : TT_OK;
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
static bool freezes_others(const char *before, const tt_job *now)
{
    static const char *const of[] = {"model.", "converters", "training.trainable", "spec:"};
    tt_str diff = {0};
    bool others = false;
    tt_job_changes(before, now, &diff);
    for (const char *line = tt_str_get(&diff); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        for (size_t i = 0; i < TT_COUNT(of); i++)
            others = others || !strncmp(line, of[i], strlen(of[i]));
    }
    tt_str_free(&diff);
    return others;
}

tt_status tt_loop_resume_frozen(tt_loop *l, const tt_trainer_state *st, tt_error *err)
{
    bool same = true;
    l->initial_identity = st->initial_identity;
    if (l->s->core.checkpoint.save_frozen)
        return TT_OK;
    if (!st->frozen_from) {
        tt_loop_save_frozen(l, "the step that is resumed does not say where else they are");
        return TT_OK;
    }
    if (st->job_json &&
        freezes_others(st->job_json, l->s->job)) { /* NULL: of a copy, which is of this job */
        tt_loop_save_frozen(l, "this job may freeze others than the one before");
        return TT_OK;
    }
    l->frozen_from = st->frozen_from;
    const char *from = frozen_place(l->s, l->rank.arena, st, &same);
    /* All ranks save the same parameters; of a copy, the first rank alone knows the identity. */
    int32_t changed_unknown[2] = {!same || !tt_path_exists(from), l->main && !st->initial_identity};
    TT_TRY(tt_dist_reduce(&l->rank.dist, changed_unknown, 2, TT_I32, TT_MAX, err));
    if (changed_unknown[0])
        tt_loop_save_frozen(l, "the weights that the run began with are no longer where they were");
    else if (changed_unknown[1])
        TT_TRY(tt_agree(&l->rank.dist, keep_identity(l, from, err), err));
    return TT_OK;
}
