/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/runs.h"
#include "checkpoint/checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 6
#define MAX_RUN_JSON ((size_t)64 << 20)
#define TAIL_BYTES 65536 /* of metrics.jsonl: its last lines */

typedef struct finder {
    tt_arena *a;
    TT_VEC(tt_run_entry) found;
} finder;

static bool runs_is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* "before-12" → 12; -1: another name. */
static int64_t older_number(const char *name)
{
    char *end;
    if (strncmp(name, "before-", 7) || name[7] < '1' || name[7] > '9')
        return -1;
    const long long n = strtoll(name + 7, &end, 10);
    return *end ? -1 : n;
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
        if (!top || older_number(names[i]) < 0)
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
        fds[i] = open(path.s, O_RDWR | O_CLOEXEC);
        if (fds[i] >= 0 && flock(fds[i], LOCK_EX | LOCK_NB) != 0) {
            const ssize_t n = pread(fds[i], text, sizeof text - 1, 0);
            s = TT_FAIL(err, TT_EBUSY, "%s: process %ld is training there", run,
                        n > 0 ? atol(text) : 0);
        } else if (fds[i] < 0 && errno != ENOENT) {
            s = TT_FAIL(err, TT_EIO, "%s: %s", path.s, strerror(errno));
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

static bool is_live(const char *run)
{
    int fds[2];
    tt_error why = {0};
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

static const tt_json *read_job(tt_arena *a, const char *run)
{
    char *text = NULL;
    size_t n = 0;
    const tt_json *root = NULL;
    const char *path = tt_path_join(a, run, "run.json");
    if (tt_read_file(path, MAX_RUN_JSON, &text, &n, NULL) == TT_OK)
        (void)tt_json_parse(a, path, text, n, &root, NULL);
    free(text);
    return tt_json_get(root, "job");
}

static const char *runs_string(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    return v && v->type == TT_JSON_STRING ? v->string : NULL;
}

/* The newest step-N by its name; incomplete ones have another. */
static int64_t newest_step(tt_arena *a, const char *folder)
{
    const char **names = NULL;
    size_t n = 0;
    int64_t most = -1;
    if (!tt_path_exists(folder) || tt_folder_names(a, folder, NULL, &names, &n, NULL) != TT_OK)
        return -1;
    for (size_t i = 0; i < n; i++)
        most = TT_MAXV(most, tt_step_of_name(names[i], NULL));
    return most;
}

static void add_run(finder *f, const char *path, const char *older_of, int64_t number)
{
    tt_run_entry e = {.path = path,
                      .spec = "",
                      .step = -1,
                      .steps = -1,
                      .loss = (double)NAN,
                      .older_of = older_of};
    const tt_json *job = read_job(f->a, path);
    const tt_json *steps = tt_json_get(tt_json_get(job, "training"), "steps");
    const char *folder = runs_string(tt_json_get(job, "checkpoint"), "folder");
    if (runs_string(job, "spec"))
        e.spec = runs_string(job, "spec");
    if (steps && steps->type == TT_JSON_INT)
        e.steps = steps->integer;
    if (folder && *folder == '/' && older_of) {
        const char *aside = tt_arena_printf(f->a, "%s.before-%lld", folder, (long long)number);
        e.also = runs_is_folder(aside) ? aside : NULL;
        folder = aside;
    }
    e.step = newest_step(f->a, tt_path_join(f->a, path, folder ? folder : "checkpoint"));
    read_metrics(f->a, &e);
    e.bytes = tree_bytes(f->a, path, true, 0, &e.written);
    if (e.also)
        e.bytes += tree_bytes(f->a, e.also, false, 0, &e.written);
    e.state = !older_of && is_live(path)          ? TT_RUN_RUNNING
              : e.steps >= 0 && e.step >= e.steps ? TT_RUN_FINISHED
                                                  : TT_RUN_STOPPED;
    tt_vec_push(f->a, &f->found, e);
}

/* Adds the older runs, newest first. */
static tt_status add_older(finder *f, const char *run, const char *const *names, size_t n,
                           tt_error *err)
{
    int64_t last = INT64_MAX;
    (void)err;
    for (;;) {
        int64_t best = -1;
        for (size_t i = 0; i < n; i++)
            if (older_number(names[i]) < last)
                best = TT_MAXV(best, older_number(names[i]));
        if (best < 0)
            return TT_OK;
        const char *path = tt_arena_printf(f->a, "%s/before-%lld", run, (long long)best);
        if (runs_is_folder(path))
            add_run(f, path, run, best);
        last = best;
    }
}

static tt_status walk(finder *f, const char *folder, int depth, tt_error *err)
{
    const char **names = NULL;
    size_t n = 0;
    if (depth > MAX_DEPTH)
        return TT_OK;
    tt_error why = {0};
    if (tt_folder_names(f->a, folder, NULL, &names, &n, &why) != TT_OK) {
        if (!depth)
            return TT_FAIL(err, TT_ENOTFOUND, "%s", why.text);
        return TT_OK; /* a folder that may not be read has no runs of ours */
    }
    bool run = false; /* .lock: a run that has not written run.json yet */
    for (size_t i = 0; i < n; i++)
        run = run || !strcmp(names[i], "run.json") || !strcmp(names[i], ".lock");
    if (run) {
        add_run(f, folder, NULL, 0);
        return add_older(f, folder, names, n, err);
    }
    for (size_t i = 0; i < n; i++) {
        const char *path = tt_path_join(f->a, folder, names[i]);
        if (names[i][0] != '.' && runs_is_folder(path))
            TT_TRY(walk(f, path, depth + 1, err));
    }
    return TT_OK;
}

tt_status tt_runs_find(const char *folder, tt_arena *a, tt_runs *out, tt_error *err)
{
    finder f = {.a = a};
    TT_TRY(walk(&f, folder, 0, err));
    *out = (tt_runs){f.found.items, f.found.n};
    return TT_OK;
}
