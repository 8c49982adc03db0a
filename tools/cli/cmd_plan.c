/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_plan.h"
#include "base/number.h"
#include "estimate/estimate.h"
#include "estimate/recipes.h"
#include "estimate/search.h"
#include "launch/say.h"
#include "train/console.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ttrun plan: the memory, communication and time of a job on any number of ranks, and the best
 * meshes for it. */

/* Draws the simulated schedule of a step's micro-batches as SVG. */
static tt_status write_svg(tt_cli *cli, const tt_plan *p, const char *path, tt_error *err)
{
    tt_run run;
    tt_str o = {0};
    TT_TRY(tt_schedule_run(p->schedule, &p->costs, cli->arena, &run, err));
    tt_schedule_draw_svg(p->schedule, &run, &o);
    const tt_status s = tt_write_file_atomic(path, tt_str_get(&o), o.n, err);
    tt_str_free(&o);
    return s;
}

static tt_status write_pareto(const tt_setup *s, const char *path, tt_error *err)
{
    tt_str o = {0};
    tt_status st = tt_pareto_svg(s, &o, err);
    if (st == TT_OK)
        st = tt_write_file_atomic(path, tt_str_get(&o), o.n, err);
    tt_str_free(&o);
    return st;
}

/* Adds which recipes of low precision pay to the report. */
static void add_recipes(const tt_cli *cli, const tt_setup *s, tt_str *o)
{
    if (!cli->json) {
        tt_recipes_text(s->graph, s->machine, o);
        return;
    }
    while (o->n && tt_str_get(o)[o->n - 1] != '}')
        o->n--;
    o->n -= o->n > 0; /* the object's end */
    tt_str_add(o, ",\"recipes\":");
    tt_recipes_json(s->graph, s->machine, o);
    tt_str_add(o, "}\n");
}

tt_status tt_cli_plan(tt_cli *cli, const tt_setup *s, tt_error *err)
{
    tt_plan **plans;
    TT_TRY(tt_setup_plan_all(s, cli->arena, &plans, err));
    tt_str o = {0};
    const tt_status st =
        tt_plan_report(s, plans, s->pipeline_ranks, s->machine, cli->json, &o, err);
    if (st != TT_OK) {
        tt_str_free(&o);
        return st;
    }
    if (tt_cli_option(cli, "recipes"))
        add_recipes(cli, s, &o);
    tt_cli_print(&o);
    tt_str_free(&o);
    const char *svg = tt_cli_option(cli, "svg"), *pareto = tt_cli_option(cli, "pareto");
    if (pareto)
        TT_TRY(write_pareto(s, pareto, err));
    return svg ? write_svg(cli, plans[0], svg, err) : TT_OK;
}

static tt_status read_skew(const tt_cli *cli, double *out, tt_error *err)
{
    const char *text = tt_cli_option(cli, "moe-skew");
    char *end;
    *out = text ? strtod(text, &end) : 0;
    if (text && (*end || end == text || !(*out >= 1 && *out <= 1 << 20)))
        return TT_FAIL(err, TT_EINVAL,
                       "--moe-skew: expected the rows of the busiest rank in those of balanced "
                       "routing, 1 or more, got \"%s\"",
                       text);
    return TT_OK;
}

/* ---- --search ---- */

static void progress(void *user, int64_t done, int64_t total)
{
    tt_progress *p = user;
    p->total = total;
    tt_progress_update(p, done, (double)NAN, (double)NAN);
}

static tt_status search_opts(tt_cli *cli, tt_search_opts *o, tt_error *err)
{
    const char *hardware = tt_cli_option(cli, "hardware"), *memory = tt_cli_option(cli, "memory"),
               *best = tt_cli_option(cli, "best");
    char *end;
    if (!cli->nproc || !hardware)
        return TT_FAIL(err, TT_EINVAL,
                       "--search needs the number of ranks and the machine: --world N --hardware "
                       "NAME|FILE.json");
    *o = (tt_search_opts){.job = cli->job,
                          .spec = cli->spec,
                          .overrides = cli->overrides,
                          .n_overrides = cli->n_overrides,
                          .world = cli->nproc,
                          .best = 10,
                          .progress = progress};
    TT_TRY(tt_machine_load(hardware, cli->arena, &o->machine, err));
    o->memory = o->machine->memory_bytes;
    if (memory) {
        o->memory = strtod(memory, &end) * (1 << 30);
        if (*end || end == memory || !(o->memory > 0) || isinf(o->memory))
            return TT_FAIL(err, TT_EINVAL, "--memory: expected GiB per rank, got \"%s\"", memory);
    }
    if (best) {
        int64_t n = 0;
        if (!tt_read_whole(best, strlen(best), 1, 1000, &n))
            return TT_FAIL(err, TT_EINVAL, "--best: expected 1 to 1000 meshes, got \"%s\"", best);
        o->best = (int)n;
    }
    return read_skew(cli, &o->expert_skew, err);
}

static tt_status search(tt_cli *cli, tt_error *err)
{
    tt_search_opts o;
    tt_search found;
    tt_progress bar;
    tt_str text = {0};
    TT_TRY(search_opts(cli, &o, err));
    tt_job *job;
    const tt_registry_opts plugins = tt_cli_plugins(cli);
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_registry_new_for_job(&plugins, job, &o.registry, err));
    tt_progress_init(&bar, "plans", 0, 1, cli->verbose < 0);
    o.user = &bar;
    tt_log_setup(TT_ERROR, 0, 1, false); /* otherwise every mesh would repeat the warnings */
    const tt_status st = tt_search_meshes(&o, cli->arena, &found, err);
    tt_progress_finish(&bar);
    tt_say_from(cli->verbose, 0, 1);
    if (st == TT_OK) {
        tt_search_print(&o, &found, cli->json, &text);
        tt_cli_print(&text);
        tt_str_free(&text);
    }
    tt_registry_free(o.registry);
    return st;
}

static tt_status run_plan(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    TT_TRY(tt_cli_take_job(cli, 0, &tt_cmd_plan, err));
    const char *world = tt_cli_option(cli, "world");
    if (world) {
        int64_t n = 0;
        if (!tt_read_whole(world, strlen(world), 1, 1 << 20, &n))
            return TT_FAIL(err, TT_EINVAL, "--world: expected a number of ranks, got \"%s\"",
                           world);
        cli->nproc = (int)n;
    }
    if (tt_cli_option(cli, "search"))
        return search(cli, err);
    if (tt_cli_option(cli, "memory") || tt_cli_option(cli, "best"))
        return TT_FAIL(err, TT_EINVAL, "--memory and --best need --search");
    tt_setup_opts so = tt_cli_training(cli);
    TT_TRY(read_skew(cli, &so.expert_skew, err));
    const char *hardware = tt_cli_option(cli, "hardware");
    if (!hardware && tt_cli_option(cli, "recipes"))
        return TT_FAIL(err, TT_EINVAL, "--recipes needs the machine: --hardware NAME|FILE.json");
    if (hardware)
        TT_TRY(tt_machine_load(hardware, cli->arena, &so.machine, err));
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    if (st == TT_OK) {
        tt_setup_notices(&s);
        st = tt_cli_plan(cli, &s, err);
    }
    tt_registry_free(r);
    return st;
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("world", "N", "what the job's degrees need", "number of ranks"),
    TT_CLI_VALUE("hardware", "NAME|FILE.json", NULL,
                 "machine to plan for, which need not be here; adds times and MFU",
                 .takes = TT_TAKES_HARDWARE),
    TT_CLI_VALUE("svg", "FILE", NULL, "draw the pipeline's schedule into this file",
                 .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("pareto", "FILE", NULL,
                 "draw time against memory of activation checkpointing into this file (SVG)",
                 .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("moe-skew", "S", NULL,
                 "experts over ranks: also estimate a step in which the busiest has S times the "
                 "mean's rows"),
    TT_CLI_FLAG("recipes",
                "say for each matrix product which recipes of low precision pay on --hardware"),
    TT_CLI_FLAG("search",
                "try every mesh of --world ranks of --hardware; print the fastest that fit"),
    TT_CLI_VALUE("best", "N", "10", "with --search: number of meshes to print"),
    TT_CLI_VALUE("memory", "GIB", "the machine's", "with --search: memory per rank"),
};
const tt_command tt_cmd_plan = {
    .name = "plan",
    .forms = "JOB.json|DIR",
    .doc = "print parameters, memory and communication of a job; run nothing",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = run_plan,
    .words = 1};
