/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/foreign.h"
#include "train/begin.h"
#include "train/reference.h"
#include <dirent.h>
#include <string.h>

/* How a run begins: from the newest checkpoint of its folder, from the state or the weights of another run, from
 * weights of Hugging Face, or from initial values. */

static tt_status other_tokenizer(const tt_loop *l, const char *folder, tt_error *err)
{
    const char *kept = tt_path_join(l->rank.arena, l->s->core.dump_folder, "tokenizer");
    return TT_FAIL(err, TT_EINVAL,
                   "%s was written with another tokenizer: use that tokenizer%s%s%s, or another "
                   "dump_folder",
                   folder, tt_path_exists(kept) ? " (the run keeps it in " : "",
                   tt_path_exists(kept) ? kept : "", tt_path_exists(kept) ? ")" : "");
}

static tt_status check_same_model(const tt_loop *l, const char *folder, const tt_trainer_state *st,
                                  tt_error *err)
{
    if (strcmp(st->model_fingerprint, l->s->model_fingerprint))
        return TT_FAIL(
            err, TT_EINVAL,
            "%s was written by a model with other shapes: use its model.args, or another "
            "dump_folder",
            folder);
    if (l->data.tokenizer && st->tokenizer_fingerprint && st->tokenizer_fingerprint[0] &&
        strcmp(st->tokenizer_fingerprint, l->data.tokenizer_info.fingerprint))
        return other_tokenizer(l, folder, err);
    return TT_OK;
}

static bool begins_with_one(const char *line, const char *const *of, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(line, of[i], strlen(of[i])))
            return true;
    return false;
}

static bool is_of_model(const char *line)
{
    static const char *const of[] = {"model.", "tokenizer.", "converters", "spec:"};
    return begins_with_one(line, of, TT_COUNT(of));
}

/* Logs the differences between two jobs whose key begins with `of`; of a step 0, which an import or a seed is, those of the
 * model, because nothing was trained by its job. */
static void print_differences(const tt_loop *l, const tt_trainer_state *st, const char *of,
                              tt_log_level level, const char *text)
{
    tt_str diff = {0};
    tt_job_changes(st->job_json, l->s->job, &diff);
    char *line = diff.n ? diff.s : NULL;
    while (line && *line) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (!strncmp(line, of, strlen(of)) && (st->step || is_of_model(line)))
            tt_log(level, "train", "%s: %s", text, line);
        line = end ? end + 1 : NULL;
    }
    tt_str_free(&diff);
}

/* The name of an incomplete step-N folder, which may be a damaged checkpoint; NULL: there is none.
 */
static const char *incomplete_step(const tt_loop *l, const char *folder)
{
    const char *found = NULL;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (!strncmp(e->d_name, "step-", 5) && e->d_name[5] &&
            !e->d_name[5 + strspn(e->d_name + 5, "0123456789")])
            found = tt_arena_str(l->rank.arena, e->d_name);
    if (d)
        closedir(d);
    return found;
}

/* Whether two jobs differ in what is trained, on which data or how. For how long and on which ranks
 * does not matter. */
static bool changes_training(const char *line)
{
    static const char *const of[] = {
        "model.",    "optimizer.",  "lr_scheduler.", "loss.", "tokenizer.",
        "training.", "dataloader.", "converters",    "spec:", "checkpoint.load_step:"};
    static const char *const how_long[] = {
        "training.steps:", "training.num_train_epochs:", "dataloader.infinite:"};
    return !begins_with_one(line, how_long, TT_COUNT(how_long)) &&
           begins_with_one(line, of, TT_COUNT(of));
}

/* Whether `ttrun ctl` had set other converters, and the job has the same ones as then. */
static bool keeps_converters(const tt_loop *l, const tt_trainer_state *st)
{
    return st->converters && !strcmp(st->converters_of_job, l->swap.of_job);
}

/* Whether a step was written by this job with this load_step: then it belongs to the branch that
 * began at that step. */
static bool is_of_this_branch(const tt_loop *l, const char *folder, int64_t step)
{
    tt_arena *a = tt_arena_new();
    tt_trainer_state st;
    tt_error ignored = {0};
    tt_str diff = {0};
    const char *at = tt_arena_printf(a, "%s/step-%lld", folder, (long long)step);
    bool same = tt_ckpt_read_state(at, a, &st, &ignored) == TT_OK;
    if (same)
        tt_job_changes(st.job_json, l->s->job, &diff);
    for (const char *line = tt_str_get(&diff); same && line; line = strchr(line, '\n')) {
        line += *line == '\n';
        same = !changes_training(line) ||
               (!strncmp(line, "converters", 10) && keeps_converters(l, &st));
    }
    tt_str_free(&diff);
    tt_arena_free(a);
    return same;
}

static tt_status find_step(tt_loop *l, const char *folder, int64_t *step, tt_error *err)
{
    int64_t *steps, want = l->s->core.checkpoint.load_step;
    size_t n;
    *step = -1;
    if (!tt_path_exists(folder) && want < 0)
        return TT_OK;
    TT_TRY(tt_ckpt_list(folder, l->rank.arena, &steps, &n, err));
    for (size_t i = 0; i < n; i++)
        if (want < 0 || steps[i] == want)
            *step = steps[i];
    /* A run that was killed between the rename of a step and the fsync of the folder left a whole step that a loss of
     * power could still take away, after this run said that it continues from it. A folder may be read-only. */
    if (l->main && n)
        tt_fsync_path(folder, NULL);
    if (want >= 0 && n && steps[n - 1] > want && is_of_this_branch(l, folder, steps[n - 1])) {
        *step = steps[n - 1];
        if (l->main)
            tt_log(
                TT_INFO, "checkpoint",
                "checkpoint.load_step %lld: this job has already continued from there to step %lld",
                (long long)want, (long long)*step);
        return TT_OK;
    }
    const char *broken = n ? NULL : incomplete_step(l, folder);
    if (broken)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s/%s is damaged and there is no other step (ttrun ckpt verify says what "
                       "is wrong); restore it, or start over with --resume never",
                       folder, broken);
    if (want >= 0 && *step < 0)
        return tt_job_fail(l->s->job, "checkpoint.load_step", err, "%s has no step-%lld", folder,
                           (long long)want);
    return TT_OK;
}

static void note_random(const tt_setup *s)
{
    const char *unused = tt_setup_unused_weights(s);
    if (unused)
        tt_log(TT_INFO, "checkpoint",
               "weights: random; those of %s are loaded with checkpoint.initial_load_in_hf true",
               unused);
    else if (s->core.hf)
        tt_log(TT_INFO, "checkpoint", "weights: random, %s has no model.safetensors", s->core.hf);
    else
        tt_log(TT_INFO, "checkpoint", "weights: random");
}

/* Rank 0's last line of output of checkpoint.initial_load_command, on all ranks. [collective] */
static tt_status fetch_initial(tt_loop *l, const char **path, tt_error *err)
{
    enum { LONGEST = 4096 };
    tt_str out = {0};
    tt_error why = {0};
    tt_status s = TT_OK;
    char *text = tt_arena_alloc(l->rank.arena, LONGEST);
    if (l->main) {
        tt_log(TT_INFO, "checkpoint", "checkpoint.initial_load_command: %s",
               l->s->core.checkpoint.initial_load_command);
        s = tt_shell(l->s->core.checkpoint.initial_load_command, NULL, 0, &out, &why);
    }
    while (out.n && strchr(" \t\r\n", out.s[out.n - 1]))
        out.s[--out.n] = 0;
    const char *line = out.n && strrchr(out.s, '\n') ? strrchr(out.s, '\n') + 1 : tt_str_get(&out);
    if (l->main && s == TT_OK && (!*line || strlen(line) >= LONGEST))
        s = TT_FAIL(&why, TT_EINVAL, "its last line must be the path of a folder");
    if (s != TT_OK)
        tt_job_fail(l->s->job, "checkpoint.initial_load_command", err, "%s", why.text);
    s = tt_agree(&l->rank.dist, s != TT_OK ? TT_EINVAL : TT_OK, err);
    if (s == TT_OK)
        s = tt_share_text(&l->rank.dist, l->main ? line : NULL, text, LONGEST, err);
    tt_str_free(&out);
    *path = text;
    return s;
}

/* What the line about a damaged step ends with. */
static const char *advice(const tt_loop *l)
{
    return tt_arena_printf(l->rank.arena, "%s, or start over with --resume never",
                           l->s->core.checkpoint.load_step < 0
                               ? "continue from an older step with --checkpoint.load_step"
                               : "remove that step to continue from the one before");
}

/* Rank 0 checks all but the hashes before anything is read: names, sizes, that the tensors are whole. Where something is
 * wrong the hashes say it best: a file with a changed header has no tensors, but it is the file that has changed. */
static tt_status check_whole(const tt_loop *l, const char *at, tt_error *err)
{
    tt_str faults = {0};
    tt_error why = {0};
    if (!l->main)
        return TT_OK;
    tt_status s = tt_ckpt_check_written(at, &faults, &why);
    if (s != TT_OK) {
        tt_str_free(&faults);
        tt_ckpt_verify(at, &faults, &why);
        s = TT_FAIL(err, TT_EFORMAT, "%.*s; %s",
                    faults.n ? (int)strcspn(faults.s, "\n") : (int)strlen(why.text),
                    faults.n ? faults.s : why.text, advice(l));
    }
    tt_str_free(&faults);
    return s;
}

/* A learning rate that `ttrun ctl` has set stays, unless the job has another one now. */
static void resume_rate(tt_loop *l, const tt_trainer_state *st)
{
    const double job = tt_loop_job_lr(l);
    if (!st->has_lr)
        return;
    const bool stays = !(st->lr_of_job < job) && !(st->lr_of_job > job);
    if (stays)
        l->lr_base = st->lr;
    if (l->main && stays)
        tt_log(
            TT_INFO, "train",
            "optimizer.lr stays %g, as ttrun ctl has set it; the job says %g (ttrun ctl RUN_DIR lr "
            "job, or another optimizer.lr, ends that)",
            st->lr, job);
    else if (l->main)
        tt_log(TT_INFO, "train",
               "optimizer.lr is the job's new one, %g; ttrun ctl had set %g where the job said %g",
               job, st->lr, st->lr_of_job);
}

/* Converters that `ttrun ctl` has set stay, unless the job has other ones now. NULL: the job's. */
static const char *resume_converters(const tt_loop *l, const tt_trainer_state *st)
{
    if (!st->converters)
        return NULL;
    const bool stay = keeps_converters(l, st);
    if (l->main && stay)
        tt_log(TT_INFO, "train",
               "converters stay %s, as ttrun ctl has set them; the job says %s (ttrun ctl RUN_DIR "
               "set converters job, or other converters in the job, end that)",
               st->converters, l->swap.of_job);
    else if (l->main)
        tt_log(TT_INFO, "train",
               "converters are the job's new ones, %s; ttrun ctl had set %s where the job said %s",
               l->swap.of_job, st->converters, st->converters_of_job);
    return stay ? st->converters : NULL;
}

/* ---- the state of a checkpoint ---- */

/* What of a checkpoint is not loaded (checkpoint.exclude_from_loading). */
typedef struct left_out {
    bool optimizer, lr_scheduler, dataloader, train_state;
} left_out;

static left_out excluded(const tt_loop *l)
{
    const tt_strings *names = &l->s->core.checkpoint.exclude_from_loading;
    left_out x = {0};
    for (size_t i = 0; i < names->n; i++) {
        x.optimizer |= !strcmp(names->items[i], "optimizer");
        x.lr_scheduler |= !strcmp(names->items[i], "lr_scheduler");
        x.dataloader |= !strcmp(names->items[i], "dataloader");
        x.train_state |= !strcmp(names->items[i], "train_state");
    }
    return x;
}

/* Goes on counting where a state ended. */
static void count_on(tt_loop *l, const tt_trainer_state *st, const left_out *x)
{
    const int64_t step = x->train_state ? 0 : st->step;
    l->step = step;
    l->tokens_seen = x->train_state ? 0 : st->tokens_seen;
    l->samples_seen = x->dataloader ? 0 : st->samples_seen;
    l->loss = st->last_loss;
    l->since = x->train_state ? (tt_log_sums){0} : st->since;
    l->trained_before = x->train_state ? 0 : st->train_seconds;
    if (!x->train_state)
        tt_losses_resume(&l->losses, st);
    l->optimizer_from = x->optimizer ? step : step - (st->step - st->optimizer_from);
    l->schedule_from = x->lr_scheduler ? step : step - (st->step - st->schedule_from);
    resume_rate(l, st);
}

/* Loads a checkpoint and goes on counting where it ended. Each file's hash is checked by one rank, which reads it once
 * for both; all ranks go on only if all files are as they were written. [collective] What is left out begins anew: the optimizer's states
 * are zero, and it counts its updates from 1; the schedule of the learning rate begins, and spans the steps that
 * are left; the data begins at its first sample; steps and tokens are counted from 0. */
static tt_status take_state(tt_loop *l, const char *at, const tt_trainer_state *st,
                            const left_out *x, tt_error *err)
{
    const int64_t step = x->train_state ? 0 : st->step;
    TT_TRY(tt_ckpt_check_counts(at, st, err));
    TT_TRY(tt_swap_to_step(l, resume_converters(l, st), step, err));
    TT_TRY(check_same_model(l, at, st, err));
    TT_TRY(tt_agree(&l->rank.dist, check_whole(l, at, err), err));
    bool states = st->step > 0 && !x->optimizer; /* step 0 has weights alone */
    if (states)
        TT_TRY(tt_rank_lacks_states(&l->rank, at, &l->weights_alone, err));
    states = states && !l->weights_alone;
    const tt_load_opts o = {
        .optimizer = states, .report = l->main, .advice = advice(l), .writers = st->world};
    TT_TRY(tt_agree(&l->rank.dist, tt_begin_load_step(&l->rank, at, st, &o, err), err));
    TT_TRY(tt_loop_resume_frozen(l, st, err));
    if (!states)
        TT_TRY(tt_rank_start_copies(&l->rank, NULL, err));
    count_on(l, st, x);
    if (l->main && (x->optimizer || x->lr_scheduler || x->dataloader || x->train_state))
        tt_log(TT_INFO, "checkpoint", "checkpoint.exclude_from_loading: begins anew:%s%s%s%s",
               x->optimizer ? " optimizer" : "", x->lr_scheduler ? " lr_scheduler" : "",
               x->dataloader ? " dataloader" : "", x->train_state ? " train_state" : "");
    return TT_OK;
}

/* The whole state of another run's checkpoint (checkpoint.initial_load_model_only false). */
static tt_status continue_other(tt_loop *l, const char *at, tt_error *err)
{
    tt_trainer_state st;
    const left_out x = excluded(l);
    const int64_t t0 = tt_now_ns();
    if (!tt_path_exists(tt_path_join(l->rank.arena, at, "trainer.json")))
        return TT_FAIL(err, TT_EINVAL,
                       "%s has no trainer.json, so there are only weights to load: leave out "
                       "checkpoint.initial_load_model_only",
                       at);
    TT_TRY(tt_ckpt_read_state(at, l->rank.arena, &st, err));
    TT_TRY(take_state(l, at, &st, &x, err));
    if (!l->main)
        return TT_OK;
    tt_log(TT_INFO, "checkpoint", "continues from %s, next is step %lld (loaded in %.2f s)", at,
           (long long)l->step + 1, tt_seconds_since(t0));
    print_differences(l, &st, "", TT_INFO, "differs from the job that wrote it");
    return TT_OK;
}

static tt_status initial_load(tt_loop *l, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const char *path = c->initial_load_path;
    if (c->initial_load_command)
        TT_TRY(fetch_initial(l, &path, err));
    if (!path && !c->save_frozen)
        return tt_job_fail(l->s->job, "checkpoint.save_frozen", err,
                           "false: checkpoint.initial_load_path must name the weights that the "
                           "frozen parameters have, since no checkpoint does");
    if (!path) {
        if (l->main)
            note_random(l->s);
        return TT_OK;
    }
    path = tt_path_join(l->rank.arena, tt_job_dir(l->s->job), path);
    path = tt_begin_newest(l->rank.arena, path);
    TT_TRY(tt_begin_check(l->s, path, err));
    tt_error why = {0};
    const int64_t t0 = tt_now_ns();
    const tt_status s = c->initial_load_model_only ? tt_begin_load(&l->rank, path, l->main, &why)
                                                   : continue_other(l, path, &why);
    if (s == TT_ECOMM) { /* the rank that failed says why */
        *err = why;
        return s;
    }
    if (s != TT_OK)
        return tt_job_fail(l->s->job, "checkpoint.initial_load_path", err, "%s", why.text);
    if (!c->initial_load_model_only)
        return TT_OK;
    TT_TRY(tt_loop_leave_frozen(l, path, err));
    tt_trainer_state st;
    if (!l->main || tt_setup_is_adapter(l->s, path))
        return TT_OK;
    const bool hf = tt_begin_is_hf(l->s, path);
    tt_log(TT_INFO, "checkpoint", "weights: %s%s, loaded in %.2f s", path,
           hf ? " (Hugging Face's)" : "", tt_seconds_since(t0));
    if (!hf && tt_ckpt_read_state(path, l->rank.arena, &st, &why) == TT_OK)
        print_differences(l, &st, "model.args.", TT_WARN,
                          "the weights belong to a model with other arguments");
    return TT_OK;
}

/* What is left out of a checkpoint of this run's folder. It is left out once: not of what a run with the same list
 * has saved since. */
static tt_status excluded_now(const tt_loop *l, const tt_trainer_state *st, left_out *out,
                              tt_error *err)
{
    static const char key[] = "checkpoint.exclude_from_loading";
    tt_str diff = {0};
    *out = (left_out){0};
    tt_job_changes(st->job_json, l->s->job, &diff);
    const bool same = !strstr(tt_str_get(&diff), key);
    tt_str_free(&diff);
    if (same)
        return TT_OK;
    *out = excluded(l);
    if (out->train_state)
        return tt_job_fail(l->s->job, key, err,
                           "train_state: the checkpoints of this dump_folder are numbered by it; "
                           "take another dump_folder, and checkpoint.initial_load_path with "
                           "initial_load_model_only false");
    return TT_OK;
}

/* The states are those of a copy that a supervisor has kept. */
static tt_status resume_copy(tt_loop *l, const tt_trainer_state *st, tt_error *err)
{
    const left_out none = {0};
    const char *ranks = st->world == l->s->world
                            ? ""
                            : tt_arena_printf(l->rank.arena, " (made by %d ranks)", st->world);
    count_on(l, st, &none);
    TT_TRY(tt_loop_resume_frozen(l, st, err));
    l->resumed = true;
    l->validation_due = st->validation_due && l->s->has_validation;
    if (l->main)
        tt_log(TT_INFO, "checkpoint",
               "resumed from the supervisor's copy of step %lld, next is step %lld%s",
               (long long)st->step, (long long)st->step + 1, ranks);
    return TT_OK;
}

tt_status tt_loop_load_first(tt_loop *l, tt_error *err)
{
    TT_TRY(tt_rank_init_params(&l->rank, err));
    TT_TRY(initial_load(l, err));
    return l->step ? TT_OK : tt_rank_start_copies(&l->rank, NULL, err);
}

tt_status tt_loop_resume(tt_loop *l, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const char *folder = tt_loop_step_folders(l, l->rank.arena);
    int64_t step = -1;
    const int64_t t0 = tt_now_ns();
    left_out x;
    bool copied = false;
    tt_trainer_state st;
    if (c->enable && l->o->resume) {
        const tt_status found = find_step(l, folder, &step, err);
        TT_TRY(l->peer ? tt_agree(&l->rank.dist, found, err) : found);
        TT_TRY(tt_loop_peer_load(l, step, &st, &copied, err));
    }
    if (copied)
        return resume_copy(l, &st, err);
    tt_loop_peer_leave(l); /* another program may take over */
    if (step < 0) {
        TT_TRY(initial_load(l, err));
        return l->step ? TT_OK : tt_rank_start_copies(&l->rank, NULL, err);
    }
    const char *at = tt_arena_printf(l->rank.arena, "%s/step-%lld", folder, (long long)step);
    TT_TRY(tt_ckpt_read_state(at, l->rank.arena, &st, err));
    TT_TRY(excluded_now(l, &st, &x, err));
    TT_TRY(take_state(l, at, &st, &x, err));
    l->resumed = true;
    l->validation_due = st.validation_due && l->s->has_validation;
    if (!l->main)
        return TT_OK;
    tt_log(TT_INFO, "checkpoint", "resumed from %s, next is step %lld (loaded in %.2f s)", at,
           (long long)step + 1, tt_seconds_since(t0));
    print_differences(l, &st, "", TT_INFO, "differs from the job that wrote it");
    return TT_OK;
}
