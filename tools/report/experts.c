/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How evenly the tokens of a run went to the experts of its layers: "experts" of the lines of metrics.jsonl,
 * and experts.json, which has the tokens of each expert in the newest step. */

#define LEFT 120 /* of the drawing: names of layers */
#define WIDTH 1240
#define BOTTOM 24
#define MOST_COLUMNS 240 /* steps of one column of cells are averaged */
#define LEVELS 9         /* shades of a colour */

/* ---- reading ---- */

typedef struct pair {
    const char *name; /* "layers.3/entropy" */
    size_t n;
    double value;
} pair;

static const char *past_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* Reads "name":number and what follows it up to the next name. NULL: the object ends, or is not understood. */
static const char *next_pair(const char *p, const char *end, pair *out)
{
    char text[40];
    p = past_blanks(p, end);
    if (p == end || *p++ != '"')
        return NULL;
    const char *quote = memchr(p, '"', (size_t)(end - p));
    if (!quote)
        return NULL;
    *out = (pair){p, (size_t)(quote - p), (double)NAN};
    p = past_blanks(quote + 1, end);
    if (p == end || *p++ != ':')
        return NULL;
    p = past_blanks(p, end);
    const char *stop = p;
    while (stop < end && *stop != ',' && *stop != '}')
        stop++;
    if (stop == end || (size_t)(stop - p) >= sizeof text)
        return NULL;
    memcpy(text, p, (size_t)(stop - p));
    text[stop - p] = 0;
    char *parsed;
    const double v = strtod(text, &parsed);
    out->value = parsed != text && isfinite(v) ? v : (double)NAN;
    return *stop == ',' ? stop + 1 : stop;
}

/* The pairs of the line's member "experts". NULL: it has none. */
static const char *experts_of(const char *line, size_t n)
{
    static const char name[] = "\"experts\":";
    const char *p = memmem(line, n, name, sizeof name - 1), *end = line + n;
    if (!p)
        return NULL;
    p = past_blanks(p + sizeof name - 1, end);
    return p < end && *p == '{' ? p + 1 : NULL;
}

/* The number's name and its layer's, "entropy" and "layers.3". False: it is of all layers. */
static bool split_name(const pair *p, const char **leaf, size_t *n_layer)
{
    const char *slash = memrchr(p->name, '/', p->n);
    *leaf = slash ? slash + 1 : p->name;
    *n_layer = slash ? (size_t)(slash - p->name) : 0;
    return slash != NULL;
}

static bool leaf_is(const pair *p, const char *leaf, const char *what)
{
    const size_t n = p->n - (size_t)(leaf - p->name);
    return n == strlen(what) && !memcmp(leaf, what, n);
}

/* The layers of the first line that has some. */
static void find_names(tt_expert_report *e, const char *p, const char *end, tt_arena *a)
{
    pair q;
    const char *leaf;
    size_t n, most = 0;
    for (const char *c = p; c < end; c++)
        most += *c == ',';
    e->layers = tt_arena_array(a, most + 2, sizeof *e->layers);
    while ((p = next_pair(p, end, &q)))
        if (split_name(&q, &leaf, &n) && leaf_is(&q, leaf, "max_over_mean"))
            e->layers[e->n_layers++] = tt_arena_strn(a, q.name, n);
}

static void take_line(tt_expert_report *e, double step, const char *p, const char *end)
{
    pair q;
    const char *leaf;
    size_t n, at = 0;
    while (e->n && e->steps[e->n - 1] >= step) /* this line is of a later attempt */
        e->n--;
    const size_t row = e->n++;
    e->steps[row] = step;
    e->mean_most[row] = e->mean_entropy[row] = (double)NAN;
    for (size_t i = 0; i < e->n_layers; i++)
        e->most[row * e->n_layers + i] = (double)NAN;
    while ((p = next_pair(p, end, &q))) {
        const bool of_layer = split_name(&q, &leaf, &n), most = leaf_is(&q, leaf, "max_over_mean");
        if (!of_layer && most)
            e->mean_most[row] = q.value;
        if (!of_layer && leaf_is(&q, leaf, "entropy"))
            e->mean_entropy[row] = q.value;
        for (size_t k = 0; of_layer && most && k < e->n_layers; k++, at++) {
            const char *name = e->layers[at % e->n_layers];
            if (strlen(name) != n || memcmp(name, q.name, n) != 0)
                continue;
            e->most[row * e->n_layers + at++ % e->n_layers] = q.value;
            break;
        }
    }
}

void tt_report_experts_read(const char *text, size_t n, tt_arena *a, tt_expert_report *out)
{
    size_t lines = 1;
    double row[TT_N_COLS];
    bool validation;
    for (const char *p = text; n && (p = memchr(p, '\n', n - (size_t)(p - text))); p++)
        lines++;
    for (const char *p = text, *end = text + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        const char *pairs = experts_of(p, (size_t)(stop - p));
        if (pairs && tt_report_line(p, (size_t)(stop - p), row, &validation) > 0 && !validation) {
            if (!out->steps) {
                find_names(out, pairs, stop, a);
                out->steps = tt_arena_array(a, lines, sizeof *out->steps);
                out->mean_most = tt_arena_array(a, lines, sizeof *out->mean_most);
                out->mean_entropy = tt_arena_array(a, lines, sizeof *out->mean_entropy);
                out->most = tt_arena_array(a, lines * (out->n_layers + 1), sizeof *out->most);
            }
            take_line(out, row[TT_COL_STEP], pairs, stop);
        }
        p = stop + 1;
    }
}

/* ---- drawing ---- */

typedef struct heat {
    size_t rows, columns;
    const char *const *names;   /* of rows */
    const double *values;       /* [rows, columns]: over the mean; NaN: not known */
    const char *what;           /* of a cell, "step" */
    const double *first, *last; /* of a column; NULL: its number */
} heat;

/* 0: the mean; to LEVELS: eight times as much; to -LEVELS: nothing. */
static int level_of(double over_mean)
{
    const double v = over_mean >= 1 ? log2(over_mean) / 3 * LEVELS : -(1 - over_mean) * LEVELS;
    return (int)lround(fmax(-LEVELS, fmin(LEVELS, v)));
}

/* Cells from i up to j, which have the same shade, as one rectangle. */
static void draw_cells(const heat *h, size_t row, size_t i, size_t j, double w, double height,
                       tt_str *o)
{
    double sum = 0;
    for (size_t k = i; k < j; k++)
        sum += h->values[row * h->columns + k];
    const double mean = sum / (double)(j - i), first = h->first ? h->first[i] : (double)i,
                 last = h->last ? h->last[j - 1] : (double)(j - 1);
    const int level = level_of(h->values[row * h->columns + i]);
    tt_str_printf(o,
                  "<rect class=\"f%d\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                  "height=\"%.1f\"><title>",
                  level < 0 ? 0 : 1, (double)abs(level) / LEVELS, LEFT + w * (double)i,
                  height * (double)row, w * (double)(j - i), height - 1);
    tt_html(o, h->names[row]);
    tt_str_printf(o,
                  last > first ? ", %s %.0f – %.0f: %.3g</title></rect>"
                               : ", %s %.0f: %.3g</title></rect>",
                  h->what, first, last > first ? last : mean, mean);
}

static void draw_row(const heat *h, size_t row, double w, double height, tt_str *o)
{
    const double *v = h->values + row * h->columns;
    tt_str_printf(o, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8,
                  height * (double)row + fmin(height, 12));
    tt_html(o, h->names[row]);
    tt_str_add(o, "</text>");
    for (size_t i = 0, j; i < h->columns; i = j) {
        for (j = i + 1;
             j < h->columns && isfinite(v[i]) && isfinite(v[j]) && level_of(v[i]) == level_of(v[j]);
             j++)
            ;
        if (isfinite(v[i]))
            draw_cells(h, row, i, j, w, height, o);
    }
    tt_str_add(o, "\n");
}

static void draw_heat(const heat *h, const char *title, const char *note, tt_str *o)
{
    const double height = h->rows > 40 ? 12 : 18, w = (double)(WIDTH - LEFT) / (double)h->columns,
                 bottom = height * (double)h->rows;
    const double first = h->first ? h->first[0] : 0,
                 last = h->last ? h->last[h->columns - 1] : (double)(h->columns - 1);
    tt_str_printf(o, "<div class=\"wide\"><figure class=\"heat\"><figcaption>%s</figcaption>\n",
                  title);
    tt_str_printf(o, "<svg viewBox=\"0 0 %d %.0f\">", WIDTH, bottom + BOTTOM);
    for (size_t r = 0; r < h->rows; r++)
        draw_row(h, r, w, height, o);
    tt_str_printf(o,
                  "<text class=\"tick\" x=\"%d\" y=\"%.0f\">%s %.0f</text><text class=\"tick\" "
                  "x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.0f</text></svg>\n",
                  LEFT, bottom + 16, h->what, first, WIDTH, bottom + 16, last);
    tt_str_printf(o, "<p class=\"note\">%s</p></figure></div>\n", note);
}

/* The largest load over the mean, by layer and step. */
static void draw_steps(const tt_expert_report *e, tt_str *o)
{
    const size_t n = TT_MIN(e->n, (size_t)MOST_COLUMNS);
    tt_arena *a = tt_arena_new();
    double *v = tt_arena_array(a, n * e->n_layers + 1, sizeof *v),
           *first = tt_arena_array(a, n + 1, sizeof *first),
           *last = tt_arena_array(a, n + 1, sizeof *last);
    for (size_t c = 0; c < n; c++) {
        const size_t from = c * e->n / n, to = (c + 1) * e->n / n;
        first[c] = e->steps[from];
        last[c] = e->steps[to - 1];
        for (size_t l = 0; l < e->n_layers; l++) {
            double sum = 0;
            for (size_t i = from; i < to; i++)
                sum += e->most[i * e->n_layers + l];
            v[l * n + c] = sum / (double)(to - from);
        }
    }
    const heat h = {e->n_layers, n, e->layers, v, "step", first, last};
    draw_heat(&h, "Busiest expert of each layer",
              "Tokens of the busiest expert over the mean of all experts. No colour: all have the "
              "same; the full colour: eight times the mean or more.",
              o);
    tt_arena_free(a);
}

/* Two curves over all layers. */
static void draw_means(const tt_expert_report *e, tt_str *o)
{
    const double *const y[2] = {e->mean_most, e->mean_entropy};
    static const char *const names[2] = {"Busiest expert over the mean, all layers",
                                         "Entropy of the experts' shares, all layers"};
    for (int i = 0; i < 2; i++) {
        const tt_curve c = {
            .name = names[i], .x = e->steps, .y = y[i], .n = e->n, .stride = 1, .color = i};
        tt_chart_print(&(tt_chart){.title = names[i],
                                   .note = i ? "1: all experts have the same number of tokens; 0: "
                                               "one has all."
                                             : NULL,
                                   .x_name = "step",
                                   .curves = &c,
                                   .n = 1},
                       o);
    }
}

static double sum_of_list(const tt_json *list)
{
    double sum = 0;
    for (size_t i = 0; i < list->n; i++)
        sum += list->items[i]->real;
    return sum;
}

/* The tokens of each expert in one step, over the mean of its layer. */
static void draw_newest(const tt_json *file, tt_str *o)
{
    const tt_json *layers = tt_json_get(file, "layers");
    tt_arena *a = tt_arena_new();
    heat h = {.what = "expert"};
    for (size_t i = 0; layers && layers->type == TT_JSON_ARRAY && i < layers->n; i++) {
        const tt_json *t = tt_json_get(layers->items[i], "tokens");
        if (t && t->type == TT_JSON_ARRAY)
            h.columns = TT_MAXV(h.columns, t->n);
    }
    const size_t rows = h.columns ? layers->n : 0;
    const char **names = tt_arena_array(a, rows + 1, sizeof *names);
    double *v = tt_arena_array(a, rows * h.columns + 1, sizeof *v);
    for (size_t i = 0; i < rows; i++) {
        const tt_json *t = tt_json_get(layers->items[i], "tokens");
        const char *name = tt_report_text(layers->items[i], "name");
        const double mean =
            t && t->type == TT_JSON_ARRAY && t->n ? sum_of_list(t) / (double)t->n : 0;
        names[i] = name ? name : "–";
        for (size_t e = 0; e < h.columns; e++)
            v[i * h.columns + e] = mean > 0 && e < t->n ? t->items[e]->real / mean : (double)NAN;
    }
    h.rows = rows;
    h.names = names;
    h.values = v;
    char title[80];
    snprintf(title, sizeof title, "Tokens of each expert in step %.0f",
             tt_report_number(file, "step"));
    if (rows)
        draw_heat(&h, title,
                  "Over the mean of the layer. Orange: more, the full colour from eight times on; "
                  "blue: less, the full colour for none.",
                  o);
    tt_arena_free(a);
}

void tt_report_experts(const tt_run_report *r, tt_str *o)
{
    const tt_expert_report *e = &r->experts;
    if (!e->n && !e->last)
        return;
    tt_str_add(o, "<h3>Experts</h3><div class=\"charts\">\n");
    if (e->n)
        draw_means(e, o);
    if (e->n && e->n_layers)
        draw_steps(e, o);
    if (e->last)
        draw_newest(e->last, o);
    tt_str_add(o, "</div>\n");
}
