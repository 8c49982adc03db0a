/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "estimate/estimate.h"
#include "report/folders.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

/* report RUN...: the HTML page of a run, or of several runs compared. The memory of the step is
 * planned again from the job in run.json, which takes milliseconds and runs nothing. */

typedef struct replanned {
    tt_registry *registry;
    tt_setup setup;
} replanned;

static tt_status draw_pipeline(const tt_cli *cli, const tt_plan *p, tt_run_report *r, tt_error *err)
{
    tt_run run;
    tt_str o = {0};
    TT_TRY(tt_schedule_run(p->schedule, &p->costs, cli->arena, &run, err));
    tt_schedule_draw_svg(p->schedule, &run, &o);
    r->pipeline = tt_arena_str(cli->arena, tt_str_get(&o));
    tt_str_free(&o);
    return TT_OK;
}

static tt_status draw_pareto(const tt_cli *cli, const tt_setup *s, tt_run_report *r, tt_error *err)
{
    tt_str o = {0};
    if (s->core.activation_checkpoint.mode == TT_CHECKPOINT_NONE)
        return TT_OK;
    const tt_status st = tt_pareto_svg(s, &o, err);
    if (st == TT_OK)
        r->pareto = tt_arena_str(cli->arena, tt_str_get(&o));
    tt_str_free(&o);
    return st;
}

static tt_status replan(const tt_cli *cli, tt_run_report *r, replanned *p, tt_error *err)
{
    static const tt_override quiet[] = {
        {"debug.dump_graph",   "null"},
        {"debug.dump_program", "null"}
    };
    const tt_json *job = tt_json_get(r->facts, "job"), *world = tt_json_get(r->facts, "world");
    const char *name = tt_arena_printf(cli->arena, "%s/run.json", r->folder);
    tt_str text = {0};
    tt_job *parsed;
    tt_plan *plan;
    if (!job || job->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_ENOTFOUND, "%s has no job", name);
    tt_json_write(job, &text);
    const tt_status s = tt_job_load_text(cli->arena, name, tt_str_get(&text), text.n, quiet,
                                         TT_COUNT(quiet), &parsed, err);
    tt_str_free(&text);
    if (s != TT_OK)
        return s;
    const int64_t ranks = world && world->type == TT_JSON_INT ? world->integer : 1;
    TT_TRY(tt_cli_registry(cli, &p->registry, err));
    const tt_setup_opts so = {.nproc = ranks >= 1 && ranks <= 4096 ? (int)ranks : 0,
                              .mode = TT_MODE_TRAIN,
                              .compile = true,
                              .data = true};
    TT_TRY(tt_setup_make(&so, p->registry, parsed, cli->arena, &p->setup, err));
    const tt_json *threads = tt_json_get(r->facts, "threads");
    if (threads && threads->type == TT_JSON_INT && threads->integer >= 1 &&
        threads->integer <= 4096)
        p->setup.threads = threads->integer;
    TT_TRY(tt_setup_plan(&p->setup, p->setup.graph, p->setup.schedule, 0, cli->arena, &plan, err));
    r->memory = tt_report_memory(plan, cli->arena);
    if (p->setup.n_stages > 1)
        TT_TRY(draw_pipeline(cli, plan, r, err));
    return draw_pareto(cli, &p->setup, r, err);
}

static tt_status load(const tt_cli *cli, const char *folder, tt_run_report *r, replanned *p,
                      tt_error *err)
{
    tt_error why = {0};
    TT_TRY(tt_report_load(folder, cli->arena, r, err));
    if (!r->facts)
        r->memory_note = "no run.json: the plan is not known";
    else if (replan(cli, r, p, &why) != TT_OK)
        r->memory_note =
            tt_arena_printf(cli->arena, "the job cannot be planned again: %s", why.text);
    return TT_OK;
}

/* The runs that the command line's folders mean. A folder in which none is found stays: loading it gives
 * the reason. */
static tt_status report_runs(const tt_cli *cli, const char *folders[TT_REPORT_RUNS], size_t *n,
                             tt_error *err)
{
    *n = 0;
    for (int i = 0; i < cli->n_words; i++) {
        tt_found_runs found = {0};
        if (tt_run_folders_find(cli->words[i], false, cli->arena, &found, NULL) != TT_OK ||
            !found.n)
            tt_vec_push(cli->arena, &found, ((tt_found_run){.path = cli->words[i]}));
        if (*n + found.n > TT_REPORT_RUNS)
            return TT_FAIL(err, TT_EINVAL, "%s: %zu runs; a page compares %d at most: name them",
                           cli->words[i], *n + found.n, TT_REPORT_RUNS);
        for (size_t j = 0; j < found.n; j++)
            folders[(*n)++] = found.items[j].path;
    }
    return *n ? TT_OK
              : TT_FAIL(err, TT_EINVAL, "no run; %s",
                        tt_cli_usage(cli->arena, &tt_cmd_report, NULL));
}

static tt_status cmd_report_run(tt_cli *cli, tt_error *err)
{
    size_t n = 0;
    const char *folders[TT_REPORT_RUNS], *path = tt_cli_option(cli, "output");
    TT_TRY(report_runs(cli, folders, &n, err));
    tt_run_report *runs = tt_arena_array(cli->arena, n, sizeof *runs);
    replanned *plans = tt_arena_array(cli->arena, n, sizeof *plans);
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++)
        s = load(cli, folders[i], &runs[i], &plans[i], err);
    if (s == TT_OK) {
        tt_str page = {0};
        tt_report_page(runs, n, &page);
        if (!path)
            path = tt_path_join(cli->arena, runs[0].folder, "report.html");
        s = tt_write_file_atomic(path, tt_str_get(&page), page.n, err);
        tt_str_clear(&page);
        tt_str_printf(&page, "%s\n", path);
        if (s == TT_OK)
            tt_cli_print(&page);
        tt_str_free(&page);
    }
    for (size_t i = 0; i < n; i++)
        tt_registry_free(plans[i].registry);
    return s;
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("output", "FILE", "report.html in the first run's folder", "file to write",
                 .takes = TT_TAKES_FILE),
};
const tt_command tt_cmd_report = {
    .name = "report",
    .forms = "RUN_DIR...",
    .doc = "write one HTML page: curves, speed, memory, ops; compare runs",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_report_run,
    .words = TT_REPORT_RUNS};
