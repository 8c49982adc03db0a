/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Preloaded: puts copies of other threads than the first one, of HELD_FROM bytes or more, in an order with what the first
 * thread does, without a clock. $HELD says when such a copy is made:
 *     last   when the first thread waits: for a condition, for another thread's end, or asleep. So the copy is made only
 *            when training cannot go on without it.
 *     N      when the first thread has done N things more (copied, or looked at the clock), or waits; with $HELD_SEED
 *            from none to 2 N, drawn for each copy
 *     otherwise, or without it: at once.
 * The first copy that was made because the first thread waits for a condition (the update waits so for the copies of a save) makes
 * the file $HELD_WAITED. */
enum { HELD_FROM = 1024 };

static pthread_t first;
static atomic_long done;                      /* by the first thread */
static atomic_int waits, waits_for_condition; /* does the first thread */

__attribute__((constructor)) static void remember_first(void)
{
    first = pthread_self();
}

static int is_first(void)
{
    return first && pthread_equal(first, pthread_self());
}

static long things(const char *held)
{
    static atomic_ulong copies;
    const char *seed = getenv("HELD_SEED");
    long n = strcmp(held, "last") ? atol(held) : 1L << 60;
    if (seed) {
        unsigned long x = (unsigned long)atol(seed) + atomic_fetch_add(&copies, 1);
        for (int i = 0; i < 3; i++)
            x = (x ^ x >> 29) * 0x9e3779b97f4a7c15UL;
        n = (long)(2.0 * (double)n * (double)(x >> 11) / 9007199254740992.0);
    }
    return n;
}

static void hold(void)
{
    const char *held = getenv("HELD"), *waited = getenv("HELD_WAITED");
    if (!held)
        return;
    const long until = atomic_load(&done) + things(held);
    while (atomic_load(&done) < until && !atomic_load(&waits))
        sched_yield();
    if (waited && atomic_load(&waits_for_condition))
        close(open(waited, O_WRONLY | O_CREAT, 0600));
}

void *memmove(void *to, const void *from, size_t n)
{
    volatile char *t = to;
    const volatile char *f = from;
    if (is_first())
        atomic_fetch_add(&done, 1);
    else if (first && n >= HELD_FROM)
        hold();
    for (size_t i = 0; f > t && i < n; i++)
        t[i] = f[i];
    for (size_t i = n; f < t && i > 0; i--)
        t[i - 1] = f[i - 1];
    return to;
}

void *memcpy(void *to, const void *from, size_t n)
{
    return memmove(to, from, n);
}

/* The function behind this one; of the C library's two conditions the one that the program uses. */
static void *next(const char *name)
{
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found ? found : dlsym(RTLD_NEXT, name);
}

#define WAITS(name, also, params, args)                                                            \
    int name params                                                                                \
    {                                                                                              \
        static int(*call) params;                                                                  \
        if (!call)                                                                                 \
            *(void **)&call = next(#name);                                                         \
        atomic_fetch_add(&also, is_first());                                                       \
        atomic_fetch_add(&waits, is_first());                                                      \
        const int rc = call args;                                                                  \
        atomic_fetch_sub(&waits, is_first());                                                      \
        atomic_fetch_sub(&also, is_first());                                                       \
        return rc;                                                                                 \
    }
static atomic_int other;
WAITS(pthread_cond_wait, waits_for_condition, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
WAITS(pthread_cond_timedwait, waits_for_condition,
      (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *t), (c, m, t))
WAITS(pthread_join, other, (pthread_t t, void **value), (t, value))
WAITS(nanosleep, other, (const struct timespec *t, struct timespec *rest), (t, rest))

int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*call)(clockid_t, struct timespec *);
    if (!call)
        *(void **)&call = dlsym(RTLD_NEXT, "clock_gettime");
    if (is_first())
        atomic_fetch_add(&done, 1);
    return call(id, t);
}
