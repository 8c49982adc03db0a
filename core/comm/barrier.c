/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "comm/threads_impl.h"
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A barrier that spins briefly, then sleeps on a futex. The last member to arrive opens the next
 * generation, by a compare-and-swap that fails once the abort bit is set: either all members get
 * past an opening barrier or none does, so a member that gave up may free its buffers. */

#define ABORTED 1u
#define SPIN_NS 20000
#define LEAST_SPIN_NS 500
#define PROBE 64

void tt_barrier_init(tt_barrier *b, int n, bool crowded)
{
    atomic_init(&b->word, 0);
    atomic_init(&b->arrived, 0);
    atomic_init(&b->n_sleeping, 0);
    b->n = n;
    b->crowded = crowded;
    atomic_init(&b->n_waits, 0);
    for (int i = 0; i < 2; i++)
        atomic_init(&b->spin_ns[i], SPIN_NS);
}

static void wake(tt_barrier *b)
{
    if (atomic_load(&b->n_sleeping) > 0)
        syscall(SYS_futex, (void *)&b->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Until word is no longer `seen`, for a short while: shorter after it was in vain (others want the
 * core, or the members arrive far apart), longer again after it was not, and now and then in full,
 * to find out. Opening and closing waits have each their own measure. */
static bool spin(tt_barrier *b, uint32_t seen, bool opening)
{
    _Atomic int64_t *measure = &b->spin_ns[opening];
    int64_t most = atomic_load_explicit(measure, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&b->n_waits, 1, memory_order_relaxed) % PROBE == 0)
        most = SPIN_NS;
    const int64_t until = tt_now_ns() + most;
    bool met = false;
    if (b->crowded)
        sched_yield();
    do {
        for (int i = 0; !met && i < 32; i++) {
            met = atomic_load_explicit(&b->word, memory_order_acquire) != seen;
            if (!met)
                relax();
        }
    } while (!met && !b->crowded && tt_now_ns() < until);
    most = met ? TT_MIN(2 * most, (int64_t)SPIN_NS) : TT_MAXV(most / 2, (int64_t)LEAST_SPIN_NS);
    if (met || most < atomic_load_explicit(measure, memory_order_relaxed))
        atomic_store_explicit(measure, most, memory_order_relaxed);
    return met;
}

/* until: 0 = for ever. False: the time is over. */
static bool sleep_while(tt_barrier *b, uint32_t seen, int64_t until)
{
    struct timespec ts, *limit = NULL;
    if (until) {
        const int64_t left = until - tt_now_ns();
        if (left <= 0)
            return false;
        ts = (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
        limit = &ts;
    }
    /* Announced before the kernel compares the word: who changes it after that sees a sleeper. */
    atomic_fetch_add(&b->n_sleeping, 1);
    syscall(SYS_futex, (void *)&b->word, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
    atomic_fetch_sub(&b->n_sleeping, 1);
    return true;
}

void tt_barrier_abort(tt_barrier *b)
{
    atomic_fetch_or(&b->word, ABORTED);
    wake(b);
}

static void open_next(tt_barrier *b, uint32_t word, bool opening)
{
    atomic_store(&b->arrived, 0);
    if (opening)
        atomic_compare_exchange_strong(&b->word, &word, word + 2);
    else
        atomic_fetch_add(&b->word, 2); /* keeps the abort bit */
    wake(b);
}

tt_met tt_barrier_meet(tt_barrier *b, bool opening, int64_t limit_ns)
{
    const int64_t until = limit_ns > 0 ? tt_now_ns() + limit_ns : 0;
    uint32_t now = atomic_load(&b->word);
    const uint32_t generation = now & ~ABORTED;
    if (opening && now != generation)
        return TT_MET_ABORTED;
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->n)
        open_next(b, generation, opening);
    for (;;) {
        now = atomic_load(&b->word);
        if ((now & ~ABORTED) != generation)
            return TT_MET;
        if (opening && now != generation)
            return TT_MET_ABORTED;
        if (spin(b, now, opening) || sleep_while(b, now, opening ? until : 0))
            continue;
        /* Too late: close the barrier to all, unless it opened just now. */
        now = generation;
        if (atomic_compare_exchange_strong(&b->word, &now, generation | ABORTED)) {
            wake(b);
            return TT_MET_TIMEOUT;
        }
    }
}
