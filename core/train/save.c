/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange.h"
#include "train/loop.h"
#include <dirent.h>
#include <string.h>

/* When to save (saver.c does the work), and how to resume. */

static const char *step_folders(const tt_loop *l, tt_arena *a)
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

/* job: what tt_saver_opts points to, until the call has returned. */
static tt_saver_opts saver_opts(tt_loop *l, tt_str *job)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    tt_job_print(l->s->job, false, job);
    return (tt_saver_opts){
        .rank = &l->rank,
        .folder = step_folders(l, l->rank.programs),
        .held = l->folder,
        .state = {.job_json = tt_str_get(job),
                  .model_fingerprint = l->s->model_fingerprint,
                  .tokenizer_fingerprint = l->data.tokenizer_info.fingerprint,
                  .converters_of_job = tt_loop_has_own_converters(l) ? l->swap.of_job : NULL,
                  .converters = tt_loop_has_own_converters(l) ? l->swap.list : NULL,
                  .averaged = averaged_state(l->s->graph),
                  .world = l->s->world},
        .keep = {.latest = c->keep_latest_k,
                  .every = c->keep_every,
                  .bytes = (int64_t)(c->keep_gb * 1e9)                                       },
        .after_save = c->after_save,
        .published = c->hf_interval > 0 ? tt_loop_save_hf : NULL,
        .user = l,
        .goes_on = c->on_error == TT_ON_ERROR_CONTINUE,
        .background = c->async_mode != TT_ASYNC_DISABLED
    };
}

tt_status tt_loop_open_saver(tt_loop *l, tt_error *err)
{
    tt_str job = {0};
    l->saved_ns = tt_now_ns();
    if (!l->s->core.checkpoint.enable || l->s->core.checkpoint.load_only)
        return TT_OK;
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

static double rate_of_job(const tt_loop *l)
{
    return *tt_optimizer_rate(l->s->optimizer.component, l->s->optimizer.config);
}

bool tt_loop_has_own_lr(const tt_loop *l)
{
    const double job = rate_of_job(l);
    return l->lr_base < job || l->lr_base > job;
}

bool tt_loop_has_own_converters(const tt_loop *l)
{
    return strcmp(l->swap.list, l->swap.of_job) != 0;
}

tt_status tt_loop_save(tt_loop *l, bool model_only, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    const tt_trainer_state st = {.step = l->step,
                                 .tokens_seen = l->tokens_seen,
                                 .samples_seen = l->samples_seen,
                                 .last_loss = l->loss,
                                 .validation_due = l->validation_due,
                                 .has_lr = tt_loop_has_own_lr(l),
                                 .lr = l->lr_base,
                                 .lr_of_job = rate_of_job(l)};
    if (l->ctl_saving) { /* of a step before */
        TT_TRY(tt_saver_finish(l->saver, err));
        tt_loop_answer_save(l);
    }
    TT_TRY(tt_saver_start(l->saver, &st, model_only, err));
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
    if (d->vt)
        TT_TRY(d->vt->all_reduce(d->all, &all, 1, TT_I32, TT_MAX, err));
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

bool tt_loop_save_due(const tt_loop *l)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const bool steps = c->interval_type == TT_INTERVAL_STEPS;
    return l->saver && (tt_loop_due(l, l->step, steps ? c->interval : INT64_MAX) ||
                        tt_loop_due(l, l->step, c->hf_interval) ||
                        (l->step == 1 && c->enable_first_step_checkpoint));
}

bool tt_loop_save_time(const tt_loop *l)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    return l->saver && c->interval_type == TT_INTERVAL_SECONDS &&
           tt_seconds_since(l->saved_ns) >= (double)c->interval;
}

/* ---- resume ---- */

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

/* Logs the differences between two jobs whose key begins with `of`. */
static void print_differences(const tt_loop *l, const tt_trainer_state *st, const char *of,
                              tt_log_level level, const char *text)
{
    tt_str now = {0}, diff = {0};
    tt_job_print(l->s->job, false, &now);
    tt_job_diff(st->job_json, tt_str_get(&now), &diff);
    char *line = diff.n ? diff.s : NULL;
    while (line && *line) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (!strncmp(line, of, strlen(of)))
            tt_log(level, "train", "%s: %s", text, line);
        line = end ? end + 1 : NULL;
    }
    tt_str_free(&now);
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
    for (size_t i = 0; i < TT_COUNT(how_long); i++)
        if (!strncmp(line, how_long[i], strlen(how_long[i])))
            return false;
    for (size_t i = 0; i < TT_COUNT(of); i++)
        if (!strncmp(line, of[i], strlen(of[i])))
            return true;
    return false;
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
    tt_str now = {0}, diff = {0};
    const char *at = tt_arena_printf(a, "%s/step-%lld", folder, (long long)step);
    bool same = tt_ckpt_read_state(at, a, &st, &ignored) == TT_OK;
    if (same) {
        tt_job_print(l->s->job, false, &now);
        tt_job_diff(st.job_json, tt_str_get(&now), &diff);
    }
    for (const char *line = tt_str_get(&diff); same && line; line = strchr(line, '\n')) {
        line += *line == '\n';
        same = !changes_training(line) ||
               (!strncmp(line, "converters", 10) && keeps_converters(l, &st));
    }
    tt_str_free(&now);
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

/* An adapter belongs on the weights of model.hf. */
static tt_status load_adapter(tt_loop *l, const char *path, tt_error *err)
{
    const char *base = l->s->core.hf;
    if (!base || !tt_hf_has_weights(base))
        return TT_FAIL(err, TT_EINVAL,
                       "%s is an adapter: model.hf must name the folder with the weights that it "
                       "belongs to",
                       path);
    TT_TRY(tt_rank_load_hf(&l->rank, base, l->main, err));
    TT_TRY(tt_rank_load_adapter(&l->rank, path, l->main, err));
    if (l->main)
        tt_log(TT_INFO, "checkpoint", "weights: %s (Hugging Face's), adapters: %s", base, path);
    return TT_OK;
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

static tt_status initial_load(tt_loop *l, tt_error *err)
{
    const char *path = l->s->core.checkpoint.initial_load_path;
    if (l->s->core.checkpoint.initial_load_command)
        TT_TRY(fetch_initial(l, &path, err));
    if (!path) {
        if (l->main)
            note_random(l->s);
        return TT_OK;
    }
    path = tt_path_join(l->rank.arena, tt_job_dir(l->s->job), path);
    tt_error why = {0};
    if (tt_adapter_is_folder(path)) {
        if (load_adapter(l, path, &why) == TT_OK)
            return TT_OK;
        return tt_job_fail(l->s->job, "checkpoint.initial_load_path", err, "%s", why.text);
    }
    const bool hf = l->s->core.checkpoint.initial_load_in_hf || tt_hf_has_weights(path);
    const tt_status s = hf ? tt_rank_load_hf(&l->rank, path, l->main, &why)
                           : tt_rank_load_initial(&l->rank, path, l->main, &why);
    if (s != TT_OK)
        return tt_job_fail(l->s->job, "checkpoint.initial_load_path", err, "%s", why.text);
    if (!l->main)
        return TT_OK;
    tt_log(TT_INFO, "checkpoint", "weights: %s%s", path, hf ? " (Hugging Face's)" : "");
    tt_trainer_state st;
    if (!hf && tt_ckpt_read_state(path, l->rank.arena, &st, &why) == TT_OK)
        print_differences(l, &st, "model.args.", TT_WARN,
                          "the weights belong to a model with other arguments");
    return TT_OK;
}

/* Rank 0 checks the hash of every file once. The bytes that it reads are in the page cache then, so
 * loading does not read them again. */
static tt_status check_whole(tt_loop *l, const char *at, tt_error *err)
{
    tt_str faults = {0};
    tt_error why = {0};
    if (!l->main)
        return TT_OK;
    tt_status s = tt_ckpt_verify(at, &faults, &why);
    if (s != TT_OK)
        s = TT_FAIL(err, TT_EFORMAT,
                    "%.*s; continue from an older step with --checkpoint.load_step, or start over "
                    "with --resume never",
                    faults.n ? (int)strcspn(faults.s, "\n") : (int)strlen(why.text),
                    faults.n ? faults.s : why.text);
    tt_str_free(&faults);
    return s;
}

/* A learning rate that `ttrun ctl` has set stays, unless the job has another one now. */
static void resume_rate(tt_loop *l, const tt_trainer_state *st)
{
    const double job = rate_of_job(l);
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

tt_status tt_loop_resume(tt_loop *l, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const char *folder = step_folders(l, l->rank.arena);
    int64_t step = -1;
    if (c->enable && l->o->resume)
        TT_TRY(find_step(l, folder, &step, err));
    if (step < 0) {
        TT_TRY(initial_load(l, err));
        return tt_rank_start_copies(&l->rank, NULL, err);
    }
    const char *at = tt_arena_printf(l->rank.arena, "%s/step-%lld", folder, (long long)step);
    tt_trainer_state st;
    TT_TRY(tt_ckpt_read_state(at, l->rank.arena, &st, err));
    TT_TRY(tt_ckpt_check_counts(at, &st, err));
    TT_TRY(tt_swap_to_step(l, resume_converters(l, &st), st.step, err));
    TT_TRY(check_same_model(l, at, &st, err));
    TT_TRY(check_whole(l, at, err));
    TT_TRY(tt_rank_load(&l->rank, at, true, l->main, err));
    l->resumed = true;
    l->step = st.step;
    l->tokens_seen = st.tokens_seen;
    l->samples_seen = st.samples_seen;
    l->loss = st.last_loss;
    l->validation_due = st.validation_due && l->s->has_validation;
    resume_rate(l, &st);
    if (!l->main)
        return TT_OK;
    tt_log(TT_INFO, "checkpoint", "resumed from %s, next is step %lld", at, (long long)step + 1);
    print_differences(l, &st, "", TT_INFO, "differs from the job that wrote it");
    return TT_OK;
}
