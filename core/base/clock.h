/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_CLOCK_H
#define TT_BASE_CLOCK_H
#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>

/* Waits of threads for other threads of the same process, with or without a deadline. By default they are a futex or a
 * pthread condition on the system's monotonic clock, and nothing more.
 *
 * A test may set a clock of its own (tests/comm/own_clock.h), whose time stands still while any member runs. A member
 * is a thread that takes part: each rank's thread, and each thread that a member announces. The rule:
 *
 *   A member runs unless it is in a wait of this header. Spinning, sleeping and system calls are running.
 *   When all members wait, time jumps to the earliest deadline, and the waits of that deadline end.
 *   When all members wait and none has a deadline, nobody can end it: the program is aborted, and says so.
 *
 * So that no jump comes too early, whoever changes what others wait for does it in this order: it changes the value,
 * then it wakes (tt_clock_wake_*), and only then it waits itself. The wake counts those that it wakes as running before
 * it returns. A thread must be announced before it begins, by a member that runs. */

typedef struct tt_clock { /* NULL stands for the system's; each function as below */
    int64_t (*now)(void);
    /* at: the address of the word or the condition. held: NULL for a word; else word is NULL. */
    bool (*wait)(const void *at, const _Atomic uint32_t *word, uint32_t seen, pthread_mutex_t *held,
                 int64_t until);
    void (*wake)(const void *at);
    void (*member)(int more); /* +1: a member begins, -1: it has ended */
} tt_clock;
void tt_clock_set(const tt_clock *own); /* while nobody waits; for tests */

int64_t tt_clock_now(void); /* ns */
/* The deadline of a wait that begins now and may last limit_s seconds; 0: none, for a limit of 0 or less. */
int64_t tt_clock_deadline(double limit_s);

/* Both waits return false when the deadline `until` (0: none) has passed, and else true, at times without a reason: the
 * caller looks again. The first waits while *word == seen, the second with the mutex held, as pthread_cond_wait. */
bool tt_clock_wait_word(_Atomic uint32_t *word, uint32_t seen, int64_t until);
bool tt_clock_wait_cond(pthread_cond_t *cond, pthread_mutex_t *held, int64_t until);
void tt_clock_wake_word(_Atomic uint32_t *word); /* all who wait */
void tt_clock_wake_cond(pthread_cond_t *cond);
void tt_clock_cond_init(pthread_cond_t *cond);

/* A thread that will wait for others, or be waited for, is announced by who starts it; it ends by itself. */
void tt_clock_member_begins(void);
void tt_clock_member_ends(void);

#endif
