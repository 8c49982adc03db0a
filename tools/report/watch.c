/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "report/watch.h"
#include <errno.h>
#include <fcntl.h>
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

static void look_at_facts(tt_watch *w)
{
    struct stat s;
    tt_run_facts f;
    if (stat(w->facts, &s))
        return;
    const int64_t ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    if ((w->facts_file == (uint64_t)s.st_ino && w->facts_ns == ns) ||
        !tt_run_facts_read(w->folder, w->arena, &f))
        return;
    w->facts_file = (uint64_t)s.st_ino;
    w->facts_ns = ns;
    w->failed = f.failed;
    w->no_end = f.no_end;
    w->steps = TT_MAXV(f.steps, (int64_t)0);
    w->checkpoints = tt_path_join(w->arena, w->folder, f.checkpoints);
}

static tt_run_state watched_state(const tt_watch *w, bool live)
{
    const double step = w->row[TT_COL_STEP];
    const tt_run_facts f = {
        .steps = w->steps ? w->steps : -1, .failed = w->failed, .no_end = w->no_end};
    return tt_run_state_of(live, &f, isfinite(step) ? step : -1, w->saved);
}

void tt_watch_look(tt_watch *w)
{
    const bool live = tt_run_is_locked(w->folder);
    look_at_facts(w);
    look_at_metrics(w);
    w->saved = tt_run_newest_checkpoint(w->checkpoints);
    w->state = watched_state(w, live);
}

/* ---- finding runs ---- */

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
                    .checkpoints = tt_path_join(a, path, "checkpoint")};
    forget(w);
    tt_vec_push(a, list, w);
}

tt_status tt_watch_find(const char *path, tt_arena *a, tt_watches *list, tt_error *err)
{
    tt_arena *scratch = tt_arena_new();
    tt_found_runs found = {0};
    const tt_status s = tt_run_folders_find(path, false, scratch, &found, err);
    for (size_t i = 0; i < found.n; i++)
        add_run(found.items[i].path, found.items[i].name, a, list);
    tt_arena_free(scratch);
    return s;
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
