/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/exports.h"
#include "checkpoint/internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder of exported steps: step-N, of which each is complete or not there, and latest, a link to the newest. */

/* Makes FOLDER/latest link to step-N by a rename, so that it always exists. */
static tt_status link_latest(tt_arena *a, const char *folder, const char *name, tt_error *err)
{
    const char *link = tt_path_join(a, folder, "latest");
    const char *link_tmp = tt_path_join(a, folder, "latest.tmp");
    (void)unlink(link_tmp); /* left by a run that was killed */
    if (symlink(name, link_tmp) != 0)
        return tt_fail_system(err, errno, "make", link_tmp);
    if (rename(link_tmp, link) != 0)
        return tt_fail_system(err, errno, "rename", link_tmp);
    return tt_fsync_path(folder, err);
}

static bool is_step(const char *name)
{
    return tt_step_of_name(name, NULL) >= 0;
}

static tt_status link_newest(tt_arena *a, const char *folder, tt_error *err)
{
    const char **names = NULL, *newest = NULL;
    size_t n = 0;
    char now[64] = "";
    TT_TRY(tt_folder_names(a, folder, is_step, &names, &n, err));
    for (size_t i = 0; i < n; i++)
        if (!newest || tt_step_of_name(names[i], NULL) > tt_step_of_name(newest, NULL))
            newest = names[i];
    const char *link = tt_path_join(a, folder, "latest");
    const bool linked = readlink(link, now, sizeof now - 1) > 0;
    if (newest)
        return linked && !strcmp(now, newest) ? TT_OK : link_latest(a, folder, newest, err);
    if (linked && unlink(link) != 0)
        return tt_fail_system(err, errno, "remove", link);
    return TT_OK;
}

tt_status tt_exports_link_newest(const char *folder, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const tt_status s = link_newest(a, folder, err);
    tt_arena_free(a);
    return s;
}

static tt_status publish(tt_arena *a, const char *folder, int64_t step, tt_error *err)
{
    const char *name = tt_arena_printf(a, "step-%lld", (long long)step);
    const char *final = tt_path_join(a, folder, name);
    const char *tmp = tt_arena_printf(a, "%s.tmp", final);
    TT_TRY(tt_fsync_path(tmp, err));
    if (tt_path_exists(final))
        TT_TRY(tt_ckpt_replace_by_renames(a, tmp, final, err));
    else if (rename(tmp, final) != 0)
        return tt_fail_system(err, errno, "rename", tmp);
    return link_latest(a, folder, name, err);
}

tt_status tt_exports_publish(const char *folder, int64_t step, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const tt_status s = publish(a, folder, step, err);
    tt_arena_free(a);
    return s;
}

static int newest_first(const void *a, const void *b)
{
    const int64_t x = tt_step_of_name(*(const char *const *)a, NULL),
                  y = tt_step_of_name(*(const char *const *)b, NULL);
    return x > y ? -1 : x < y;
}

tt_status tt_exports_purge(const char *folder, int64_t keep, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    tt_arena *a = tt_arena_new();
    tt_status s = tt_folder_names(a, folder, is_step, &names, &n, err);
    if (s == TT_OK && n > 0)
        qsort(names, n, sizeof *names, newest_first);
    for (size_t i = (size_t)keep; s == TT_OK && i < n; i++) {
        s = tt_step_remove(a, folder, tt_step_of_name(names[i], NULL), err);
        if (s == TT_OK)
            tt_log(TT_INFO, "checkpoint", "removed %s/%s (checkpoint.hf_keep)", folder, names[i]);
    }
    tt_arena_free(a);
    return s;
}
