/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/runs.h"
#include "checkpoint/checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES 65536 /* of metrics.jsonl: its last lines */

static bool runs_is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *tt_runs_default(void)
{
    return tt_path_exists("outputs") ? "outputs" : ".";
}

/* ---- sizes ---- */

static int64_t tree_bytes(tt_arena *a, const char *path, bool top, int depth, int64_t *newest)
{
    struct stat st;
    const char **names = NULL;
    size_t n = 0;
    if (lstat(path, &st) != 0 || depth > 64)
        return 0;
    if (!S_ISDIR(st.st_mode)) {
        if (newest && st.st_mtime > *newest)
            *newest = st.st_mtime;
        return st.st_size;
    }
    int64_t sum = 0;
    if (tt_folder_names(a, path, NULL, &names, &n, NULL) != TT_OK)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!top || tt_run_older_number(names[i]) < 0)
            sum += tree_bytes(a, tt_path_join(a, path, names[i]), false, depth + 1, newest);
    return sum;
}

int64_t tt_tree_bytes(const char *path, int64_t *newest)
{
    tt_arena *a = tt_arena_new();
    const int64_t n = tree_bytes(a, path, false, 0, newest);
    tt_arena_free(a);
    return n;
}

const char *tt_bytes_text(tt_arena *a, int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double x = (double)bytes;
    size_t u = 0;
    for (; x >= 999.5 && u + 1 < TT_COUNT(units); u++)
        x /= 1000;
    return tt_arena_printf(a, u && x < 99.95 ? "%.1f %s" : "%.0f %s", x, units[u]);
}

/* ---- one run ---- */

tt_status tt_run_hold(const char *run, int fds[2], tt_error *err)
{
    static const char *const locks[] = {".lock", ".lock.ranks"};
    tt_status s = TT_OK;
    fds[0] = fds[1] = -1;
    for (int i = 0; i < 2 && s == TT_OK; i++) {
        tt_str path = {0};
        char text[32] = "";
        tt_str_printf(&path, "%s/%s", run, locks[i]);
        tt_error why = {0};
        const tt_status opened = tt_open_own(path.s, O_RDWR, 0, &fds[i], &why);
        if (opened == TT_OK && flock(fds[i], LOCK_EX | LOCK_NB) != 0) {
            const ssize_t n = pread(fds[i], text, sizeof text - 1, 0);
            s = TT_FAIL(err, TT_EBUSY, "%s: process %ld is training there", run,
                        n > 0 ? atol(text) : 0);
        } else if (opened != TT_OK && opened != TT_ENOTFOUND) {
            s = TT_FAIL(err, opened, "%s", why.text);
        }
        tt_str_free(&path);
    }
    for (int i = 0; i < 2 && s != TT_OK; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
    return s;
}

/* A process of another container is not in /proc/locks, but its lock can be tried. */
static bool is_live(const char *run)
{
    int fds[2];
    tt_error why = {0};
    if (tt_run_is_locked(run))
        return true;
    if (tt_run_hold(run, fds, &why) != TT_OK)
        return why.code == TT_EBUSY;
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return false;
}

/* Reads the last line of metrics.jsonl that has a loss. */
static void read_metrics(tt_arena *a, tt_run_entry *e)
{
    char tail[TAIL_BYTES + 1];
    const int fd =
        open(tt_path_join(a, e->path, "metrics.jsonl"), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return;
    ssize_t n = -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = pread(fd, tail, TAIL_BYTES, st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0);
    close(fd);
    if (n <= 0)
        return;
    tail[n] = '\0';
    while (n > 0 && isnan(e->loss)) {
        char *line = tail + n;
        *line = '\0';
        while (line > tail && line[-1] != '\n')
            line--;
        const tt_json *v = NULL;
        if (*line == '{' &&
            tt_json_parse(a, "metrics.jsonl", line, strlen(line), &v, NULL) == TT_OK) {
            const tt_json *step = tt_json_get(v, "step"), *loss = tt_json_get(v, "loss");
            if (step && step->type == TT_JSON_INT && loss &&
                (loss->type == TT_JSON_REAL || loss->type == TT_JSON_INT)) {
                e->step = TT_MAXV(e->step, step->integer);
                e->loss = loss->real;
            }
        }
        n = line - tail - 1;
    }
}

/* The folder of the checkpoints of a run that was set aside, by its real path (a link or ".." may hide it), if it lies
 * outside of the run's folder: FOLDER.before-N. NULL: it lies inside, or there is none. */
static const char *aside_elsewhere(tt_arena *a, const tt_found_run *r, const char *folder)
{
    char real[PATH_MAX], run[PATH_MAX];
    const char *path = tt_path_join(a, r->older_of, folder);
    if (!realpath(r->older_of, run))
        return NULL;
    if (realpath(path, real)) {
        if (tt_path_below(run, real))
            return NULL;
        path = real;
    } else if (*folder != '/') {
        return NULL;
    }
    const char *aside = tt_arena_printf(a, "%s.before-%lld", path, (long long)r->older);
    return runs_is_folder(aside) ? aside : NULL;
}

static tt_run_entry entry_of(tt_arena *a, const tt_found_run *r)
{
    tt_run_entry e = {.path = r->path, .step = -1, .loss = (double)NAN, .older_of = r->older_of};
    const bool live = !r->older_of && is_live(r->path);
    tt_run_facts facts;
    (void)tt_run_facts_read(r->path, a, &facts);
    const char *folder = facts.checkpoints;
    e.spec = facts.spec;
    e.steps = facts.steps;
    e.also = r->older_of ? aside_elsewhere(a, r, folder) : NULL;
    const int64_t saved =
        tt_run_newest_checkpoint(e.also ? e.also : tt_path_join(a, r->path, folder));
    e.step = saved;
    read_metrics(a, &e);
    e.bytes = tree_bytes(a, r->path, true, 0, &e.written);
    if (e.also)
        e.bytes += tree_bytes(a, e.also, false, 0, &e.written);
    e.state = tt_run_state_of(live, &facts, (double)e.step, saved);
    return e;
}

tt_status tt_runs_find(const char *path, tt_arena *a, tt_runs *out, tt_error *err)
{
    tt_found_runs found = {0};
    TT_TRY(tt_run_folders_find(path, true, a, &found, err));
    tt_run_entry *items = tt_arena_array(a, found.n + 1, sizeof *items);
    for (size_t i = 0; i < found.n; i++)
        items[i] = entry_of(a, &found.items[i]);
    *out = (tt_runs){items, found.n};
    return TT_OK;
}
