/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Preloaded (make test-stall): a thread stands still for $STALL_MS (700) at one of $STALL_EVERY (4000) looks at the
 * clock, $STALL_MOST (8) times per process. A busy machine meets such a moment rarely, and this program at once: a test whose
 * verdict depends on how fast a thread goes on fails under it. Where threads stand still is drawn from $STALL, the name
 * of the program and the number of the thread. */

static atomic_ulong n_threads, n_forks;
static atomic_long n_left = -1;
static unsigned long seed, every;
static long stall_ns;
static _Thread_local uint64_t state;

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && atol(text) > 0 ? atol(text) : otherwise;
}

/* Ranks that are forked stand still elsewhere than each other. */
static void fork_in_parent(void)
{
    atomic_fetch_add(&n_forks, 1);
}

static void fork_in_child(void)
{
    seed += 1000003 * (1 + atomic_load(&n_forks));
    state = 0;
}

static void begin(void)
{
    seed = (unsigned long)(number("STALL", 1) + 7919 * number("RANK", 0) +
                           7919 * number("OMPI_COMM_WORLD_RANK", 0));
    for (const char *p = program_invocation_short_name; *p; p++)
        seed = seed * 131 + (unsigned char)*p;
    every = (unsigned long)number("STALL_EVERY", 4000);
    stall_ns = 1000000 * number("STALL_MS", 700);
    atomic_store(&n_left, number("STALL_MOST", 8));
    pthread_atfork(NULL, fork_in_parent, fork_in_child);
}

static uint64_t draw(void)
{
    if (!state)
        state = (seed + 1) * 0x9e3779b97f4a7c15u +
                atomic_fetch_add(&n_threads, 1) * 0xbf58476d1ce4e5b9u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*_Atomic next)(clockid_t, struct timespec *);
    int (*now)(clockid_t, struct timespec *) = atomic_load(&next);
    if (!now) {
        *(void **)&now = dlsym(RTLD_NEXT, "clock_gettime");
        begin();
        atomic_store(&next, now);
    }
    if (draw() % every == 0 && atomic_fetch_sub(&n_left, 1) > 0) {
        const struct timespec t = {stall_ns / 1000000000, stall_ns % 1000000000};
        syscall(SYS_nanosleep, &t, NULL);
    }
    return now(clock, out);
}
