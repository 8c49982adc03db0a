/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <time.h>

/* Preloaded: every thread but the first waits 10 ms before it copies SLOW_FROM bytes or more. So a
 * save's copies of the states go on while the first thread runs a whole step. */
enum { SLOW_FROM = 1024 };

static pthread_t first;

__attribute__((constructor)) static void remember_first(void)
{
    first = pthread_self();
}

void *memmove(void *to, const void *from, size_t n)
{
    volatile char *t = to;
    const volatile char *f = from;
    if (n >= SLOW_FROM && first && !pthread_equal(first, pthread_self()))
        nanosleep(&(struct timespec){0, 10000000}, NULL);
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
