/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SESSION_H
#define TT_SESSION_H
#include "base/base.h"
#include <stdatomic.h>

/* A session: the rank processes of one run on one machine. They share memory and notice when one
 * of them dies. They find each other through a socket of the abstract namespace, over which they
 * pass a memfd: nothing has a name in a file system, so nothing is left behind however they end.
 *
 * When one rank fails, all ranks fail. `stop` ends every wait of every rank; the *first failure*
 * records which rank failed first and prints the error, so that the user reads one line. A rank
 * whose process dies silently is noticed through its socket, within milliseconds. */

/* What the launcher (mpirun, srun, torchrun, mpiexec or ttrun) says about this process in its
 * environment variables. */
typedef struct tt_launch {
    int rank, world;             /* world 1: no launcher, or a launcher of one process */
    int local_rank, local_world; /* among the ranks of this machine */
    const char *launcher;        /* its name; NULL: no launcher */
    char key[33];                /* equal on all ranks of this start, different for other starts */
} tt_launch;

typedef struct tt_session tt_session;

typedef struct tt_session_opts {
    const tt_launch *launch;
    double timeout_s;  /* how long the ranks of this machine may take to arrive */
    int (*stop)(void); /* the stop signal that was received, or 0; may be NULL */
    /* Called once, by a thread of the session, when the run was stopped some seconds ago and this
     * rank's own thread has not noticed (it computes, or hangs). It must end the process. */
    void (*overdue)(tt_session *s);
    /* Called by a thread of the session as soon as the process of a rank has died, on the rank that
     * prints it. A launcher may end this process within a second, before its main thread notices.
     * NULL: the first failure has the text. */
    void (*lost)(const char *text);
} tt_session_opts;

/* [collective among the ranks of this machine] */
tt_status tt_session_open(const tt_session_opts *o, tt_session **out, tt_error *err);
/* Leaves the session. After a failure (ok false) it waits a little for the other ranks to leave
 * too, so that no launcher kills a rank that is still writing. */
void tt_session_close(tt_session *s, bool ok);
/* The time limit of this rank's waits that begin after this. */
void tt_session_set_timeout(tt_session *s, double timeout_s);
double tt_session_timeout(const tt_session *s);
/* The deadline of a wait that begins now, on the clock of tt_now_ns(); 0 = none. */
int64_t tt_session_deadline(const tt_session *s);

/* ---- failure ---- */
/* Stops the run; only the text of the first call is kept. */
void tt_session_stop(tt_session *s, const char *why);
/* The same, because a wait of this rank has timed out. */
void tt_session_timed_out(tt_session *s, const char *why);
/* TT_OK while the run goes on. After a stop, the text of the stop with TT_ECOMM, or with
 * TT_ETIMEOUT if a wait of this rank stopped the run: all threads of that rank get that status. */
tt_status tt_session_stopped(tt_session *s, tt_error *err);
/* Offers this rank's failure as the first failure; the first offer is taken. A rank's own failure
 * is offered at once; a failure that follows from another rank's (own false) first waits for that
 * rank's offer. True: this rank prints the error. With own true, this function and
 * tt_session_stop() may be called in a signal handler. */
bool tt_session_claim(tt_session *s, tt_status status, const char *text, bool own);
/* The first failure, once there is one: its status, and its text if this rank prints it, else "".
 */
tt_status tt_session_first_failure(tt_session *s, tt_error *err);
/* Called by a thread of the session when the process of a rank has died; it may add to the text. NULL: no longer,
 * and it does not run when this returns. */
void tt_session_on_lost(tt_session *s, void (*fn)(void *arg, tt_error *why), void *arg);
/* Records what this rank does now, for the error line in case it is lost. [any-thread] */
typedef enum tt_doing {
    TT_DOING_ALL_GATHER,
    TT_DOING_REDUCE_SCATTER,
    TT_DOING_ALL_REDUCE,
    TT_DOING_ALL_TO_ALL,
    TT_DOING_BARRIER,
    TT_DOING_SEND,
    TT_DOING_RECEIVE,
    TT_DOING_END
} tt_doing;
const char *tt_doing_name(tt_doing d);
void tt_session_doing(tt_session *s, tt_doing d, uint64_t number);
/* Every rank calls it once with its own status. TT_OK: no rank of this machine failed. If this is
 * the lowest rank that failed, its own status; else TT_ECOMM. [collective among them] */
tt_status tt_session_agree(tt_session *s, tt_status mine, tt_error *err);

/* ---- shared memory, addressed by offset, since each process maps it at another address ---- */
uint64_t tt_session_alloc(tt_session *s, uint64_t bytes); /* zeroed, 64-aligned; 0: it is full */
void *tt_session_at(const tt_session *s, uint64_t offset);
_Atomic uint64_t *tt_session_root(tt_session *s); /* the caller's: offset of its first object */
tt_status tt_session_lock(tt_session *s, tt_error *err);
void tt_session_unlock(tt_session *s);
_Atomic uint64_t *tt_session_log(tt_session *s); /* the call log's offset; 0: there is none */
int tt_session_first_rank(const tt_session *s);  /* the world rank of this machine's local rank 0 */

/* ---- waiting on a word of shared memory ---- */
typedef struct tt_word { /* only one rank writes it */
    _Atomic uint32_t value;
    _Atomic int32_t n_sleeping;
} tt_word;
void tt_word_set(tt_word *w, uint32_t value); /* wakes the ranks that sleep on it */
/* Waits until the word has reached `want` (32-bit order, wraps) or tt_now_ns() has passed
 * `until_ns` (0 = no limit). soon: the rank that will set the word is working towards that now.
 * TT_OK, TT_ECOMM (the run was stopped) or TT_ETIMEOUT; no error text is written. */
tt_status tt_session_await(tt_session *s, tt_word *w, uint32_t want, bool soon, int64_t until_ns);

#endif
