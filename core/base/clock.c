/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t tt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double tt_wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tt_wall_iso(double wall, char out[32])
{
    double ms = floor(wall * 1e3 + 0.5); /* round first, so that .9996 s carries into the seconds */
    time_t seconds = (time_t)floor(ms / 1e3);
    int rest = (int)(ms - (double)seconds * 1e3);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%.19s.%03dZ", date, rest);
}

/* ---- waits: clock.h ---- */

static _Atomic(const tt_clock *) own_clock; /* NULL: the system's */

static const tt_clock *own(void)
{
    return atomic_load_explicit(&own_clock, memory_order_relaxed);
}

void tt_clock_set(const tt_clock *c)
{
    atomic_store(&own_clock, c);
}

int64_t tt_clock_now(void)
{
    const tt_clock *c = own();
    return c ? c->now() : tt_now_ns();
}

int64_t tt_clock_deadline(double limit_s)
{
    return limit_s > 0 ? tt_clock_now() + (int64_t)(TT_MIN(limit_s, 1e9) * 1e9) : 0;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

bool tt_clock_wait_word(_Atomic uint32_t *word, uint32_t seen, int64_t until)
{
    const tt_clock *c = own();
    if (c)
        return c->wait(word, word, seen, NULL, until);
    const struct timespec ts = timespec_of(until);
    /* WAIT_BITSET, unlike WAIT, takes the deadline itself, on CLOCK_MONOTONIC. */
    const long rc = syscall(SYS_futex, (void *)word, FUTEX_WAIT_BITSET_PRIVATE, seen,
                            until ? &ts : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
    return !(rc == -1 && errno == ETIMEDOUT);
}

void tt_clock_wake_word(_Atomic uint32_t *word)
{
    const tt_clock *c = own();
    if (c)
        c->wake(word);
    else
        syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void tt_clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
}

bool tt_clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *held, int64_t until)
{
    const tt_clock *c = own();
    const struct timespec ts = timespec_of(until);
    if (c)
        return c->wait(cond, NULL, 0, held, until);
    return (until ? pthread_cond_timedwait(cond, held, &ts) : pthread_cond_wait(cond, held)) !=
           ETIMEDOUT;
}

void tt_clock_wake_cond(pthread_cond_t *cond)
{
    const tt_clock *c = own();
    if (c)
        c->wake(cond);
    else
        pthread_cond_broadcast(cond);
}

static void count_member(int more)
{
    const tt_clock *c = own();
    if (c)
        c->member(more);
}

void tt_clock_member_begins(void)
{
    count_member(1);
}

void tt_clock_member_ends(void)
{
    count_member(-1);
}
