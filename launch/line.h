/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_LINE_H
#define TT_LAUNCH_LINE_H
#include "base/base.h"

/* The line: the connection between `ttrun --nproc` and each of its ranks. It is a socket of the
 * abstract namespace that a rank opens as soon as it runs and keeps until it ends. The launcher
 * sends signal numbers. It keeps them for ranks that connect later, while a signal sent through
 * mpirun would be lost before mpirun and the ranks have set their handlers. A supervisor (supervise.h)
 * is also told why a rank ends, in place of the user, and which steps are done. */

/* The bytes that a rank sends; it also sends the number of a second signal, which ends it at once.
 */
#define TT_LINE_SPOKE 'e' /* it has printed its error */
#define TT_LINE_DONE 'd'  /* it has finished its part of the run */

/* What the first rank that failed says about it. */
typedef struct tt_line_failure {
    int rank;
    tt_status code; /* TT_ECOMM: it follows from another one; TT_OK: no rank has said anything */
    char text[sizeof((tt_error *)0)->text];
} tt_line_failure;

/* ---- the launcher's side ---- */
typedef struct tt_line {
    int listener;
    int *ranks; /* sockets; -1: this rank has ended */
    size_t n, n_open, capacity;
    size_t n_done;
    bool spoke; /* some rank has printed an error */
    int second; /* the second stop signal that a rank received; 0: none */
    int stop;   /* the stop signal that a rank is sent when it connects; 0: none */
    bool save;
    tt_line_failure failure;
    int64_t step; /* that rank 0 has done; -1: it has not said that the run goes on yet */
    char name[33];
} tt_line;

/* False: the socket cannot be made; then all other calls do nothing. */
bool tt_line_open(tt_line *l);
void tt_line_close(tt_line *l);
/* Waits until a rank connects, sends something or ends, until fd can be read, or for `ms`
 * milliseconds. Handles all that has arrived. */
void tt_line_wait(tt_line *l, int fd, int ms);
/* Sends a signal number to every rank, now or when it connects. SIGKILL: the rank ends at once; it
 * handles any other number as that signal. */
void tt_line_tell(tt_line *l, int sig);

/* ---- a rank's side ---- */
/* Sets the environment variable by which the ranks find the launcher. */
void tt_line_environment(const tt_line *l);
void tt_line_connect(int rank); /* does nothing if the environment names no launcher */
bool tt_line_is_there(void);    /* this process is connected to `ttrun --nproc` */
int tt_line_heard(void);        /* the signal number that was received, or 0. [any-thread] */
void tt_line_say(char what);    /* [any-thread, also in signal handlers] */
/* For the ranks of a supervisor, which tells the user. failure: false if it could not be told; the rank
 * then does so itself. step: `step` is done, or the run goes on from there. [any-thread; failure also in
 * signal handlers] */
void tt_line_is_supervisors(void); /* its other end is a supervisor; before tt_line_connect() */
bool tt_line_say_failure(tt_status code, const char *text);
void tt_line_say_step(int64_t step);

#endif
