/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "train/train.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The folder of a run: at most one run uses it at a time (R22). */

static long holder_of(int fd)
{
    char text[32] = "";
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    return n > 0 ? atol(text) : 0;
}

/* *made: the file was not there. */
static tt_status open_lock(const char *path, int *out, bool *made, tt_error *err)
{
    tt_error why = {0};
    tt_status s = tt_open_own(path, O_RDWR | O_CREAT | O_EXCL, 0600, out, &why);
    *made = s == TT_OK;
    if (s == TT_EEXIST)
        s = tt_open_own(path, O_RDWR | O_CREAT, 0600, out, &why);
    if (s == TT_EIO || s == TT_ENOTFOUND) /* the folder was there a moment ago */
        return TT_FAIL(err, TT_EIO, "%s; is dump_folder writable?", why.text);
    if (s != TT_OK)
        return TT_FAIL(err, s, "%s", why.text);
    (void)fchmod(*out, 0600); /* who may read a file may lock it */
    return TT_OK;
}

/* Locks the file; waits TT_FOLDER_BUSY_NS for another holder. key: the job's key that names the folder,
 * for the error. */
static tt_status wait_for(int fd, const char *path, const char *key, int (*stop)(void),
                          tt_error *err)
{
    const int64_t patience = tt_patience(TT_FOLDER_BUSY_NS), until = tt_now_ns() + patience;
    for (bool told = false; flock(fd, LOCK_EX | LOCK_NB); told = true) {
        const long pid = holder_of(fd);
        if (errno != EWOULDBLOCK && errno != EINTR)
            return TT_FAIL(
                err, TT_EIO,
                "%s: cannot lock it: %s; does its file system support flock(2)? (Lustre: "
                "mount with -o flock)",
                path, strerror(errno));
        if (!told)
            tt_log(TT_INFO, "train", "%s is locked by process %ld; waiting %g s", path, pid,
                   1e-9 * (double)patience);
        if (tt_now_ns() > until)
            return TT_FAIL(err, TT_EBUSY,
                           "%s: process %ld is training in this folder; stop it, or set another %s",
                           path, pid, key);
        if (stop && stop())
            return tt_fail_stopped(stop(), err);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    return TT_OK;
}

/* Opens and locks the file, and checks that the path still leads to it: the previous holder may
 * have moved its folder away, or removed it. *made is set only if the file is locked. */
static tt_status hold(const char *path, const char *key, int (*stop)(void), int *fd, bool *made,
                      tt_error *err)
{
    for (;;) {
        bool is_new;
        TT_TRY(open_lock(path, fd, &is_new, err));
        TT_TRY(wait_for(*fd, path, key, stop, err));
        *made = is_new;
        if (tt_path_is_fd(path, *fd))
            return TT_OK;
        *made = false;
        close(*fd);
        *fd = -1;
    }
}

/* The bytes of the longest beginning of a path that is there. */
static size_t there_already(const char *path)
{
    char *part = strdup(path);
    size_t n = strlen(path);
    while (part && n > 0 && !tt_path_exists(part)) {
        while (n > 0 && part[n - 1] != '/')
            n--;
        while (n > 1 && part[n - 1] == '/')
            n--;
        part[n] = '\0';
    }
    free(part);
    return n;
}

/* Makes a folder and holds a lock file in it. A start that is refused removes its folder while this one waits for its
 * lock, so both are tried again while the folder is not there. *kept: there_already(folder) */
static tt_status make_and_hold(const char *folder, const char *path, const char *key,
                               int (*stop)(void), int *fd, bool *made, size_t *kept, tt_error *err)
{
    for (int i = 0;; i++) {
        tt_error why = {0};
        *kept = there_already(folder);
        tt_status s = tt_mkdirs(folder, &why);
        if (s == TT_OK)
            s = hold(path, key, stop, fd, made, &why);
        if (s == TT_OK)
            return TT_OK;
        if (i == 100 || s == TT_ESIGNAL || tt_path_exists(folder))
            return TT_FAIL(err, s, "%s", why.text);
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
}

static tt_status sign(int fd, const char *path, tt_error *err)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n)
        return TT_FAIL(err, TT_EIO, "%s: %s", path, strerror(errno));
    return TT_OK;
}

/* Two lock files are in dump_folder. Rank 0 locks the first exclusively; the other processes of the
 * run share a lock on the second. The next run waits for both, so a rank that still writes a moment
 * after rank 0 has ended keeps it out. A third lock file is in the folder of the checkpoints, where
 * runs with other dump_folders may save too. */
static tt_status lock(tt_run_folder *f, const char *ranks, bool saves, int (*stop)(void),
                      tt_error *err)
{
    bool is_new;
    TT_TRY(make_and_hold(f->path, f->lock_path, "dump_folder", stop, &f->lock_fd, &f->made_lock,
                         &f->kept_path, err));
    if (tt_path_exists(ranks)) {
        TT_TRY(open_lock(ranks, &f->ranks_fd, &is_new, err));
        TT_TRY(wait_for(f->ranks_fd, ranks, "dump_folder", stop, err));
        flock(f->ranks_fd, LOCK_UN);
    }
    TT_TRY(sign(f->lock_fd, f->lock_path, err));
    if (!saves)
        return TT_OK;
    TT_TRY(make_and_hold(f->checkpoints, f->saves_path, "checkpoint.folder", stop, &f->saves_fd,
                         &f->made_saves, &f->kept_saves, err));
    return sign(f->saves_fd, f->saves_path, err);
}

/* Of a run's folder, or of one set aside: also where ranks write when a run ends. */
static void clear_outputs(const tt_setup *s, const char *folder, tt_arena *a)
{
    const char *const more[] = {s->core.comm.save_traces_folder,
                                s->core.profiling.save_traces_folder,
                                s->core.profiling.save_memory_snapshot_folder};
    tt_unfinished_clear(folder);
    for (size_t i = 0; i < TT_COUNT(more); i++)
        if (more[i] && more[i][0] && more[i][0] != '/')
            tt_unfinished_clear(tt_path_join(a, folder, more[i]));
}

/* Removes what a killed run left, in folders of earlier runs too. */
static tt_status clear(const tt_setup *s, const tt_run_folder *f, tt_arena *a, tt_error *err)
{
    static const char before[] = "before-";
    const char *hf = tt_path_join(a, f->path, "hf");
    clear_outputs(s, f->path, a);
    DIR *d = opendir(f->path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (!strncmp(e->d_name, before, sizeof before - 1))
            clear_outputs(s, tt_path_join(a, f->path, e->d_name), a);
    if (d)
        closedir(d);
    if (f->saves_fd < 0)
        return TT_OK;
    TT_TRY(tt_ckpt_clear(f->checkpoints, err));
    return tt_path_exists(hf) ? tt_ckpt_clear(hf, err) : TT_OK;
}

tt_status tt_run_folder_open(const tt_setup *s, const tt_run_opts *o, tt_arena *a,
                             tt_run_folder *out, tt_error *err)
{
    tt_run_folder f = {.lock_fd = -1,
                       .ranks_fd = -1,
                       .saves_fd = -1,
                       .path = s->core.dump_folder,
                       .started = tt_wall_seconds(),
                       .restart = o->restart};
    f.checkpoints = tt_path_join(a, f.path, s->core.checkpoint.folder);
    f.lock_path = tt_path_join(a, f.path, ".lock");
    f.saves_path = tt_path_join(a, f.checkpoints, ".lock.saves");
    f.record = tt_run_record_new();
    if (!f.record)
        return TT_FAIL(err, TT_ENOMEM, "no memory for run.json");
    tt_status st =
        lock(&f, tt_path_join(a, f.path, ".lock.ranks"), s->core.checkpoint.enable, o->stop, err);
    if (st == TT_OK)
        st = clear(s, &f, a, err);
    if (st == TT_OK)
        *out = f;
    else
        tt_run_folder_close(&f, true);
    return st;
}

tt_status tt_run_folder_check(const tt_run_folder *f, tt_error *err)
{
    const char *lost = NULL;
    if (f->lock_fd >= 0 && fcntl(f->lock_fd, F_GETFD) < 0)
        return TT_FAIL(err, TT_EIO,
                       "%s: its descriptor is closed: a plugin or a library closes descriptors "
                       "that are not its own; start again without it",
                       f->lock_path);
    if (f->lock_fd >= 0 && !tt_path_is_fd(f->lock_path, f->lock_fd))
        lost = f->lock_path;
    else if (f->saves_fd >= 0 && !tt_path_is_fd(f->saves_path, f->saves_fd))
        lost = f->saves_path;
    if (!lost)
        return TT_OK;
    return TT_FAIL(
        err, TT_EIO,
        "%s is not the file that this run locked: its folder was moved or removed, and may "
        "belong to another run now, so nothing more is written there",
        lost);
}

tt_status tt_run_folder_join(const tt_setup *s, tt_arena *a, tt_run_folder *out, tt_error *err)
{
    tt_run_folder f = {.lock_fd = -1, .ranks_fd = -1, .saves_fd = -1, .path = s->core.dump_folder};
    const char *path = tt_path_join(a, f.path, ".lock.ranks");
    char text[32];
    bool is_new;
    f.checkpoints = tt_path_join(a, f.path, s->core.checkpoint.folder);
    TT_TRY(open_lock(path, &f.ranks_fd, &is_new, err));
    const int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (flock(f.ranks_fd, LOCK_SH | LOCK_NB) || pwrite(f.ranks_fd, text, (size_t)n, 0) != n) {
        tt_run_folder_close(&f, false);
        return TT_FAIL(err, TT_EIO, "%s: %s; do all ranks see the same dump_folder?", path,
                       strerror(errno));
    }
    *out = f;
    return TT_OK;
}

/* ---- what a refused start leaves ---- */

/* Removes the empty folders that a path names after its first `kept` bytes, the last one first. */
static void remove_made(const char *path, size_t kept)
{
    char *part = strdup(path);
    for (size_t n = part ? strlen(part) : 0; n > kept;) {
        part[n] = '\0';
        if (rmdir(part) != 0 && errno != ENOENT)
            break;
        while (n > kept && part[n - 1] != '/')
            n--;
        while (n > kept && part[n - 1] == '/')
            n--;
    }
    free(part);
}

/* Locks the file that the other processes of the run share, once all of them have ended. */
static bool ranks_have_ended(const char *path, int *fd)
{
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return errno == ENOENT;
    const int64_t until = tt_now_ns() + tt_patience(TT_FOLDER_BUSY_NS);
    while (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if (tt_now_ns() > until)
            return false;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return tt_path_is_fd(path, *fd);
}

static void drop(const tt_run_folder *f)
{
    tt_str ranks = {0}, record = {0};
    int fd = -1;
    tt_str_printf(&ranks, "%s/.lock.ranks", f->path ? f->path : "");
    tt_str_printf(&record, "%s/run.json", f->path ? f->path : "");
    const bool begun = !f->path || tt_path_exists(record.s);
    if (!begun && f->made_saves && tt_path_is_fd(f->saves_path, f->saves_fd)) {
        unlink(f->saves_path);
        remove_made(f->checkpoints, f->kept_saves);
    }
    /* a file for ranks that this start has found (ranks_fd) is of an earlier run */
    if (!begun && f->made_lock && f->ranks_fd < 0 && tt_path_is_fd(f->lock_path, f->lock_fd) &&
        ranks_have_ended(ranks.s, &fd)) {
        unlink(ranks.s);
        unlink(f->lock_path);
        remove_made(f->path, f->kept_path);
    }
    if (fd >= 0)
        close(fd);
    tt_str_free(&ranks);
    tt_str_free(&record);
}

void tt_run_folder_close(tt_run_folder *f, bool failed)
{
    if (failed)
        drop(f);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    if (f->ranks_fd >= 0)
        close(f->ranks_fd);
    if (f->saves_fd >= 0)
        close(f->saves_fd);
    f->lock_fd = f->ranks_fd = f->saves_fd = -1;
    tt_run_record_free(f->record);
    f->record = NULL;
}
