/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/exports.h"
#include "setup/foreign.h"
#include "train/loop.h"
#include <sys/stat.h>

/* Exports saved steps as Hugging Face folders: the last one (checkpoint.last_save_in_hf), and every so many steps
 * (checkpoint.hf_interval). */

/* Whether an export belongs to this run's step: then it is newer than the saved step. An older one
 * belongs to an earlier run. */
static bool is_newer(const char *path, const char *than)
{
    struct stat a, b;
    if (stat(path, &a) != 0 || stat(than, &b) != 0)
        return false;
    return a.st_mtim.tv_sec != b.st_mtim.tv_sec ? a.st_mtim.tv_sec > b.st_mtim.tv_sec
                                                : a.st_mtim.tv_nsec > b.st_mtim.tv_nsec;
}

static tt_status export_step(const tt_loop *l, tt_arena *a, int64_t step, bool replace,
                             tt_error *err)
{
    const tt_core_config *c = &l->s->core;
    const char *steps = tt_path_join(a, c->dump_folder, c->checkpoint.folder);
    const char *from = tt_arena_printf(a, "%s/step-%lld", steps, (long long)step);
    const char *hf = tt_path_join(a, c->dump_folder, "hf");
    const char *tmp = tt_arena_printf(a, "%s/step-%lld.tmp", hf, (long long)step);
    const char *config = tt_arena_printf(a, "%s/step-%lld/config.json", hf, (long long)step);
    const int64_t t0 = tt_now_ns();
    if (!replace && is_newer(config, tt_path_join(a, from, "trainer.json")))
        return tt_exports_link_newest(hf, err);
    TT_TRY(l->s->foreign->export_step(l->s, from, tmp, &l->data.tokenizer_info, l->data.tokenizer,
                                      err));
    TT_TRY(tt_exports_publish(hf, step, err));
    tt_log(TT_INFO, "checkpoint", "saved %s/step-%lld for Hugging Face in %.2f s", hf,
           (long long)step, tt_seconds_since(t0));
    return c->checkpoint.hf_keep > 0 ? tt_exports_purge(hf, c->checkpoint.hf_keep, err) : TT_OK;
}

static tt_status export_and_list(const tt_loop *l, int64_t step, bool replace, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_status s = export_step(l, a, step, replace, err);
    if (s == TT_OK)
        s = tt_run_folder_list(l->folder, err);
    tt_arena_free(a);
    return s;
}

tt_status tt_loop_save_last_hf(tt_loop *l, bool replace, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    if (!l->main || !(c->last_save_in_hf || c->hf_interval > 0))
        return TT_OK;
    if (export_and_list(l, l->step, replace, err) == TT_OK)
        return tt_loop_hooks_exported(l, l->step, err);
    return tt_error_context(err, c->last_save_in_hf ? "checkpoint.last_save_in_hf"
                                                    : "checkpoint.hf_interval");
}

void tt_loop_save_hf(void *loop, int64_t step)
{
    tt_loop *l = loop;
    tt_error e = {0};
    if (step % l->s->core.checkpoint.hf_interval || step == l->steps)
        return; /* the last one belongs to the end of the run */
    if (export_and_list(l, step, true, &e) != TT_OK)
        tt_log(TT_WARN, "checkpoint",
               "step %lld is saved, but not for Hugging Face (checkpoint.hf_interval): %s",
               (long long)step, e.text);
    else
        l->exported = step;
}
