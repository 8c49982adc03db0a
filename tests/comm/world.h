/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_WORLD_H
#define TT_TESTS_WORLD_H
#include "comm/dist.h"
#include "comm/own_clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A world of ranks, threads or processes, that all run one function. Failures are counted, not
 * asserted, because cmocka's asserts jump, which only the main thread may do. */

typedef struct world { /* in memory that all ranks share */
    _Atomic int n_failed, count;
    char first[300]; /* text of the first failure */
} world;
typedef void (*rank_fn)(world *w, tt_dist *d);

/* Runs fn on `n` ranks, whose calls have no limit; fails the test with the first failure. Returns what they counted. */
static int world_run(int n, rank_fn fn);

static inline void world_fail(world *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!atomic_fetch_add(&w->n_failed, 1))
        vsnprintf(w->first, sizeof w->first, fmt, ap);
    va_end(ap);
}

/* Waits until all other ranks wait for something. Rank-threads on a clock of their own know that, and it returns true.
 * Of other processes nobody knows: it waits a while, and a fault that needs them to wait may then be missed. */
static inline bool world_until_idle(void)
{
    if (own_clock.open)
        own_clock_until_idle();
    else
        usleep(50000);
    return own_clock.open;
}

static inline void world_add(_Atomic int *count)
{
    if (own_clock.open)
        own_clock_add(count);
    else
        atomic_fetch_add(count, 1);
}

static inline void world_until(_Atomic int *count, int n)
{
    if (own_clock.open)
        own_clock_until(count, n);
    while (atomic_load(count) < n)
        usleep(100);
}

static inline tt_comm *world_group(world *w, tt_dist *d, const int *ranks, int n)
{
    tt_comm *c = NULL;
    tt_error err;
    if (d->vt->group(d->self, ranks, n, tt_hash64(ranks, (size_t)n * sizeof *ranks, 0), &c, &err) !=
        TT_OK)
        world_fail(w, "group: %s", err.text);
    return c;
}

static inline int world_end(world *w)
{
    if (w->n_failed)
        fail_msg("%d failures, the first: %s", w->n_failed, w->first);
    return w->count;
}

#endif
