/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_plan.h"
#include "interchange/assets.h"
#include "launch/start.h"
#include "setup/tokenizer.h"

/* Reads the command line of a run for launch/start.h. */

static tt_status take_job(tt_cli *cli, const char **of_ranks, tt_error *err)
{
    TT_TRY(tt_cli_take_job(cli, 0, &tt_cmd_train, err));
    TT_TRY(tt_cli_hold_job(cli, of_ranks, err));
    if (tt_cli_option(cli, "profile"))
        tt_cli_override(cli, "profiling.enable", "true");
    return TT_OK;
}

/* The command line of ranks, which may have to read the job in another place. */
static const char *const *words_of_ranks(const tt_cli *cli, const char *job)
{
    const char **words = tt_arena_array(cli->arena, (size_t)cli->argc, sizeof *words);
    for (int i = 1; i < cli->argc; i++)
        words[i - 1] = cli->n_words && cli->argv[i] == cli->words[0] ? job : cli->argv[i];
    return words;
}

/* What of the data a run would find wrong before step 1, without reading all of it: files that are
 * not there, a tokenizer that cannot be opened or has more tokens than the model. */
static tt_status check_data(const tt_cli *cli, const tt_setup *s, tt_error *err)
{
    const tt_dataloader_vt *loader = s->dataloader.component->vtable;
    tt_tokenizer_info info;
    void *self = NULL;
    TT_TRY(tt_setup_find_data(s, err));
    if (!loader->needs_tokenizer)
        return TT_OK;
    if (!cli->no_resume)
        tt_assets_use_kept_tokenizer(s, s->core.dump_folder);
    TT_TRY(tt_setup_tokenizer(s, &self, &info, err));
    ((const tt_tokenizer_vt *)s->tokenizer.component->vtable)->close(self);
    return TT_OK;
}

static tt_status dry_run(void *user, const tt_setup *s, tt_error *err)
{
    tt_cli *cli = user;
    tt_setup_notices(s);
    TT_TRY(check_data(cli, s, err));
    return tt_cli_plan(cli, s, err);
}

static tt_status cmd_train_run(tt_cli *cli, tt_error *err)
{
    const char *of_ranks = NULL;
    tt_error no_job = {0};
    take_job(cli, &of_ranks, &no_job);
    const tt_start_opts o = {.job = cli->job,
                             .overrides = cli->overrides,
                             .n_overrides = cli->n_overrides,
                             .no_job = no_job,
                             .plugins = tt_cli_plugins(cli),
                             .spec = cli->spec,
                             .nproc = cli->nproc,
                             .nproc_least = cli->nproc_least,
                             .no_resume = cli->no_resume,
                             .dry_run = cli->dry_run,
                             .json = cli->json,
                             .verbose = cli->verbose,
                             .max_restarts = tt_cli_option(cli, "max-restarts"),
                             .nnodes = tt_cli_option(cli, "nnodes"),
                             .node_rank = tt_cli_option(cli, "node-rank"),
                             .master_addr = tt_cli_option(cli, "master-addr"),
                             .master_port = tt_cli_option(cli, "master-port"),
                             .rdzv_endpoint = tt_cli_option(cli, "rdzv-endpoint"),
                             .rdzv_id = tt_cli_option(cli, "rdzv-id"),
                             .rdzv_timeout = tt_cli_option(cli, "rdzv-timeout"),
                             .rdzv_last_call = tt_cli_option(cli, "rdzv-last-call"),
                             .words = words_of_ranks(cli, of_ranks),
                             .n_words = cli->argc - 1,
                             .print_plan = dry_run,
                             .user = cli,
                             .arena = cli->arena};
    return tt_start(&o, err);
}

static const tt_cli_row rows[] = {
    TT_CLI_FLAG("profile",
                "trace every tenth step and the last one, in profile/ of the run's folder"),
    TT_CLI_VALUE("max-restarts", "N", "no supervisor",
                 "restart all ranks from the newest checkpoint when one dies or hangs"),
    TT_CLI_VALUE("nnodes", "N", "1",
                 "machines: a ttrun on each starts --nproc ranks; MIN:MAX: as many as are there"),
    TT_CLI_VALUE("node-rank", "R", "0", "which of them this is, from 0"),
    TT_CLI_VALUE("master-addr", "HOST", NULL, "where node 0 is: a name or an address"),
    TT_CLI_VALUE("master-port", "PORT", "29500", "its port; ranks use the next one, too"),
    TT_CLI_VALUE("rdzv-endpoint", "HOST:PORT", NULL, "both in one"),
    TT_CLI_VALUE("rdzv-id", "TEXT", NULL, "name of the run: a node with another one is refused"),
    TT_CLI_VALUE("rdzv-timeout", "SECONDS", "comm.init_timeout_seconds",
                 "how long nodes wait for each other"),
    TT_CLI_VALUE("rdzv-last-call", "SECONDS", "30",
                 "of --nnodes MIN:MAX: how long the first start waits for more nodes than MIN"),
};
const tt_command tt_cmd_train = {
    .name = "train",
    .forms = "JOB.json|DIR [--section.key VALUE]...",
    .doc = "train as a job file says; continue if the run's folder has checkpoints",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_train_run,
    .words = 1};
