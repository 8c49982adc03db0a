/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "base/thread.h"
#include "cli/crash.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The command line: options without a dot belong to ttrun, options with a dot to the job. */

static const tt_command *const commands[] = {
    &tt_cmd_train,    &tt_cmd_plan,     &tt_cmd_config,    &tt_cmd_plugins_,
    &tt_cmd_data,     &tt_cmd_tokenize, &tt_cmd_tokenizer, &tt_cmd_ckpt,
    &tt_cmd_generate, &tt_cmd_eval,     &tt_cmd_report,    &tt_cmd_top,
};

typedef struct common_option {
    const char *name, *value, *doc;
} common_option;
static const common_option common[] = {
    {"spec",        "NAME",       "TrainSpec to use instead of the job's"                        },
    {"plugin-dir",  "DIR",        "search this folder and its subfolders for plugins; repeatable"},
    {"nproc",       "N",          "start N ranks on this machine, with mpirun"                   },
    {"resume",      "auto|never", "never: start at step 0 and move the folder's files aside"     },
    {"dump_folder", "DIR",        "folder of the run, instead of the job's"                      },
    {"converters",  "LIST",       "the job's converters, as JSON: '[{\"name\": …}]'"           },
    {"hooks",       "LIST",       "the job's hooks, as JSON"                                     },
    {"dry-run",     NULL,         "stop before step 1 with the plan printed"                     },
    {"json",        NULL,         "print one JSON object, if the command supports it"            },
    {"verbose",     NULL,         "-v: say more"                                                 },
    {"quiet",       NULL,         "-q: say less"                                                 },
    {"help",        NULL,         "-h: this text"                                                },
    {"version",     NULL,         "the version"                                                  },
};

TT_EXPORT int tt_cli_main(int argc, char **argv);

static const tt_command *find_command(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(commands); i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

/* ttrun's own options that take a value; the job's options, "--section.key", all do. */
static bool takes_value(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(common); i++)
        if (!strcmp(common[i].name, name))
            return common[i].value != NULL;
    return strchr(name, '.') != NULL;
}

/* The index of the command, which may follow options ("ttrun --plugin-dir plugins plan job.json");
 * 0 = there is none, which means train. */
static int command_at(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            return find_command(argv[i]) ? i : 0;
        if (!strncmp(argv[i], "--", 2) && !strchr(argv[i], '=') && takes_value(argv[i] + 2))
            i++;
    }
    return 0;
}

static bool cli_in_list(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

static tt_status unknown_option(const tt_command *c, const char *name, tt_error *err)
{
    const char *all[64];
    size_t n = 0;
    for (size_t i = 0; i < TT_COUNT(common); i++)
        all[n++] = common[i].name;
    for (size_t i = 0; i < c->n_options && n < 64; i++)
        all[n++] = c->options[i];
    for (size_t i = 0; i < c->n_flags && n < 64; i++)
        all[n++] = c->flags[i];
    const char *near = tt_nearest(name, all, n);
    return TT_FAIL(err, TT_EINVAL, "--%s: unknown option of ttrun %s%s%s%s", name, c->name,
                   near ? " (did you mean --" : "", near ? near : "",
                   near ? "?)" : "; options of the job have a dot, as in --training.steps");
}

/* The top-level keys of the job that may be given as options; all other keys are in a section. */
static bool is_of_the_job(const char *name)
{
    static const char *const keys[] = {"dump_folder", "converters", "hooks"};
    return cli_in_list(keys, TT_COUNT(keys), name);
}

static tt_status common_value(tt_cli *cli, const char *name, const char *value, tt_error *err)
{
    char *end;
    if (!strcmp(name, "spec")) {
        cli->spec = value;
    } else if (!strcmp(name, "plugin-dir")) {
        const char **more = tt_arena_array(cli->arena, cli->n_plugin_dirs + 1, sizeof *more);
        for (size_t i = 0; i < cli->n_plugin_dirs; i++)
            more[i] = cli->plugin_dirs[i];
        more[cli->n_plugin_dirs++] = value;
        cli->plugin_dirs = more;
    } else if (!strcmp(name, "nproc")) {
        const long n = strtol(value, &end, 10);
        if (*end || n < 1 || n > TT_CLI_MOST_RANKS)
            return TT_FAIL(err, TT_EINVAL, "--nproc: expected 1 to %d, got \"%s\"",
                           TT_CLI_MOST_RANKS, value);
        cli->nproc = (int)n;
    } else if (is_of_the_job(name)) {
        tt_cli_add(cli, &cli->overrides, &cli->n_overrides, name, value);
    } else {
        cli->no_resume = !strcmp(value, "never");
        if (!cli->no_resume && strcmp(value, "auto"))
            return TT_FAIL(err, TT_EINVAL, "--resume: expected auto or never, got \"%s\"", value);
    }
    return TT_OK;
}

static bool common_flag(tt_cli *cli, const char *name)
{
    if (!strcmp(name, "json"))
        cli->json = true;
    else if (!strcmp(name, "dry-run"))
        cli->dry_run = true;
    else if (!strcmp(name, "verbose"))
        cli->verbose++;
    else if (!strcmp(name, "quiet"))
        cli->verbose--;
    else
        return false;
    return true;
}

/* Parses one "--name[=value]"; *used: how many of the next words belong to it. */
static tt_status long_option(tt_cli *cli, const tt_command *c, const char *arg, const char *next,
                             int *used, tt_error *err)
{
    const char *eq = strchr(arg, '=');
    const char *name = eq ? tt_arena_strn(cli->arena, arg, (size_t)(eq - arg)) : arg;
    const char *value = eq ? eq + 1 : next;
    *used = 0;
    if (!strchr(name, '.') && !eq &&
        (common_flag(cli, name) || cli_in_list(c->flags, c->n_flags, name))) {
        if (cli_in_list(c->flags, c->n_flags, name))
            tt_cli_add(cli, &cli->options, &cli->n_options, name, "");
        return TT_OK;
    }
    const bool ours = !strchr(name, '.') && takes_value(name);
    const bool sub = cli_in_list(c->options, c->n_options, name);
    if (!strchr(name, '.') && !strchr(name, '[') && !ours && !sub)
        return unknown_option(c, name, err);
    if (!value || (!eq && !strncmp(value, "--", 2)))
        return TT_FAIL(err, TT_EINVAL, "--%s: no value%s%s", name, value ? " before " : " given",
                       value ? value : "");
    if (!eq)
        *used = 1;
    if (ours)
        return common_value(cli, name, value, err);
    if (sub)
        tt_cli_add(cli, &cli->options, &cli->n_options, name, value);
    else
        tt_cli_add(cli, &cli->overrides, &cli->n_overrides, name, value);
    return TT_OK;
}

static tt_status parse(tt_cli *cli, const tt_command *c, int argc, char **argv, tt_error *err)
{
    cli->words = tt_arena_array(cli->arena, (size_t)argc + 1, sizeof *cli->words);
    for (int i = 0; i < argc; i++) {
        int used = 0;
        if (!strcmp(argv[i], "-v")) {
            cli->verbose++;
        } else if (!strcmp(argv[i], "-q")) {
            cli->verbose--;
        } else if (!strncmp(argv[i], "--", 2) && argv[i][2]) {
            TT_TRY(long_option(cli, c, argv[i] + 2, i + 1 < argc ? argv[i + 1] : NULL, &used, err));
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return TT_FAIL(err, TT_EINVAL, "%s: unknown option; see ttrun %s --help", argv[i],
                           c->name);
        } else {
            if (cli->n_words == c->words)
                return TT_FAIL(err, TT_EINVAL, "\"%s\": too many words; usage: ttrun %s", argv[i],
                               c->usage);
            cli->words[cli->n_words++] = argv[i];
        }
        i += used;
    }
    return TT_OK;
}

/* Finds the command; the first word is a command or a job file. */
static tt_status check_first_word(const char *word, tt_error *err)
{
    const char *names[TT_COUNT(commands)];
    if (*word == '-' || strpbrk(word, "./") || tt_path_exists(word))
        return TT_OK;
    for (size_t i = 0; i < TT_COUNT(commands); i++)
        names[i] = commands[i]->name;
    const char *near = tt_nearest(word, names, TT_COUNT(names));
    return TT_FAIL(err, TT_EINVAL, "\"%s\": no such command or job file%s%s%s", word,
                   near ? " (did you mean " : "; see ttrun --help", near ? near : "",
                   near ? "?)" : "");
}

static void usage(const tt_command *c)
{
    tt_str o = {0};
    if (c) {
        tt_str_printf(&o, "usage: ttrun %s\n%s\n\n", c->usage, c->doc);
        for (size_t i = 0; i < c->n_options; i++)
            tt_str_printf(&o, "  --%s VALUE\n", c->options[i]);
        for (size_t i = 0; i < c->n_flags; i++)
            tt_str_printf(&o, "  --%s\n", c->flags[i]);
    } else {
        tt_str_add(&o, "usage: ttrun [COMMAND] [OPTION]... [JOB.json] [--section.key VALUE]...\n"
                       "Train large language models.\n\ncommands (train is the default):\n");
        for (size_t i = 0; i < TT_COUNT(commands); i++)
            tt_str_printf(&o, "  %-10s %s\n", commands[i]->name, commands[i]->doc);
    }
    tt_str_add(&o, "\noptions of every command:\n");
    for (size_t i = 0; i < TT_COUNT(common); i++) {
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", common[i].name, common[i].value ? " " : "",
                 common[i].value ? common[i].value : "");
        tt_str_printf(&o, "  %-22s %s\n", left, common[i].doc);
    }
    tt_str_add(&o, "\nNames with a dot are the job's: --training.steps 20. `ttrun config "
                   "--explain` lists them.\n");
    tt_cli_print(&o);
    tt_str_free(&o);
}

static bool wants(int argc, char **argv, const char *a, const char *b)
{
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], a) || !strcmp(argv[i], b))
            return true;
    return false;
}

int tt_cli_main(int argc, char **argv)
{
    tt_error err = {0};
    const int at = command_at(argc, argv);
    signal(SIGXFSZ, SIG_IGN); /* so a write beyond `ulimit -f` fails with EFBIG */
    tt_locale_fix();
    tt_crash_install();
    const tt_command *c = at ? find_command(argv[at]) : NULL;
    if (wants(argc - 1, argv + 1, "--version", "--version")) {
        tt_str o = {0};
        tt_str_printf(&o, "ttrun %s\n", TT_BUILD_VERSION);
        tt_cli_print(&o);
        tt_str_free(&o);
        return 0;
    }
    if (wants(argc - 1, argv + 1, "--help", "-h")) {
        usage(c);
        return 0;
    }
    if (argc == 1) {
        usage(NULL);
        return 2;
    }
    if (at) { /* remove the command's name and keep its options */
        memmove(argv + at, argv + at + 1, (size_t)(argc - at - 1) * sizeof *argv);
        argc--;
    }
    const tt_status first = c ? TT_OK : check_first_word(argv[1], &err);
    if (!c)
        c = &tt_cmd_train;
    tt_cli cli = {.arena = tt_arena_new(), .argc = argc, .argv = argv};
    tt_cli_log_setup(&cli, 0, 1);
    tt_status s = first != TT_OK ? first : parse(&cli, c, argc - 1, argv + 1, &err);
    tt_cli_log_setup(&cli, 0, 1);
    if (s == TT_OK)
        s = c->run(&cli, &err);
    if (s == TT_OK && (fflush(stdout) || ferror(stdout)))
        s = TT_FAIL(&err, TT_EIO, "cannot write to standard output: the result is incomplete");
    tt_cli_report(s, &err);
    tt_arena_free(cli.arena);
    return tt_cli_exit_status(s);
}
