/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CTL_H
#define TT_CTL_H
#include "base/base.h"
#include <ttrun/option.h>

/* `ttrun ctl RUN_DIR COMMAND`: how a running job takes commands. Rank 0 listens on a UNIX socket in
 * the run's folder, in a thread of its own (ctl.c). The thread answers `status` itself, from numbers
 * that the loop leaves there after each step. It queues the other commands. The loop takes one of
 * them at the end of a step, tells all ranks (command.c), and answers when it is done.
 *
 * A connection carries one command: a line of text to the server, then the answer until the server
 * closes: a tt_status in decimal, a blank, and a text. */

#define TT_CTL_SOCKET ".ctl"
#define TT_CTL_MOST_BYTES ((size_t)256 << 10) /* of a command */

typedef enum tt_ctl_kind {
    TT_CTL_NONE,
    TT_CTL_STATUS,
    TT_CTL_STOP,
    /* those that the loop takes at the end of a step; the numbers are exchanged between ranks */
    TT_CTL_SAVE,
    TT_CTL_VALIDATE,
    TT_CTL_LR,
    TT_CTL_LOG,
    TT_CTL_PROFILE,
    TT_CTL_SET,
    TT_CTL_RELOAD,
    TT_CTL_N_KINDS
} tt_ctl_kind;

/* Whether the command makes another program (swap.c). */
static inline bool tt_ctl_swaps(tt_ctl_kind k)
{
    return k == TT_CTL_SET || k == TT_CTL_RELOAD;
}

typedef enum tt_ctl_rate { TT_CTL_RATE_SET, TT_CTL_RATE_TIMES, TT_CTL_RATE_OF_JOB } tt_ctl_rate;

typedef struct tt_ctl_command {
    tt_ctl_kind kind;
    uint64_t number;    /* its own in this run, of one that tt_ctl_take gave */
    bool json;          /* STATUS */
    tt_ctl_rate rate;   /* LR */
    double value;       /* LR: the learning rate, or the factor */
    tt_log_level level; /* LOG */
    const char *list;   /* SET: the converters or "job"; RELOAD: a converter's name; in the line */
} tt_ctl_command;

/* ctl_command.c, for both ends */
typedef struct tt_ctl_form {
    tt_ctl_kind kind;
    const char *name, *argument; /* argument NULL: none */
    const char *doc;             /* one line */
} tt_ctl_form;
extern const tt_ctl_form tt_ctl_forms[];
extern const size_t tt_ctl_n_forms;
/* Reads a command's line, "lr x0.5". */
tt_status tt_ctl_parse(const char *line, tt_ctl_command *out, tt_error *err);
/* The address of the socket in a folder, however long its path is: then *folder_fd is the folder,
 * which the caller closes after bind or connect; else it is -1. False: the folder cannot be opened, see
 * errno. */
struct sockaddr_un;
bool tt_ctl_address(const char *folder, struct sockaddr_un *out, int *folder_fd);
/* Whether the other end of a connection is a process of this user. */
bool tt_ctl_same_user(int fd);

/* ---- the server ---- */

typedef struct tt_ctl tt_ctl;

/* What `status` tells. NaN: not known. */
typedef struct tt_ctl_numbers {
    int64_t step, steps; /* the newest step whose numbers are known; of the job */
    int64_t epoch, tokens_seen;
    double loss, loss_max, norm, lr, lr_base, tps, tps_global, seconds_left;
} tt_ctl_numbers;

typedef struct tt_ctl_opts {
    const char *folder;     /* the run's, locked by this process */
    const char *converters; /* a JSON list */
    int world;
} tt_ctl_opts;

/* NULL: the folder takes no sockets, and a line of the log says so. */
tt_ctl *tt_ctl_open(const tt_ctl_opts *o);
/* Answers every command that waits: a stop with `status` TT_OK if the run was stopped. why: how the run
 * ended. remove: the socket, too. NULL is allowed. */
void tt_ctl_close(tt_ctl *c, tt_status status, const char *why, bool remove);
/* For the loop: none of these waits for the thread's work, or allocates memory. */
void tt_ctl_show(tt_ctl *c, const tt_ctl_numbers *n);
void tt_ctl_set_state(tt_ctl *c, const char *state); /* "training", "validating": a constant text */
void tt_ctl_set_converters(tt_ctl *c, const char *converters); /* a JSON list */
bool tt_ctl_stops(const tt_ctl *c); /* whether somebody asked for a stop */
/* The oldest command that waits; false: none does. saves, sets: also TT_CTL_SAVE; TT_CTL_SET and
 * TT_CTL_RELOAD. The text of these two stays until the command is answered. */
bool tt_ctl_take(tt_ctl *c, bool saves, bool sets, tt_ctl_command *out);
/* Answers all commands of this kind that were taken: one save, or one validation, is for all that asked for it. */
void tt_ctl_answer(tt_ctl *c, tt_ctl_kind kind, tt_status s, const char *fmt, ...) TT_PRINTF(4, 5);
/* Answers the command with this number. */
void tt_ctl_answer_one(tt_ctl *c, uint64_t number, tt_status s, const char *fmt, ...)
    TT_PRINTF(4, 5);

/* ctl_status.c */
void tt_ctl_print_status(const tt_ctl_opts *o, const tt_ctl_numbers *n, const char *state,
                         bool json, tt_str *out);

#endif
