/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "config/reserved.h"
#include <string.h>

/* Errors for words of the command line that nobody knows, with what the user may have meant. */

typedef TT_VEC(const char *) words;

/* The job's key whose last part is `name`: "optimizer.lr" for "lr"; NULL: there is none. The
 * plugins' keys count, so this opens all plugins. */
static const char *key_ending_in(const tt_cli *cli, const char *name)
{
    tt_registry *r = NULL;
    tt_section_doc *d = NULL;
    size_t n = 0;
    const char *found = NULL;
    tt_error ignored = {0};
    if (tt_cli_registry(cli, &r, &ignored) == TT_OK &&
        tt_setup_docs(r, cli->arena, &d, &n, &ignored) == TT_OK)
        found = tt_docs_key_ending_in(cli->arena, d, n, name);
    tt_registry_free(r);
    return found;
}

static const tt_command *owner_of(const char *option)
{
    for (size_t i = 0; i < tt_cli_n_commands; i++)
        for (size_t k = 0; k < tt_cli_commands[i]->n_rows; k++)
            if (!strcmp(tt_cli_commands[i]->rows[k].name, option))
                return tt_cli_commands[i];
    return NULL;
}

/* The command's own option that begins with `name`, as --output does with "out"; NULL: none. */
static const char *option_beginning(const tt_command *c, const char *name)
{
    for (size_t i = 0; i < c->n_rows && *name; i++)
        if (!strncmp(c->rows[i].name, name, strlen(name)))
            return c->rows[i].name;
    return NULL;
}

tt_status tt_cli_unknown_option(tt_cli *cli, const tt_command *c, const char *name, tt_error *err)
{
    words own = {0};
    const tt_reserved *known = tt_reserved_find(name);
    if (known && known->kind == TT_RESERVED_SAME)
        return TT_FAIL(err, TT_EINVAL, "--%s: unknown option; the same as %s%s", name,
                       known->text[strcspn(known->text, ". ")] == '.' ? "--" : "", known->text);
    if (known)
        return TT_FAIL(err, TT_EINVAL, "--%s: unknown option; %s", name,
                       tt_reserved_answer(cli->arena, known));
    const char *key = option_beginning(c, name);
    if (!key)
        key = key_ending_in(cli, name);
    if (key)
        return TT_FAIL(err, TT_EINVAL, "--%s: unknown option of ttrun %s (did you mean --%s?)",
                       name, c->name, key);
    const tt_command *owner = owner_of(name);
    if (owner)
        return TT_FAIL(err, TT_EINVAL, "--%s: unknown option of ttrun %s; ttrun %s has it", name,
                       c->name, owner->name);
    for (size_t i = 0; i < c->n_rows; i++)
        tt_vec_push(cli->arena, &own, c->rows[i].name);
    for (size_t i = 0; i < tt_cli_n_common; i++)
        tt_vec_push(cli->arena, &own, tt_cli_common[i].name);
    const char *near = tt_nearest(name, own.items, own.n);
    return TT_FAIL(err, TT_EINVAL, "--%s: unknown option of ttrun %s%s%s%s", name, c->name,
                   near ? " (did you mean --" : "", near ? near : "",
                   near ? "?)" : "; options of the job have a dot, as in --training.steps");
}

tt_status tt_cli_unknown_short(const tt_command *c, const char *word, tt_error *err)
{
    const tt_reserved *known = tt_reserved_find(word);
    if (known)
        return TT_FAIL(err, TT_EINVAL, "%s: unknown option; the same as %s%s", word,
                       *known->text == '-' || *known->text == '`' ? "" : "--", known->text);
    return TT_FAIL(err, TT_EINVAL, "%s: unknown option; see ttrun %s --help", word, c->name);
}

tt_status tt_cli_check_first_word(const char *word, tt_error *err)
{
    if (*word == '-' || strpbrk(word, "./") || tt_path_exists(word))
        return TT_OK;
    return tt_cli_no_command(word, err);
}

tt_status tt_cli_no_command(const char *word, tt_error *err)
{
    const char *names[32];
    words all = {names, 0, TT_COUNT(names)};
    for (size_t i = 0; i < tt_cli_n_commands && all.n < TT_COUNT(names); i++)
        if (tt_cli_commands[i]->doc)
            names[all.n++] = tt_cli_commands[i]->name;
    const char *near = tt_nearest(word, all.items, all.n);
    return TT_FAIL(err, TT_EINVAL, "\"%s\": no such command or job file%s%s%s", word,
                   near ? " (did you mean " : "; see ttrun --help", near ? near : "",
                   near ? "?)" : "");
}

tt_status tt_cli_one_word_more(const tt_cli *cli, const tt_command *c, const char *word,
                               tt_error *err)
{
    const char *option = tt_cli_row_of(c, "prompt") ? "prompt" : "data"; /* of generate; of eval */
    const bool near = tt_cli_row_of(c, option) && !tt_cli_option(cli, option);
    return TT_FAIL(err, TT_EINVAL, "\"%s\": too many words%s%s%s; %s", word,
                   near ? " (did you mean --" : "", near ? option : "", near ? "?)" : "",
                   tt_cli_usage(cli->arena, c, NULL));
}

tt_status tt_cli_wrong_words(const tt_cli *cli, const tt_command *c, tt_error *err)
{
    const char *verb = cli->n_words ? cli->words[0] : NULL;
    words verbs = {0};
    bool known = false;
    for (const char *f = c->forms; f && *f; f = strchr(f, '\n') ? strchr(f, '\n') + 1 : NULL) {
        const char *v = tt_arena_strn(cli->arena, f, strcspn(f, " \n"));
        tt_vec_push(cli->arena, &verbs, v);
        known = known || (verb && !strcmp(v, verb));
    }
    const char *near = verb && !known ? tt_nearest(verb, verbs.items, verbs.n) : NULL;
    const char *usage = tt_cli_usage(cli->arena, c, known ? verb : NULL);
    if (!verb || known)
        return TT_FAIL(err, TT_EINVAL, "%s", usage);
    return TT_FAIL(err, TT_EINVAL, "ttrun %s has no \"%s\"%s%s%s; %s", c->name, verb,
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", usage);
}
