/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/names.h"
#include "graph/op.h"
#include <string.h>

/* The names that a topic has, one per line, indented. */
static void print_topic(const tt_cli_topic *t, const tt_cli_catalog *c, tt_str *out)
{
    tt_cli_names names = {0};
    size_t width = 0;
    tt_cli_topic_names(t, c, &names);
    for (size_t i = 0; i < names.n; i++)
        width = TT_MAXV(width, strlen(names.items[i].name));
    if (!strcmp(t->key, "model.flavor"))
        tt_str_printf(out, "flavors of model %s:\n", c->model);
    else
        tt_str_printf(out, "%s: %s\n", t->key,
                      t->doc     ? t->doc
                      : !names.n ? "there is none; ttrun plugins new starts one"
                                 : "there are");
    for (size_t i = 0; i < names.n; i++)
        tt_str_printf(out, "    %-*s%s%s\n", (int)(*names.items[i].doc ? width : 0),
                      names.items[i].name, *names.items[i].doc ? "  " : "", names.items[i].doc);
}

/* Whether the user's key is the topic's key or a section of it. */
static bool covers(const char *key, const char *topic)
{
    const size_t n = strlen(key);
    return !strncmp(topic, key, n) && (!topic[n] || topic[n] == '.' || topic[n] == '[');
}

static void print_topics(const char *key, const tt_cli_catalog *c, tt_str *out)
{
    for (size_t i = 0; i < tt_cli_n_topics; i++)
        if (covers(key, tt_cli_topics[i].key))
            print_topic(&tt_cli_topics[i], c, out);
}

/* tt_explain_print() returns a text that says that a key is unknown. */
static bool is_unknown(const char *key, const char *text)
{
    const size_t k = strlen(key);
    return strlen(text) > k && !strncmp(text + strcspn(text, ":"), ": unknown", 9);
}

static tt_status explain(const char *key, const tt_cli_catalog *c, tt_str *out, tt_error *err)
{
    tt_section_doc *own;
    size_t n;
    tt_str topics = {0};
    tt_cli_catalog_own(c, &own, &n);
    print_topics(key, c, &topics);
    tt_explain_print(own, n, key, out);
    if (is_unknown(key, tt_str_get(out)) && !topics.n) { /* it may be another model's */
        tt_str_clear(out);
        tt_explain_print(c->docs, c->n_docs, key, out);
    } else if (is_unknown(key, tt_str_get(out))) {
        tt_str_clear(out);
    }
    const char *text = tt_str_get(out);
    const bool unknown = is_unknown(key, text);
    if (unknown)
        tt_fail(err, TT_ENOTFOUND, "%.*s", (int)strcspn(text, "\n"), text);
    else if (covers(key, "model.args") || covers("model.args", key))
        tt_str_printf(out, "model.args are those of model %s; --spec NAME takes another\n",
                      c->model);
    tt_str_add(out, tt_str_get(&topics));
    tt_str_free(&topics);
    return unknown ? TT_ENOTFOUND : TT_OK;
}

/* The sections of a job, and what else can be explained. */
static void print_sections(const tt_cli_catalog *c, tt_str *out)
{
    tt_explain_sections(c->docs, c->n_docs, out);
    tt_str_add(out, "\nFurther words:\n");
    for (size_t i = 0; i < tt_cli_n_topics; i++)
        if (tt_cli_topics[i].doc)
            tt_str_printf(out, "  %-22s %s\n", tt_cli_topics[i].key, tt_cli_topics[i].doc);
    tt_str_add(out, "\n`ttrun config --explain training` explains a section, `… training.steps` a "
                    "key.\n");
}

static bool names_a_file(const char *word)
{
    return strchr(word, '/') || tt_ends_with(word, ".json") || tt_path_exists(word);
}

static tt_status print_docs(tt_cli *cli, tt_registry **r, tt_str *out, tt_error *err)
{
    const char *job = NULL, *key = NULL;
    tt_cli_catalog c = {0};
    for (int i = 0; i < cli->n_words; i++)
        *(names_a_file(cli->words[i]) ? &job : &key) = cli->words[i];
    const tt_status s = tt_cli_catalog_open(cli, job, &c, err);
    *r = c.registry;
    TT_TRY(s);
    if (tt_cli_option(cli, "schema"))
        tt_schema_print(c.docs, c.n_docs, out);
    else if (tt_cli_option(cli, "reference"))
        tt_reference_print(c.docs, c.n_docs, out);
    else if (key)
        return explain(key, &c, out, err);
    else
        print_sections(&c, out);
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
    } else if (cli->n_words > 1) {
        st = tt_cli_wrong_words(cli, &tt_cmd_config, err);
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
    .forms = "[JOB.json|DIR] [KEY]",
    .doc = "print the resolved job with the origin of each value; explain its keys",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_config_run,
    .words = 2};
