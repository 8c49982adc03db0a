/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_POOL_IMPL_H
#define TT_POOL_IMPL_H
#include "base/pool.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How a job reaches the workers without locks. The caller fills `job`, then stores the number of
 * pieces in `tickets` (release). A thread takes a piece with fetch_sub (acquire) and reads `job`
 * only if its ticket is positive. Until that piece is counted in `done`, the caller cannot return,
 * hence it cannot rewrite `job`. A worker that comes late only makes `tickets` negative, and the
 * next job overwrites it. So the caller never waits for a worker that sleeps. */

typedef struct job {
    tt_range_fn fn;
    void *arg;
    int64_t n, grain, n_pieces;
    const void *caller;    /* the address in the code that called tt_parallel_for */
    tt_pool_tracer *trace; /* NULL: not traced */
} job;

typedef struct worker {
    tt_pool *pool;
    pthread_t thread;
    int index;
} worker;

#define CACHE_LINE 64
struct tt_pool {
    _Alignas(CACHE_LINE) _Atomic int64_t tickets; /* pieces not yet taken */
    _Alignas(CACHE_LINE) _Atomic int64_t done;    /* pieces finished */
    _Alignas(CACHE_LINE) _Atomic uint32_t epoch;  /* counts jobs; idle workers sleep on it */
    _Atomic uint32_t n_sleeping;
    _Atomic uint32_t caller_sleeps; /* 1 while the caller sleeps on this word */
    _Atomic bool stop;
    _Alignas(CACHE_LINE) job job;
    bool busy; /* a job runs; only the caller uses it, to detect reentrance */
    int n_threads, n_started;
    int log_rank;
    int64_t spin_ns;
    worker *workers;
    tt_pool_tracer *trace;
    tt_lending *lending; /* its helpers work on this pool's pieces, too; NULL: none do */
    int n_helpers;       /* they are the threads n_threads, n_threads + 1, … */
};

#define TT_POOL_SPIN_NS 30000

static inline void tt_futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void tt_futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Runs pieces of p's job, at most `most`, as its thread number `thread`. Returns whether this thread finished the
 * job's last piece; a thread other than the caller, 0, has woken the caller then. */
bool tt_pool_work(tt_pool *p, int thread, int64_t most);
/* The calling thread is a worker of p from now on, for what its faults and its log lines say; NULL: of no pool. */
void tt_pool_be_worker(const tt_pool *p);
/* p: zeros, but for `lending` and `n_helpers`. If it fails, tt_pool_stop ends what was started. */
tt_status tt_pool_start(tt_pool *p, int n_threads, tt_error *err);
void tt_pool_stop(tt_pool *p); /* joins the workers */
/* pool_lend.c */
void tt_lending_publish(tt_lending *l); /* a pool has a new job */
void tt_lending_leave(tt_pool *p);      /* p is freed with the others */

#endif
