/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_MEET_H
#define TT_TESTS_MEET_H
#include "base/pool.h"
#include <sched.h>
#include <stdatomic.h>

/* A job of two pieces that ends only if two threads run them at the same time; arg: an _Atomic int, even at first. */
static void meet(void *arg, int64_t begin, int64_t end, int thread)
{
    _Atomic int *n = arg;
    (void)begin;
    (void)end;
    (void)thread;
    atomic_fetch_add(n, 1);
    while (atomic_load(n) % 2)
        sched_yield();
}

#endif
