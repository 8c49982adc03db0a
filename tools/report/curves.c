/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <string.h>

/* The curves of all runs: a chart for each number of the training loop, and for each that the model or the loss logs. */

/* A number of the rows of metrics.jsonl as one chart. */
typedef struct row_chart {
    const char *title, *unit;
    tt_column column;
    double factor; /* of what the file has */
    bool free;     /* the axis need not begin at zero */
    bool validation;
} row_chart;

static tt_curve scaled_curve(const tt_metric_rows *m, tt_column column, double factor, tt_arena *a)
{
    const double *first = m->n ? &m->rows[0][0] : NULL;
    tt_curve c = {.x = first ? first + TT_COL_STEP : NULL,
                  .y = first ? first + column : NULL,
                  .n = m->n,
                  .stride = TT_N_COLS};
    if (factor > 0 && m->n) {
        double *y = tt_arena_array(a, m->n, TT_N_COLS * sizeof *y);
        for (size_t i = 0; i < m->n; i++)
            y[i * TT_N_COLS] = factor * m->rows[i][column];
        c.y = y;
    }
    return c;
}

/* What the page's script needs to know of the run that a curve is of. */
static void name_curve(tt_curve *c, const tt_run_report *runs, size_t n, size_t i, size_t k,
                       const char *part, const char *alone, tt_arena *a)
{
    const tt_metric_rows *m = &runs[i].train;
    const double steps = tt_report_last(m, TT_COL_STEP);
    c->name = n == 1 ? (*part ? part : alone)
                     : tt_arena_printf(a, "%s%s%s", runs[i].name, *part ? ", " : "", part);
    c->key = n > 1 ? tt_arena_printf(a, "r%zu", i) : tt_arena_printf(a, "c%zu", k);
    c->steps = steps;
    c->tokens = tt_report_last(m, TT_COL_TOKENS) / steps;
    c->hours = tt_report_median(m, TT_COL_TIME) / 3600;
}

static void print_rows(const tt_run_report *runs, size_t n, const row_chart *chart, tt_arena *a,
                       tt_str *o)
{
    tt_curve c[2 * TT_REPORT_RUNS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_metric_rows *m[2] = {&runs[i].train, &runs[i].validation};
        for (int v = 0; v < (chart->validation ? 2 : 1); v++) {
            if (v && !m[v]->n)
                continue;
            const char *part = !chart->validation ? "" : v ? "validation" : "training";
            c[k] = scaled_curve(m[v], chart->column, chart->factor, a);
            name_curve(&c[k], runs, n, i, k, part, chart->title, a);
            c[k].color = (int)(n > 1 ? i : (size_t)v);
            c[k].dashed = v && n > 1;
            c[k].points = v;
            k++;
        }
    }
    tt_chart_print(&(tt_chart){.title = chart->title,
                               .unit = chart->unit,
                               .x_name = "step",
                               .curves = c,
                               .n = k,
                               .from_zero = !chart->free},
                   o);
}

static void print_logged(const tt_run_report *runs, size_t n, const char *name, tt_arena *a,
                         tt_str *o)
{
    tt_curve c[TT_REPORT_RUNS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_logged *l = tt_report_logged_find(&runs[i].logged, name);
        if (!l || !l->points.n)
            continue;
        c[k] = (tt_curve){.x = &l->points.items[0].step,
                          .y = &l->points.items[0].value,
                          .n = l->points.n,
                          .stride = sizeof *l->points.items / sizeof(double),
                          .color = (int)i};
        name_curve(&c[k], runs, n, i, k, "", name, a);
        k++;
    }
    tt_chart_print(&(tt_chart){.title = name, .x_name = "step", .curves = c, .n = k}, o);
}

static bool an_earlier_run_has(const tt_run_report *runs, size_t i, const char *name)
{
    while (i-- > 0)
        if (tt_report_logged_find(&runs[i].logged, name))
            return true;
    return false;
}

void tt_report_curves(const tt_run_report *runs, size_t n, tt_str *o)
{
    static const row_chart charts[] = {
        {.title = "Loss",              .column = TT_COL_LOSS,   .free = true,          .validation = true},
        {.title = "Gradient norm",                            .column = TT_COL_NORM,                            .free = true},
        {.title = "Learning rate",                            .column = TT_COL_LR                           },
        {.title = "Tokens per second", .column = TT_COL_TPS   },
        {.title = "MFU",        .column = TT_COL_MFU,             .unit = "%",   .factor = 100},
        {.title = "Memory, resident",  .column = TT_COL_MEMORY, .unit = "GiB"                     },
    };
    tt_arena *a = tt_arena_new();
    tt_str_add(o, "<h2>Curves</h2><div id=\"tools\"></div><div class=\"charts\">\n");
    print_rows(runs, n, &charts[0], a, o);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].logged.n; k++)
            if (!an_earlier_run_has(runs, i, runs[i].logged.items[k].name))
                print_logged(runs, n, runs[i].logged.items[k].name, a, o);
    for (size_t i = 1; i < TT_COUNT(charts); i++)
        print_rows(runs, n, &charts[i], a, o);
    tt_str_add(o, "</div>\n");
    tt_arena_free(a);
}
