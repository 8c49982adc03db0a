/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "report/watch.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Follows runs by their files alone: metrics.jsonl, run.json, the folder of checkpoints and the lock.
 * It takes no lock itself, so it cannot keep a run from starting. */

#define MOST_RUNS 256
#define BLOCK 65536
#define LONGEST (1 << 20) /* bytes of a line of metrics.jsonl */

/* ---- the curve ---- */

/* A point is the mean of `every` lines, so the first lines count as much as the last. */
static void add_point(tt_watch *w, double step, double loss)
{
    while (w->n && w->x[w->n - 1] >= step) { /* a resumed run replaces what it repeats */
        w->n--;
        w->pending = 0;
        w->sum = 0;
    }
    w->sum += loss;
    if (++w->pending < w->every)
        return;
    if (w->n == TT_WATCH_POINTS) {
        for (int i = 0; i < TT_WATCH_POINTS / 2; i++) {
            w->x[i] = w->x[2 * i + 1];
            w->y[i] = (w->y[2 * i] + w->y[2 * i + 1]) / 2;
        }
        w->n = TT_WATCH_POINTS / 2;
        w->every *= 2;
        return; /* the line counts as the first of a longer point */
    }
    w->x[w->n] = step;
    w->y[w->n++] = w->sum / (double)w->pending;
    w->pending = 0;
    w->sum = 0;
}

static void take_line(tt_watch *w, const char *p, size_t n)
{
    double row[TT_N_COLS];
    bool validation;
    const int ok = tt_report_line(p, n, row, &validation);
    w->bad_lines += ok < 0;
    if (ok <= 0)
        return;
    if (validation) {
        w->validation = row[TT_COL_LOSS];
        return;
    }
    memcpy(w->row, row, sizeof row);
    if (isfinite(row[TT_COL_LOSS]))
        add_point(w, row[TT_COL_STEP], row[TT_COL_LOSS]);
    if (isfinite(row[TT_COL_TIME]))
        w->step_s =
            isfinite(w->step_s) ? 0.9 * w->step_s + 0.1 * row[TT_COL_TIME] : row[TT_COL_TIME];
}

/* ---- metrics.jsonl ---- */

static void forget(tt_watch *w)
{
    w->at = 0;
    w->n_tail = 0;
    w->n = 0;
    w->every = 1;
    w->pending = 0;
    w->sum = 0;
    w->bad_lines = 0;
    w->validation = w->step_s = w->written = (double)NAN;
    for (int i = 0; i < TT_N_COLS; i++)
        w->row[i] = (double)NAN;
}

static bool same_tail(const tt_watch *w, int fd)
{
    char now[sizeof w->tail];
    return !w->n_tail ||
           (pread(fd, now, w->n_tail, (off_t)(w->at - (int64_t)w->n_tail)) == (ssize_t)w->n_tail &&
            !memcmp(now, w->tail, w->n_tail));
}

/* Takes whole lines of buf[n]; returns their bytes. */
static size_t take_lines(tt_watch *w, const char *buf, size_t n)
{
    size_t done = 0;
    const char *end;
    while ((end = memchr(buf + done, '\n', n - done)) != NULL) {
        take_line(w, buf + done, (size_t)(end - buf) - done);
        done = (size_t)(end - buf) + 1;
    }
    return done;
}

static void read_on(tt_watch *w, int fd)
{
    size_t room = BLOCK;
    char *buf = malloc(room);
    while (buf) {
        const ssize_t n = pread(fd, buf, room, (off_t)w->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        size_t done = take_lines(w, buf, (size_t)n);
        if (!done && (size_t)n < room) /* the last line is not complete yet */
            break;
        if (!done && room < LONGEST) {
            char *more = realloc(buf, room *= 2);
            if (!more)
                break;
            buf = more;
            continue;
        }
        if (!done) { /* not a line of metrics */
            w->bad_lines++;
            done = (size_t)n;
        }
        w->at += (int64_t)done;
        w->n_tail = TT_MIN(done, sizeof w->tail);
        memcpy(w->tail, buf + done - w->n_tail, w->n_tail);
    }
    free(buf);
}

static void look_at_metrics(tt_watch *w)
{
    const int fd = open(w->metrics, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat s;
    if (fd < 0 || fstat(fd, &s) || !S_ISREG(s.st_mode)) {
        forget(w);
    } else {
        if (w->file != (uint64_t)s.st_ino || s.st_size < w->at || !same_tail(w, fd))
            forget(w);
        w->file = (uint64_t)s.st_ino;
        read_on(w, fd);
        w->written = (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
    }
    if (fd >= 0)
        close(fd);
}

/* ---- the rest of the folder ---- */

static const tt_json *member(const tt_json *facts, const char *section, const char *key)
{
    return tt_json_get(tt_json_get(tt_json_get(facts, "job"), section), key);
}

static void look_at_facts(tt_watch *w)
{
    struct stat s;
    char *text = NULL;
    size_t n;
    const tt_json *v = NULL;
    if (stat(w->facts, &s) || !S_ISREG(s.st_mode) || w->facts_file == (uint64_t)s.st_ino)
        return;
    if (tt_read_file(w->facts, (size_t)64 << 20, &text, &n, NULL) == TT_OK &&
        tt_json_parse(w->arena, w->facts, text, n, &v, NULL) == TT_OK) {
        const tt_json *steps = member(v, "training", "steps"),
                      *kept = member(v, "checkpoint", "folder");
        w->facts_file = (uint64_t)s.st_ino;
        w->steps = steps && steps->type == TT_JSON_INT ? steps->integer : 0;
        if (kept && kept->type == TT_JSON_STRING)
            w->checkpoints = tt_path_join(w->arena, w->folder, kept->string);
    }
    free(text);
}

static void look_at_checkpoints(tt_watch *w)
{
    DIR *d = opendir(w->checkpoints);
    w->saved = -1;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char *end;
        if (strncmp(e->d_name, "step-", 5))
            continue;
        const long long n = strtoll(e->d_name + 5, &end, 10);
        if (!*end && end > e->d_name + 5 && n > w->saved)
            w->saved = n;
    }
    if (d)
        closedir(d);
}

/* Whether some process holds a lock of the file, by /proc/locks: "1: FLOCK ADVISORY WRITE 42
 * fe:00:1234 0 EOF". */
static bool is_locked(uint64_t inode)
{
    char *text = NULL, *save = NULL, want[32];
    size_t n;
    bool found = false;
    snprintf(want, sizeof want, ":%llu ", (unsigned long long)inode);
    if (tt_read_file("/proc/locks", (size_t)16 << 20, &text, &n, NULL) != TT_OK)
        return false;
    for (char *l = strtok_r(text, "\n", &save); l && !found; l = strtok_r(NULL, "\n", &save))
        found = strstr(l, "FLOCK") && strstr(l, "WRITE") && strstr(l, want) && !strstr(l, "->");
    free(text);
    return found;
}

static void look_at_lock(tt_watch *w)
{
    struct stat s;
    const bool locked = !stat(w->lock, &s) && is_locked((uint64_t)s.st_ino);
    w->state = locked                                                ? TT_RUN_RUNNING
               : w->steps && w->row[TT_COL_STEP] >= (double)w->steps ? TT_RUN_DONE
                                                                     : TT_RUN_STOPPED;
}

void tt_watch_look(tt_watch *w)
{
    look_at_facts(w);
    look_at_metrics(w);
    look_at_checkpoints(w);
    look_at_lock(w);
}

/* ---- finding runs ---- */

static bool is_run(const char *path, tt_arena *a)
{
    return tt_path_exists(tt_path_join(a, path, "metrics.jsonl")) ||
           tt_path_exists(tt_path_join(a, path, "run.json"));
}

static void add_run(const char *path, const char *name, tt_arena *a, tt_watches *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->items[i]->folder, path))
            return;
    if (list->n >= MOST_RUNS)
        return;
    tt_watch *w = tt_arena_alloc(a, sizeof *w);
    *w = (tt_watch){.folder = tt_arena_str(a, path),
                    .name = tt_arena_str(a, name),
                    .arena = a,
                    .saved = -1,
                    .metrics = tt_path_join(a, path, "metrics.jsonl"),
                    .facts = tt_path_join(a, path, "run.json"),
                    .lock = tt_path_join(a, path, ".lock"),
                    .checkpoints = tt_path_join(a, path, "checkpoint")};
    forget(w);
    tt_vec_push(a, list, w);
}

typedef struct finder {
    tt_arena *scratch, *a;
    tt_watches *list;
} finder;

static void find_below(const finder *f, const char *path, const char *name, int depth)
{
    tt_arena *a = f->scratch;
    if (is_run(path, a)) {
        add_run(path, name, f->a, f->list);
        return;
    }
    DIR *d = depth > 0 ? opendir(path) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        struct stat s;
        const char *below = tt_path_join(a, path, e->d_name);
        if (e->d_name[0] != '.' && !lstat(below, &s) && S_ISDIR(s.st_mode))
            find_below(f, below, *name ? tt_arena_printf(a, "%s/%s", name, e->d_name) : e->d_name,
                       depth - 1);
    }
    if (d)
        closedir(d);
}

tt_status tt_watch_find(const char *path, tt_arena *a, tt_watches *list, tt_error *err)
{
    glob_t g = {0};
    const bool plain = tt_path_exists(path);
    if (!plain && glob(path, 0, NULL, &g) != 0) {
        globfree(&g);
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no such folder", path);
    }
    const finder f = {tt_arena_new(), a, list};
    for (size_t i = 0; i < (plain ? 1 : g.gl_pathc); i++) {
        const char *whole = plain ? path : g.gl_pathv[i];
        size_t n = strlen(whole);
        while (n > 1 && whole[n - 1] == '/')
            n--;
        const char *at = tt_arena_strn(f.scratch, whole, n), *slash = strrchr(at, '/');
        const char *last = slash && slash[1] ? slash + 1 : at;
        find_below(&f, at, is_run(at, f.scratch) ? last : "", 3);
    }
    tt_arena_free(f.scratch);
    globfree(&g);
    return TT_OK;
}

static int compare_watches(const void *x, const void *y)
{
    const tt_watch *a = *(tt_watch *const *)x, *b = *(tt_watch *const *)y;
    const bool ra = a->state == TT_RUN_RUNNING, rb = b->state == TT_RUN_RUNNING;
    if (ra != rb)
        return ra ? -1 : 1;
    const double ta = isfinite(a->written) ? a->written : 0;
    const double tb = isfinite(b->written) ? b->written : 0;
    if (!ra && ta != tb) /* running ones stay where they are */
        return ta > tb ? -1 : 1;
    return strcmp(a->folder, b->folder);
}

void tt_watch_sort(tt_watches *list)
{
    if (list->n)
        qsort(list->items, list->n, sizeof(tt_watch *), compare_watches);
}
