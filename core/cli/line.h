/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_LINE_H
#define TT_CLI_LINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The line between `ttrun --nproc` and each of its ranks: a socket of the abstract namespace that a
 * rank opens as soon as it runs and keeps until it ends. The launcher sends signal numbers. They
 * are remembered, so a rank that comes late reads them as well; a signal sent through mpirun would
 * be lost before mpirun and the ranks have set their handlers. */

/* What a rank sends, besides the number of a second signal, which ends it at once. */
#define TT_LINE_SPOKE 'e' /* it has printed why it ends */
#define TT_LINE_DONE 'd'  /* it has finished its part of the run */

/* ---- the launcher's side ---- */
typedef struct tt_line {
    int listener;
    int *ranks; /* sockets; -1: this rank has ended */
    size_t n, n_open, capacity;
    size_t n_done;
    bool spoke; /* any rank */
    int second; /* the signal that a rank was sent as a second one; 0: none was */
    int stop;   /* signals that a rank is sent when it comes; 0: none */
    bool save;
    char name[33];
} tt_line;

/* False: no such socket can be made here; every other call then does nothing. */
bool tt_line_open(tt_line *l);
void tt_line_close(tt_line *l);
/* Until a rank comes, says something or ends, fd can be read, or `ms` are over. Takes all that has
 * come. */
void tt_line_wait(tt_line *l, int fd, int ms);
/* To every rank, now or when it comes. SIGKILL: to end at once; another: as if it had been sent. */
void tt_line_tell(tt_line *l, int sig);

/* ---- a rank's side ---- */
/* For the ranks that are started with this environment. */
void tt_line_environment(const tt_line *l);
void tt_line_connect(void);  /* does nothing where the environment names no launcher */
bool tt_line_is_there(void); /* this process has a launcher of ours */
int tt_line_heard(void);     /* a signal number, or 0. [any-thread] */
void tt_line_say(char what); /* [any-thread, in signal handlers as well] */

#endif
