/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/names.h"
#include "train/ctl.h"
#include <stdlib.h>
#include <string.h>

/* ttrun complete SHELL INDEX WORD...: what may stand for the word INDEX of a command line, for the
 * shells' scripts (mk/ttrun.bash, .zsh, .fish). The first line is what the shell adds itself, "words"
 * (nothing), "files" or "folders"; then come the candidates, each with a tab and its meaning. One
 * that ends in "." goes on: the shell adds no blank. The plugins are opened only for names and keys
 * that they have. */

typedef struct completion {
    tt_cli cli;
    bool bash; /* it cuts words at "=" and replaces what is behind it */
    char **words;
    int n, at;                 /* the words, and the one at the cursor */
    const tt_command *command; /* of the words before the cursor; NULL: not named yet */
    const char *current;       /* the part of the word that candidates begin with */
    const char *prefix;        /* the part before it, which they repeat: "--spec=" */
    const char *job;           /* the job file on the line, or NULL */
    tt_str out;
    const char *mode;
    tt_cli_catalog catalog;
    bool opened;
} completion;

/* ---- the command line ---- */

static bool is_long(const char *word)
{
    return word[0] == '-' && word[1] == '-';
}

/* Bash gives "--spec=gpt2" as three words. They become one again. */
static void join_words(completion *c)
{
    int n = 0, at = c->at;
    bool open = false;
    for (int i = 0; i < c->n; i++) {
        const bool equals = !strcmp(c->words[i], "="),
                   key = n && !strncmp(c->words[n - 1], "--", 2);
        if (i && ((equals && key) || open)) {
            c->words[n - 1] =
                (char *)tt_arena_printf(c->cli.arena, "%s%s", c->words[n - 1], c->words[i]);
            open = equals && !open;
        } else {
            c->words[n++] = c->words[i];
        }
        if (i == c->at)
            at = n - 1;
    }
    c->n = n;
    c->at = at;
}

static bool option_takes_value(const completion *c, const char *name)
{
    const tt_cli_row *r = tt_cli_row_of(c->command, name);
    return r ? r->value != NULL : strchr(name, '.') != NULL;
}

static void take_option(completion *c, const char *name, const char *value)
{
    if (!strcmp(name, "spec")) {
        c->cli.spec = value;
    } else if (!strcmp(name, "plugin-dir")) {
        const char **more = tt_arena_array(c->cli.arena, c->cli.n_plugin_dirs + 1, sizeof *more);
        for (size_t i = 0; i < c->cli.n_plugin_dirs; i++)
            more[i] = c->cli.plugin_dirs[i];
        more[c->cli.n_plugin_dirs++] = value;
        c->cli.plugin_dirs = more;
    } else if (!strcmp(name, "only-plugin-dirs")) {
        c->cli.only_plugin_dirs = true;
    } else if (strchr(name, '.')) {
        tt_cli_override(&c->cli, name, value);
    } else {
        tt_cli_add(&c->cli, &c->cli.options, &c->cli.n_options, name, value);
    }
}

/* Sorts the words before the cursor into options, the command and further words. */
static void read_line(completion *c)
{
    const int k = tt_cli_command_at(c->at, c->words);
    c->command = k ? tt_cli_find_command(c->words[k]) : NULL;
    c->cli.words = tt_arena_array(c->cli.arena, (size_t)c->n + 1, sizeof *c->cli.words);
    for (int i = 1; i < c->at; i++) {
        char *w = c->words[i];
        if (i == k)
            continue;
        if (strncmp(w, "--", 2) != 0) {
            if (*w == '-')
                continue;
            if (!c->job && tt_path_exists(w))
                c->job = w;
            c->cli.words[c->cli.n_words++] = w;
            continue;
        }
        const size_t n = strcspn(w + 2, "=");
        const char *name = tt_arena_strn(c->cli.arena, w + 2, n);
        if (w[2 + n])
            take_option(c, name, w + 3 + n);
        else if (option_takes_value(c, name) && i + 1 < c->at)
            take_option(c, name, c->words[++i]);
        else if (!option_takes_value(c, name))
            take_option(c, name, "");
    }
}

/* The option whose value the cursor is at; NULL = none. Sets the parts of the word. */
static const char *option_at_cursor(completion *c)
{
    const char *w = c->at < c->n ? c->words[c->at] : "", *eq = strchr(w, '=');
    const char *before = c->at > 1 ? c->words[c->at - 1] : "";
    c->current = w;
    c->prefix = "";
    if (is_long(w) && eq) {
        c->current = eq + 1;
        if (!c->bash)
            c->prefix = tt_arena_strn(c->cli.arena, w, (size_t)(eq - w) + 1);
        return tt_arena_strn(c->cli.arena, w + 2, (size_t)(eq - w) - 2);
    }
    if (is_long(before) && !strchr(before, '=') && option_takes_value(c, before + 2))
        return before + 2;
    return NULL;
}

/* ---- candidates ---- */

static void offer(completion *c, const char *word, const char *doc)
{
    if (strncmp(word, c->current, strlen(c->current)) != 0)
        return;
    tt_str_printf(&c->out, "%s%s\t", c->prefix, word);
    for (const char *p = doc ? doc : ""; *p && *p != '\n'; p++)
        tt_str_addc(&c->out, *p == '\t' ? ' ' : *p);
    tt_str_addc(&c->out, '\n');
}

/* The words of "a|b|c" but those that name a value in capitals, like N. */
static void offer_choices(completion *c, const char *choices)
{
    for (const char *p = choices; *p;) {
        const size_t n = strcspn(p, "|");
        if (*p < 'A' || *p > 'Z')
            offer(c, tt_arena_strn(c->cli.arena, p, n), "");
        p += n + (p[n] == '|');
    }
}

static bool open_catalog(completion *c)
{
    tt_error ignored = {0};
    if (!c->opened && tt_cli_catalog_open(&c->cli, c->job, &c->catalog, &ignored) != TT_OK &&
        !c->catalog.n_docs)
        return false;
    c->opened = true;
    return c->catalog.model != NULL;
}

static void offer_topic(completion *c, const char *key)
{
    const tt_cli_topic *t = tt_cli_topic_of(key);
    tt_cli_names names = {0};
    if (!t || !open_catalog(c))
        return;
    tt_cli_topic_names(t, &c->catalog, &names);
    for (size_t i = 0; i < names.n; i++)
        offer(c, names.items[i].name, names.items[i].doc);
}

/* "hooks[3].name" → "hooks[].name" */
static const char *without_indices(tt_arena *a, const char *key)
{
    tt_str o = {0};
    for (const char *p = key; *p; p++) {
        tt_str_addc(&o, *p);
        if (*p == '[')
            p += strspn(p + 1, "0123456789");
    }
    const char *text = tt_arena_str(a, tt_str_get(&o));
    tt_str_free(&o);
    return text;
}

static bool is_path(const tt_option *o)
{
    static const char *const parts[] = {"path", "folder", "file", "csv", "dump_"};
    for (size_t i = 0; i < TT_COUNT(parts); i++)
        if ((o->type == TT_OPT_STRING || o->type == TT_OPT_STRINGS) && strstr(o->name, parts[i]))
            return true;
    return false;
}

static void offer_row_values(completion *c, const tt_option *o)
{
    if (o->type == TT_OPT_BOOL)
        offer_choices(c, "true|false");
    for (const char *p = o->choices; p && *p;) {
        const size_t n = strcspn(p, "|");
        if (*p != '~')
            offer(c, tt_arena_strn(c->cli.arena, p, n), "");
        p += n + (p[n] == '|');
    }
    if (is_path(o))
        c->mode = "files";
}

typedef void (*key_fn)(completion *c, const char *path, const tt_option *o, void *user);

/* The rows of a table as keys of `section`. */
static void each_row(completion *c, const char *section, const tt_section_doc *d, key_fn fn,
                     void *user)
{
    for (size_t i = 0; i < d->n_options; i++) {
        const tt_option *o = (const tt_option *)((const char *)d->options + i * d->option_size);
        fn(c, tt_arena_printf(c->cli.arena, "%s%s%s", section, *section ? "." : "", o->name), o,
           user);
    }
}

/* Calls fn for each key of the job, of the model at hand only. */
static void each_key(completion *c, key_fn fn, void *user)
{
    tt_section_doc *own;
    size_t n;
    if (!open_catalog(c))
        return;
    tt_cli_catalog_own(&c->catalog, &own, &n);
    for (size_t d = 0; d < n; d++) {
        each_row(c, own[d].key, &own[d], fn, user);
        for (size_t e = 0; own[d].same_as && e < n; e++)
            if (!strcmp(own[e].key, own[d].same_as))
                each_row(c, own[d].key, &own[e], fn, user);
    }
}

static void match_value(completion *c, const char *path, const tt_option *o, void *key)
{
    if (!strcmp(path, key))
        offer_row_values(c, o);
}

static void complete_value(completion *c, const char *option)
{
    const tt_cli_row *r = tt_cli_row_of(c->command, option);
    if (!r) {
        const char *key = without_indices(c->cli.arena, option);
        offer_topic(c, key);
        each_key(c, match_value, (void *)(uintptr_t)key);
        return;
    }
    if (r->takes == TT_TAKES_FILE || r->takes == TT_TAKES_HARDWARE)
        c->mode = "files";
    else if (r->takes == TT_TAKES_FOLDER)
        c->mode = "folders";
    if (r->takes == TT_TAKES_HARDWARE)
        offer_topic(c, "hardware");
    else if (r->takes == TT_TAKES_SPEC)
        offer_topic(c, "spec");
    else if (r->takes == TT_TAKES_WORDS)
        offer_choices(c, r->words);
    else if (r->takes == TT_TAKES_TEXT)
        offer_choices(c, r->value);
}

static void offer_key(completion *c, const char *path, const tt_option *o, void *seen)
{
    const char *list = strstr(path, "[]");
    if (!strchr(path, '.') || tt_map_get(seen, path))
        return;
    tt_map_set(seen, path, c);
    offer(c,
          list ? tt_arena_printf(c->cli.arena, "%.*s[0]%s", (int)(list - path), path, list + 2)
               : path,
          o->doc);
}

/* Keys that begin with "section."; without a dot, the sections. dashes: as options, "--training.steps".
 */
static void complete_keys(completion *c, bool dashes)
{
    const char *current = c->current;
    tt_map *seen = tt_map_new(c->cli.arena);
    c->prefix = dashes ? "--" : "";
    c->current += dashes ? 2 : 0;
    if (strchr(c->current, '.')) {
        each_key(c, offer_key, seen);
    } else {
        size_t n;
        const tt_section_doc *d = tt_core_config_docs(&n);
        for (size_t i = 0; i < n; i++)
            if (!*d[i].key && !dashes)
                for (size_t k = 0; k < d[i].n_options; k++)
                    offer(c, d[i].options[k].name, d[i].options[k].doc);
            else if (*d[i].key && *d[i].doc && !strpbrk(d[i].key, ".["))
                offer(c, tt_arena_printf(c->cli.arena, "%s%s", d[i].key, dashes ? "." : ""),
                      d[i].doc);
    }
    c->current = current;
    c->prefix = "";
}

static void complete_option(completion *c)
{
    const char *verb = c->cli.n_words ? c->cli.words[0] : "";
    const tt_command *cmd = c->command ? c->command : &tt_cmd_train;
    if (strchr(c->current, '.')) {
        complete_keys(c, true);
        return;
    }
    for (size_t i = 0; i < cmd->n_rows; i++)
        if (!cmd->rows[i].verb || !strcmp(cmd->rows[i].verb, verb))
            offer(c, tt_arena_printf(c->cli.arena, "--%s", cmd->rows[i].name), cmd->rows[i].doc);
    for (size_t i = 0; i < tt_cli_n_common; i++)
        if (tt_cli_has_common(cmd, &tt_cli_common[i]))
            offer(c, tt_arena_printf(c->cli.arena, "--%s", tt_cli_common[i].name),
                  tt_cli_common[i].doc);
    if (is_long(c->current) && !cmd->no_job)
        complete_keys(c, true);
}

static void complete_explain(completion *c)
{
    c->mode = "words";
    complete_keys(c, false);
    for (size_t i = 0; i < tt_cli_n_topics; i++)
        if (tt_cli_topics[i].doc)
            offer(c, tt_cli_topics[i].key, tt_cli_topics[i].doc);
}

/* A word that is no option: a command, a verb, a kind, or what the forms of the command name. */
static void complete_word(completion *c)
{
    const char *verb = c->cli.n_words ? c->cli.words[0] : NULL;
    c->mode = "files";
    if (!c->command) {
        for (size_t i = 0; !verb && i < tt_cli_n_commands; i++)
            if (tt_cli_commands[i]->doc)
                offer(c, tt_cli_commands[i]->name, tt_cli_commands[i]->doc);
        return;
    }
    if (c->command == &tt_cmd_config && tt_cli_option(&c->cli, "explain")) {
        complete_explain(c);
        return;
    }
    if (c->command == &tt_cmd_ctl && verb) {
        c->mode = "words";
        for (size_t i = 0; c->cli.n_words == 1 && i < tt_ctl_n_forms; i++)
            offer(c, tt_ctl_forms[i].name, tt_ctl_forms[i].doc);
        if (c->cli.n_words == 2 && !strcmp(c->cli.words[1], "log"))
            offer_choices(c, "error|warn|info|debug");
        return;
    }
    const bool model = c->command->forms && !strcmp(c->command->forms, "[DIR]");
    if (model || c->command == &tt_cmd_report || c->command == &tt_cmd_ctl ||
        c->command == &tt_cmd_ckpt)
        c->mode = "folders";
    if (!verb && c->command->forms[0] >= 'a' && c->command->forms[0] <= 'z') {
        c->mode = "words";
        for (const char *f = c->command->forms; f; f = strchr(f, '\n') ? strchr(f, '\n') + 1 : NULL)
            offer(c, tt_arena_strn(c->cli.arena, f, strcspn(f, " \n")), "");
    } else if (c->command == &tt_cmd_plugins_ && strcmp(verb, "check") != 0) {
        c->mode = "words";
        if (c->cli.n_words == 1)
            offer_topic(c, strcmp(verb, "new") ? "kinds" : "templates");
    }
}

int tt_cli_complete_main(int argc, char **argv)
{
    tt_str head = {0};
    if (argc == 1 && !strcmp(argv[0], "--man-synopsis")) {
        tt_cli_man_synopsis(&head);
    } else if (argc == 1 && !strcmp(argv[0], "--man-options")) {
        tt_cli_man_options(&head);
    } else if (argc > 2) {
        completion c = {.cli = {.arena = tt_arena_new()}, .mode = "words"};
        c.bash = !strcmp(argv[0], "bash");
        c.at = atoi(argv[1]);
        c.words = argv + 2;
        c.n = argc - 2;
        c.at = c.at < 1 ? 1 : c.at > c.n ? c.n : c.at;
        tt_log_setup(TT_ERROR, 0, 1, false);
        if (c.bash)
            join_words(&c);
        read_line(&c);
        const char *option = option_at_cursor(&c);
        if (option)
            complete_value(&c, option);
        else if (*c.current == '-')
            complete_option(&c);
        else
            complete_word(&c);
        tt_str_printf(&head, "%s\n%s", c.mode, tt_str_get(&c.out));
        tt_str_free(&c.out);
        tt_registry_free(c.catalog.registry);
        tt_arena_free(c.cli.arena);
    }
    tt_cli_print(&head);
    tt_str_free(&head);
    return 0;
}

const tt_command tt_cmd_complete = {.name = "complete", .forms = ""};
