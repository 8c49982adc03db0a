/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_H
#define TT_CLI_H
#include "cli/options.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "train/train.h"

/* tools/cli: main and the subcommands. Only this folder prints to stdout and sets the process's exit
 * status. */

/* The parsed command line of a subcommand. */
typedef struct tt_cli {
    const char *const *plugin_dirs; /* --plugin-dir, in order */
    size_t n_plugin_dirs;
    bool only_plugin_dirs; /* --only-plugin-dirs */
    bool json;             /* --json: one object on stdout */
    const char *spec;      /* --spec, or NULL */
    int verbose;           /* -v adds 1, -q subtracts 1 */
    /* the job */
    const char *job; /* JOB.json, or NULL */
    tt_override *overrides;
    size_t n_overrides;
    int nproc;       /* --nproc, 0 = not given; of MIN:MAX, MAX */
    int nproc_least; /* of --nproc MIN:MAX, MIN; 0: it is no range */
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
tt_status tt_cli_registry(const tt_cli *cli, tt_registry **out, tt_error *err);
tt_registry_opts tt_cli_plugins(const tt_cli *cli);
tt_setup_opts tt_cli_training(const tt_cli *cli); /* for a run with these options */
/* Makes job, registry and setup of the subcommand; the caller frees the registry. */
tt_status tt_cli_setup(const tt_cli *cli, const tt_setup_opts *o, tt_registry **r, tt_setup *out,
                       tt_error *err);
/* A job that comes through a pipe can be read only once. Its text is kept for everyone who reads
 * the job again under the same name; *of_ranks: what ranks that are started read. */
tt_status tt_cli_hold_job(tt_cli *cli, const char **of_ranks, tt_error *err);
/* Sets cli->job to the word with this number; NULL: it is absent, and --model.hf is given. */
tt_status tt_cli_take_job(tt_cli *cli, int word, const struct tt_command *c, tt_error *err);
/* Prints lines to stdout; control characters, which may come from files, are shown. */
void tt_cli_print(const tt_str *text);
void tt_cli_print_exact(const tt_str *text); /* as it is */

typedef tt_status (*tt_cmd_fn)(tt_cli *cli, tt_error *err);
typedef struct tt_command {
    const char *name;
    const char *forms;      /* the words that may follow the name, one form per line */
    const char *doc;        /* a line for --help; NULL: a command that help does not list */
    const tt_cli_row *rows; /* its own options */
    size_t n_rows;
    tt_cmd_fn run;
    int words;   /* how many words may follow the subcommand; the first may be a job */
    bool no_job; /* it reads none, so the options for a job mean nothing */
} tt_command;
extern const tt_command tt_cmd_train, tt_cmd_config, tt_cmd_plan, tt_cmd_plugins_, tt_cmd_generate,
    tt_cmd_chat, tt_cmd_serve, tt_cmd_ckpt, tt_cmd_tokenize, tt_cmd_eval, tt_cmd_tokenizer,
    tt_cmd_report, tt_cmd_data, tt_cmd_runs, tt_cmd_gc, tt_cmd_top, tt_cmd_ctl, tt_cmd_complete;

const tt_command *tt_cli_find_command(const char *name); /* NULL = there is none */
/* The index of the command, which may follow options ("ttrun --plugin-dir plugins plan job.json");
 * 0 = there is none, which means train. */
int tt_cli_command_at(int argc, char **argv);
/* suggest.c: errors for unknown words; each names what is nearest. */
tt_status tt_cli_unknown_option(tt_cli *cli, const tt_command *c, const char *name, tt_error *err);
tt_status tt_cli_unknown_short(const tt_command *c, const char *word, tt_error *err);
/* The first word, which is not a command, must be able to be a job file. */
tt_status tt_cli_check_first_word(const char *word, tt_error *err);
tt_status tt_cli_no_command(const char *word, tt_error *err);
/* A word more than the command takes. */
tt_status tt_cli_one_word_more(const tt_cli *cli, const tt_command *c, const char *word,
                               tt_error *err);
/* The words do not fit any form of the command. */
tt_status tt_cli_wrong_words(const tt_cli *cli, const tt_command *c, tt_error *err);
/* complete.c: the words after `ttrun complete`; returns the exit status. */
int tt_cli_complete_main(int argc, char **argv);

/* ttrun plugins [list | check FILE.so | new KIND NAME]; argv[0] is the first word after "plugins".
 */
tt_status tt_cmd_plugins(const tt_cli *cli, int argc, char **argv, tt_error *err);

#endif
