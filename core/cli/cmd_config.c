/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "graph/op.h"
#include <string.h>

static tt_status docs(tt_cli *cli, tt_registry **r, tt_section_doc **d, size_t *n, tt_error *err)
{
    TT_TRY(tt_cli_registry(cli, r, err));
    return tt_setup_docs(*r, cli->arena, d, n, err);
}

/* tt_job_explain() returns a text that says that a key is unknown; here that is an error. */
static tt_status explain(const char *key, const tt_section_doc *d, size_t n, tt_str *out,
                         tt_error *err)
{
    tt_explain_print(d, n, key, out);
    const size_t k = key ? strlen(key) : 0;
    const char *text = tt_str_get(out);
    if (!key || strncmp(text, key, k) || strncmp(text + k, ": unknown", 9))
        return TT_OK;
    return TT_FAIL(err, TT_ENOTFOUND, "%.*s", (int)strcspn(text, "\n"), text);
}

static tt_status print_docs(tt_cli *cli, tt_registry **r, tt_str *out, tt_error *err)
{
    tt_section_doc *d;
    size_t n;
    TT_TRY(docs(cli, r, &d, &n, err));
    if (tt_cli_option(cli, "schema"))
        tt_schema_print(d, n, out);
    else if (tt_cli_option(cli, "reference"))
        tt_reference_print(d, n, out);
    else
        return explain(cli->n_words ? cli->words[0] : NULL, d, n, out, err);
    return TT_OK;
}

static tt_status cmd_config_run(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    tt_setup s;
    tt_str out = {0};
    tt_status st;
    if (tt_cli_option(cli, "ops")) {
        st = TT_OK; /* with the word "header": the table of include/ttrun/ops.h (mk/ops.sh) */
        if (cli->n_words && !strcmp(cli->words[0], "header"))
            tt_op_reference_header(&out);
        else
            tt_op_reference_page(&out);
    } else if (tt_cli_option(cli, "schema") || tt_cli_option(cli, "explain") ||
               tt_cli_option(cli, "reference")) {
        st = print_docs(cli, &r, &out, err);
    } else {
        const tt_setup_opts so = {.spec = cli->spec, .nproc = cli->nproc, .data = true};
        cli->job = cli->n_words ? cli->words[0] : NULL;
        st = tt_cli_setup(cli, &so, &r, &s, err);
        if (st == TT_OK) {
            tt_setup_notices(&s);
            tt_job_print(s.job, !cli->json, &out);
            tt_str_addc(&out, '\n');
        }
    }
    if (st == TT_OK)
        tt_cli_print(&out);
    tt_str_free(&out);
    tt_registry_free(r);
    return st;
}

static const tt_cli_row rows[] = {
    TT_CLI_FLAG("explain",
                "what a KEY of the job means and what it takes; without KEY, the sections"),
    TT_CLI_FLAG("schema", "the JSON schema of a job, for editors"),
    TT_CLI_FLAG("reference", "all keys, as the page docs/reference.md"),
    TT_CLI_FLAG("ops", "all ops, as the page docs/ops.md"),
};
const tt_command tt_cmd_config = {
    .name = "config",
    .forms = "[JOB.json] [KEY]",
    .doc = "print the resolved job with the origin of each value; explain its keys",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_config_run,
    .words = 2};
