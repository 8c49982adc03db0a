/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "base/shown.h"
#include "report/watch.h"
#include <math.h>
#include <string.h>

/* The table of `ttrun top`. */

#define LINE_CELLS 16 /* of a curve in the table */
#define MOST_CELLS 400

/* ---- curves ---- */

/* The curve in `cells` columns: the mean of the points of each; a column without a point is like the
 * one before. Returns the number of columns, 0 = there is no curve. */
static int resample(const tt_watch *w, int cells, double *out)
{
    const double x0 = w->n ? w->x[0] : 0, x1 = w->n ? w->x[w->n - 1] : 0;
    int k = 0;
    if (!w->n)
        return 0;
    for (int c = 0; c < cells; c++) {
        const double stop = x0 + (x1 - x0) * (c + 1) / cells;
        double sum = 0;
        int n = 0;
        for (; k < w->n && (w->x[k] <= stop || c == cells - 1); k++, n++)
            sum += w->y[k];
        out[c] = n ? sum / n : c ? out[c - 1] : w->y[0];
    }
    return cells;
}

static void range_of(const double *v, int n, double *lo, double *hi)
{
    *lo = *hi = n ? v[0] : 0;
    for (int i = 1; i < n; i++) {
        *lo = TT_MIN(*lo, v[i]);
        *hi = TT_MAXV(*hi, v[i]);
    }
}

/* One character for a height of 0 … 8 eighths. */
static void put_level(tt_str *o, int level, bool utf8)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char plain[] = " ..--==##";
    const int at = TT_MIN(TT_MAXV(level, 0), 8);
    if (utf8)
        tt_str_add(o, blocks[at]);
    else
        tt_str_addc(o, plain[at]);
}

static void put_curve(const tt_watch *w, int cells, bool utf8, tt_str *o)
{
    double v[LINE_CELLS] = {0}, lo, hi;
    const int n = resample(w, cells, v);
    range_of(v, n, &lo, &hi);
    for (int i = 0; i < cells; i++)
        put_level(o, n ? 1 + (int)(hi > lo ? 7 * (v[i] - lo) / (hi - lo) + 0.5 : 0) : 0, utf8);
}

/* The curve over several rows, with its largest and smallest value at the left. */
static void put_block(const tt_watch *w, int columns, int rows, bool utf8, tt_str *o)
{
    double v[MOST_CELLS] = {0}, lo, hi;
    const int n = resample(w, TT_MIN(columns - 10, MOST_CELLS), v);
    if (!n || rows < 2)
        return;
    range_of(v, n, &lo, &hi);
    for (int r = rows - 1; r >= 0; r--) {
        char label[16] = "";
        if (r == rows - 1 || r == 0)
            snprintf(label, sizeof label, fabs(r ? hi : lo) < 999 ? "%.4f" : "%.2g", r ? hi : lo);
        tt_str_printf(o, "%8s ", label);
        for (int i = 0; i < n; i++) {
            const double height = hi > lo ? (v[i] - lo) / (hi - lo) : 0;
            put_level(o, 1 + (int)(height * (8 * rows - 1) + 0.5) - 8 * r, utf8);
        }
        tt_str_addc(o, '\n');
    }
    tt_str_printf(o, "%8s %-*lld%*lld\n", "step", n / 2, (long long)w->x[0], n - n / 2,
                  (long long)w->x[w->n - 1]);
}

/* ---- the table ---- */

typedef enum top_column {
    RUN,
    STATE,
    STEP,
    LOSS,
    CURVE,
    LR,
    RATE,
    MFU,
    MEMORY,
    LEFT,
    SAVED,
    AGE,
    N_TOP_COLUMNS
} top_column;

static const struct {
    const char *head;
    int keep;  /* columns with small numbers are left out first */
    bool left; /* aligned */
} heads[N_TOP_COLUMNS] = {
    {"RUN",    12, true },
    {"STATE",  9,  true },
    {"STEP",   11, false},
    {"LOSS",   10, false},
    {"CURVE",  6,  true },
    {"LR",     3,  false},
    {"TOK/S",  8,  false},
    {"MFU",    4,  false},
    {"MEMORY", 1,  false},
    {"LEFT",   7,  false},
    {"SAVED",  2,  false},
    {"AGE",    5,  false},
};

/* "12 s", "3m04s", "3h04m", "4 d" */
static void duration(char *buf, size_t size, double s)
{
    if (!isfinite(s) || s < 0)
        snprintf(buf, size, "-");
    else if (s < 60)
        snprintf(buf, size, "%.0f s", s);
    else if (s < 3600)
        snprintf(buf, size, "%dm%02ds", (int)(s / 60), (int)fmod(s, 60));
    else if (s < 86400 * 4)
        snprintf(buf, size, "%dh%02dm", (int)(s / 3600), (int)fmod(s / 60, 60));
    else
        snprintf(buf, size, "%.0f d", fmin(s / 86400, 99999));
}

static void value(char *buf, size_t size, const char *format, double v)
{
    if (isfinite(v))
        snprintf(buf, size, format, v); /* one of the literals below */
    else
        snprintf(buf, size, "-");
}

/* A name without bytes that a terminal would obey. */
static void safe_name(char *buf, size_t size, const char *name)
{
    const size_t n = strlen(name), good = tt_utf8_valid(name, n);
    size_t at = 0;
    for (size_t i = 0, control; i < n && at + 1 < size; i += control ? control : 1) {
        control = tt_control_bytes(name + i, n - i);
        buf[at++] = control || (good < n && (unsigned char)name[i] >= 0x80) ? '?' : name[i];
    }
    while (at && at + 1 >= size && ((unsigned char)buf[at - 1] & 0xc0) == 0x80)
        at--; /* no half of a character */
    buf[at] = 0;
}

static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

typedef char cell[64];

static void fill(const tt_watch *w, double now, cell *c)
{
    const double step = w->row[TT_COL_STEP];
    char a[24], b[24];
    safe_name(c[RUN], 40, w->name);
    snprintf(c[STATE], sizeof c[0], "%s", tt_run_states[w->state]);
    tt_grouped(a, sizeof a, isfinite(step) ? step : 0, 0);
    tt_grouped(b, sizeof b, (double)w->steps, 0);
    snprintf(c[STEP], sizeof c[0], "%s%s%s", a, w->steps ? "/" : "", w->steps ? b : "");
    value(c[LOSS], sizeof c[0], "%.4f", w->row[TT_COL_LOSS]);
    value(c[LR], sizeof c[0], "%.1e", w->row[TT_COL_LR]);
    tt_grouped(c[RATE], sizeof c[0], w->row[TT_COL_TPS], 0);
    if (!isfinite(w->row[TT_COL_TPS]))
        snprintf(c[RATE], sizeof c[0], "-");
    value(c[MFU], sizeof c[0], "%.1f%%", 100 * w->row[TT_COL_MFU]);
    snprintf(c[MEMORY], sizeof c[0], "%s", tt_memory_text(a, w->row[TT_COL_MEMORY]));
    duration(c[LEFT], sizeof c[0],
             w->state == TT_RUN_RUNNING && w->steps
                 ? w->step_s * ((double)w->steps - (isfinite(step) ? step : 0))
                 : (double)NAN);
    if (w->saved >= 0)
        snprintf(c[SAVED], sizeof c[0], "%lld", (long long)w->saved);
    else
        snprintf(c[SAVED], sizeof c[0], "-");
    duration(c[AGE], sizeof c[0], fmax(now - w->written, 0));
}

/* Leaves out columns until a line fits. */
static void fit(int *width, int columns)
{
    for (;;) {
        int sum = -2, least = -1;
        for (int i = 0; i < N_TOP_COLUMNS; i++) {
            sum += width[i] ? width[i] + 2 : 0;
            if (width[i] && (least < 0 || heads[i].keep < heads[least].keep))
                least = i;
        }
        if (sum <= columns || least == RUN)
            return;
        width[least] = 0;
    }
}

static void put_cell(int column, int width, const char *text, tt_str *o)
{
    const int pad = TT_MAXV(width - width_of(text), 0);
    if (!width)
        return;
    if (column)
        tt_str_add(o, "  ");
    tt_str_printf(o, "%*s%s%*s", heads[column].left ? 0 : pad, "", text,
                  heads[column].left ? pad : 0, "");
}

static void end_line(tt_str *o)
{
    while (o->n && o->s[o->n - 1] == ' ')
        o->s[--o->n] = 0;
    tt_str_addc(o, '\n');
}

void tt_top_print(const tt_watches *list, const tt_top_opts *o, tt_str *out)
{
    int width[N_TOP_COLUMNS];
    cell c[N_TOP_COLUMNS];
    const size_t n = o->rows > 1 ? TT_MIN(list->n, (size_t)o->rows - 1) : list->n;
    for (int i = 0; i < N_TOP_COLUMNS; i++)
        width[i] = (int)strlen(heads[i].head);
    width[CURVE] = LINE_CELLS;
    for (size_t r = 0; r < n; r++) {
        memset(c, 0, sizeof c);
        fill(list->items[r], o->now, c);
        for (int i = 0; i < N_TOP_COLUMNS; i++)
            width[i] = TT_MAXV(width[i], width_of(c[i]));
    }
    fit(width, o->columns);
    for (int i = 0; i < N_TOP_COLUMNS; i++)
        put_cell(i, width[i], heads[i].head, out);
    end_line(out);
    for (size_t r = 0; r < n; r++) {
        memset(c, 0, sizeof c);
        fill(list->items[r], o->now, c);
        for (int i = 0; i < N_TOP_COLUMNS; i++)
            if (i == CURVE && width[i]) {
                tt_str_add(out, "  ");
                put_curve(list->items[r], width[i], o->utf8, out);
            } else {
                put_cell(i, width[i], c[i], out);
            }
        end_line(out);
    }
    if (n == 1 && o->rows > 8 && o->columns >= 40) {
        tt_str_addc(out, '\n');
        put_block(list->items[0], o->columns, TT_MIN(o->rows - 6, 16), o->utf8, out);
    }
}

void tt_top_json(const tt_watches *list, double now, tt_str *out)
{
    static const struct {
        const char *key;
        tt_column column;
    } keys[] = {
        {"loss",          TT_COL_LOSS  },
        {"grad_norm",     TT_COL_NORM  },
        {"lr",            TT_COL_LR    },
        {"n_tokens_seen", TT_COL_TOKENS},
        {"tps_global",    TT_COL_TPS   },
        {"mfu",           TT_COL_MFU   },
        {"mem_gib",       TT_COL_MEMORY}
    };
    tt_str_add(out, "{\"runs\":[");
    for (size_t i = 0; i < list->n; i++) {
        const tt_watch *w = list->items[i];
        const double step = w->row[TT_COL_STEP];
        tt_str_add(out, i ? ",{\"folder\":" : "{\"folder\":");
        tt_str_json(out, w->folder);
        tt_str_printf(out, ",\"state\":\"%s\",\"step\":%.0f,\"steps\":", tt_run_states[w->state],
                      isfinite(step) ? step : 0);
        tt_str_json_number(out, w->steps ? (double)w->steps : (double)NAN);
        for (size_t k = 0; k < TT_COUNT(keys); k++) {
            tt_str_printf(out, ",\"%s\":", keys[k].key);
            tt_str_json_number(out, w->row[keys[k].column]);
        }
        tt_str_add(out, ",\"validation_loss\":");
        tt_str_json_number(out, w->validation);
        tt_str_add(out, ",\"step_s\":");
        tt_str_json_number(out, w->step_s);
        tt_str_add(out, ",\"saved\":");
        tt_str_json_number(out, w->saved >= 0 ? (double)w->saved : (double)NAN);
        tt_str_add(out, ",\"age_s\":");
        tt_str_json_number(out, isfinite(w->written) ? fmax(now - w->written, 0) : (double)NAN);
        tt_str_addc(out, '}');
    }
    tt_str_add(out, "]}\n");
}
