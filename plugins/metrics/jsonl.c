/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "json_text.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <ttrun/files.h>
#include <ttrun/metrics.h>
#include <unistd.h>

/* jsonl: metrics.jsonl in dump_folder, one object per logged step, written with a single write.
 * "time/data" becomes a member of "time":{…}, "validation/loss" a member of "validation":{…}. A
 * resumed run first removes the lines of steps after the one it resumes from, then appends. */

typedef struct {
    int fd;
    char *path;
    FILE *f; /* the line being built; the buffer is kept, so that a step allocates nothing */
    char *line;
    size_t n;
} sink;

/* The order of members; other names follow before "wall", in the order they were reported. */
static const char *const order[] = {"epoch",  "loss",          "loss_max", "grad_norm",  "lr",
                                    "tokens", "n_tokens_seen", "tps",      "tps_global", "tflops",
                                    "mfu",    "mem_gib",       "time_s"};
static const char *const integers[] = {"epoch",          "tokens",          "n_tokens_seen",
                                       "n_samples_seen", "n_steps_skipped", "tokens_counted"};

static bool listed(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* ---- one line ---- */

/* "validation/tokens", "validation/wiki/tokens" */
static bool is_integer(const char *name)
{
    const char *last = strrchr(name, '/');
    return listed(integers, TT_COUNT(integers), name) ||
           (strncmp(name, "validation/", 11) == 0 && strcmp(last, "/tokens") == 0);
}

/* The shortest text that reads back as the same number; JSON has no NaN. */
static void put_number(FILE *f, const char *name, double x)
{
    char text[40];
    if (!strcmp(name, "skipped")) {
        fputs(x > 0 ? "true" : "false", f);
    } else if (!isfinite(x)) {
        fputs("null", f);
    } else if (is_integer(name) && fabs(x) < 9.3e18) {
        fprintf(f, "%lld", llrint(x));
    } else {
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, x);
            if (strtod(text, NULL) == x)
                break;
        }
        fputs(text, f);
    }
}

/* ,"name":{"data":…} of all metrics whose name begins with group + '/' */
static void put_group(FILE *f, const tt_metrics_record *r, const char *group, size_t n)
{
    bool first = true;
    fputc(',', f);
    json_put_string(f, group, n);
    fputs(":{", f);
    for (size_t i = 0; i < r->n_metrics; i++) {
        const char *name = r->metrics[i].name;
        if (strncmp(name, group, n) != 0 || name[n] != '/')
            continue;
        if (!first)
            fputc(',', f);
        first = false;
        json_put_string(f, name + n + 1, strlen(name + n + 1));
        fputc(':', f);
        put_number(f, name, r->metrics[i].value);
    }
    fputc('}', f);
}

static void put_member(FILE *f, const tt_metric *m)
{
    fputc(',', f);
    json_put_string(f, m->name, strlen(m->name));
    fputc(':', f);
    put_number(f, m->name, m->value);
}

static void put_rest(FILE *f, const tt_metrics_record *r)
{
    for (size_t i = 0; i < r->n_metrics; i++) {
        const tt_metric *m = &r->metrics[i];
        const char *slash = strchr(m->name, '/');
        if (slash) {
            const size_t n = (size_t)(slash - m->name);
            bool seen = i && strncmp(r->metrics[i - 1].name, m->name, n + 1) == 0;
            for (size_t j = 0; !seen && j < i; j++)
                seen |= strncmp(r->metrics[j].name, m->name, n + 1) == 0;
            if (!seen)
                put_group(f, r, m->name, n);
        } else if (strcmp(m->name, "step") != 0 && !listed(order, TT_COUNT(order), m->name)) {
            put_member(f, m);
        }
    }
}

static void put_wall(FILE *f, double wall)
{
    struct tm tm;
    const double ms = floor(wall * 1000.0 + 0.5);
    const time_t seconds = (time_t)floor(ms / 1000.0);
    char text[32];
    if (!isfinite(wall) || !gmtime_r(&seconds, &tm) ||
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        fputs(",\"wall\":null", f);
    else
        fprintf(f, ",\"wall\":\"%s.%03dZ\"", text, (int)(ms - (double)seconds * 1000.0));
}

static tt_status log_line(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    FILE *f = s->f;
    rewind(f);
    fprintf(f, "{\"step\":%lld", (long long)r->step);
    for (size_t k = 0; k < TT_COUNT(order); k++)
        for (size_t i = 0; i < r->n_metrics; i++)
            if (strcmp(r->metrics[i].name, order[k]) == 0)
                put_member(f, &r->metrics[i]);
    put_rest(f, r);
    put_wall(f, r->wall_time);
    fputs("}\n", f);
    tt_status status = TT_OK;
    if (fflush(f) != 0)
        status = TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %s", s->path);
    const off_t end = lseek(s->fd, 0, SEEK_END);
    for (size_t done = 0; status == TT_OK && done < s->n;) {
        const ssize_t k = write(s->fd, s->line + done, s->n - done);
        if (k >= 0)
            done += (size_t)k;
        else if (errno != EINTR)
            status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(errno));
    }
    if (status != TT_OK && end >= 0 && ftruncate(s->fd, end) != 0)
        status = TT_FAIL(err, TT_EIO, "%s has a part of a line, which cannot be cut: %s", s->path,
                         strerror(errno));
    return status;
}

/* ---- resuming ---- */

/* What a start keeps of the file: lines of steps <= last, but not the validation of that step if it is done
 * again. */
typedef struct kept_lines {
    int64_t last; /* 0: none are kept */
    bool validates_again;
} kept_lines;

/* A truncated line, one with the zeros that a loss of power leaves, or one we did not write, is not kept. */
static bool keep_line(const char *line, size_t n, const kept_lines *k)
{
    static const char head[] = "{\"step\":";
    if (n < sizeof head || line[n - 1] != '\n' || line[n - 2] != '}' ||
        memcmp(line, head, sizeof head - 1) != 0 || memchr(line, 0, n))
        return false;
    char *end = NULL;
    errno = 0;
    const long long step = strtoll(line + sizeof head - 1, &end, 10);
    if (errno != 0 || end == line + sizeof head - 1 || (*end != ',' && *end != '}'))
        return false;
    const bool again = k->validates_again && step == k->last && strstr(line, "\"validation\":{");
    return step <= k->last && k->last > 0 && !again;
}

static tt_status copy_kept(const char *path, FILE *in, FILE *out, const kept_lines *k, bool *cut,
                           tt_error *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    *cut = false;
    while ((n = getline(&line, &cap, in)) >= 0) {
        if (!keep_line(line, (size_t)n, k))
            *cut = true;
        else if (fwrite(line, 1, (size_t)n, out) != (size_t)n)
            break;
    }
    free(line);
    if (ferror(in) || ferror(out) || fflush(out) != 0 || fsync(fileno(out)) != 0)
        return TT_FAIL(err, TT_EIO, "cannot cut %s to step %lld: %s", path, (long long)k->last,
                       strerror(errno));
    return TT_OK;
}

/* Removes the other lines: writes a new file, which replaces the old one only when it is
 * complete. */
static tt_status cut_after(const char *path, const kept_lines *k, tt_error *err)
{
    FILE *in = NULL, *out = NULL;
    char *tmp = NULL;
    bool cut = false;
    int fd;
    tt_status status = tt_open_own(path, O_RDONLY, 0, &fd, err);
    if (status == TT_ENOTFOUND)
        return TT_OK;
    TT_TRY(status);
    if (!(in = fdopen(fd, "r"))) {
        close(fd);
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening %s", path);
    }
    if (asprintf(&tmp, "%s.tmp", path) < 0) {
        tmp = NULL;
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening %s", path);
    } else if ((unlink(tmp) != 0 && errno != ENOENT) || !(out = fopen(tmp, "wxe"))) {
        status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", tmp, strerror(errno));
    } else {
        status = copy_kept(path, in, out, k, &cut, err);
    }
    fclose(in);
    if (out && fclose(out) != 0 && status == TT_OK)
        status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", tmp, strerror(errno));
    if (status == TT_OK && cut && rename(tmp, path) != 0)
        status = TT_FAIL(err, TT_EIO, "cannot replace %s: %s", path, strerror(errno));
    if (out && (status != TT_OK || !cut))
        unlink(tmp);
    free(tmp);
    return status;
}

/* ---- the component ---- */

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    if (s->f)
        fclose(s->f);
    free(s->line);
    free(s->path);
    free(s);
}

static tt_status open_sink(const void *config, const tt_metrics_env *env, void **self,
                           tt_error *err)
{
    (void)config;
    sink *s = calloc(1, sizeof *s);
    tt_status status = TT_OK;
    if (s)
        s->fd = -1;
    if (!s || asprintf(&s->path, "%s/metrics.jsonl", env->dump_folder) < 0) {
        free(s);
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening metrics.jsonl");
    }
    const kept_lines k = {env->resume_step,
                          TT_HAS(env, tt_metrics_env, validates_again) && env->validates_again};
    status = cut_after(s->path, &k, err);
    if (status == TT_OK) {
        status = tt_open_own(s->path, O_WRONLY | O_CREAT | O_APPEND, 0666, &s->fd, err);
    }
    s->f = open_memstream(&s->line, &s->n);
    if (status == TT_OK && !s->f)
        status = TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %s", s->path);
    if (status != TT_OK) {
        close_sink(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static const tt_metrics_vt vt = {
    .struct_size = sizeof vt, .open = open_sink, .log = log_line, .close = close_sink};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_METRICS, "jsonl", "metrics.jsonl, one object per logged step", &vt),
};

TT_PLUGIN("jsonl", "1.0", components);
