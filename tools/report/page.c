/* SPDX-License-Identifier: Apache-2.0 */
#include "report/folders.h"
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The page: key numbers, curves, and for each run its step, memory, ops, job and files. */

double tt_report_number(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    const bool is_number = v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL);
    return is_number && isfinite(v->real) ? v->real : (double)NAN;
}

const char *tt_report_text(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    return v && v->type == TT_JSON_STRING ? v->string : NULL;
}

double tt_report_last(const tt_metric_rows *m, tt_column c)
{
    for (size_t i = m->n; i-- > 0;)
        if (isfinite(m->rows[i][c]))
            return m->rows[i][c];
    return (double)NAN;
}

double tt_report_most(const tt_metric_rows *m, tt_column c)
{
    double most = (double)NAN;
    for (size_t i = 0; i < m->n; i++)
        if (!(m->rows[i][c] <= most) && isfinite(m->rows[i][c]))
            most = m->rows[i][c];
    return most;
}

static int page_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median, so that one slow step does not matter. */
double tt_report_median(const tt_metric_rows *m, tt_column c)
{
    double *v = malloc((m->n + 1) * sizeof *v), median = (double)NAN;
    size_t n = 0;
    for (size_t i = 0; v && i < m->n; i++)
        if (isfinite(m->rows[i][c]))
            v[n++] = m->rows[i][c];
    if (n) {
        qsort(v, n, sizeof *v, page_compare);
        median = v[n / 2];
    }
    free(v);
    return median;
}

/* ---- key numbers ---- */

static void tile(tt_str *o, double v, int digits, const char *unit, const char *what)
{
    tt_str_add(o, "<div class=\"tile\"><b>");
    tt_html_number(o, v, digits);
    tt_str_printf(o, "%s</b><span>%s</span></div>", isfinite(v) ? unit : "", what);
}

static void print_tiles(const tt_run_report *r, tt_str *o)
{
    const tt_metric_rows *m = &r->train;
    const tt_json *job = tt_json_get(r->facts, "job");
    const double steps = tt_report_number(tt_json_get(job, "training"), "steps");
    tt_str_add(o, "<div class=\"tiles\">");
    tt_str_add(o, "<div class=\"tile\"><b>");
    tt_html_number(o, tt_report_last(m, TT_COL_STEP), 7);
    if (isfinite(steps)) {
        tt_str_add(o, " / ");
        tt_html_number(o, steps, 7);
    }
    tt_str_add(o, "</b><span>steps</span></div>");
    tile(o, tt_report_last(m, TT_COL_LOSS), 5, "", "last loss");
    if (r->validation.n)
        tile(o, tt_report_last(&r->validation, TT_COL_LOSS), 5, "", "last validation loss");
    tile(o, tt_report_last(m, TT_COL_TOKENS), 4, "", "tokens seen");
    tile(o, tt_report_median(m, TT_COL_TPS), 4, "", "tokens per second, median");
    tile(o, 100 * tt_report_median(m, TT_COL_MFU), 3, " %", "MFU, median");
    tile(o, tt_report_most(m, TT_COL_MEMORY), 3, " GiB", "largest resident memory");
    tile(o, tt_report_number(r->facts, "parameters"), 4, "", "parameters");
    tt_str_add(o, "</div>\n");
}

static void print_head(const tt_run_report *r, tt_str *o)
{
    const tt_json *job = tt_json_get(r->facts, "job"), *model = tt_json_get(job, "model");
    const char *started = tt_report_text(r->facts, "started"),
               *host = tt_report_text(r->facts, "host");
    const char *name = tt_report_text(model, "name"), *flavor = tt_report_text(model, "flavor");
    const char *parts[] = {name, flavor, tt_report_text(r->facts, "backend"), host, started};
    bool any = false;
    tt_str_add(o, "<p class=\"sub\">");
    for (size_t i = 0; i < TT_COUNT(parts); i++) {
        if (!parts[i])
            continue;
        tt_str_add(o, any ? " · " : "");
        tt_html(o, parts[i]);
        any = true;
    }
    const double world = tt_report_number(r->facts, "world");
    if (isfinite(world))
        tt_str_printf(o, " · %.0f rank%s", world, world == 1 ? "" : "s");
    tt_str_add(o, "</p>\n");
}

/* ---- the step of one run ---- */

static void print_split(const tt_run_report *r, tt_str *o)
{
    enum { DATA, COMPUTE, COMM, OPTIMIZER, REST, N };
    static const char *const names[N] = {"data", "forward and backward", "exposed communication",
                                         "optimizer", "the rest"};
    static const int colors[N] = {4, 0, 3, 2, 1};
    const tt_metric_rows *m = &r->train;
    double *v = calloc(m->n + 1, (N + 1) * sizeof *v);
    tt_curve c[N];
    size_t n = 0;
    for (size_t i = 0; v && i < m->n; i++) {
        const double *row = m->rows[i];
        double *to = v + n * (N + 1), known = 0;
        if (!isfinite(row[TT_COL_TIME]))
            continue;
        const double comm = isfinite(row[TT_COL_COMM]) ? row[TT_COL_COMM] : 0;
        to[DATA] = row[TT_COL_DATA];
        to[COMPUTE] = fmax(row[TT_COL_COMPUTE] - comm, 0);
        to[COMM] = comm;
        to[OPTIMIZER] = row[TT_COL_OPTIMIZER];
        for (int k = 0; k < REST; k++) {
            to[k] = isfinite(to[k]) && to[k] > 0 ? to[k] : 0;
            known += to[k];
        }
        to[REST] = fmax(row[TT_COL_TIME] - known, 0);
        to[N] = row[TT_COL_STEP];
        n++;
    }
    for (int k = 0; k < N; k++)
        c[k] = (tt_curve){.name = names[k],
                          .x = v + N,
                          .y = v + k,
                          .n = v ? n : 0,
                          .stride = N + 1,
                          .color = colors[k]};
    tt_chart_print(&(tt_chart){.title = "Where a step's time goes",
                               .unit = "seconds",
                               .x_name = "step",
                               .curves = c,
                               .n = N,
                               .stacked = true,
                               .wide = true},
                   o);
    free(v);
}

static void print_memory(const tt_run_report *r, tt_str *o)
{
    static const char *const names[] = {"parameters",  "optimizer", "gradients",
                                        "activations", "workspace", "scalars and metrics"};
    static const int colors[] = {0, 5, 2, 1, 4, 7};
    const tt_memory_line *m = r->memory;
    double *v = m ? calloc(m->n + 1, 7 * sizeof *v) : NULL;
    const char **bands = m ? calloc(m->n + 1, sizeof *bands) : NULL;
    tt_curve c[6];
    if (!v || !bands) {
        tt_str_add(o, "<figure class=\"wide\"><figcaption>Memory over the step</figcaption><p "
                      "class=\"none\">");
        tt_html(o, r->memory_note ? r->memory_note : "no plan");
        tt_str_add(o, "</p></figure>\n");
        free(bands);
        free(v);
        return;
    }
    const double mib = 1.0 / (1 << 20);
    for (size_t i = 0; i < m->n; i++) {
        const double all[] = {m->params,
                              m->optimizer,
                              m->gradients,
                              m->points[i].activations,
                              m->points[i].workspace,
                              m->other,
                              0};
        for (int k = 0; k < 6; k++)
            v[7 * i + (size_t)k] = mib * all[k];
        v[7 * i + 6] = (double)i;
        bands[i] = m->points[i].phase;
    }
    for (int k = 0; k < 6; k++)
        c[k] = (tt_curve){
            .name = names[k], .x = v + 6, .y = v + k, .n = m->n, .stride = 7, .color = colors[k]};
    tt_str_add(o, "<div class=\"wide\">");
    tt_chart_print(
        &(tt_chart){.title = "Memory over the step",
                    .note = "The bytes in use while each instruction runs, on the first pipeline "
                            "rank, according to the plan made before step 1.",
                    .unit = "MiB",
                    .curves = c,
                    .n = 6,
                    .stacked = true,
                    .wide = true,
                    .level = mib * m->planned,
                    .level_name = "planned",
                    .bands = bands},
        o);
    tt_str_add(o, "</div>");
    free(bands);
    free(v);
}

void tt_report_drawing(const char *svg, tt_str *o)
{
    const char *rest = svg ? strstr(svg, " viewBox") : NULL;
    if (!rest)
        return;
    tt_str_add(o, "<div class=\"card drawing\"><svg");
    tt_str_add(o, rest);
    tt_str_add(o, "</div>\n");
}

static void print_pipeline(const tt_run_report *r, tt_str *o)
{
    if (!r->pipeline)
        return;
    tt_str_add(o, "<h3>Pipeline</h3>");
    tt_report_drawing(r->pipeline, o);
}

void tt_report_cell(tt_str *o, double v, int decimals)
{
    if (isfinite(v))
        tt_str_printf(o, "<td class=\"r\">%.*f</td>", decimals, v);
    else
        tt_str_add(o, "<td class=\"r\">–</td>");
}

static void print_ops(const tt_run_report *r, tt_str *o)
{
    const double steps = fmax(tt_report_number(r->ops_head, "steps"), 1);
    const double step_s = tt_report_number(r->ops_head, "step_s"),
                 most = r->n_ops ? r->ops[0].seconds : 1;
    if (!r->n_ops)
        return;
    tt_str_printf(o, "<h3>Ops</h3><p class=\"sub\">%.0f traced step%s of ", steps,
                  steps == 1 ? "" : "s");
    tt_html_number(o, 1e3 * step_s / steps, 4);
    const char *limits = tt_report_text(r->ops_head, "limits");
    tt_str_add(o, " ms. Limits measured then, per rank: ");
    tt_html(o, limits ? limits : "not known");
    tt_str_add(o, ". The roofline of an op is the shortest time that these limits allow; above "
                  "100 % its data came from a cache.</p>");
    tt_str_add(
        o, "<div class=\"card ops\"><table><tr><th>op</th><th class=\"r\">calls per step</th><th "
           "class=\"r\">ms per step</th><th class=\"r\">% of step</th><th></th><th "
           "class=\"r\">GFLOP/s</th><th class=\"r\">GB/s</th><th class=\"r\">% of roofline"
           "</th></tr>\n");
    for (size_t i = 0; i < r->n_ops; i++) {
        const tt_op_row *p = &r->ops[i];
        tt_str_add(o, "<tr><td><code>");
        tt_html(o, p->op);
        tt_str_add(o, "</code></td>");
        tt_report_cell(o, p->calls / steps, 1);
        tt_report_cell(o, 1e3 * p->seconds / steps, 3);
        tt_report_cell(o, 100 * p->seconds / step_s, 1);
        tt_str_printf(o, "<td class=\"barcell\"><i class=\"bar\" style=\"width:%.1f%%\"></i></td>",
                      isfinite(p->seconds / most) ? 100 * fmin(p->seconds / most, 1) : 0);
        tt_report_cell(o, p->flops > 0 ? 1e-9 * p->flops / p->seconds : (double)NAN, 1);
        tt_report_cell(o, p->bytes > 0 ? 1e-9 * p->bytes / p->seconds : (double)NAN, 1);
        tt_report_cell(o, p->bound_s > 0 ? 100 * p->bound_s / p->seconds : (double)NAN, 1);
        tt_str_add(o, "</tr>\n");
    }
    tt_str_add(o, "</table></div>\n");
}

/* ---- the job, the facts, the files ---- */

static void value_row(tt_str *o, const char *key, const tt_json *v)
{
    tt_str text = {0};
    if (v->type == TT_JSON_STRING)
        tt_str_add(&text, v->string);
    else
        tt_json_write(v, &text);
    tt_str_add(o, "<tr><td><code>");
    tt_html(o, key);
    tt_str_add(o, "</code></td><td><code>");
    tt_html(o, tt_str_get(&text));
    tt_str_add(o, "</code></td></tr>\n");
    tt_str_free(&text);
}

static void print_section(tt_str *o, const char *name, const tt_json *v)
{
    const char *kind = tt_report_text(v, "name");
    tt_str_add(o, "<details><summary>");
    tt_html(o, name);
    if (kind) {
        tt_str_add(o, "<small>");
        tt_html(o, kind);
        tt_str_add(o, "</small>");
    }
    tt_str_add(o, "</summary><table>");
    for (size_t i = 0; i < v->n; i++)
        value_row(o, v->type == TT_JSON_OBJECT ? v->keys[i] : "", v->items[i]);
    tt_str_add(o, "</table></details>\n");
}

static void print_job(const tt_run_report *r, tt_str *o)
{
    const tt_json *job = tt_json_get(r->facts, "job");
    if (!r->facts || r->facts->type != TT_JSON_OBJECT)
        return;
    tt_str_add(o, "<h3>Job and machine</h3><details open><summary>run</summary><table>");
    for (size_t i = 0; i < r->facts->n; i++)
        if (strcmp(r->facts->keys[i], "job") && strcmp(r->facts->keys[i], "plugins") &&
            strcmp(r->facts->keys[i], "recompute") && strcmp(r->facts->keys[i], "starts"))
            value_row(o, r->facts->keys[i], r->facts->items[i]);
    for (size_t i = 0; job && job->type == TT_JSON_OBJECT && i < job->n; i++)
        if (job->items[i]->type != TT_JSON_OBJECT && job->items[i]->type != TT_JSON_ARRAY)
            value_row(o, job->keys[i], job->items[i]);
    tt_str_add(o, "</table></details>\n<div class=\"jobs\">");
    for (size_t i = 0; job && job->type == TT_JSON_OBJECT && i < job->n; i++)
        if ((job->items[i]->type == TT_JSON_OBJECT || job->items[i]->type == TT_JSON_ARRAY) &&
            job->items[i]->n)
            print_section(o, job->keys[i], job->items[i]);
    const tt_json *plugins = tt_json_get(r->facts, "plugins");
    if (plugins && plugins->type == TT_JSON_ARRAY && plugins->n)
        print_section(o, "plugins", plugins);
    tt_str_add(o, "</div>\n");
}

static void print_checkpoints(const tt_run_report *r, tt_str *o)
{
    tt_str_add(o, "<h3>Checkpoints</h3><p>");
    for (size_t i = 0; i < r->n_steps; i++)
        tt_str_printf(o, "%s<code>step-%lld</code>", i ? ", " : "", (long long)r->steps[i]);
    tt_str_add(o, r->n_steps ? "</p>\n" : "none</p>\n");
}

static void print_run(const tt_run_report *r, bool alone, tt_str *o)
{
    tt_str_add(o, "<h2>");
    if (alone)
        tt_str_add(o, "The step");
    else
        tt_html(o, r->name);
    tt_str_add(o, "</h2>\n");
    if (!alone) {
        print_head(r, o);
        print_tiles(r, o);
    }
    if (r->notes.n) {
        tt_str_add(o, "<ul class=\"notes\">");
        for (size_t i = 0; i < r->notes.n; i++) {
            tt_str_add(o, "<li>");
            tt_html(o, r->notes.items[i]);
            tt_str_add(o, "</li>");
        }
        tt_str_add(o, "</ul>\n");
    }
    tt_str_add(o, "<div class=\"charts\">\n");
    tt_str_add(o, "<div class=\"wide\">");
    print_split(r, o);
    tt_str_add(o, "</div>");
    print_memory(r, o);
    tt_report_print_measured(r, o);
    tt_str_add(o, "</div>\n");
    print_pipeline(r, o);
    tt_report_recomputed(r, o);
    tt_report_experts(r, o);
    print_ops(r, o);
    tt_report_print_starts(r->facts, tt_run_is_locked(r->folder), o);
    print_job(r, o);
    print_checkpoints(r, o);
}

void tt_report_page(const tt_run_report *runs, size_t n, tt_str *o)
{
    n = TT_MIN(n, (size_t)TT_REPORT_RUNS);
    tt_str_add(o, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
                  "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
    for (size_t i = 0; i < n; i++) {
        tt_str_add(o, i ? ", " : "");
        tt_html(o, runs[i].name);
    }
    tt_str_add(o, " – ttrun</title><style>\n");
    tt_str_add(o, tt_report_style[0]);
    tt_str_add(o, tt_report_style[1]);
    tt_str_add(o, "</style></head><body><main>\n<h1>");
    for (size_t i = 0; i < n; i++) {
        tt_str_add(o, i ? " · " : "");
        tt_html(o, runs[i].name);
    }
    tt_str_add(o, "</h1>\n");
    if (n == 1) {
        print_head(&runs[0], o);
        print_tiles(&runs[0], o);
    }
    if (n > 1)
        tt_report_runs_table(runs, n, o);
    tt_report_curves(runs, n, o);
    if (n > 1)
        tt_report_differences(runs, n, o);
    for (size_t i = 0; i < n; i++)
        print_run(&runs[i], n == 1, o);
    tt_str_add(o, "</main><script>\n");
    for (int i = 0; i < TT_REPORT_SCRIPTS; i++)
        tt_str_add(o, tt_report_script[i]);
    tt_str_add(o, "</script></body></html>\n");
}
