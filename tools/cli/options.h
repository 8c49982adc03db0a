/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_OPTIONS_H
#define TT_CLI_OPTIONS_H
#include "base/base.h"

/* The options of the command line as tables: one for all commands, one per command. The parser, the
 * help text, the usage lines, docs/ttrun.1 and the shells' completion are made from them. */

/* What completion offers for a value. */
typedef enum tt_cli_takes {
    TT_TAKES_TEXT, /* the words of `value` in lower case ("auto|never"); else nothing */
    TT_TAKES_FILE,
    TT_TAKES_FOLDER,
    TT_TAKES_HARDWARE, /* a machine's name, or a file */
    TT_TAKES_SPEC,
    TT_TAKES_WORDS, /* one of `words` */
} tt_cli_takes;

#define TT_CLI_REQUIRED 1u
#define TT_CLI_REPEATED 2u /* may be given more than once */
#define TT_CLI_KEY 4u      /* common: a key of the job that is in no section, spelt as there */
#define TT_CLI_ANY 8u      /* common: also of commands that read no job */
#define TT_CLI_TAKEN 16u   /* common: such commands take it too, though it means nothing to them */

typedef struct tt_cli_row {
    const char *name;     /* without the dashes */
    const char *value;    /* what the value is called: "N", "auto|never"; NULL: a flag */
    const char *doc;      /* one line, no full stop */
    const char *fallback; /* the default, in words; NULL = none to tell */
    tt_cli_takes takes;
    const char *words; /* TT_TAKES_WORDS: "gpt2|llama3" */
    const char *verb;  /* the option belongs to this first word of the command; NULL = to all */
    unsigned flags;
} tt_cli_row;

/* TT_CLI_VALUE("top-p", "P", "1", doc, further designators); TT_CLI_FLAG("lines", doc, …). */
#define TT_CLI_VALUE(name_, value_, fallback_, ...)                                                \
    {                                                                                              \
        .name = name_, .value = value_, .fallback = fallback_, .doc = __VA_ARGS__                  \
    }
#define TT_CLI_FLAG(name_, ...)                                                                    \
    {                                                                                              \
        .name = name_, .doc = __VA_ARGS__                                                          \
    }

extern const tt_cli_row tt_cli_common[]; /* the options of every command */
extern const size_t tt_cli_n_common;

struct tt_command;
/* The row of an option, of the command's or of the common ones; NULL = there is none. */
const tt_cli_row *tt_cli_row_of(const struct tt_command *c, const char *name);

/* The same where "-" and "_" are one letter, and nproc_per_node, as torchrun spells it, is nproc. */
const tt_cli_row *tt_cli_row_like(const struct tt_command *c, const char *name);
/* Whether a common option means anything for the command. NULL: train. */
bool tt_cli_has_common(const struct tt_command *c, const tt_cli_row *r);

/* help.c: "usage: …", with every option; the options with meaning and default. NULL: of ttrun. */
void tt_cli_help(const struct tt_command *c, tt_str *out);
/* The usage on a short line, for errors: "usage: ttrun data build JOB.json [OPTION]...; see ttrun data --help".
 * verb: the first word, if it is one of the command's; only its form is given. Owner: the arena. */
const char *tt_cli_usage(tt_arena *a, const struct tt_command *c, const char *verb);
void tt_cli_man_synopsis(tt_str *out); /* the parts of docs/ttrun.1 that the tables make */
void tt_cli_man_options(tt_str *out);

extern const struct tt_command *const tt_cli_commands[]; /* cli.c */
extern const size_t tt_cli_n_commands;

#endif
