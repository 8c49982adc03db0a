/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/metrics.h>
#include <unistd.h>

/* csv: metrics.csv in dump_folder (RFC 4180 with \n), one row per logged step or validation. The
 * first columns are step and wall (unix seconds); each metric adds a column when it is first
 * reported. A new column means that the file is written anew with that column empty in the earlier
 * rows; the new file replaces the old one when it is complete. A resumed run removes the rows of
 * steps after the one that it resumes from, and what a loss of power has left in place of rows. */

typedef struct {
    const char *path;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, path, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE | TT_OPT_PATH,
                   NULL, "file to write; null = metrics.csv in dump_folder"),
};

typedef struct {
    char *path, *tmp;
    char **columns; /* of metrics: step and wall are not among them */
    size_t n_columns;
    FILE *f;
} sink;

/* ---- columns ---- */

static bool has_column(const sink *s, const char *name)
{
    for (size_t i = 0; i < s->n_columns; i++)
        if (strcmp(s->columns[i], name) == 0)
            return true;
    return false;
}

static tt_status add_column(sink *s, const char *name, size_t n, tt_error *err)
{
    char **grown = realloc(s->columns, (s->n_columns + 1) * sizeof *grown);
    if (grown)
        s->columns = grown;
    char *text = grown ? strndup(name, n) : NULL;
    if (!text)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %s", s->path);
    s->columns[s->n_columns++] = text;
    return TT_OK;
}

static void put_name(FILE *f, const char *name)
{
    if (!strpbrk(name, ",\"\n\r")) {
        fputs(name, f);
        return;
    }
    fputc('"', f);
    for (; *name; name++) {
        if (*name == '"')
            fputc('"', f);
        fputc(*name, f);
    }
    fputc('"', f);
}

static void put_header(FILE *f, const sink *s)
{
    fputs("step,wall", f);
    for (size_t i = 0; i < s->n_columns; i++) {
        fputc(',', f);
        put_name(f, s->columns[i]);
    }
    fputc('\n', f);
}

/* The header, up to the first end of a line where no quotation is open, because a name may have several lines; to be
 * freed. NULL: there is none. */
static char *get_header(FILE *in, size_t *n)
{
    char *text = NULL;
    bool open = false, ended = false;
    FILE *out = open_memstream(&text, n);
    for (int c; out && !ended && (c = getc(in)) != EOF;) {
        fputc(c, out);
        open = open != (c == '"');
        ended = c == '\n' && !open;
    }
    if (out && fclose(out) == 0 && ended)
        return text;
    free(text);
    return NULL;
}

/* The columns of an earlier start's header, which is removed quotation by quotation in place. */
static tt_status read_header(sink *s, char *line, tt_error *err)
{
    static const char head[] = "step,wall";
    char *p = line + sizeof head - 1;
    if (strncmp(line, head, sizeof head - 1) != 0 || (*p != ',' && *p != '\n'))
        return TT_FAIL(err, TT_EFORMAT,
                       "%s does not begin with the columns step,wall: move it away or set path",
                       s->path);
    while (*p == ',') {
        char *name = ++p, *out = name;
        const bool quoted = *p == '"';
        for (p += quoted; *p && (quoted || (*p != ',' && *p != '\n')); p++) {
            if (quoted && *p == '"' && *++p != '"')
                break;
            *out++ = *p;
        }
        TT_TRY(add_column(s, name, (size_t)(out - name), err));
    }
    return TT_OK;
}

/* ---- writing the file anew ---- */

/* Which rows stay: those of steps <= last, but not the validation of that step if it is done again. */
typedef struct kept_rows {
    int64_t last;
    bool validates_again;
} kept_rows;

/* Has the row a number in a column of a validation? */
static bool is_validation(const sink *s, const char *row)
{
    for (int skip = 2; skip > 0 && row; skip--) { /* step, wall */
        row = strchr(row, ',');
        row = row ? row + 1 : NULL;
    }
    for (size_t i = 0; i < s->n_columns && row; i++) {
        if (strncmp(s->columns[i], "validation", 10) == 0 && *row != ',' && *row != '\n')
            return true;
        row = strchr(row, ',');
        row = row ? row + 1 : NULL;
    }
    return false;
}

/* Is it a whole row of so many cells? After a loss of power a part of the file may be zeros, or be missing between
 * two rows. */
static bool is_row(const char *row, size_t n, size_t cells)
{
    size_t commas = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (!row[i] || !strchr("0123456789+-.einfa,", row[i])) /* numbers, inf */
            return false;
        commas += row[i] == ',';
    }
    return n > 0 && row[n - 1] == '\n' && row[0] >= '0' && row[0] <= '9' && commas + 1 == cells;
}

/* Copies the whole rows that stay, each with n_new empty cells at its end. */
static void copy_rows(const sink *s, FILE *in, FILE *out, const kept_rows *kept, size_t n_new)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, in)) > 0) {
        const long long step = strtoll(line, NULL, 10);
        if (!is_row(line, (size_t)n, 2 + s->n_columns - n_new) || step > kept->last ||
            (step == kept->last && kept->validates_again && is_validation(s, line)))
            continue;
        fwrite(line, 1, (size_t)n - 1, out);
        for (size_t i = 0; i < n_new; i++)
            fputc(',', out);
        fputc('\n', out);
    }
    free(line);
}

/* Writes the header and the rows that stay, replaces the file and opens it for more rows.
 * `in`: the old file, read up to its first row; NULL = there are no rows to keep. */
static tt_status write_anew(sink *s, FILE *in, const kept_rows *kept, size_t n_new, tt_error *err)
{
    FILE *out = NULL;
    if (unlink(s->tmp) == 0 || errno == ENOENT)
        out = fopen(s->tmp, "wxe");
    if (!out)
        return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->tmp, strerror(errno));
    put_header(out, s);
    if (in)
        copy_rows(s, in, out, kept, n_new);
    if (ferror(out) || (in && ferror(in)) || fflush(out) != 0 || fsync(fileno(out)) != 0 ||
        rename(s->tmp, s->path) != 0) {
        const int reason = errno;
        fclose(out);
        unlink(s->tmp);
        return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(reason));
    }
    if (s->f)
        fclose(s->f);
    s->f = out;
    return TT_OK;
}

static tt_status add_columns(sink *s, const tt_metrics_record *r, tt_error *err)
{
    const size_t before = s->n_columns;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, "step") != 0 && !has_column(s, r->metrics[i].name))
            TT_TRY(add_column(s, r->metrics[i].name, strlen(r->metrics[i].name), err));
    if (s->n_columns == before)
        return TT_OK;
    FILE *in = fopen(s->path, "re");
    size_t n;
    char *header = in ? get_header(in, &n) : NULL;
    tt_status status = TT_OK;
    if (!header)
        status = TT_FAIL(err, TT_EIO, "cannot read %s: %s", s->path, strerror(errno));
    else
        status = write_anew(s, in, &(kept_rows){INT64_MAX, false}, s->n_columns - before, err);
    while (status != TT_OK && s->n_columns > before) /* the next record adds them again */
        free(s->columns[--s->n_columns]);
    free(header);
    if (in)
        fclose(in);
    return status;
}

/* ---- one row ---- */

/* The shortest text that reads back as the same number; a value that is not known is empty. */
static void csv_value(FILE *f, double x)
{
    char text[40];
    if (isnan(x))
        return;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, f);
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    TT_TRY(add_columns(s, r, err));
    const off_t end = ftello(s->f);
    fprintf(s->f, "%" PRId64 ",%.3f", r->step, r->wall_time);
    for (size_t k = 0; k < s->n_columns; k++) {
        fputc(',', s->f);
        for (size_t i = 0; i < r->n_metrics; i++) {
            if (strcmp(r->metrics[i].name, s->columns[k]) == 0) {
                csv_value(s->f, r->metrics[i].value);
                break;
            }
        }
    }
    fputc('\n', s->f);
    if (fflush(s->f) == 0 && !ferror(s->f))
        return TT_OK;
    const int reason = errno;
    __fpurge(s->f);
    clearerr(s->f);
    if (end < 0 || ftruncate(fileno(s->f), end) != 0 || fseeko(s->f, end, SEEK_SET) != 0)
        return TT_FAIL(err, TT_EIO, "%s has a part of a row, which cannot be cut: %s", s->path,
                       strerror(errno));
    return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(reason));
}

/* ---- the component ---- */

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    if (s->f)
        fclose(s->f);
    for (size_t i = 0; i < s->n_columns; i++)
        free(s->columns[i]);
    free(s->columns);
    free(s->tmp);
    free(s->path);
    free(s);
}

static tt_status open_file(sink *s, const kept_rows *kept, tt_error *err)
{
    size_t n = 0;
    tt_status status = TT_OK;
    FILE *in = kept->last > 0 ? fopen(s->path, "re") : NULL;
    if (kept->last > 0 && !in && errno != ENOENT)
        return TT_FAIL(err, TT_EIO, "cannot read %s: %s", s->path, strerror(errno));
    char *header = in ? get_header(in, &n) : NULL;
    const bool whole = header && !memchr(header, 0, n);
    if (whole)
        status = read_header(s, header, err);
    if (status == TT_OK) /* without its header no row says what its numbers are */
        status = write_anew(s, whole ? in : NULL, kept, 0, err);
    free(header);
    if (in)
        fclose(in);
    return status;
}

static tt_status open_sink(const void *options_, const tt_metrics_env *env, void **self,
                           tt_error *err)
{
    const config *c = options_;
    sink *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening metrics.csv");
    tt_status status = TT_OK;
    s->path = c->path ? strdup(c->path) : NULL;
    if (!c->path && asprintf(&s->path, "%s/metrics.csv", env->dump_folder) < 0)
        s->path = NULL;
    if (!s->path || asprintf(&s->tmp, "%s.tmp", s->path) < 0) {
        s->tmp = NULL;
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening metrics.csv");
    } else {
        const kept_rows kept = {env->resume_step, TT_HAS(env, tt_metrics_env, validates_again) &&
                                                      env->validates_again};
        status = open_file(s, &kept, err);
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
    TT_COMPONENT(TT_KIND_METRICS, "csv", "metrics.csv, one row per logged step", config, options,
                 &vt),
};

TT_PLUGIN("csv", "1.0", components);
