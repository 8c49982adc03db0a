/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/tokenize_text.h"
#include <stdlib.h>
#include <string.h>

/* tokenize: standard input to token ids. */

static tt_status read_stdin(tt_str *all, tt_error *err)
{
    char buf[65536];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0)
        tt_str_addn(all, buf, n);
    return ferror(stdin) ? TT_FAIL(err, TT_EIO, "cannot read standard input") : TT_OK;
}

static tt_status encode_all(const tt_cli *cli, const tt_tokenizer_vt *vt, void *self, tt_error *err)
{
    const tt_tokenize_opts o = {.vt = vt,
                                .self = self,
                                .lines = tt_cli_option(cli, "lines") != NULL,
                                .bos = tt_cli_option(cli, "bos") != NULL,
                                .eos = tt_cli_option(cli, "eos") != NULL,
                                .threads = tt_cpu_count()};
    tt_str all = {0};
    tt_status s = read_stdin(&all, err);
    if (s == TT_OK)
        s = tt_tokenize_text(&o, tt_str_get(&all), all.n, tt_cli_print_exact, err);
    tt_str_free(&all);
    return s;
}

/* --tokenizer PATH is --tokenizer.name hf --tokenizer.path PATH; both may still be given. */
static tt_status load_job(tt_cli *cli, tt_job **out, tt_error *err)
{
    const char *path = tt_cli_option(cli, "tokenizer");
    const tt_override over[] = {
        {"tokenizer.name", "hf"},
        {"tokenizer.path", path}
    };
    const size_t n = path ? TT_COUNT(over) : 0;
    tt_override *all = tt_arena_array(cli->arena, n + cli->n_overrides + 1, sizeof *all);
    memcpy(all, over, n * sizeof *all);
    if (cli->n_overrides)
        memcpy(all + n, cli->overrides, cli->n_overrides * sizeof *all);
    return tt_job_load(cli->arena, cli->job, all, n + cli->n_overrides, out, err);
}

static tt_status cmd_tokenize_run(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_job *job;
    tt_part part;
    void *self = NULL;
    cli->job = cli->n_words ? cli->words[0] : NULL;
    TT_TRY(load_job(cli, &job, err));
    TT_TRY(tt_cli_registry(cli, &r, err));
    tt_status s = tt_registry_part(r, job, TT_KIND_TOKENIZER, "tokenizer", "byte", NULL, cli->arena,
                                   &part, err);
    if (s == TT_OK) {
        const tt_tokenizer_vt *vt = part.component->vtable;
        s = TT_PLUGIN_CALL(vt->open(part.config, &self, err), err, "tokenizer", part.name);
        if (s == TT_OK)
            s = encode_all(cli, vt, self, err);
        if (self)
            vt->close(self);
    }
    tt_registry_free(r);
    return s;
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("tokenizer", "PATH", "the job's; without a job: bytes",
                 "tokenizer.json, or its folder", .takes = TT_TAKES_FILE),
    TT_CLI_FLAG("lines", "each line is a document; write a line of ids for each"),
    TT_CLI_FLAG("bos", "put the beginning-of-sequence token before each document"),
    TT_CLI_FLAG("eos", "put the end-of-sequence token after each document"),
};
const tt_command tt_cmd_tokenize = {.name = "tokenize",
                                    .forms = "[JOB.json]",
                                    .doc = "print the token ids of standard input",
                                    .rows = rows,
                                    .n_rows = TT_COUNT(rows),
                                    .run = cmd_tokenize_run,
                                    .words = 1};
