/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "pool.h"
#include "base/spin.h"
#include "internal.h"
#include "thread.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
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
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* The worker's slice of this job: the last one if it has begun, else a new one; NULL: no room. The
 * slices are read after the job, hence after the worker's last piece was counted. */
static tt_pool_slice *slice_of(const job *j, int thread)
{
    tt_pool_slices *w = &j->trace->workers[thread - 1];
    if (w->n && w->items[w->n - 1].job == j->trace->jobs)
        return &w->items[w->n - 1];
    if (w->n == w->cap) {
        w->dropped++;
        return NULL;
    }
    w->items[w->n] = (tt_pool_slice){tt_now_ns(), 0, j->trace->jobs, j->trace->tag, 0};
    return &w->items[w->n++];
}

/* Runs pieces until none is left; returns whether this thread finished the job's last piece. */
static bool work(tt_pool *p, int thread)
{
    int64_t finished = 0, n_pieces = 0;
    for (;;) {
        if (atomic_load_explicit(&p->tickets, memory_order_relaxed) <= 0)
            break;
        int64_t ticket = atomic_fetch_sub_explicit(&p->tickets, 1, memory_order_acquire);
        if (ticket <= 0)
            break;
        const job *j = &p->job;
        n_pieces = j->n_pieces;
        int64_t begin = (n_pieces - ticket) * j->grain;
        tt_pool_slice *slice = j->trace && thread ? slice_of(j, thread) : NULL;
        j->fn(j->arg, begin, j->n - begin > j->grain ? begin + j->grain : j->n, thread);
        finished++;
        if (slice) {
            slice->end_ns = tt_now_ns();
            slice->pieces++;
        }
        /* Count each piece at once: a ticket taken between two jobs may be one of the next job. */
        if (atomic_fetch_add(&p->done, 1) + 1 == n_pieces)
            return true;
    }
    return false;
}

/* Spins until ready(p), for the pool's spinning time at most; returns whether it became true. */
static bool spin(const tt_pool *p, bool (*ready)(const tt_pool *))
{
    int64_t until = 0;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (ready(p))
                return true;
            tt_spin_relax();
        }
        if (p->spin_ns == 0) { /* more threads than cores: let the others run */
            for (int i = 0; i < 4; i++) {
                sched_yield();
                if (ready(p))
                    return true;
            }
            return false;
        }
        int64_t now = tt_now_ns();
        if (!until)
            until = now + p->spin_ns;
        else if (now > until)
            return false;
    }
}

static bool work_ready(const tt_pool *p)
{
    return atomic_load_explicit(&p->tickets, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&p->stop, memory_order_relaxed);
}

static bool all_done(const tt_pool *p)
{
    return atomic_load(&p->done) == p->job.n_pieces;
}

/* The pool that this thread is a worker of; NULL: of none. */
static _Thread_local const tt_pool *worker_of;

const void *tt_pool_caller(void)
{
    return worker_of ? worker_of->job.caller : NULL;
}

static void *worker_main(void *arg)
{
    const worker *w = arg;
    tt_pool *p = w->pool;
    worker_of = p;
    tt_log_set_thread_rank(p->log_rank);
    while (!atomic_load(&p->stop)) {
        if (work(p, w->index) && atomic_exchange(&p->caller_sleeps, 0))
            futex_wake(&p->caller_sleeps, 1);
        if (spin(p, work_ready))
            continue;
        /* First count this worker as sleeping, then look for work again. The caller publishes work,
         * then reads n_sleeping. So at least one of the two sees the other. */
        uint32_t epoch = atomic_load(&p->epoch);
        atomic_fetch_add(&p->n_sleeping, 1);
        if (atomic_load(&p->tickets) <= 0 && !atomic_load(&p->stop))
            futex_wait(&p->epoch, epoch);
        atomic_fetch_sub(&p->n_sleeping, 1);
    }
    return NULL;
}

static void publish(tt_pool *p, int64_t tickets)
{
    atomic_store(&p->tickets, tickets);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_sleeping) > 0)
        futex_wake(&p->epoch, (int)TT_MIN(tickets, (int64_t)p->n_threads - 1));
}

static void wait_done(tt_pool *p)
{
    while (!spin(p, all_done)) {
        atomic_store(&p->caller_sleeps, 1);
        if (!all_done(p))
            futex_wait(&p->caller_sleeps, 1);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void tt_parallel_for(tt_pool *p, int64_t n, int64_t grain, tt_range_fn fn, void *arg)
{
    if (n <= 0)
        return;
    grain = TT_MAXV(grain, (int64_t)1);
    int64_t n_pieces = (n - 1) / grain + 1;
    if (!p || p->n_threads == 1 || n_pieces == 1) {
        for (int64_t i = 0, begin = 0; i < n_pieces; i++, begin += grain)
            fn(arg, begin, n - begin > grain ? begin + grain : n, 0);
        return;
    }
    TT_ASSERT(!p->busy);
    p->busy = true;
    p->job = (job){fn, arg, n, grain, n_pieces, __builtin_return_address(0), p->trace};
    if (p->trace)
        p->trace->jobs++;
    atomic_store(&p->done, 0);
    publish(p, n_pieces);
    if (!work(p, 0))
        wait_done(p);
    p->busy = false;
}

void tt_pool_trace(tt_pool *p, tt_pool_tracer *t)
{
    p->trace = t;
}

int tt_pool_threads(const tt_pool *p)
{
    return p ? p->n_threads : 1;
}

static int start_workers(tt_pool *p)
{
    int rc = 0;
    for (int i = 0; i < p->n_threads - 1 && rc == 0; i++) {
        worker *w = &p->workers[i];
        *w = (worker){.pool = p, .index = i + 1};
        rc = tt_thread_start(&w->thread, worker_main, w);
        if (rc == 0) {
            pthread_setname_np(w->thread, "ttrun-pool");
            p->n_started++;
        }
    }
    return rc;
}

tt_status tt_pool_new(int n_threads, tt_pool **out, tt_error *err)
{
    if (n_threads < 1 || n_threads > 4096)
        return TT_FAIL(err, TT_EINVAL, "thread pool: %d threads asked for; use 1 to 4096",
                       n_threads);
    tt_pool *p = aligned_alloc(CACHE_LINE, sizeof *p);
    if (!p)
        tt_out_of_memory(sizeof *p, "tt_pool_new");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->log_rank = tt_log_thread_rank();
    p->spin_ns = tt_cpu_count() >= n_threads ? 30000 : 0;
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers)
        tt_out_of_memory((size_t)n_threads * sizeof *p->workers, "tt_pool_new");
    int rc = start_workers(p);
    if (rc) {
        int started = p->n_started;
        tt_pool_free(p);
        return TT_FAIL(err, TT_ENOMEM,
                       "thread pool: only %d of %d threads could be started (error %d); lower "
                       "backend.threads or raise the limit on processes",
                       started + 1, n_threads, rc);
    }
    *out = p;
    return TT_OK;
}

void tt_pool_free(tt_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, p->n_threads);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
}
