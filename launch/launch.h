/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_LAUNCH_H
#define TT_LAUNCH_LAUNCH_H
#include "base/exit_status.h"
#include "launch/start.h"
#include <signal.h>

/* --nproc N: starts N processes of this program with the same command line, with mpirun or without.
 * This process waits for them, passes signals on and exits with their status. One SIGTERM, SIGINT
 * or SIGHUP to it or to mpirun reaches every rank, even one that starts later (line.h); a second
 * one, later than TT_STOP_TWICE_NS, kills them. */

#define TT_SUPERVISOR_VARIABLE "TTRUN_SUPERVISOR"
#define TT_COPIES_VARIABLE "TTRUN_COPIES"

typedef struct tt_launch_opts {
    int n;                 /* number of ranks */
    bool mpirun;           /* mpirun starts them */
    bool threads;          /* they are threads of one process */
    double init_timeout_s; /* the time limit for the first rank to start */
    const char
        *supervisor; /* what ranks read in TT_SUPERVISOR_VARIABLE; NULL: a failure ends the run */
    const char *const *words; /* added to their command line */
    int n_words;
    const int *copies; /* descriptors that the ranks inherit, one of each rank; NULL: none */
    const int *before; /* of copies of another mesh, that they inherit too */
    int n_before;
    /* Of a supervisor's ranks: a step is done, or the run goes on from there. */
    void (*stepped)(void *user, int64_t step);
    void *user;
    /* With ranks on other machines; NULL: all are here. */
    const struct tt_machines *nodes;
    /* The ranks have to end, without a text; asked after each wait. */
    bool (*must_end)(void *nodes);
    /* The ranks have to save and stop, since the supervisor wants to start them anew; asked after each wait, with
     * `user`. It is no stop signal. */
    bool (*must_leave)(void *user);
    int *stopped; /* set to the first stop signal, or 0; may be NULL */
    bool *died;   /* set to whether a process was ended by a signal; may be NULL */
} tt_launch_opts;

/* Signals are blocked from open to close and read from a descriptor, so none is missed. */
typedef struct tt_launch_signals {
    int fd;
    sigset_t before;
} tt_launch_signals;
tt_status tt_launch_signals_open(tt_launch_signals *s, tt_error *err);
void tt_launch_signals_close(tt_launch_signals *s);
int tt_launch_signals_next(
    const tt_launch_signals *s); /* one that was received, but SIGCHLD; or 0 */

bool tt_launch_has_mpirun(void);
/* Returns the status of the ranks. If they have printed their error themselves, err has no text. A
 * supervisor's ranks leave that to it. */
tt_status tt_launch_ranks(const tt_start_opts *start, const tt_launch_opts *o,
                          const tt_launch_signals *signals, tt_error *err);
/* Whether a supervisor starts ranks again that ended so: a failure while running (exit status 1). */
static inline bool tt_launch_restarts(tt_status s)
{
    return s != TT_OK && tt_exit_status(s) == 1;
}

#endif
