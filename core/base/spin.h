/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_SPIN_H
#define TT_BASE_SPIN_H
#include "base/base.h"
#include <stdatomic.h>

/* Spinning: busy-waiting for another thread or process for a short time before sleeping. */

static inline void tt_spin_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* How long spinning has paid off recently, for two kinds of waits. */
typedef struct tt_spin {
    _Atomic int64_t ns[2]; /* the spinning time of each kind */
    _Atomic uint32_t n_waits;
} tt_spin;

static inline void tt_spin_init(tt_spin *s, int64_t ns)
{
    atomic_init(&s->n_waits, 0);
    for (int i = 0; i < 2; i++)
        atomic_init(&s->ns[i], ns);
}

#define TT_SPIN_LOOKS 32      /* calls of met() per reading of the clock */
#define TT_SPIN_LEAST_NS 500  /* lower bound of a kind's spinning time */
#define TT_SPIN_PROBE_EACH 64 /* every 64th wait spins for `longest`, to measure anew */

/* Spins until met(arg) is true, but no longer than the spinning time of kind `sort` (at times
 * `longest`). Success doubles that time, up to `limit`; a wait in vain halves it, for then other
 * threads need the core or the partner comes much later. Returns whether met(arg) was true.
 * [any-thread] */
static inline bool tt_spin_until(tt_spin *s, int sort, int64_t limit, int64_t longest,
                                 bool (*met)(void *arg), void *arg)
{
    _Atomic int64_t *measure = &s->ns[sort];
    int64_t most = atomic_load_explicit(measure, memory_order_relaxed);
    const uint32_t n = atomic_fetch_add_explicit(&s->n_waits, 1, memory_order_relaxed);
    if (n % TT_SPIN_PROBE_EACH == 0)
        most = longest;
    const int64_t until = tt_now_ns() + most;
    bool done = false;
    do {
        for (int i = 0; !done && i < TT_SPIN_LOOKS; i++) {
            done = met(arg);
            if (!done)
                tt_spin_relax();
        }
    } while (!done && tt_now_ns() < until);
    most = done ? TT_MIN(2 * most, limit) : TT_MAXV(most / 2, (int64_t)TT_SPIN_LEAST_NS);
    if (done || most < atomic_load_explicit(measure, memory_order_relaxed))
        atomic_store_explicit(measure, most, memory_order_relaxed);
    return done;
}

#endif
