/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/files.h>
#include <ttrun/metrics.h>
#include <unistd.h>

/* prometheus: the newest value of every metric in Prometheus's text format, for the textfile
 * collector of the node exporter. Each logged step writes a new file beside the old one and renames
 * it, so that a reader always sees a whole file. Names become [a-zA-Z0-9_:]; a value that is not
 * known is left out. Source: prometheus.io, "Exposition formats", text format 0.0.4. */

typedef struct {
    const char *path, *prefix;
    tt_strings labels;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, path, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE | TT_OPT_PATH,
                   NULL, "file to write, named *.prom; null = metrics.prom in dump_folder"),
    TT_OPTION(config, prefix, TT_OPT_STRING, "\"ttrun_\"", 0, 0, "begins the name of each metric"),
    TT_OPTION(config, labels, TT_OPT_STRINGS, "[]", 0, 0,
              "labels of each metric besides run, as \"name=value\""),
};

typedef struct {
    char *name; /* with the prefix, in Prometheus's alphabet */
    double value;
} sample;

typedef struct {
    const config *c;
    char *path, *tmp, *labels; /* labels: {run="…",…} */
    sample *samples;
    size_t n, cap;
} sink;

/* ---- names and labels ---- */

static bool is_name(const char *s, size_t n, bool colon)
{
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(colon && c == ':') && !(i > 0 && c >= '0' && c <= '9'))
            return false;
    }
    return n > 0;
}

static void put_label(FILE *f, const char *name, size_t n, const char *value)
{
    fprintf(f, "%.*s=\"", (int)n, name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", f);
        else if (*value == '"' || *value == '\\')
            fprintf(f, "\\%c", *value);
        else
            fputc(*value, f);
    }
    fputc('"', f);
}

static tt_status make_labels(sink *s, const char *run, tt_error *err)
{
    size_t size;
    for (size_t i = 0; i < s->c->labels.n; i++) {
        const char *text = s->c->labels.items[i], *equals = strchr(text, '=');
        if (!equals || !is_name(text, (size_t)(equals - text), false) ||
            strncmp(text, "run=", 4) == 0 || strncmp(text, "__", 2) == 0)
            return TT_FAIL(err, TT_EINVAL,
                           "labels: \"%s\" is no \"name=value\" with a name of letters, digits and "
                           "_ other than run",
                           text);
    }
    FILE *f = open_memstream(&s->labels, &size);
    if (!f)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening %s", s->path);
    fputc('{', f);
    put_label(f, "run", 3, run);
    for (size_t i = 0; i < s->c->labels.n; i++) {
        const char *text = s->c->labels.items[i], *equals = strchr(text, '=');
        fputc(',', f);
        put_label(f, text, (size_t)(equals - text), equals + 1);
    }
    fputc('}', f);
    return fclose(f) == 0 ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory opening %s", s->path);
}

/* prefix + name, each other character replaced by _; compares with `have` without allocating. */
static char name_char(const char *prefix, size_t n_prefix, const char *name, size_t i)
{
    const char c = i < n_prefix ? prefix[i] : name[i - n_prefix];
    return c == '\0' || is_name((const char[]){'a', c}, 2, true) ? c : '_';
}

static bool same_name(const char *have, const char *prefix, const char *name)
{
    const size_t n = strlen(prefix);
    for (size_t i = 0;; i++) {
        if (have[i] != name_char(prefix, n, name, i))
            return false;
        if (!have[i])
            return true;
    }
}

/* ---- one step ---- */

static tt_status keep(sink *s, const char *name, double value, tt_error *err)
{
    const char *prefix = s->c->prefix;
    for (size_t i = 0; i < s->n; i++) {
        if (same_name(s->samples[i].name, prefix, name)) {
            s->samples[i].value = value;
            return TT_OK;
        }
    }
    if (s->n == s->cap) {
        sample *grown = realloc(s->samples, (2 * s->cap + 64) * sizeof *grown);
        if (!grown)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for %s", s->path);
        s->samples = grown;
        s->cap = 2 * s->cap + 64;
    }
    char *text = malloc(strlen(prefix) + strlen(name) + 1);
    if (!text)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %s", s->path);
    for (size_t i = 0;; i++)
        if (!(text[i] = name_char(prefix, strlen(prefix), name, i)))
            break;
    s->samples[s->n++] = (sample){text, value};
    return TT_OK;
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    TT_TRY(keep(s, r->validation ? "validation/step" : "step", (double)r->step, err));
    TT_TRY(keep(s, "last_write_timestamp_seconds", r->wall_time, err));
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, "step") != 0)
            TT_TRY(keep(s, r->metrics[i].name, r->metrics[i].value, err));
    int fd;
    TT_TRY(tt_open_own(s->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0644, &fd, err));
    FILE *f = fdopen(fd, "w");
    if (!f) {
        close(fd);
        return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->tmp, strerror(errno));
    }
    for (size_t i = 0; i < s->n; i++)
        if (!isnan(s->samples[i].value))
            fprintf(f, "# TYPE %s gauge\n%s%s %.17g\n", s->samples[i].name, s->samples[i].name,
                    s->labels, s->samples[i].value);
    const bool written = !ferror(f);
    if (fclose(f) != 0 || !written || rename(s->tmp, s->path) != 0) {
        const int reason = errno;
        unlink(s->tmp);
        return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(reason));
    }
    return TT_OK;
}

/* ---- the component ---- */

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->samples[i].name);
    free(s->samples);
    free(s->labels);
    free(s->tmp);
    free(s->path);
    free(s);
}

static tt_status open_sink(const void *options_, const tt_metrics_env *env, void **self,
                           tt_error *err)
{
    sink *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening metrics.prom");
    s->c = options_;
    tt_status status = TT_OK;
    s->path = s->c->path ? strdup(s->c->path) : NULL;
    if (!s->c->path && asprintf(&s->path, "%s/metrics.prom", env->dump_folder) < 0)
        s->path = NULL;
    if (!s->path || asprintf(&s->tmp, "%s.tmp", s->path) < 0) {
        s->tmp = NULL;
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening metrics.prom");
    } else if (!is_name(s->c->prefix, strlen(s->c->prefix), true) && s->c->prefix[0]) {
        status = TT_FAIL(err, TT_EINVAL,
                         "prefix: \"%s\" has other characters than letters, "
                         "digits, _ and :, or begins with a digit",
                         s->c->prefix);
    } else {
        status = make_labels(s, env->dump_folder, err);
    }
    if (status != TT_OK) {
        close_sink(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static const tt_metrics_vt vt = {
    .struct_size = sizeof vt, .open = open_sink, .log = log_record, .close = close_sink};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_METRICS, "prometheus",
                 "newest values as a text file for Prometheus's node exporter", config, options,
                 &vt),
};

TT_PLUGIN("prometheus", "1.0", components);
