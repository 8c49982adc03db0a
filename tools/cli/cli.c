/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "base/exit_status.h"
#include "base/number.h"
#include "base/thread.h"
#include "interchange/install.h"
#include "launch/crash.h"
#include "launch/say.h"
#include "launch/start.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/plugin.h>

/* The command line: options without a dot belong to ttrun, options with a dot to the job. */

const tt_command *const tt_cli_commands[] = {
    &tt_cmd_train,    &tt_cmd_plan,      &tt_cmd_config,   &tt_cmd_plugins_, &tt_cmd_data,
    &tt_cmd_tokenize, &tt_cmd_tokenizer, &tt_cmd_ckpt,     &tt_cmd_generate, &tt_cmd_chat,
    &tt_cmd_serve,    &tt_cmd_eval,      &tt_cmd_report,   &tt_cmd_runs,     &tt_cmd_gc,
    &tt_cmd_top,      &tt_cmd_ctl,       &tt_cmd_complete,
};
const size_t tt_cli_n_commands = TT_COUNT(tt_cli_commands);

TT_EXPORT int tt_cli_main(int argc, char **argv, const char *commit);

const tt_command *tt_cli_find_command(const char *name)
{
    for (size_t i = 0; i < tt_cli_n_commands; i++)
        if (!strcmp(tt_cli_commands[i]->name, name))
            return tt_cli_commands[i];
    return NULL;
}

/* The options of every command, and the job's, "--section.key", which all take a value. */
static bool takes_value(const char *name)
{
    const tt_cli_row *r = tt_cli_row_of(NULL, name);
    return r ? r->value != NULL : strchr(name, '.') != NULL;
}

int tt_cli_command_at(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            return tt_cli_find_command(argv[i]) ? i : 0;
        if (!strncmp(argv[i], "--", 2) && !strchr(argv[i], '=') && takes_value(argv[i] + 2))
            i++;
    }
    return 0;
}

static tt_status take_nproc(tt_cli *cli, const char *value, tt_error *err)
{
    if (!tt_read_range(value, TT_START_MOST_RANKS, &cli->nproc, &cli->nproc_least))
        return TT_FAIL(err, TT_EINVAL, "--nproc: expected 1 to %d, or a range like 2:8, got \"%s\"",
                       TT_START_MOST_RANKS, value);
    return TT_OK;
}

static tt_status common_value(tt_cli *cli, const char *name, const char *value, tt_error *err)
{
    if (!strcmp(name, "spec")) {
        cli->spec = value;
    } else if (!strcmp(name, "plugin-dir")) {
        const char **more = tt_arena_array(cli->arena, cli->n_plugin_dirs + 1, sizeof *more);
        for (size_t i = 0; i < cli->n_plugin_dirs; i++)
            more[i] = cli->plugin_dirs[i];
        more[cli->n_plugin_dirs++] = value;
        cli->plugin_dirs = more;
    } else if (!strcmp(name, "nproc")) {
        return take_nproc(cli, value, err);
    } else if (tt_cli_row_of(NULL, name)->flags & TT_CLI_KEY) {
        tt_cli_add(cli, &cli->overrides, &cli->n_overrides, name, value);
    } else {
        cli->no_resume = !strcmp(value, "never");
        if (!cli->no_resume && strcmp(value, "auto"))
            return TT_FAIL(err, TT_EINVAL, "--resume: expected auto or never, got \"%s\"", value);
    }
    return TT_OK;
}

static void common_flag(tt_cli *cli, const char *name)
{
    if (!strcmp(name, "json"))
        cli->json = true;
    else if (!strcmp(name, "only-plugin-dirs"))
        cli->only_plugin_dirs = true;
    else if (!strcmp(name, "dry-run"))
        cli->dry_run = true;
    else if (!strcmp(name, "verbose"))
        cli->verbose++;
    else if (!strcmp(name, "quiet"))
        cli->verbose--;
}

static bool is_common(const tt_cli_row *r)
{
    return r >= tt_cli_common && r < tt_cli_common + tt_cli_n_common;
}

/* Parses one "--name[=value]"; *used: how many of the next words belong to it. */
static tt_status long_option(tt_cli *cli, const tt_command *c, const char *arg, const char *next,
                             int *used, tt_error *err)
{
    const char *eq = strchr(arg, '=');
    const char *name = eq ? tt_arena_strn(cli->arena, arg, (size_t)(eq - arg)) : arg;
    const char *value = eq ? eq + 1 : next;
    const bool of_job = name[strcspn(name, ".[")] != 0;
    const tt_cli_row *r = of_job ? NULL : tt_cli_row_of(c, name);
    if (!of_job && !r)
        r = tt_cli_row_like(c, name);
    name = r ? r->name : name;
    *used = 0;
    if (c->no_job &&
        (of_job || (r && is_common(r) && !tt_cli_has_common(c, r) && !(r->flags & TT_CLI_TAKEN))))
        return TT_FAIL(err, TT_EINVAL, "--%s: ttrun %s reads no job; leave this option out", name,
                       c->name);
    if (!of_job && !r)
        return tt_cli_unknown_option(cli, c, name, err);
    if (r && !r->value && eq)
        return TT_FAIL(err, TT_EINVAL, "--%s: takes no value, got \"%s\"", name, value);
    if (r && !r->value) {
        if (!is_common(r))
            tt_cli_add(cli, &cli->options, &cli->n_options, name, "");
        else
            common_flag(cli, name);
        return TT_OK;
    }
    if (!value || (!eq && !strncmp(value, "--", 2)))
        return TT_FAIL(err, TT_EINVAL, "--%s: no value%s%s", name, value ? " before " : " given",
                       value ? value : "");
    if (!eq)
        *used = 1;
    if (r && is_common(r))
        return common_value(cli, name, value, err);
    if (r)
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
            return tt_cli_unknown_short(c, argv[i], err);
        } else {
            if (cli->n_words == c->words)
                return tt_cli_one_word_more(cli, c, argv[i], err);
            cli->words[cli->n_words++] = argv[i];
        }
        i += used;
    }
    return TT_OK;
}

static void print_help(const tt_command *c)
{
    tt_str o = {0};
    tt_cli_help(c, &o);
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

/* commit: "": the build was not of a git checkout. */
static int print_version(const char *commit)
{
    tt_str o = {0};
    tt_str_printf(&o, "ttrun %s (%s%s%sABI %d.%d)\n", TT_BUILD_VERSION, *commit ? "commit " : "",
                  commit, *commit ? ", " : "", TT_ABI_MAJOR, TT_ABI_MINOR);
    tt_cli_print(&o);
    tt_str_free(&o);
    return 0;
}

/* `ttrun help [COMMAND]`: the same as --help. */
static int help_main(int argc, char **argv)
{
    tt_error err = {0};
    const tt_command *c = argc > 2 ? tt_cli_find_command(argv[2]) : NULL;
    if (argc > 2 && (!c || !c->doc)) {
        const tt_status s = tt_cli_no_command(argv[2], &err);
        tt_say_error(s, &err);
        return tt_exit_status(s);
    }
    print_help(c);
    return 0;
}

/* A file of the run would get the number of a standard stream that is closed, and with it the lines of the log. What takes that
 * number here fails as the stream does: stdin cannot be read, the others cannot be written. */
static void keep_stream_numbers(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int tt_cli_main(int argc, char **argv, const char *commit)
{
    tt_error err = {0};
    keep_stream_numbers();
    const int at = tt_cli_command_at(argc, argv);
    signal(SIGXFSZ, SIG_IGN); /* so a write beyond `ulimit -f` fails with EFBIG */
    tt_locale_fix();
    tt_crash_install();
    tt_interchange_install();
    const tt_command *c = at ? tt_cli_find_command(argv[at]) : NULL;
    if (c == &tt_cmd_complete)
        return tt_cli_complete_main(argc - at - 1, argv + at + 1);
    if (wants(argc - 1, argv + 1, "--version", "--version") ||
        (argc == 2 && !strcmp(argv[1], "version")))
        return print_version(commit);
    if (wants(argc - 1, argv + 1, "--help", "-h")) {
        print_help(c);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "help"))
        return help_main(argc, argv);
    if (argc == 1) {
        print_help(NULL);
        return 2;
    }
    if (at) { /* remove the command's name and keep its options */
        memmove(argv + at, argv + at + 1, (size_t)(argc - at - 1) * sizeof *argv);
        argc--;
    }
    const tt_status first = c ? TT_OK : tt_cli_check_first_word(argv[1], &err);
    if (!c)
        c = &tt_cmd_train;
    tt_cli cli = {.arena = tt_arena_new(), .argc = argc, .argv = argv};
    tt_say_from(cli.verbose, 0, 1);
    tt_status s = first != TT_OK ? first : parse(&cli, c, argc - 1, argv + 1, &err);
    tt_say_from(cli.verbose, 0, 1);
    double patience;
    if (s == TT_OK)
        s = tt_patience_read(&patience, &err);
    if (s == TT_OK && cli.nproc_least && c != &tt_cmd_train)
        s = TT_FAIL(&err, TT_EINVAL, "--nproc %d:%d: only train takes a range; give one number",
                    cli.nproc_least, cli.nproc);
    if (s == TT_OK)
        s = c->run(&cli, &err);
    if (s == TT_OK && (fflush(stdout) || ferror(stdout)))
        s = TT_FAIL(&err, TT_EIO, "cannot write to standard output: the result is incomplete");
    tt_say_error(s, &err);
    tt_arena_free(cli.arena);
    return tt_exit_status(s);
}
