/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads metrics.jsonl, about a million lines per second: one pass takes the known numbers from each
 * line and otherwise checks only that the line is a complete object. Other lines are counted and
 * left out. A number that is null or NaN is a gap in the curve. */

static const struct {
    const char *path;
    tt_column column;
} known[] = {
    {"step",                  TT_COL_STEP     },
    {"loss",                  TT_COL_LOSS     },
    {"grad_norm",             TT_COL_NORM     },
    {"lr",                    TT_COL_LR       },
    {"n_tokens_seen",         TT_COL_TOKENS   },
    {"tps_global",            TT_COL_TPS      },
    {"mfu",                   TT_COL_MFU      },
    {"mem_gib",               TT_COL_MEMORY   },
    {"time_s",                TT_COL_TIME     },
    {"time/data",             TT_COL_DATA     },
    {"time/forward_backward", TT_COL_COMPUTE  },
    {"time/optimizer",        TT_COL_OPTIMIZER},
    {"time/comm_exposed",     TT_COL_COMM     },
};

typedef struct scan {
    const char *p, *end;
    double *row;
    tt_logged_list *logged; /* NULL: only the known numbers are wanted */
    bool validation;
} scan;

static void blanks(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

static bool metrics_take(scan *s, char c)
{
    blanks(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

/* Reads a string. Returns what is between its quotes, with escapes as they are. */
static bool string(scan *s, const char **text, size_t *n)
{
    if (!metrics_take(s, '"'))
        return false;
    *text = s->p;
    while (s->p < s->end && *s->p != '"')
        s->p += *s->p == '\\' ? 2 : 1;
    if (s->p >= s->end)
        return false;
    *n = (size_t)(s->p++ - *text);
    return true;
}

static bool word(scan *s, const char *w)
{
    const size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n))
        return false;
    s->p += n;
    return true;
}

/* Reads a number, null, or a NaN or infinity as printers write it that do not follow JSON. true and
 * false are read, but are not numbers. */
static bool scalar(scan *s, double *v)
{
    char text[64];
    size_t n = 0;
    *v = (double)NAN;
    if (word(s, "null") || word(s, "true") || word(s, "false") || word(s, "NaN"))
        return true;
    while (s->p + n < s->end && n + 1 < sizeof text && strchr("+-.0123456789eEInfity", s->p[n]) &&
           s->p[n])
        n++;
    memcpy(text, s->p, n);
    text[n] = 0;
    char *end;
    const double x = strtod(text, &end);
    if (!n || *end)
        return false;
    s->p += n;
    *v = isfinite(x) ? x : (double)NAN;
    return true;
}

static void keep(const scan *s, int depth, const char *group, size_t n_group, const char *key,
                 size_t n, double v)
{
    if (n_group == 10 && !memcmp(group, "validation", 10) && n == 4 && !memcmp(key, "loss", 4))
        s->row[TT_COL_LOSS] = v;
    for (size_t i = 0; i < TT_COUNT(known); i++) {
        const char *path = known[i].path, *slash = strchr(path, '/');
        const size_t head = slash ? (size_t)(slash - path) : 0;
        const char *leaf = slash ? slash + 1 : path;
        if (head == n_group && !memcmp(path, group, head) && strlen(leaf) == n &&
            !memcmp(leaf, key, n))
            s->row[known[i].column] = v;
    }
    if (s->logged && depth < 2 && *group != '?')
        tt_report_logged_add(s->logged, group, n_group, key, n, v);
}

static bool object(scan *s, const char *group, size_t n_group, int depth);

/* Skips a list: no known number is in one. */
static bool list(scan *s, int depth)
{
    const char *text;
    size_t n;
    double v;
    blanks(s);
    if (metrics_take(s, ']'))
        return true;
    do {
        blanks(s);
        const char c = s->p < s->end ? *s->p : 0;
        const bool ok = c == '"'   ? string(s, &text, &n)
                        : c == '{' ? (s->p++, depth < 16 && object(s, "?", 1, depth + 1))
                        : c == '[' ? (s->p++, depth < 16 && list(s, depth + 1))
                                   : scalar(s, &v);
        if (!ok)
            return false;
    } while (metrics_take(s, ','));
    return metrics_take(s, ']');
}

/* Reads the rest of an object whose brace is read already. group: the name of the line's member
 * that this object is; "" = it is the line itself. */
static bool object(scan *s, const char *group, size_t n_group, int depth)
{
    const char *key, *text;
    size_t n, n_text;
    double v;
    if (metrics_take(s, '}'))
        return true;
    do {
        if (!string(s, &key, &n) || !metrics_take(s, ':'))
            return false;
        blanks(s);
        const char c = s->p < s->end ? *s->p : 0;
        if (c == '"') {
            if (!string(s, &text, &n_text))
                return false;
        } else if (c == '{') {
            s->p++;
            s->validation |= depth == 0 && n == 10 && !memcmp(key, "validation", 10);
            if (depth >= 16 || !object(s, depth ? "?" : key, depth ? 1 : n, depth + 1))
                return false;
        } else if (c == '[') {
            s->p++;
            if (depth >= 16 || !list(s, depth + 1))
                return false;
        } else {
            if (!scalar(s, &v))
                return false;
            keep(s, depth, group, n_group, key, n, v);
        }
    } while (metrics_take(s, ','));
    return metrics_take(s, '}');
}

static int metrics_line(const char *p, size_t n, double *row, bool *validation,
                        tt_logged_list *logged)
{
    scan s = {.p = p, .end = p + n, .row = row, .logged = logged};
    for (int i = 0; i < TT_N_COLS; i++)
        row[i] = (double)NAN;
    blanks(&s);
    if (s.p == s.end)
        return 0;
    bool ok = metrics_take(&s, '{') && object(&s, "", 0, 0);
    blanks(&s);
    ok = ok && s.p == s.end && isfinite(row[TT_COL_STEP]);
    *validation = s.validation;
    return ok ? 1 : -1;
}

int tt_report_line(const char *p, size_t n, double *row, bool *validation)
{
    return metrics_line(p, n, row, validation, NULL);
}

/* Returns the row for a step. Steps ascend: if the step is there already, this line is from a later
 * attempt, which replaces the earlier one and what followed it. */
static double *next_row(tt_metric_rows *m, const double *row)
{
    while (m->n && m->rows[m->n - 1][TT_COL_STEP] >= row[TT_COL_STEP])
        m->n--;
    return m->rows[m->n++];
}

void tt_report_metrics(const char *text, size_t n, tt_arena *a, tt_run_report *out)
{
    size_t lines = 1;
    for (const char *p = text; n && (p = memchr(p, '\n', n - (size_t)(p - text))); p++)
        lines++;
    out->logged = (tt_logged_list){.arena = a};
    out->train.rows = tt_arena_array(a, lines, sizeof *out->train.rows);
    out->validation.rows = tt_arena_array(a, lines, sizeof *out->validation.rows);
    for (const char *p = text, *end = text + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        double row[TT_N_COLS];
        bool validation;
        if (!stop)
            stop = end;
        const int ok = metrics_line(p, (size_t)(stop - p), row, &validation, &out->logged);
        tt_report_logged_end(&out->logged, row[TT_COL_STEP], ok > 0 && !validation);
        if (ok > 0)
            memcpy(next_row(validation ? &out->validation : &out->train, row), row, sizeof row);
        out->bad_lines += ok < 0;
        p = stop + 1;
    }
    tt_report_experts_read(text, n, a, &out->experts);
}
