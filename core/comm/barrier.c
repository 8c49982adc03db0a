/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/pool.h"
#include "comm/threads_impl.h"
#include <sched.h>

/* A barrier that spins briefly and then sleeps on a futex. The last member to arrive starts the
 * next generation with a compare-and-swap that fails once the abort bit is set. So either all
 * members pass an opening barrier or none does, and a member that gave up may free its buffers. */

#define ABORTED 1u
#define SPIN_NS 20000

void tt_barrier_init(tt_barrier *b, int n, bool crowded)
{
    atomic_init(&b->word, 0);
    atomic_init(&b->arrived, 0);
    atomic_init(&b->n_sleeping, 0);
    b->n = n;
    b->crowded = crowded;
    tt_spin_init(&b->spin, SPIN_NS);
}

static void wake(tt_barrier *b)
{
    if (atomic_load(&b->n_sleeping) > 0)
        tt_clock_wake_word(&b->word);
}

typedef struct change {
    tt_barrier *b;
    uint32_t seen;
} change;

static bool has_changed(void *arg)
{
    const change *c = arg;
    return atomic_load_explicit(&c->b->word, memory_order_acquire) != c->seen;
}

/* Spins for a short time until word differs from `seen`. Opening and closing barriers adapt their
 * spin times separately. */
static bool spin(tt_barrier *b, uint32_t seen, bool opening)
{
    change c = {b, seen};
    if (!b->crowded)
        return tt_spin_until(&b->spin, opening, SPIN_NS, SPIN_NS, has_changed, &c);
    bool met = false;
    sched_yield();
    for (int i = 0; !met && i < TT_SPIN_LOOKS; i++) {
        met = has_changed(&c);
        if (!met)
            tt_spin_relax();
    }
    return met;
}

/* until: the deadline, 0 = none. Returns false when the deadline has passed. */
static bool sleep_while(tt_barrier *b, uint32_t seen, int64_t until)
{
    /* Counted before the wait compares the word: a thread that changes the word later sees that
     * somebody sleeps and wakes it. */
    tt_pool_lend();
    atomic_fetch_add(&b->n_sleeping, 1);
    const bool in_time = tt_clock_wait_word(&b->word, seen, until);
    atomic_fetch_sub(&b->n_sleeping, 1);
    tt_pool_take_back();
    return in_time;
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

tt_barrier_result tt_barrier_wait(tt_barrier *b, bool opening, int64_t until)
{
    uint32_t now = atomic_load(&b->word);
    const uint32_t generation = now & ~ABORTED;
    if (opening && now != generation)
        return TT_BARRIER_ABORTED;
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->n)
        open_next(b, generation, opening);
    for (;;) {
        now = atomic_load(&b->word);
        if ((now & ~ABORTED) != generation)
            return TT_BARRIER_PASSED;
        if (opening && now != generation)
            return TT_BARRIER_ABORTED;
        if (spin(b, now, opening) || sleep_while(b, now, opening ? until : 0))
            continue;
        /* The deadline has passed: abort the barrier for all members, unless it opened just now. */
        now = generation;
        if (atomic_compare_exchange_strong(&b->word, &now, generation | ABORTED)) {
            wake(b);
            return TT_BARRIER_TIMEOUT;
        }
    }
}
