/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "report/report.h"
#include <dirent.h>
#include <math.h>
#include <string.h>

/* The memory that was measured while a step ran (profiling.enable_memory_snapshot): of the first step of a run, in
 * which memory is used for the first time, and of the newest one. */

static double real(const tt_json *v)
{
    return v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL) ? v->real : (double)NAN;
}

static bool read_snapshot(const char *path, tt_arena *a, tt_measured_memory *out)
{
    const tt_json *v = NULL;
    (void)tt_json_read(a, path, (size_t)1 << 30, &v, NULL);
    const tt_json *seconds = tt_json_get(v, "seconds"), *bytes = tt_json_get(v, "resident");
    if (!seconds || !bytes || seconds->type != TT_JSON_ARRAY || bytes->type != TT_JSON_ARRAY ||
        seconds->n != bytes->n)
        return false;
    const double mib = 1.0 / (1 << 20), ranks = real(tt_json_get(v, "ranks_in_process"));
    *out =
        (tt_measured_memory){.step = (int64_t)real(tt_json_get(v, "step")),
                             .ms = tt_arena_array(a, seconds->n + 1, sizeof *out->ms),
                             .mib = tt_arena_array(a, seconds->n + 1, sizeof *out->mib),
                             .n = seconds->n,
                             .planned_mib = mib * ranks * real(tt_json_get(v, "planned_per_rank"))};
    for (size_t i = 0; i < out->n; i++) {
        out->ms[i] = 1e3 * real(seconds->items[i]);
        out->mib[i] = mib * real(bytes->items[i]);
    }
    return true;
}

void tt_report_read_measured(const char *folder, tt_arena *a, tt_run_report *r)
{
    DIR *d = opendir(folder);
    long long first = INT64_MAX, newest = -1, step;
    if (!d)
        return;
    for (const struct dirent *e; (e = readdir(d));) {
        char rest[2] = "";
        if (sscanf(e->d_name, "step-%lld-rank-0.jso%1s", &step, rest) != 2 || rest[0] != 'n')
            continue;
        first = TT_MIN(first, step);
        newest = TT_MAXV(newest, step);
    }
    closedir(d);
    for (int i = 0; i < 2 && newest >= 0 && (i == 0 || newest > first); i++) {
        const char *path =
            tt_arena_printf(a, "%s/step-%lld-rank-0.json", folder, i ? newest : first);
        if (read_snapshot(path, a, &r->measured[r->n_measured]))
            r->n_measured++;
        else
            tt_vec_push(a, &r->notes, tt_arena_printf(a, "%s cannot be read", path));
    }
}

void tt_report_print_measured(const tt_run_report *r, tt_str *o)
{
    tt_curve c[2];
    char names[2][40];
    if (!r->n_measured)
        return;
    for (int i = 0; i < r->n_measured; i++) {
        const tt_measured_memory *m = &r->measured[i];
        snprintf(names[i], sizeof names[i], "step %lld", (long long)m->step);
        c[i] = (tt_curve){
            .name = names[i], .x = m->ms, .y = m->mib, .n = m->n, .stride = 1, .color = i};
    }
    tt_str_add(o, "<div class=\"wide\">");
    tt_chart_print(
        &(tt_chart){.title = "Memory over the step, measured",
                    .note = "The resident memory of rank 0's process. Beside what the plan "
                            "allocates, which is used for the first time during the first step, "
                            "it has the program, its libraries, data and saved states.",
                    .unit = "MiB",
                    .x_name = "milliseconds",
                    .curves = c,
                    .n = (size_t)r->n_measured,
                    .from_zero = true,
                    .wide = true,
                    .level = r->measured[r->n_measured - 1].planned_mib,
                    .level_name = "planned"},
        o);
    tt_str_add(o, "</div>");
}
