/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Several runs side by side: a table of their numbers, and the keys of their jobs that differ. */

/* ---- the table of runs ---- */

static void number_cell(tt_str *o, double v, int digits, const char *unit)
{
    tt_str_add(o, "<td class=\"r\">");
    tt_html_number(o, v, digits);
    tt_str_printf(o, "%s</td>", isfinite(v) ? unit : "");
}

static void text_cell(tt_str *o, const char *text)
{
    tt_str_add(o, "<td>");
    tt_html(o, text && *text ? text : "–");
    tt_str_add(o, "</td>");
}

static double least_of(const tt_metric_rows *m, tt_column c)
{
    double least = (double)NAN;
    for (size_t i = 0; i < m->n; i++)
        if (!(m->rows[i][c] >= least) && isfinite(m->rows[i][c]))
            least = m->rows[i][c];
    return least;
}

/* Seconds of training: a line's time is the mean of the steps since the line before. */
static double seconds_of(const tt_metric_rows *m)
{
    double sum = 0, before = 0;
    for (size_t i = 0; i < m->n; i++) {
        const double step = m->rows[i][TT_COL_STEP], s = m->rows[i][TT_COL_TIME];
        sum += isfinite(s) ? s * (step - before) : 0;
        before = step;
    }
    return m->n ? sum : (double)NAN;
}

static void time_cell(tt_str *o, double s)
{
    if (!isfinite(s))
        tt_str_add(o, "<td class=\"r\">–</td>");
    else if (s < 600)
        tt_str_printf(o, "<td class=\"r\">%.1f s</td>", s);
    else
        tt_str_printf(o, "<td class=\"r\">%lldh%02dm</td>", (long long)(s / 3600),
                      (int)fmod(s / 60, 60));
}

static void mesh_cell(const tt_run_report *r, tt_str *o)
{
    const tt_json *mesh = tt_json_get(r->facts, "mesh"), *world = tt_json_get(r->facts, "world");
    tt_str text = {0};
    if (world && world->type == TT_JSON_INT)
        tt_str_printf(&text, "%lld rank%s", (long long)world->integer,
                      world->integer == 1 ? "" : "s");
    for (size_t i = 0; mesh && mesh->type == TT_JSON_OBJECT && i < mesh->n; i++)
        if (mesh->items[i]->type == TT_JSON_INT)
            tt_str_printf(&text, "%s %s %lld", i ? " ×" : ":", mesh->keys[i],
                          (long long)mesh->items[i]->integer);
    text_cell(o, tt_str_get(&text));
    tt_str_free(&text);
}

void tt_report_runs_table(const tt_run_report *runs, size_t n, tt_str *o)
{
    static const char *const heads[] = {"steps",  "last loss", "least loss", "validation", "least",
                                        "tokens", "tokens/s",  "MFU",        "memory",     "time"};
    tt_str_add(o, "<h2>Runs</h2>\n<div class=\"card ops\"><table><tr><th>run</th>");
    for (size_t i = 0; i < TT_COUNT(heads); i++)
        tt_str_printf(o, "<th class=\"r\">%s</th>", heads[i]);
    tt_str_add(o, "<th>mesh</th><th>version</th><th>started</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        const tt_run_report *r = &runs[i];
        const tt_json *version = tt_json_get(r->facts, "ttrun");
        const tt_json *started = tt_json_get(r->facts, "started");
        tt_str_printf(o, "<tr><td class=\"key\" data-k=\"r%zu\"><i class=\"b%zu\"></i>", i, i % 8);
        tt_html(o, r->name);
        tt_str_add(o, "</td>");
        number_cell(o, tt_report_last(&r->train, TT_COL_STEP), 7, "");
        number_cell(o, tt_report_last(&r->train, TT_COL_LOSS), 5, "");
        number_cell(o, least_of(&r->train, TT_COL_LOSS), 5, "");
        number_cell(o, tt_report_last(&r->validation, TT_COL_LOSS), 5, "");
        number_cell(o, least_of(&r->validation, TT_COL_LOSS), 5, "");
        number_cell(o, tt_report_last(&r->train, TT_COL_TOKENS), 4, "");
        number_cell(o, tt_report_median(&r->train, TT_COL_TPS), 4, "");
        number_cell(o, 100 * tt_report_median(&r->train, TT_COL_MFU), 3, " %");
        number_cell(o, tt_report_most(&r->train, TT_COL_MEMORY), 3, " GiB");
        time_cell(o, seconds_of(&r->train));
        mesh_cell(r, o);
        text_cell(o, version && version->type == TT_JSON_STRING ? version->string : NULL);
        char when[17] = ""; /* to the minute */
        if (started && started->type == TT_JSON_STRING)
            snprintf(when, sizeof when, "%s", started->string);
        text_cell(o, when);
        tt_str_add(o, "</tr>\n");
    }
    tt_str_add(o,
               "</table></div>\n<p class=\"note\">tokens/s of all ranks and MFU: medians; memory: "
               "the largest resident memory of rank 0's process; time: of the steps, without "
               "validations and saves.</p>\n");
}

/* ---- the keys that differ ---- */

typedef struct job_value {
    const char *key, *text; /* "optimizer.lr", "0.001" */
} job_value;
typedef TT_VEC(job_value) values;

/* Lists the values of a job under their dotted keys. Lists are one value. */
static void flatten(const tt_json *v, const char *key, tt_arena *a, int depth, values *out)
{
    if (v->type == TT_JSON_OBJECT && (v->n || !*key) && depth < 16) {
        for (size_t i = 0; i < v->n; i++)
            flatten(v->items[i], *key ? tt_arena_printf(a, "%s.%s", key, v->keys[i]) : v->keys[i],
                    a, depth + 1, out);
        return;
    }
    tt_str text = {0};
    tt_json_write(v, &text);
    const job_value one = {key, tt_arena_str(a, tt_str_get(&text))};
    tt_str_free(&text);
    tt_vec_push(a, out, one);
}

static int by_key(const void *x, const void *y)
{
    return strcmp(((const job_value *)x)->key, ((const job_value *)y)->key);
}

static const char *value_of(const values *v, const char *key)
{
    const job_value want = {key, NULL};
    const job_value *at = v->n ? bsearch(&want, v->items, v->n, sizeof want, by_key) : NULL;
    return at ? at->text : NULL;
}

static bool differs(const values *all, size_t n, const char *key)
{
    const char *first = value_of(&all[0], key);
    for (size_t i = 1; i < n; i++) {
        const char *other = value_of(&all[i], key);
        if (!first != !other || (first && strcmp(first, other)))
            return true;
    }
    return false;
}

static void difference_row(const values *all, size_t n, const char *key, tt_str *o)
{
    tt_str_add(o, "<tr><td><code>");
    tt_html(o, key);
    tt_str_add(o, "</code></td>");
    for (size_t i = 0; i < n; i++) {
        const char *text = value_of(&all[i], key);
        tt_str_add(o, "<td><code>");
        tt_html(o, text ? text : "–");
        tt_str_add(o, "</code></td>");
    }
    tt_str_add(o, "</tr>\n");
}

#define SHOWN_ROWS 12 /* more are folded */

/* The keys of the jobs that differ, each once, in their order. */
static void different_keys(const tt_run_report *runs, size_t n, tt_arena *a, values *all,
                           values *out, bool *known)
{
    values keys = {0};
    for (size_t i = 0; i < n; i++) {
        const tt_json *job = tt_json_get(runs[i].facts, "job");
        if (job && job->type == TT_JSON_OBJECT)
            flatten(job, "", a, 0, &all[i]);
        if (all[i].n)
            qsort(all[i].items, all[i].n, sizeof *all[i].items, by_key);
        for (size_t k = 0; k < all[i].n; k++)
            tt_vec_push(a, &keys, all[i].items[k]);
    }
    if (keys.n)
        qsort(keys.items, keys.n, sizeof *keys.items, by_key);
    *known = keys.n > 0;
    for (size_t k = 0; k < keys.n; k++)
        if ((!k || strcmp(keys.items[k].key, keys.items[k - 1].key)) &&
            strcmp(keys.items[k].key, "dump_folder") && differs(all, n, keys.items[k].key))
            tt_vec_push(a, out, keys.items[k]);
}

void tt_report_differences(const tt_run_report *runs, size_t n, tt_str *o)
{
    tt_arena *a = tt_arena_new();
    values *all = tt_arena_array(a, n, sizeof *all), keys = {0};
    bool known;
    different_keys(runs, n, a, all, &keys, &known);
    tt_str_printf(o,
                  "<details%s><summary>Keys of the jobs that differ<small>%zu"
                  "</small></summary><div class=\"ops\"><table><tr><th>key</th>",
                  keys.n <= SHOWN_ROWS ? " open" : "", keys.n);
    for (size_t i = 0; i < n; i++) {
        tt_str_printf(o, "<th><span class=\"key\"><i class=\"b%zu\"></i></span>", i % 8);
        tt_html(o, runs[i].name);
        tt_str_add(o, "</th>");
    }
    tt_str_add(o, "</tr>\n");
    for (size_t k = 0; k < keys.n; k++)
        difference_row(all, n, keys.items[k].key, o);
    if (!keys.n)
        tt_str_printf(o, "<tr><td colspan=\"%zu\">%s</td></tr>\n", n + 1,
                      known ? "none but dump_folder" : "the jobs are not known");
    tt_str_add(o, "</table></div></details>\n");
    tt_arena_free(a);
}
