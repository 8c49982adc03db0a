/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Preloaded: a process gets $FEW threads and child processes, as under a low `ulimit -u`; with
 * $FEW_RANK only that rank. */
static _Atomic int made;

static int allowed(void)
{
    const char *few = getenv("FEW"), *one = getenv("FEW_RANK"), *rank = getenv("TTRUN_RANK");
    if (one && (!rank || strcmp(one, rank)))
        return 1;
    return !few || atomic_fetch_add(&made, 1) < atoi(few);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return allowed() ? next(out, attr, fn, arg) : EAGAIN;
}

pid_t fork(void)
{
    static pid_t (*next)(void);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fork");
    if (allowed())
        return next();
    errno = EAGAIN;
    return -1;
}
