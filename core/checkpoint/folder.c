/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

tt_status tt_fail_system(tt_error *err, int number, const char *what, const char *path)
{
    const char *reason = strerrordesc_np(number);
    const char *advice = "";
    tt_status code = TT_EIO;
    if (number == ENOSPC || number == EDQUOT)
        advice = "; free some space or set checkpoint.folder to another disk (checkpoints saved "
                 "before are untouched)";
    else if (number == EFBIG)
        advice = "; the limit on a file's size is too low (ulimit -f)";
    else if (number == EACCES || number == EPERM || number == EROFS)
        advice = "; allow writing there or set checkpoint.folder";
    else if (number == ENOENT || number == ENOTDIR)
        code = TT_ENOTFOUND;
    return tt_fail(err, code, "%s: cannot %s: %s%s", path, what, reason ? reason : "unknown error",
                   advice);
}

static int folder_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

tt_status tt_folder_names(tt_arena *a, const char *folder, bool (*filter)(const char *name),
                          const char ***names, size_t *n, tt_error *err)
{
    TT_VEC(const char *) found = {0};
    DIR *dir = opendir(folder);
    if (!dir)
        return tt_fail_system(err, errno, "read the folder", folder);
    int number = 0;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        number = e ? 0 : errno;
        if (!e)
            break;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            (!filter || filter(e->d_name)))
            tt_vec_push(a, &found, tt_arena_str(a, e->d_name));
    }
    closedir(dir);
    if (number)
        return tt_fail_system(err, number, "read the folder", folder);
    if (found.n)
        qsort(found.items, found.n, sizeof *found.items, folder_by_name);
    *names = found.items;
    *n = found.n;
    return TT_OK;
}

bool tt_folder_has(const char *folder, const char *name)
{
    tt_arena *a = tt_arena_new();
    const bool has = tt_path_exists(tt_path_join(a, folder, name));
    tt_arena_free(a);
    return has;
}

bool tt_is_safetensors_name(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name);
    return n > sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0 &&
           !strchr(name, '/');
}

int64_t tt_step_of_name(const char *name, const char **rest)
{
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const char *p = name + 5;
    for (; *p >= '0' && *p <= '9'; p++)
        if (p - name >= 5 + 18 ||
            (p > name + 5 && step == 0)) /* fits an int64; one name for one step */
            return -1;
        else
            step = step * 10 + (*p - '0');
    if (p == name + 5)
        return -1;
    if (rest)
        *rest = p;
    return *p && !rest ? -1 : step;
}

/* Every file of trainer.json is there with its size. The rename makes it so; a copy by hand may not
 * have. */
static tt_status is_complete(const char *step_folder, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_manifest m = {0};
    tt_status status = tt_ckpt_state_from_file(a, step_folder, NULL, &m, err);
    for (size_t i = 0; i < m.files.n && status == TT_OK; i++) {
        struct stat st;
        const char *path = tt_path_join(a, step_folder, m.files.items[i].name);
        if (stat(path, &st) != 0)
            status = tt_fail_system(err, errno, "read", path);
        else if (st.st_size != m.files.items[i].bytes)
            status = TT_FAIL(err, TT_EFORMAT, "%s: %lld bytes, %lld in " TT_STATE_FILE, path,
                             (long long)st.st_size, (long long)m.files.items[i].bytes);
    }
    tt_arena_free(a);
    return status;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

tt_status tt_ckpt_list(const char *folder, tt_arena *a, int64_t **steps, size_t *n, tt_error *err)
{
    TT_VEC(int64_t) found = {0};
    const char **names = NULL;
    size_t n_names = 0;
    if (!tt_path_exists(folder)) {
        *steps = NULL;
        *n = 0;
        return TT_OK;
    }
    TT_TRY(tt_folder_names(a, folder, NULL, &names, &n_names, err));
    for (size_t i = 0; i < n_names; i++) {
        tt_error why = {0};
        int64_t step = tt_step_of_name(names[i], NULL);
        if (step < 0)
            continue;
        if (is_complete(tt_path_join(a, folder, names[i]), &why) == TT_OK)
            tt_vec_push(a, &found, step);
        else
            tt_log(TT_WARN, "checkpoint", "%s/%s is not complete and is left out: %s", folder,
                   names[i], why.text);
    }
    if (found.n)
        qsort(found.items, found.n, sizeof *found.items, by_step);
    *steps = found.items;
    *n = found.n;
    return TT_OK;
}

tt_status tt_step_remove(tt_arena *a, const char *folder, int64_t step, tt_error *err)
{
    const char *path = tt_arena_printf(a, "%s/step-%lld", folder, (long long)step);
    const char *doomed = tt_arena_printf(a, "%s.purged.tmp", path);
    TT_TRY(tt_remove_tree(doomed, err));
    if (rename(path, doomed) != 0)
        return tt_fail_system(err, errno, "rename", path);
    TT_TRY(tt_fsync_path(folder,
                         err)); /* or a loss of power could bring the name back without its files */
    return tt_remove_tree(doomed, err);
}

int64_t tt_folder_bytes(const char *folder)
{
    const char **names = NULL;
    size_t n = 0;
    int64_t bytes = 0;
    tt_arena *a = tt_arena_new();
    if (tt_folder_names(a, folder, NULL, &names, &n, NULL) == TT_OK)
        for (size_t i = 0; i < n; i++) {
            struct stat st;
            if (stat(tt_path_join(a, folder, names[i]), &st) == 0 && S_ISREG(st.st_mode))
                bytes += st.st_size;
        }
    tt_arena_free(a);
    return bytes;
}

typedef struct purged_step {
    int64_t bytes;
    bool snapshot, stays, counts; /* counts: among the latest */
} purged_step;

static bool is_snapshot(tt_arena *a, const char *step_folder)
{
    tt_trainer_state st;
    return tt_ckpt_read_state(step_folder, a, &st, NULL) == TT_OK && st.snapshot;
}

static tt_status purge_step(tt_arena *a, const char *folder, int64_t step, const char *why,
                            tt_error *err)
{
    TT_TRY(tt_step_remove(a, folder, step, err));
    tt_log(TT_INFO, "checkpoint", "removed %s/step-%lld (%s)", folder, (long long)step, why);
    return TT_OK;
}

/* From the newest to the oldest: a step goes if enough newer ones stay, or if it does not fit beside them. What
 * stays whatever the limits say takes its room first. */
static tt_status purge_steps(tt_arena *a, const char *folder, int64_t just_saved,
                             const tt_ckpt_keep *keep, const int64_t *steps, size_t n,
                             tt_error *err)
{
    int64_t total = 0, kept = 0;
    bool full = false, newer_snapshot = false;
    purged_step *p = tt_arena_array(a, n + 1, sizeof *p);
    for (size_t i = n; i-- > 0;) {
        const char *at = tt_arena_printf(a, "%s/step-%lld", folder, (long long)steps[i]);
        const bool always = keep->every > 0 && steps[i] % keep->every == 0;
        p[i].snapshot = !always && is_snapshot(a, at);
        p[i].stays = always || steps[i] == just_saved || (p[i].snapshot && !newer_snapshot);
        p[i].counts = !always && !p[i].snapshot;
        newer_snapshot |= p[i].snapshot;
        p[i].bytes = keep->bytes > 0 ? tt_folder_bytes(at) : 0;
        kept += p[i].stays && p[i].counts;
        total += p[i].stays ? p[i].bytes : 0;
    }
    for (size_t i = n; i-- > 0;) {
        if (p[i].stays)
            continue;
        const bool many = keep->latest > 0 && kept >= keep->latest;
        full |= keep->bytes > 0 && p[i].bytes > keep->bytes - total;
        if (full || many || p[i].snapshot) {
            TT_TRY(purge_step(a, folder, steps[i],
                              p[i].snapshot ? "a newer snapshot is there"
                              : full        ? "checkpoint.keep_gb"
                                            : "checkpoint.keep_latest_k",
                              err));
            continue;
        }
        kept++;
        total += p[i].bytes;
    }
    return TT_OK;
}

tt_status tt_ckpt_purge(const char *folder, int64_t just_saved, const tt_ckpt_keep *keep,
                        tt_error *err)
{
    if (keep->latest <= 0 && keep->bytes <= 0 && !keep->snapshots)
        return TT_OK;
    int64_t *steps = NULL;
    size_t n = 0;
    tt_arena *a = tt_arena_new();
    tt_status status = tt_ckpt_list(folder, a, &steps, &n, err);
    if (status == TT_OK)
        status = purge_steps(a, folder, just_saved, keep, steps, n, err);
    tt_arena_free(a);
    return status;
}
