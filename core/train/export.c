/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/interchange.h"
#include "train/loop.h"
#include <sys/stat.h>

/* Exports the last saved step as a Hugging Face folder (checkpoint.last_save_in_hf). */

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

static tt_status export_step(const tt_loop *l, tt_arena *a, bool replace, tt_error *err)
{
    const tt_core_config *c = &l->s->core;
    const char *steps = tt_path_join(a, c->dump_folder, c->checkpoint.folder);
    const char *from = tt_arena_printf(a, "%s/step-%lld", steps, (long long)l->step);
    const char *hf = tt_path_join(a, c->dump_folder, "hf");
    const char *tmp = tt_arena_printf(a, "%s/step-%lld.tmp", hf, (long long)l->step);
    const char *config = tt_arena_printf(a, "%s/step-%lld/config.json", hf, (long long)l->step);
    const int64_t t0 = tt_now_ns();
    if (!replace && is_newer(config, tt_path_join(a, from, "trainer.json")))
        return tt_hf_link_newest(hf, err);
    const tt_hf_export o = {.tokenizer = l->data.tokenizer ? &l->data.tokenizer_info : NULL,
                            .step_folder = from,
                            .folder = tmp,
                            .run = c->dump_folder};
    TT_TRY(tt_setup_write_hf(l->s, &o, err));
    TT_TRY(tt_hf_publish(hf, l->step, err));
    tt_log(TT_INFO, "checkpoint", "saved %s/step-%lld for Hugging Face in %.2f s", hf,
           (long long)l->step, tt_seconds_since(t0));
    return TT_OK;
}

tt_status tt_loop_save_hf(const tt_loop *l, bool replace, tt_error *err)
{
    if (!l->main || !l->s->core.checkpoint.last_save_in_hf)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    tt_status s = export_step(l, a, replace, err);
    if (s != TT_OK)
        s = tt_error_context(err, "checkpoint.last_save_in_hf");
    tt_arena_free(a);
    return s;
}
