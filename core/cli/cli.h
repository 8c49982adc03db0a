/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_H
#define TT_CLI_H
#include "config/config.h"
#include "plugin/registry.h"
#include "train/train.h"

/* core/cli: main and the subcommands. Only this folder prints to stdout and sets the process's exit
 * status. */

/* The parsed command line of a subcommand. */
typedef struct tt_cli {
    const char *const *plugin_dirs; /* --plugin-dir, in order */
    size_t n_plugin_dirs;
    bool json;        /* --json: one object on stdout */
    const char *spec; /* --spec, or NULL */
    int verbose;      /* -v adds 1, -q subtracts 1 */
    /* the job */
    const char *job_of_ranks; /* what the ranks that are started read instead; NULL: the same */
    const char *job;          /* JOB.json, or NULL */
    tt_override *overrides;
    size_t n_overrides;
    int nproc; /* --nproc, 0 = not given */
    bool dry_run, no_resume;
    /* the subcommand's own options: --KEY VALUE, without a dot in KEY */
    tt_override *options;
    size_t n_options;
    /* further words */
    char **words;
    int n_words;
    tt_arena *arena;
    /* the command line without the command's name, to pass on to ranks */
    int argc;
    char **argv;
} tt_cli;

/* The value of an option of the subcommand itself; NULL = not given. */
const char *tt_cli_option(const tt_cli *cli, const char *name);
/* Adds an override of the job, as if it were given on the command line. */
void tt_cli_override(tt_cli *cli, const char *key, const char *value);
/* Adds an entry to one of the lists (overrides or options). */
void tt_cli_add(tt_cli *cli, tt_override **list, size_t *n, const char *key, const char *value);
/* Fails if an option is unknown to the subcommand; the error names the nearest one. flags: the
 * options without a value. */
tt_status tt_cli_check_options(const tt_cli *cli, const char *const *known, size_t n,
                               tt_error *err);
tt_status tt_cli_registry(const tt_cli *cli, tt_registry **out, tt_error *err);
tt_setup_opts tt_cli_training(const tt_cli *cli); /* for a run with these options */
/* Makes job, registry and setup of the subcommand; the caller frees the registry. */
tt_status tt_cli_setup(const tt_cli *cli, const tt_setup_opts *o, tt_registry **r, tt_setup *out,
                       tt_error *err);
/* A job that comes through a pipe can be read only once. Its text is kept for everyone who reads
 * the job again under the same name; ranks that are started read it under cli->job_of_ranks. */
tt_status tt_cli_hold_job(tt_cli *cli, tt_error *err);
void tt_cli_print(const tt_str *text); /* to stdout */
/* Prints the line of an error and clears its text, so that it is printed once. Does nothing if the
 * text is empty. */
void tt_cli_report(tt_status s, tt_error *err);
int tt_cli_exit_status(tt_status s);
void tt_cli_log_setup(const tt_cli *cli, int rank, int world);

#define TT_CLI_MOST_RANKS 4096 /* that one ttrun starts */

typedef tt_status (*tt_cmd_fn)(tt_cli *cli, tt_error *err);
typedef struct tt_command {
    const char *name, *usage, *doc;
    const char *const *options; /* --KEY that take a value */
    size_t n_options;
    const char *const *flags; /* --KEY that take none */
    size_t n_flags;
    tt_cmd_fn run;
    int words; /* how many words may follow the subcommand; the first may be a job */
} tt_command;
extern const tt_command tt_cmd_train, tt_cmd_config, tt_cmd_plan, tt_cmd_plugins_, tt_cmd_generate,
    tt_cmd_ckpt, tt_cmd_tokenize, tt_cmd_eval, tt_cmd_tokenizer, tt_cmd_report, tt_cmd_top,
    tt_cmd_data;

/* ttrun plugins [list | check FILE.so | new KIND NAME]; argv[0] is the first word after "plugins".
 */
tt_status tt_cmd_plugins(const tt_cli *cli, int argc, char **argv, tt_error *err);

#endif
