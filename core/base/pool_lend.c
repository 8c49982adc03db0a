/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/spin.h"
#include "internal.h"
#include "pool_impl.h"
#include "thread.h"
#include <stdlib.h>
#include <string.h>

/* Ranks as threads of one process lend their cores to one another (R12). A rank that waits for the others counts its
 * threads in `lent`. Helpers are threads beside those of the pools; of n helpers as many are at work as cores are
 * lent, and they take pieces of the jobs of any pool, one at a time, so that a rank that goes on has its core back
 * after a piece. Which thread computes a piece changes no result. */

typedef struct helper {
    struct tt_lending *lending;
    pthread_t thread;
    int index;
} helper;

struct tt_lending {
    _Alignas(CACHE_LINE) _Atomic int32_t lent; /* threads of the ranks that wait */
    _Atomic uint32_t lent_word; /* counts loans; helpers that are not needed sleep on it */
    _Atomic uint32_t work_word; /* counts wake-ups; helpers that find no piece sleep on it */
    _Atomic int32_t n_idle;     /* helpers that sleep on work_word, or are about to */
    _Atomic bool stop;
    _Alignas(CACHE_LINE) int n_ranks, n_threads, n_helpers, n_started;
    int spare; /* threads of the pools beyond the cores: so many may wait, and all cores are still used */
    _Atomic int n_begun, n_open; /* pools */
    helper *helpers;
    tt_pool *pools; /* [n_ranks]; zeros until they begin */
};

/* The pool of the rank that this thread is. */
static _Thread_local tt_pool *own_pool;

int tt_lending_helpers(int n_ranks, int n_threads)
{
    const int64_t all = (int64_t)n_ranks * n_threads, cores = tt_cpu_count();
    return n_ranks > 1 ? (int)TT_MAXV(TT_MIN(all, cores) - n_threads, 0) : 0;
}

/* ---- a helper ---- */

static bool is_needed(const helper *h)
{
    return atomic_load(&h->lending->lent) - h->lending->spare > h->index;
}

static bool has_work(const tt_lending *l)
{
    for (int i = 0; i < l->n_ranks; i++)
        if (atomic_load(&l->pools[i].tickets) > 0)
            return true;
    return atomic_load(&l->stop);
}

/* One piece of each pool that has some. */
static void help(const helper *h)
{
    tt_lending *l = h->lending;
    for (int i = 0; i < l->n_ranks; i++) {
        tt_pool *p = &l->pools[i];
        if (atomic_load(&p->tickets) <= 0) /* orders what the rank has set before its first job */
            continue;
        tt_pool_be_worker(p);
        tt_pool_work(p, p->n_threads + h->index, 1);
        tt_pool_be_worker(NULL);
    }
}

static bool spin_for_work(const helper *h)
{
    const int64_t until = tt_now_ns() + TT_POOL_SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (has_work(h->lending) || !is_needed(h))
                return true;
            tt_spin_relax();
        }
    } while (tt_now_ns() < until);
    return false;
}

/* First this helper is counted, then it looks for work again; a pool publishes its job, then looks for idle helpers.
 * So at least one of the two sees the other. Loans and the end are told in the same way. */
static void sleep_for_work(const helper *h)
{
    tt_lending *l = h->lending;
    const uint32_t seen = atomic_load(&l->work_word);
    atomic_fetch_add(&l->n_idle, 1);
    if (!has_work(l) && is_needed(h))
        tt_futex_wait(&l->work_word, seen);
    atomic_fetch_sub(&l->n_idle, 1);
}

static void *helper_main(void *arg)
{
    const helper *h = arg;
    tt_lending *l = h->lending;
    while (!atomic_load(&l->stop)) {
        const uint32_t seen = atomic_load(&l->lent_word);
        if (!is_needed(h)) {
            tt_futex_wait(&l->lent_word, seen);
            continue;
        }
        help(h);
        if (!has_work(l) && !spin_for_work(h))
            sleep_for_work(h);
    }
    return NULL;
}

void tt_lending_publish(tt_lending *l)
{
    if (atomic_load(&l->n_idle) == 0)
        return;
    atomic_fetch_add(&l->work_word, 1);
    tt_futex_wake(&l->work_word, l->n_helpers);
}

/* ---- the ranks ---- */

void tt_pool_lend(void)
{
    const tt_pool *p = own_pool;
    if (!p)
        return;
    tt_lending *l = p->lending;
    if (atomic_fetch_add(&l->lent, p->n_threads) + p->n_threads <= l->spare)
        return;
    atomic_fetch_add(&l->lent_word, 1);
    tt_futex_wake(&l->lent_word, l->n_helpers);
}

void tt_pool_take_back(void)
{
    const tt_pool *p = own_pool;
    if (p)
        atomic_fetch_sub(&p->lending->lent, p->n_threads);
}

/* ---- life ---- */

static void end_helpers(tt_lending *l)
{
    atomic_store(&l->stop, true);
    atomic_fetch_add(&l->lent_word, 1);
    atomic_fetch_add(&l->work_word, 1);
    tt_futex_wake(&l->lent_word, l->n_helpers);
    tt_futex_wake(&l->work_word, l->n_helpers);
    for (int i = 0; i < l->n_started; i++)
        pthread_join(l->helpers[i].thread, NULL);
    l->n_started = 0;
}

static void *of_lines(size_t n)
{
    const size_t bytes = (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    void *p = aligned_alloc(CACHE_LINE, bytes);
    if (!p)
        tt_out_of_memory(bytes, "tt_lending_new");
    return memset(p, 0, bytes);
}

tt_status tt_lending_new(int n_ranks, int n_threads, tt_lending **out, tt_error *err)
{
    const int n_helpers = tt_lending_helpers(n_ranks, n_threads);
    *out = NULL;
    if (!n_helpers)
        return TT_OK;
    tt_lending *l = of_lines(sizeof *l);
    l->n_ranks = n_ranks;
    l->n_threads = n_threads;
    l->n_helpers = n_helpers;
    l->spare = TT_MAXV(n_ranks * n_threads - tt_cpu_count(), 0);
    l->pools = of_lines((size_t)n_ranks * sizeof *l->pools);
    l->helpers = of_lines((size_t)n_helpers * sizeof *l->helpers);
    for (int i = 0; i < n_helpers; i++) {
        l->helpers[i] = (helper){.lending = l, .index = i};
        const int rc = tt_thread_start(&l->helpers[i].thread, helper_main, &l->helpers[i]);
        if (rc) {
            tt_lending_free(l);
            return TT_FAIL(
                err, TT_ENOMEM,
                "only %d of %d helper threads could be started (error %d): raise the limit on "
                "processes (ulimit -u)",
                i, n_helpers, rc);
        }
        pthread_setname_np(l->helpers[i].thread, "ttrun-help");
        l->n_started++;
    }
    *out = l;
    return TT_OK;
}

void tt_lending_free(tt_lending *l)
{
    if (!l)
        return;
    end_helpers(l);
    if (atomic_load(&l->n_open))
        return; /* a rank that could not end uses its pool until the process ends */
    free(l->helpers);
    free(l->pools);
    free(l);
}

tt_status tt_lending_pool(tt_lending *l, tt_pool **out, tt_error *err)
{
    const int i = atomic_fetch_add(&l->n_begun, 1);
    TT_ASSERT(i < l->n_ranks);
    tt_pool *p = &l->pools[i];
    p->lending = l;
    p->n_helpers = l->n_helpers;
    atomic_fetch_add(&l->n_open, 1);
    const tt_status s = tt_pool_start(p, l->n_threads, err);
    if (s != TT_OK)
        tt_pool_free(p);
    else
        *out = own_pool = p;
    return s;
}

void tt_lending_leave(tt_pool *p)
{
    if (own_pool == p)
        own_pool = NULL;
    atomic_fetch_sub(&p->lending->n_open, 1);
}
