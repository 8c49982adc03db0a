/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SESSION_H
#define TT_SESSION_H
#include "comm/launch.h"
#include <stdatomic.h>

/* The ranks of one run on one machine, each a process: memory they share, and the knowledge of each
 * other's end. They meet at a socket of the abstract namespace and hand on a memfd, so that nothing
 * has a name in any file system: however they end, nothing stays behind.
 *
 * One rank's failure is everyone's. `stop` ends every wait of every rank; the *verdict* says which
 * failure was the first and which rank tells the user of it, so that one line is printed. A rank
 * whose process ends without a word is noticed by its socket, within milliseconds. */

typedef struct tt_session tt_session;

typedef struct tt_session_opts {
    const tt_launch *launch;
    double timeout_s;  /* for all ranks of this machine to come */
    int (*stop)(void); /* a signal that asks to give up, or 0; may be NULL */
    /* The run was stopped some seconds ago and this rank's own thread has not noticed (it computes,
     * or hangs): must end the process. Called by a thread of the session, once. */
    void (*overdue)(tt_session *s);
} tt_session_opts;

/* [collective among the ranks of this machine] */
tt_status tt_session_open(const tt_session_opts *o, tt_session **out, tt_error *err);
/* Says goodbye; after a failure (ok false) it waits a little for the others to get as far, so that
 * no launcher kills one that is still at work. */
void tt_session_close(tt_session *s, bool ok);
/* Limits of waits from now on, for who waits. */
void tt_session_set_timeout(tt_session *s, double timeout_s);
double tt_session_timeout(const tt_session *s);
/* In tt_now_ns, of a wait that begins now; 0 = none. */
int64_t tt_session_deadline(const tt_session *s);

/* ---- failure ---- */
void tt_session_stop(tt_session *s, const char *why);      /* the first one's words stay */
void tt_session_timed_out(tt_session *s, const char *why); /* the same of a wait of this rank */
/* TT_OK, or with these words TT_ECOMM; TT_ETIMEOUT where a wait of this rank stopped it, which
 * another of its threads then has as its own failure too. */
tt_status tt_session_stopped(tt_session *s, tt_error *err);
/* This rank's failure, for the verdict: the first claim wins. An own failure claims at once; one
 * that follows from another's (own false) lets that come first. True: this rank is to tell. An own
 * claim and tt_session_stop may be made in a signal handler. */
bool tt_session_claim(tt_session *s, tt_status status, const char *text, bool own);
/* The verdict, once there is one: its status, and its text where this rank is to tell, else "". */
tt_status tt_session_verdict(tt_session *s, tt_error *err);
/* What this rank does now, for the line that tells of its loss. [any-thread] */
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
/* The lowest rank of this machine that failed decides: every rank calls it once with its own.
 * TT_OK: none failed. Own failure: own status; else TT_ECOMM. [collective among them] */
tt_status tt_session_agree(tt_session *s, tt_status mine, tt_error *err);

/* ---- shared memory; offsets, for each process maps it elsewhere ---- */
uint64_t tt_session_alloc(tt_session *s, uint64_t bytes); /* zeroed, 64-aligned; 0: none left */
void *tt_session_at(const tt_session *s, uint64_t offset);
_Atomic uint64_t *tt_session_root(tt_session *s); /* of what the caller keeps there */
tt_status tt_session_lock(tt_session *s, tt_error *err);
void tt_session_unlock(tt_session *s);
int tt_session_first_rank(const tt_session *s); /* the world's rank of this machine's first */

/* ---- waiting on a word of shared memory ---- */
typedef struct tt_word { /* changes by its one writer */
    _Atomic uint32_t value;
    _Atomic int32_t n_sleeping;
} tt_word;
void tt_word_set(tt_word *w, uint32_t value); /* and wake who sleeps on it */
/* Until the word has come to `want` (32-bit order, wraps) or `until_ns` of tt_now_ns is over (0 =
 * no limit). soon: who sets it is at work on nothing else. TT_OK, TT_ECOMM: stopped, TT_ETIMEOUT;
 * without a text. */
tt_status tt_session_await(tt_session *s, tt_word *w, uint32_t want, bool soon, int64_t until_ns);

#endif
