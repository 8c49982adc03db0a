/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

/* Preloaded: every thread but the first waits 10 ms, or $SLOW_US, before it copies SLOW_FROM bytes or more; with
 * $SLOW_SEED from nothing to twice as long, another time before each copy. So a save's copies of the states go on while
 * the first thread runs a whole step, and end anywhere in it. */
enum { SLOW_FROM = 1024 };

static pthread_t first;

static void wait_before_copy(void)
{
    static atomic_ulong copies;
    const char *us = getenv("SLOW_US"), *seed = getenv("SLOW_SEED");
    long ns = us ? atol(us) * 1000 : 10000000;
    if (seed) {
        unsigned long x = (unsigned long)atol(seed) + atomic_fetch_add(&copies, 1);
        for (int i = 0; i < 3; i++)
            x = (x ^ x >> 29) * 0x9e3779b97f4a7c15UL;
        ns = (long)(2.0 * (double)ns * (double)(x >> 11) / 9007199254740992.0);
    }
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

__attribute__((constructor)) static void remember_first(void)
{
    first = pthread_self();
}

void *memmove(void *to, const void *from, size_t n)
{
    volatile char *t = to;
    const volatile char *f = from;
    if (n >= SLOW_FROM && first && !pthread_equal(first, pthread_self()))
        wait_before_copy();
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
