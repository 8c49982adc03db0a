/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "train/ctl.h"
#include <stdio.h>
#include <string.h>

/* Help texts and the man page's lists of options, made from the option tables. */

const tt_cli_row tt_cli_common[] = {
    TT_CLI_VALUE("spec", "NAME", "llama3", "TrainSpec to use instead of the job's",
                 .takes = TT_TAKES_SPEC, .flags = TT_CLI_TAKEN),
    TT_CLI_VALUE("plugin-dir", "DIR", NULL,
                 "folder searched for plugins, with its subfolders, before ttrun's own",
                 .takes = TT_TAKES_FOLDER, .flags = TT_CLI_REPEATED | TT_CLI_TAKEN),
    TT_CLI_FLAG("only-plugin-dirs", "search the folders of --plugin-dir and no others",
                .flags = TT_CLI_TAKEN),
    TT_CLI_VALUE("nproc", "N", "1",
                 "start N ranks here: processes, or threads without mpirun; MIN:MAX with "
                 "--max-restarts"),
    TT_CLI_VALUE(
        "resume", "auto|never", "auto",
        "continue from the newest checkpoint; never: begin anew, move the run's files aside"),
    TT_CLI_VALUE("dump_folder", "DIR", "./outputs", "folder of the run, instead of the job's",
                 .takes = TT_TAKES_FOLDER, .flags = TT_CLI_KEY),
    TT_CLI_VALUE("description", "TEXT", NULL, "what the run is for, in its log and run.json",
                 .flags = TT_CLI_KEY),
    TT_CLI_VALUE("converters", "LIST", NULL,
                 "the job's list of converters, as JSON: '[{\"name\": …}]'", .flags = TT_CLI_KEY),
    TT_CLI_VALUE("hooks", "LIST", NULL, "the job's list of hooks, as JSON", .flags = TT_CLI_KEY),
    TT_CLI_VALUE("plugin_dirs", "LIST", NULL, "the job's list of folders with plugins, as JSON",
                 .flags = TT_CLI_KEY),
    TT_CLI_FLAG("dry-run", "stop before step 1 with the plan printed"),
    TT_CLI_FLAG("json", "print JSON instead of text, where the command has both",
                .flags = TT_CLI_ANY),
    TT_CLI_FLAG("verbose", "-v: print more", .flags = TT_CLI_ANY),
    TT_CLI_FLAG("quiet", "-q: print less", .flags = TT_CLI_ANY),
    TT_CLI_FLAG("help", "-h: print this text", .flags = TT_CLI_ANY),
    TT_CLI_FLAG("version", "print the version", .flags = TT_CLI_ANY),
};
const size_t tt_cli_n_common = TT_COUNT(tt_cli_common);

const tt_cli_row *tt_cli_row_of(const tt_command *c, const char *name)
{
    for (size_t i = 0; c && i < c->n_rows; i++)
        if (!strcmp(c->rows[i].name, name))
            return &c->rows[i];
    for (size_t i = 0; i < tt_cli_n_common; i++)
        if (!strcmp(tt_cli_common[i].name, name))
            return &tt_cli_common[i];
    return NULL;
}

static bool is_like(const char *name, const char *given)
{
    for (; *name && *given; name++, given++)
        if (*name != *given && !(strchr("-_", *name) && strchr("-_", *given)))
            return false;
    return *name == *given;
}

const tt_cli_row *tt_cli_row_like(const tt_command *c, const char *name)
{
    const tt_cli_row *r = tt_cli_row_of(c, name);
    if (is_like("nproc-per-node", name))
        name = "nproc";
    for (size_t i = 0; !r && i < c->n_rows; i++)
        r = is_like(c->rows[i].name, name) ? &c->rows[i] : NULL;
    for (size_t i = 0; !r && i < tt_cli_n_common; i++)
        r = is_like(tt_cli_common[i].name, name) ? &tt_cli_common[i] : NULL;
    return r;
}

bool tt_cli_has_common(const tt_command *c, const tt_cli_row *r)
{
    return !c || !c->no_job || (r->flags & TT_CLI_ANY);
}

/* ---- usage ---- */

/* Whether the option goes with a form of the command, whose first word may be a verb. */
static bool row_fits(const tt_cli_row *r, const char *form, size_t n)
{
    return !r->verb || (strlen(r->verb) == n && !strncmp(form, r->verb, n));
}

typedef struct usage_line {
    tt_str *out;
    size_t width, indent, column; /* width 0: do not break the line */
} usage_line;

static void add_word(usage_line *l, const char *word)
{
    const size_t n = strlen(word);
    if (l->width && l->column + 1 + n > l->width) {
        tt_str_printf(l->out, "\n%*s", (int)l->indent, "");
        l->column = l->indent;
    }
    tt_str_printf(l->out, "%s%s", l->column ? " " : "", word);
    l->column += (l->column > 0) + n;
}

static void fold_text(usage_line *l, const char *text)
{
    char word[96];
    for (size_t k; *text; text += k + (text[k] == ' ')) {
        k = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)k, text);
        add_word(l, word);
    }
}

static void usage_rows(usage_line *l, const tt_command *c, const char *form, bool required)
{
    char word[96];
    for (size_t i = 0; i < c->n_rows; i++) {
        const tt_cli_row *r = &c->rows[i];
        if (((r->flags & TT_CLI_REQUIRED) != 0) != required ||
            !row_fits(r, form, strcspn(form, " \n")))
            continue;
        snprintf(word, sizeof word, "%s--%s%s%s%s%s", required ? "" : "[", r->name,
                 r->value ? " " : "", r->value ? r->value : "", required ? "" : "]",
                 r->flags & TT_CLI_REPEATED ? "..." : "");
        add_word(l, word);
    }
}

/* One form of a command: "ttrun ckpt reshard FOLDER OUT [--files N]". */
static void add_form(usage_line *l, const tt_command *c, const char *form)
{
    char word[96];
    const size_t n = strcspn(form, "\n");
    tt_str_printf(l->out, "ttrun %s", c->name);
    l->column += strlen("ttrun ") + strlen(c->name);
    l->indent = l->column;
    for (size_t at = 0; at < n;) {
        const size_t k = strcspn(form + at, " \n");
        snprintf(word, sizeof word, "%.*s", (int)k, form + at);
        if (k)
            add_word(l, word);
        at += k + 1;
    }
    usage_rows(l, c, form, true);
    usage_rows(l, c, form, false);
}

static const char *next_form(const char *form)
{
    form += strcspn(form, "\n");
    return *form ? form + 1 : NULL;
}

/* Whether a form begins with the word; every form does with NULL. */
static bool form_fits(const char *form, const char *verb)
{
    const size_t n = strcspn(form, " \n");
    return !verb || (strlen(verb) == n && !strncmp(form, verb, n));
}

/* The words and required options of the forms that begin with the verb. */
static void short_forms(const tt_command *c, const char *verb, tt_str *o)
{
    bool more = false;
    for (const char *f = c->forms; f; f = next_form(f)) {
        if (!form_fits(f, verb))
            continue;
        const size_t n = strcspn(f, "\n");
        usage_line l = {o, 0, 0, 1};
        tt_str_printf(o, "%sttrun %s%s%.*s", o->n ? " | " : "", c->name, n ? " " : "", (int)n, f);
        usage_rows(&l, c, f, true);
        bool optional = false;
        for (size_t i = 0; i < c->n_rows; i++)
            optional = optional || (row_fits(&c->rows[i], f, strcspn(f, " \n")) &&
                                    !(c->rows[i].flags & TT_CLI_REQUIRED));
        more = more || optional;
    }
    tt_str_add(o, more ? " [OPTION]..." : "");
}

/* The first words of the forms: "ttrun ckpt ls|verify ...". */
static void first_words(const tt_command *c, tt_str *o)
{
    const char *last = NULL;
    tt_str_printf(o, "ttrun %s ", c->name);
    for (const char *f = c->forms; f; last = f, f = next_form(f)) {
        const size_t n = strcspn(f, " \n");
        if (!last || strncmp(last, f, n + 1) != 0)
            tt_str_printf(o, "%s%.*s", last ? "|" : "", (int)n, f);
    }
    tt_str_add(o, " ...");
}

const char *tt_cli_usage(tt_arena *a, const tt_command *c, const char *verb)
{
    tt_str o = {0};
    short_forms(c, verb, &o);
    if (o.n > 80 && !verb) {
        tt_str_clear(&o);
        first_words(c, &o);
    }
    const char *text =
        tt_arena_printf(a, "usage: %s; see ttrun %s --help", tt_str_get(&o), c->name);
    tt_str_free(&o);
    return text;
}

/* ---- help ---- */

#define HELP_WIDTH 80
#define HELP_INDENT 32 /* of the options' meanings */

/* Begins a line with `left`; what follows is folded behind its column. */
static usage_line begin_line(const char *left, int column, tt_str *out)
{
    tt_str_printf(out, "  %-*s", column - 2, left);
    return (usage_line){out, HELP_WIDTH, (size_t)column, TT_MAXV((size_t)column, strlen(left) + 3)};
}

static void print_row(const tt_cli_row *r, tt_str *out)
{
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", r->name, r->value ? " " : "", r->value ? r->value : "");
    if (strlen(left) > HELP_INDENT - 2)
        strcat(left, " ");
    usage_line l = begin_line(left, HELP_INDENT, out);
    tt_str text = {0};
    tt_str_printf(&text, "%s%s%s", r->verb ? r->verb : "", r->verb ? ": " : "", r->doc);
    if (r->flags & TT_CLI_REQUIRED)
        tt_str_add(&text, " (required)");
    else if (r->fallback)
        tt_str_printf(&text, " (default %s)", r->fallback);
    fold_text(&l, tt_str_get(&text));
    tt_str_addc(out, '\n');
    tt_str_free(&text);
}

/* The common options that have the flag `key` or have it not. */
static void print_common(const tt_command *c, const char *head, unsigned key, tt_str *out)
{
    tt_str_printf(out, "\n%s:\n", head);
    for (size_t i = 0; i < tt_cli_n_common; i++) {
        const tt_cli_row *r = &tt_cli_common[i];
        if ((r->flags & TT_CLI_KEY) == key && tt_cli_has_common(c, r))
            print_row(r, out);
    }
}

static void print_usage(const tt_command *c, tt_str *out)
{
    for (const char *f = c->forms; f; f = next_form(f)) {
        usage_line l = {out, HELP_WIDTH, 0, 7};
        tt_str_add(out, f == c->forms ? "usage: " : "       ");
        add_form(&l, c, f);
        tt_str_addc(out, '\n');
    }
}

static void print_ctl(tt_str *out)
{
    tt_str_add(out, "\ncommands of ctl:\n");
    for (size_t i = 0; i < tt_ctl_n_forms; i++) {
        const tt_ctl_form *f = &tt_ctl_forms[i];
        char left[32];
        snprintf(left, sizeof left, "%-8s %s", f->name, f->argument ? f->argument : "");
        usage_line l = begin_line(left, 20, out);
        fold_text(&l, f->doc);
        tt_str_addc(out, '\n');
    }
}

void tt_cli_help(const tt_command *c, tt_str *out)
{
    if (c) {
        print_usage(c, out);
        usage_line l = {out, HELP_WIDTH, 0, 0};
        fold_text(&l, c->doc);
        tt_str_addc(out, '\n');
        if (c == &tt_cmd_ctl)
            print_ctl(out);
        if (c->n_rows)
            tt_str_printf(out, "\noptions of %s:\n", c->name);
        for (size_t i = 0; i < c->n_rows; i++)
            print_row(&c->rows[i], out);
    } else {
        tt_str_add(out, "usage: ttrun [COMMAND] [OPTION]... [JOB.json] [--section.key VALUE]...\n"
                        "Train large language models.\n\ncommands (train is the default; ttrun "
                        "COMMAND --help lists a command's options):\n");
        for (size_t i = 0; i < tt_cli_n_commands; i++) {
            if (!tt_cli_commands[i]->doc)
                continue;
            usage_line l = begin_line(tt_cli_commands[i]->name, 12, out);
            fold_text(&l, tt_cli_commands[i]->doc);
            tt_str_addc(out, '\n');
        }
    }
    print_common(c, "options of every command", 0, out);
    if (c && c->no_job)
        return;
    print_common(c, "keys of the job that are in no section", TT_CLI_KEY, out);
    tt_str_add(out, "\nNames with a dot are keys in a section: --training.steps 20. `ttrun config\n"
                    "--explain` lists the sections.\n");
}

/* ---- docs/ttrun.1 ---- */

/* Text for roff: a hyphen of an option is a minus, a backslash is escaped. */
static void add_roff(const char *text, tt_str *out)
{
    for (const char *p = text; *p; p++) {
        if (*p == '-' || *p == '\\')
            tt_str_add(out, *p == '-' ? "\\-" : "\\e");
        else
            tt_str_addc(out, *p);
    }
}

void tt_cli_man_synopsis(tt_str *out)
{
    for (size_t i = 0; i < tt_cli_n_commands; i++) {
        const tt_command *c = tt_cli_commands[i];
        for (const char *f = c->doc ? c->forms : NULL; f; f = next_form(f)) {
            tt_str text = {0};
            usage_line l = {&text, 0, 0, 0};
            add_form(&l, c, f);
            const size_t head = strlen("ttrun ") + strlen(c->name);
            tt_str_printf(out, ".B ttrun %s\n", c->name);
            add_roff(tt_str_get(&text) + head + (tt_str_get(&text)[head] == ' '), out);
            tt_str_add(out, "\n.br\n");
            tt_str_free(&text);
        }
    }
}

static void man_row(const tt_cli_row *r, tt_str *out)
{
    tt_str_add(out, ".TP\n.B ");
    tt_str_add(out, "\\-\\-");
    add_roff(r->name, out);
    if (r->value) {
        tt_str_add(out, " \\fI");
        add_roff(r->value, out);
        tt_str_add(out, "\\fP");
    }
    tt_str_addc(out, '\n');
    if (r->verb)
        tt_str_printf(out, "%s: ", r->verb);
    add_roff(r->doc, out);
    if (r->flags & TT_CLI_REQUIRED)
        tt_str_add(out, " (required)");
    if (r->flags & TT_CLI_REPEATED)
        tt_str_add(out, " (may be repeated)");
    if (r->fallback) {
        tt_str_add(out, " (default ");
        add_roff(r->fallback, out);
        tt_str_addc(out, ')');
    }
    tt_str_add(out, ".\n");
}

void tt_cli_man_options(tt_str *out)
{
    for (size_t i = 0; i < tt_cli_n_common; i++)
        man_row(&tt_cli_common[i], out);
    for (size_t i = 0; i < tt_cli_n_commands; i++) {
        const tt_command *c = tt_cli_commands[i];
        if (c->n_rows && c->doc)
            tt_str_printf(out, ".SS Options of %s\n", c->name);
        for (size_t k = 0; c->doc && k < c->n_rows; k++)
            man_row(&c->rows[k], out);
    }
}
