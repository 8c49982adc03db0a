/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* commit: the ranks' lists become trainer.json; sizes, headers and coverage of what is on the disk are
 * checked (each rank has read back what it wrote); one rename publishes it. Killed anywhere: the steps published before are whole, and this one is whole
 * or not there. */

static bool is_rank_list(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "rank-", 5) == 0 && n > 10 && strcmp(name + n - 5, ".json") == 0;
}

static tt_status merge_list(tt_arena *a, const char *path, const tt_manifest *from, tt_map *by_name,
                            tt_manifest *to, tt_error *err)
{
    for (size_t i = 0; i < from->files.n; i++)
        tt_vec_push(a, &to->files, from->files.items[i]);
    for (size_t i = 0; i < from->tensors.n; i++) {
        tt_ckpt_tensor *t = &from->tensors.items[i], *known = tt_map_get(by_name, t->name);
        if (!known) {
            tt_map_set(by_name, t->name, t);
            tt_vec_push(a, &to->tensors, *t);
        } else if (known->n_dims != t->n_dims ||
                   memcmp(known->shape, t->shape, sizeof t->shape) != 0 ||
                   strcmp(known->dtype_name, t->dtype_name) != 0) {
            return TT_FAIL(err, TT_EINVAL,
                           "%s: tensor '%s' has another shape or dtype than on the ranks before",
                           path, t->name);
        }
    }
    return TT_OK;
}

static tt_status merge_lists(tt_arena *a, const char *tmp, int world, tt_manifest *out,
                             tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    tt_map *by_name = tt_map_new(a);
    TT_TRY(tt_folder_names(a, tmp, is_rank_list, &names, &n, err));
    for (int r = 0; r < world; r++) {
        const char *list = tt_arena_printf(a, "%s/rank-%05d.json", tmp, r + 1);
        if (!tt_path_exists(list))
            return TT_FAIL(
                err, TT_EIO,
                "%s: rank %d has not written its part; is the folder shared by all machines?", tmp,
                r);
    }
    for (size_t i = 0; i < n; i++) {
        char *text;
        size_t bytes;
        tt_manifest m;
        const char *path = tt_path_join(a, tmp, names[i]);
        TT_TRY(tt_read_file(path, TT_STATE_MAX_BYTES, &text, &bytes, err));
        tt_status status = tt_manifest_parse(a, path, text, bytes, &m, err);
        free(text);
        TT_TRY(status);
        TT_TRY(merge_list(a, path, &m, by_name, out, err));
    }
    return TT_OK;
}

static tt_status write_state(tt_arena *a, const char *tmp, const tt_trainer_state *state,
                             const tt_manifest *m, tt_error *err)
{
    tt_str text = {0};
    tt_status status = tt_state_print(state, m, &text, err);
    if (status == TT_OK)
        status = tt_write_file_atomic(tt_path_join(a, tmp, TT_STATE_FILE), text.s, text.n, err);
    tt_str_free(&text);
    return status;
}

tt_status tt_ckpt_set_validated(const char *step_folder, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_trainer_state state;
    tt_manifest m = {0};
    tt_status s = tt_ckpt_state_from_file(a, step_folder, &state, &m, err);
    if (s == TT_OK && state.validation_due) {
        state.validation_due = false;
        s = write_state(a, step_folder, &state, &m, err);
    }
    tt_arena_free(a);
    return s;
}

static tt_status remove_lists(tt_arena *a, const char *tmp, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    TT_TRY(tt_folder_names(a, tmp, is_rank_list, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        const char *path = tt_path_join(a, tmp, names[i]);
        if (unlink(path) != 0)
            return tt_fail_system(err, errno, "remove", path);
    }
    return tt_fsync_path(tmp, err);
}

/* Where the file system cannot exchange two names: the former one moves aside (begin brings it back
 * after a kill in between), the new one takes its name. */
tt_status tt_ckpt_replace_by_renames(tt_arena *a, const char *tmp, const char *final, tt_error *err)
{
    const char *old = tt_arena_printf(a, "%s.old-%ld", final, (long)getpid());
    TT_TRY(tt_remove_tree(old, err));
    if (rename(final, old) != 0)
        return tt_fail_system(err, errno, "rename", final);
    if (rename(tmp, final) != 0) {
        int number = errno;
        if (rename(old, final) != 0)
            tt_log(TT_WARN, "checkpoint", "%s could not be moved back to %s", old, final);
        return tt_fail_system(err, number, "rename", tmp);
    }
    TT_TRY(tt_fsync_path(tt_path_dir(a, final), err)); /* as in tt_step_remove */
    return tt_remove_tree(old, err);
}

static tt_status publish(tt_arena *a, const char *folder, const char *tmp, const char *final,
                         tt_error *err)
{
    if (!tt_path_exists(final)) {
        if (rename(tmp, final) != 0)
            return tt_fail_system(err, errno, "rename", tmp);
        return tt_fsync_path(folder, err);
    }
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        TT_TRY(tt_fsync_path(folder, err));
        return tt_remove_tree(tmp, err); /* now the former one */
    }
    if (errno != ENOSYS && errno != EINVAL)
        return tt_fail_system(err, errno, "rename", tmp);
    return tt_ckpt_replace_by_renames(a, tmp, final, err);
}

tt_status tt_ckpt_commit(const char *folder, int64_t step, const tt_trainer_state *state,
                         tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_manifest m = {0};
    tt_str faults = {0};
    const char *final = tt_arena_printf(a, "%s/step-%lld", folder, (long long)step);
    const char *tmp = tt_arena_printf(a, "%s.tmp", final);
    tt_status status = TT_OK;
    if (state->step != step)
        status = TT_FAIL(err, TT_EINVAL, "%s: the state is that of step %lld", final,
                         (long long)state->step);
    if (status == TT_OK)
        status = merge_lists(a, tmp, state->world, &m, err);
    if (status == TT_OK)
        status = write_state(a, tmp, state, &m, err);
    if (status == TT_OK) {
        status = tt_ckpt_check_written(tmp, &faults, err);
        if (faults.n) /* the first says enough for one line */
            status = TT_FAIL(err, TT_EIO, "not saved, what was written is not whole: %.*s",
                             (int)strcspn(faults.s, "\n"), faults.s);
    }
    if (status == TT_OK)
        status = remove_lists(a, tmp, err);
    if (status == TT_OK)
        status = publish(a, folder, tmp, final, err);
    tt_str_free(&faults);
    tt_arena_free(a);
    return status;
}
