/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <string.h>

/* Which activations the backward of a run computes again, by layers, from the "recompute" of its
 * run.json; and the drawing of time against memory of the other choices. */

static const double mib = 1.0 / (1 << 20);

static bool same_number(const tt_json *x, const tt_json *y, const char *key)
{
    const double a = tt_report_number(x, key), b = tt_report_number(y, key);
    return (a <= b && a >= b) || (isnan(a) && isnan(b)); /* both may lack it */
}

/* Are two layers chosen alike? */
static bool alike(const tt_json *x, const tt_json *y)
{
    const char *a = tt_report_text(x, "again"), *b = tt_report_text(y, "again");
    return same_number(x, y, "stage") && same_number(x, y, "kept") && same_number(x, y, "made") &&
           same_number(x, y, "offloaded") && same_number(x, y, "flops") && a && b && !strcmp(a, b);
}

static void html_or_dash(tt_str *o, const char *text)
{
    tt_html(o, text ? text : "–");
}

/* Do some layers have activations in host memory? */
static bool any_offloaded(const tt_json *layers)
{
    bool any = false;
    for (size_t i = 0; i < layers->n; i++)
        any |= tt_report_number(layers->items[i], "offloaded") > 0;
    return any;
}

/* The layers i … j - 1, which are alike. */
static void print_layers(const tt_json *layers, size_t i, size_t j, bool offloaded, tt_str *o)
{
    const tt_json *x = layers->items[i];
    const char *again = tt_report_text(x, "again");
    tt_str_add(o, "<tr><td><code>");
    html_or_dash(o, tt_report_text(x, "name"));
    if (j - i > 1) {
        tt_str_add(o, "</code> … <code>");
        html_or_dash(o, tt_report_text(layers->items[j - 1], "name"));
    }
    tt_str_add(o, "</code></td>");
    tt_report_cell(o, (double)(j - i), 0);
    tt_report_cell(o, tt_report_number(x, "stage"), 0);
    tt_report_cell(o, mib * tt_report_number(x, "kept"), 2);
    if (offloaded) {
        tt_report_cell(o, mib * tt_report_number(x, "offloaded"), 2);
        tt_report_cell(o, 1e3 * tt_report_number(x, "copy_s"), 3);
    }
    tt_report_cell(o, mib * tt_report_number(x, "made"), 2);
    if (offloaded)
        tt_report_cell(o, 1e3 * tt_report_number(x, "again_s"), 3);
    tt_report_cell(o, 1e-9 * tt_report_number(x, "flops"), 3);
    tt_str_add(o, "<td>");
    html_or_dash(o, again && *again ? again : "nothing");
    tt_str_add(o, "</td></tr>\n");
}

/* The largest number of an array with one number per pipeline rank. */
static double largest(const tt_json *f, const char *key)
{
    const tt_json *v = tt_json_get(f, key);
    double most = (double)NAN;
    for (size_t i = 0; v && v->type == TT_JSON_ARRAY && i < v->n; i++)
        if ((v->items[i]->type == TT_JSON_INT || v->items[i]->type == TT_JSON_REAL) &&
            !(v->items[i]->real <= most))
            most = v->items[i]->real;
    return most;
}

static void print_sentence(const tt_json *f, tt_str *o)
{
    const double bytes = largest(f, "bytes"), part = tt_report_number(f, "part");
    tt_str_add(o, "<p class=\"sub\">activation_checkpoint.mode ");
    html_or_dash(o, tt_report_text(f, "mode"));
    if (isfinite(part))
        tt_str_printf(o, ": %.1f %% of the FLOPs are done again", 100 * part);
    if (isfinite(bytes)) {
        static const char *const keys[] = {"bytes", "budget", "bytes_none", "bytes_full"};
        static const char *const says[] = {". By the plan training takes ", " of ",
                                           " MiB per rank; mode none takes ", ", full "};
        for (size_t i = 0; i < TT_COUNT(keys); i++) {
            tt_str_add(o, says[i]);
            tt_html_number(o, mib * largest(f, keys[i]), 4);
        }
        tt_str_add(o, ", each on the pipeline rank where it is largest");
    }
    tt_str_add(o, ". The layers' bytes and FLOPs are those of a micro-batch.</p>\n");
}

void tt_report_recomputed(const tt_run_report *r, tt_str *o)
{
    const tt_json *f = tt_json_get(r->facts, "recompute"), *layers = tt_json_get(f, "layers");
    if (!f || f->type != TT_JSON_OBJECT)
        return;
    tt_str_add(o, "<h3>Activations computed again</h3>\n");
    print_sentence(f, o);
    if (layers && layers->type == TT_JSON_ARRAY && layers->n) {
        const bool offloaded = any_offloaded(layers);
        tt_str_add(o, "<div class=\"card ops\"><table><tr><th>layers</th><th "
                      "class=\"r\">number</th><th class=\"r\">stage</th><th class=\"r\">kept, "
                      "MiB</th>");
        if (offloaded)
            tt_str_add(o, "<th class=\"r\">in host memory, MiB</th><th class=\"r\">copy, ms</th>");
        tt_str_add(o, "<th class=\"r\">made again, MiB</th>");
        if (offloaded)
            tt_str_add(o, "<th class=\"r\">again, ms</th>");
        tt_str_add(o, "<th class=\"r\">GFLOP again</th><th>computed again</th></tr>\n");
        for (size_t i = 0, j; i < layers->n; i = j) {
            for (j = i + 1; j < layers->n && alike(layers->items[i], layers->items[j]); j++)
                ;
            print_layers(layers, i, j, offloaded, o);
        }
        tt_str_add(o, "</table></div>\n");
    }
    tt_report_drawing(r->pareto, o);
}
