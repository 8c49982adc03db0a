/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/spin.h"
#include "internal.h"
#include "pool_impl.h"
#include "thread.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

bool tt_pool_work(tt_pool *p, int thread, int64_t most)
{
    for (; most > 0; most--) {
        if (atomic_load_explicit(&p->tickets, memory_order_relaxed) <= 0)
            break;
        int64_t ticket = atomic_fetch_sub_explicit(&p->tickets, 1, memory_order_acquire);
        if (ticket <= 0)
            break;
        const job *j = &p->job;
        const int64_t n_pieces = j->n_pieces;
        int64_t begin = (n_pieces - ticket) * j->grain;
        tt_pool_slice *slice = j->trace && thread ? slice_of(j, thread) : NULL;
        j->fn(j->arg, begin, j->n - begin > j->grain ? begin + j->grain : j->n, thread);
        if (slice) {
            slice->end_ns = tt_now_ns();
            slice->pieces++;
        }
        /* Count each piece at once: a ticket taken between two jobs may be one of the next job. */
        if (atomic_fetch_add(&p->done, 1) + 1 == n_pieces) {
            if (thread && atomic_exchange(&p->caller_sleeps, 0))
                tt_futex_wake(&p->caller_sleeps, 1);
            return true;
        }
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

void tt_pool_be_worker(const tt_pool *p)
{
    worker_of = p;
    if (p)
        tt_log_set_thread_rank(p->log_rank);
}

const void *tt_pool_caller(void)
{
    return worker_of ? worker_of->job.caller : NULL;
}

static void *worker_main(void *arg)
{
    const worker *w = arg;
    tt_pool *p = w->pool;
    tt_pool_be_worker(p);
    while (!atomic_load(&p->stop)) {
        tt_pool_work(p, w->index, INT64_MAX);
        if (spin(p, work_ready))
            continue;
        /* First count this worker as sleeping, then look for work again. The caller publishes work,
         * then reads n_sleeping. So at least one of the two sees the other. */
        uint32_t epoch = atomic_load(&p->epoch);
        atomic_fetch_add(&p->n_sleeping, 1);
        if (atomic_load(&p->tickets) <= 0 && !atomic_load(&p->stop))
            tt_futex_wait(&p->epoch, epoch);
        atomic_fetch_sub(&p->n_sleeping, 1);
    }
    return NULL;
}

static void publish(tt_pool *p, int64_t tickets)
{
    atomic_store(&p->tickets, tickets);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_sleeping) > 0)
        tt_futex_wake(&p->epoch, (int)TT_MIN(tickets, (int64_t)p->n_threads - 1));
    if (p->lending)
        tt_lending_publish(p->lending);
}

static void wait_done(tt_pool *p)
{
    while (!spin(p, all_done)) {
        atomic_store(&p->caller_sleeps, 1);
        if (!all_done(p))
            tt_futex_wait(&p->caller_sleeps, 1);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void tt_parallel_for(tt_pool *p, int64_t n, int64_t grain, tt_range_fn fn, void *arg)
{
    if (n <= 0)
        return;
    grain = TT_MAXV(grain, (int64_t)1);
    int64_t n_pieces = (n - 1) / grain + 1;
    if (tt_pool_threads(p) == 1 || n_pieces == 1) {
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
    if (!tt_pool_work(p, 0, INT64_MAX))
        wait_done(p);
    p->busy = false;
}

void tt_pool_trace(tt_pool *p, tt_pool_tracer *t)
{
    p->trace = t;
}

int tt_pool_threads(const tt_pool *p)
{
    return p ? p->n_threads + p->n_helpers : 1;
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

tt_status tt_pool_start(tt_pool *p, int n_threads, tt_error *err)
{
    p->n_threads = n_threads;
    p->log_rank = tt_log_thread_rank();
    p->spin_ns = tt_cpu_count() >= n_threads ? TT_POOL_SPIN_NS : 0;
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers)
        tt_out_of_memory((size_t)n_threads * sizeof *p->workers, "tt_pool_start");
    const int rc = start_workers(p);
    if (rc)
        return TT_FAIL(err, TT_ENOMEM,
                       "thread pool: only %d of %d threads could be started (error %d); lower "
                       "backend.threads or raise the limit on processes",
                       p->n_started + 1, n_threads, rc);
    return TT_OK;
}

void tt_pool_stop(tt_pool *p)
{
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    tt_futex_wake(&p->epoch, p->n_threads);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    p->workers = NULL;
}

tt_status tt_pool_new(int n_threads, tt_pool **out, tt_error *err)
{
    if (n_threads < 1 || n_threads > TT_POOL_MOST)
        return TT_FAIL(err, TT_EINVAL, "thread pool: %d threads asked for; use 1 to %d", n_threads,
                       TT_POOL_MOST);
    tt_pool *p = aligned_alloc(CACHE_LINE, sizeof *p);
    if (!p)
        tt_out_of_memory(sizeof *p, "tt_pool_new");
    memset(p, 0, sizeof *p);
    const tt_status s = tt_pool_start(p, n_threads, err);
    if (s != TT_OK)
        tt_pool_free(p);
    else
        *out = p;
    return s;
}

void tt_pool_free(tt_pool *p)
{
    if (!p)
        return;
    tt_pool_stop(p);
    if (p->lending)
        tt_lending_leave(p);
    else
        free(p);
}
