/* SPDX-License-Identifier: Apache-2.0 */
#include "train/saver.h"

/* What follows a save on the thread of rank 0 that has published it. The step is saved: a failure here is a line of
 * the log. */

static tt_status saved_folder(const tt_saver_opts *o, tt_error *err)
{
    return o->held ? tt_run_folder_check(o->held, err) : TT_OK;
}

/* $1: the folder of the step, $2 and so on: its files. */
static tt_status run_after_save(const tt_saver_opts *o, int64_t saved, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char **names = NULL, **args;
    size_t n = 0;
    const char *step = tt_arena_printf(a, "%s/step-%lld", o->folder, (long long)saved);
    const int64_t t0 = tt_now_ns();
    tt_status status = tt_folder_names(a, step, NULL, &names, &n, err);
    args = tt_arena_array(a, n + 1, sizeof *args);
    args[0] = step;
    for (size_t i = 0; i < n; i++)
        args[1 + i] = tt_path_join(a, step, names[i]);
    if (status == TT_OK)
        status = tt_shell_within(o->after_save, args, n + 1, o->limit_s, err);
    if (status == TT_ETIMEOUT)
        tt_error_context(err, "checkpoint.save_timeout_seconds");
    if (status == TT_OK)
        tt_log(TT_DEBUG, "checkpoint", "checkpoint.after_save took %.2f s for %s",
               1e-9 * (double)(tt_now_ns() - t0), step);
    tt_arena_free(a);
    return status;
}

void tt_saved_validated(const tt_saver_opts *o, int64_t step)
{
    tt_arena *a = tt_arena_new();
    tt_error e = {0};
    const char *at = tt_arena_printf(a, "%s/step-%lld", o->folder, (long long)step);
    if (tt_path_exists(at) && saved_folder(o, &e) == TT_OK &&
        tt_ckpt_set_validated(at, &e) != TT_OK)
        tt_log(TT_WARN, "checkpoint",
               "%s does not say that its validation has ended, so a run that resumes from it "
               "validates again: %s",
               at, e.text);
    tt_arena_free(a);
}

void tt_saved_follow(const tt_saver_opts *o, int64_t step)
{
    tt_error e = {0};
    const long long n = step;
    if (o->after_save && run_after_save(o, step, &e) != TT_OK)
        tt_log(TT_WARN, "checkpoint", "step %lld is saved, but checkpoint.after_save failed: %s", n,
               e.text);
    if (o->published)
        o->published(o->user, step);
    if (tt_ckpt_purge(o->folder, step, &o->keep, &e) != TT_OK)
        tt_log(TT_WARN, "checkpoint", "step %lld is saved, but older ones could not be removed: %s",
               n, e.text);
    if (o->held && tt_run_folder_list(o->held, &e) != TT_OK)
        tt_log(TT_WARN, "checkpoint", "step %lld is saved, but run.json does not list it: %s", n,
               e.text);
}
