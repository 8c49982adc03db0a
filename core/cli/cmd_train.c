/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/signals.h"
#include <stdlib.h>

/* The abstract run of the step's micro-batches as a picture. */
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

static tt_status plan_only(tt_cli *cli, const tt_setup *s, tt_error *err)
{
    const tt_machine *machine = NULL;
    const char *hardware = tt_cli_option(cli, "hardware");
    if (hardware)
        TT_TRY(tt_machine_load(hardware, cli->arena, &machine, err));
    tt_plan **plans = tt_arena_array(cli->arena, (size_t)s->pipeline_ranks, sizeof *plans);
    for (int p = 0; p < s->pipeline_ranks; p++)
        TT_TRY(tt_setup_plan(s, s->graph, s->schedule, p, cli->arena, &plans[p], err));
    tt_str o = {0};
    tt_plan_report(s, plans, s->pipeline_ranks, machine, cli->json, &o);
    tt_cli_print(&o);
    tt_str_free(&o);
    const char *svg = tt_cli_option(cli, "svg");
    return svg ? write_svg(cli, plans[0], svg, err) : TT_OK;
}

static tt_status run(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    if (!cli->n_words)
        return TT_FAIL(err, TT_EINVAL, "no job file; usage: ttrun %s", tt_cmd_train.usage);
    cli->job = cli->words[0];
    if (tt_cli_option(cli, "profile"))
        tt_cli_override(cli, "profiling.enable", "true");
    const tt_setup_opts so = {.spec = cli->spec,
                              .nproc = cli->nproc,
                              .mode = TT_MODE_TRAIN,
                              .compile = true,
                              .data = true};
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    if (st == TT_OK && cli->dry_run) {
        st = plan_only(cli, &s, err);
    } else if (st == TT_OK) {
        const tt_run_opts ro = {.resume = !cli->no_resume,
                                .verbose = cli->verbose,
                                .progress = cli->verbose >= 0,
                                .stop = tt_signals_stop,
                                .save = tt_signals_save};
        tt_signals_install();
        st = tt_train(&s, &ro, err);
    }
    tt_registry_free(r);
    return st;
}

static tt_status run_plan(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    if (!cli->n_words)
        return TT_FAIL(err, TT_EINVAL, "no job file; usage: ttrun %s", tt_cmd_plan.usage);
    cli->job = cli->words[0];
    const char *world = tt_cli_option(cli, "world");
    if (world) {
        char *end;
        cli->nproc = (int)strtol(world, &end, 10);
        if (*end || cli->nproc < 1 || cli->nproc > 1 << 20)
            return TT_FAIL(err, TT_EINVAL, "--world: expected a number of ranks, got \"%s\"",
                           world);
    }
    const tt_setup_opts so = {.spec = cli->spec,
                              .nproc = cli->nproc,
                              .mode = TT_MODE_TRAIN,
                              .compile = true,
                              .data = true};
    tt_status st = tt_cli_setup(cli, &so, &r, &s, err);
    if (st == TT_OK)
        st = plan_only(cli, &s, err);
    tt_registry_free(r);
    return st;
}

static const char *const train_flags[] = {"profile"};
const tt_command tt_cmd_train = {
    .name = "train",
    .usage = "[train] [OPTION]... JOB.json [--section.key VALUE]...",
    .doc = "train by a job file; resumes where the run's folder has checkpoints",
    .flags = train_flags,
    .n_flags = TT_COUNT(train_flags),
    .run = run,
    .words = 1};
static const char *const plan_options[] = {"world", "hardware", "svg"};
const tt_command tt_cmd_plan = {
    .name = "plan",
    .usage = "plan JOB.json [--world N] [--hardware NAME|FILE.json] [--svg FILE] [--json]",
    .doc = "parameters, memory and communication of a job; runs nothing",
    .options = plan_options,
    .n_options = TT_COUNT(plan_options),
    .run = run_plan,
    .words = 1};
