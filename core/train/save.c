/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <stdlib.h>
#include <string.h>

/* Saving and resuming. A save is begin (rank 0) · write (every rank) · commit (rank 0); each phase ends in agreement. */

static tt_status agree(tt_loop *l, tt_status s, tt_error *err)
{
    return tt_agree(&l->rank.dist, s, err);
}

static tt_status commit(tt_loop *l, tt_error *err)
{
    tt_str job = {0};
    tt_job_print(l->s->job, false, &job);
    const tt_trainer_state st = {.step = l->step,
                                 .tokens_seen = l->tokens_seen,
                                 .samples_seen = l->samples_seen,
                                 .job_json = tt_str_get(&job),
                                 .model_fingerprint = l->s->model_fingerprint,
                                 .tokenizer_fingerprint = l->tokenizer_info.fingerprint,
                                 .last_loss = l->loss,
                                 .world = l->s->world};
    const tt_status s = tt_ckpt_commit(tt_path_join(l->rank.arena, l->s->core.dump_folder, l->s->core.checkpoint.folder), l->step, &st,
                                       l->s->core.checkpoint.keep_latest_k, err);
    tt_str_free(&job);
    return s;
}

static tt_status write_mine(tt_loop *l, bool model_only, const char *folder, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_piece *p;
    size_t n;
    tt_status s = tt_rank_pieces(&l->rank, a, !model_only, &p, &n, err);
    if (s == TT_OK) s = tt_ckpt_write(folder, l->step, l->rank.dist.rank, p, n, err);
    tt_arena_free(a);
    return s;
}

tt_status tt_loop_save(tt_loop *l, bool model_only, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    const char *folder = tt_path_join(l->rank.arena, l->s->core.dump_folder, l->s->core.checkpoint.folder);
    TT_TRY(agree(l, l->main ? tt_ckpt_begin(folder, l->step, err) : TT_OK, err));
    TT_TRY(agree(l, write_mine(l, model_only, folder, err), err));
    TT_TRY(agree(l, l->main ? commit(l, err) : TT_OK, err));
    l->t.checkpoint += tt_seconds_since(t0);
    if (l->main)
        tt_log(TT_INFO, "checkpoint", "saved %s/step-%lld in %.2f s", folder, (long long)l->step,
               tt_seconds_since(t0));
    return TT_OK;
}

/* ---- resume ---- */

static tt_status check_same_model(const tt_loop *l, const char *folder, const tt_trainer_state *st,
                                  tt_error *err)
{
    if (strcmp(st->model_fingerprint, l->s->model_fingerprint))
        return TT_FAIL(err, TT_EINVAL,
                       "%s was written by a model of another shape: use its model.args, or another "
                       "dump_folder",
                       folder);
    if (l->tokenizer && st->tokenizer_fingerprint && st->tokenizer_fingerprint[0] &&
        strcmp(st->tokenizer_fingerprint, l->tokenizer_info.fingerprint))
        return TT_FAIL(err, TT_EINVAL,
                       "%s was written with another tokenizer: use that one, or another dump_folder", folder);
    return TT_OK;
}

static void print_differences(const tt_loop *l, const tt_trainer_state *st)
{
    tt_str now = {0}, diff = {0};
    tt_job_print(l->s->job, false, &now);
    tt_job_diff(st->job_json, tt_str_get(&now), &diff);
    char *line = diff.n ? diff.s : NULL;
    while (line && *line) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        tt_log(TT_INFO, "train", "differs from the job that wrote it: %s", line);
        line = end ? end + 1 : NULL;
    }
    tt_str_free(&now);
    tt_str_free(&diff);
}

static tt_status find_step(tt_loop *l, const char *folder, int64_t *step, tt_error *err)
{
    int64_t *steps, want = l->s->core.checkpoint.load_step;
    size_t n;
    *step = -1;
    if (!tt_path_exists(folder)) return TT_OK;
    TT_TRY(tt_ckpt_list(folder, l->rank.arena, &steps, &n, err));
    for (size_t i = 0; i < n; i++)
        if (want < 0 || steps[i] == want) *step = steps[i];
    if (want >= 0 && *step < 0 && n)
        return tt_job_fail(l->s->job, "checkpoint.load_step", err, "%s has no step-%lld", folder,
                           (long long)want);
    return TT_OK;
}

static tt_status initial_load(tt_loop *l, tt_error *err)
{
    const char *path = l->s->core.checkpoint.initial_load_path;
    if (!path) return TT_OK;
    path = tt_path_join(l->rank.arena, tt_job_dir(l->s->job), path);
    tt_error why = {0};
    if (tt_rank_load(&l->rank, path, false, &why) != TT_OK)
        return tt_job_fail(l->s->job, "checkpoint.initial_load_path", err, "%s", why.text);
    if (l->main) tt_log(TT_INFO, "checkpoint", "weights from %s", path);
    return TT_OK;
}

tt_status tt_loop_resume(tt_loop *l, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const char *folder = tt_path_join(l->rank.arena, l->s->core.dump_folder, c->folder);
    int64_t step = -1;
    if (c->enable && l->o->resume) TT_TRY(find_step(l, folder, &step, err));
    if (step < 0) return initial_load(l, err);
    const char *at = tt_arena_printf(l->rank.arena, "%s/step-%lld", folder, (long long)step);
    tt_trainer_state st;
    TT_TRY(tt_ckpt_read_state(at, l->rank.arena, &st, err));
    TT_TRY(check_same_model(l, at, &st, err));
    TT_TRY(tt_rank_load(&l->rank, at, true, err));
    l->step = st.step;
    l->tokens_seen = st.tokens_seen;
    l->samples_seen = st.samples_seen;
    l->loss = st.last_loss;
    if (!l->main) return TT_OK;
    tt_log(TT_INFO, "checkpoint", "resumed from %s, next is step %lld", at, (long long)step + 1);
    print_differences(l, &st);
    return TT_OK;
}
