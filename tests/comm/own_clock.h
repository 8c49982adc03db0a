/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OWN_CLOCK_H
#define TT_TESTS_OWN_CLOCK_H
#include "base/clock.h"
#include <stdlib.h>

/* The clock of a test: core/base/clock.h has the rule. Time stands still while a member runs, and jumps when all wait,
 * so a limit of 75 s costs nothing, never comes early, and a wait that nobody can end aborts the program at once.
 *
 *   own_clock_open(n);               before n threads are started, each of which is a member
 *   own_clock_leave();               the last call of each of them
 *   own_clock_close();               when they have been joined
 *   own_clock_until_idle();          a member waits until all others wait: before any time passes
 *   own_clock_add(&count);           a member counts an event;
 *   own_clock_until(&count, n);      a member waits until n were counted
 *   tt_clock_now()                   the time; OWN_CLOCK_BEGIN at first */

#define OWN_CLOCK_BEGIN INT64_C(1000000000000)

typedef struct own_wait {
    const void *at; /* NULL: for idleness */
    int64_t until;
    enum { OWN_WAITS, OWN_WOKEN, OWN_LATE } state;
    pthread_cond_t go;
    struct own_wait *next;
} own_wait;

static struct {
    pthread_mutex_t lock;
    bool open;
    int64_t now_ns;
    int n_members, n_waiting;
    own_wait *first; /* in the order in which they began */
} own_clock = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- with the lock held ---- */

/* Ends the waits at an address, or those with a deadline until `now`. */
static inline int own_clock_end(const void *at, int64_t now, int most)
{
    int n = 0;
    for (own_wait **p = &own_clock.first; *p && n < most;) {
        own_wait *w = *p;
        const bool late = now && w->until && w->until <= now;
        if (!late && (now || w->at != at)) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        w->state = late ? OWN_LATE : OWN_WOKEN;
        own_clock.n_waiting--;
        n++;
        pthread_cond_signal(&w->go);
    }
    return n;
}

static inline void own_clock_fail(const char *why)
{
    fprintf(stderr, "own clock: %s; %d members, %d waits:", why, own_clock.n_members,
            own_clock.n_waiting);
    for (const own_wait *w = own_clock.first; w; w = w->next)
        fprintf(stderr, " at %p until %lld", w->at, (long long)w->until);
    fprintf(stderr, "\n");
    abort();
}

/* When all wait: first a member that waits for that goes on, then those of the earliest deadline. */
static inline void own_clock_look(void)
{
    int64_t next = 0;
    if (own_clock.n_waiting > own_clock.n_members)
        own_clock_fail("a thread waits that is no member");
    if (!own_clock.n_members || own_clock.n_waiting < own_clock.n_members ||
        own_clock_end(NULL, 0, 1))
        return;
    for (const own_wait *w = own_clock.first; w; w = w->next)
        if (w->until && (!next || w->until < next))
            next = w->until;
    if (!next)
        own_clock_fail("all members wait and none has a limit");
    own_clock.now_ns = next;
    own_clock_end(NULL, next, own_clock.n_members);
}

/* ---- the functions of tt_clock ---- */

static inline int64_t own_clock_now(void)
{
    pthread_mutex_lock(&own_clock.lock);
    const int64_t now = own_clock.now_ns;
    pthread_mutex_unlock(&own_clock.lock);
    return now;
}

static inline bool own_clock_wait(const void *at, const _Atomic uint32_t *word, uint32_t seen,
                                  pthread_mutex_t *held, int64_t until)
{
    own_wait w = {.at = at, .until = until, .go = PTHREAD_COND_INITIALIZER};
    pthread_mutex_lock(&own_clock.lock);
    const bool past = until && until <= own_clock.now_ns;
    if (past || (word && atomic_load(word) != seen)) {
        pthread_mutex_unlock(&own_clock.lock);
        return !past;
    }
    own_wait **end = &own_clock.first;
    while (*end)
        end = &(*end)->next;
    *end = &w;
    own_clock.n_waiting++;
    if (held)
        pthread_mutex_unlock(held);
    own_clock_look();
    while (w.state == OWN_WAITS)
        pthread_cond_wait(&w.go, &own_clock.lock);
    pthread_mutex_unlock(&own_clock.lock);
    if (held)
        pthread_mutex_lock(held);
    pthread_cond_destroy(&w.go);
    return w.state == OWN_WOKEN;
}

static inline void own_clock_wake(const void *at)
{
    pthread_mutex_lock(&own_clock.lock);
    own_clock_end(at, 0, own_clock.n_members);
    pthread_mutex_unlock(&own_clock.lock);
}

static inline void own_clock_member(int more)
{
    pthread_mutex_lock(&own_clock.lock);
    own_clock.n_members += more;
    if (more < 0)
        own_clock_look();
    pthread_mutex_unlock(&own_clock.lock);
}

/* ---- for tests ---- */

static inline void own_clock_open(int n_members)
{
    static const tt_clock own = {own_clock_now, own_clock_wait, own_clock_wake, own_clock_member};
    own_clock.now_ns = OWN_CLOCK_BEGIN;
    own_clock.n_members = n_members;
    own_clock.open = true;
    tt_clock_set(&own);
}

static inline void own_clock_leave(void)
{
    own_clock_member(-1);
}

static inline void own_clock_close(void)
{
    tt_clock_set(NULL);
    own_clock.open = false;
    if (own_clock.n_members || own_clock.n_waiting)
        own_clock_fail("the end");
}

static inline int own_clock_n_waiting(void)
{
    pthread_mutex_lock(&own_clock.lock);
    const int n = own_clock.n_waiting;
    pthread_mutex_unlock(&own_clock.lock);
    return n;
}

static inline void own_clock_until_idle(void)
{
    (void)own_clock_wait(NULL, NULL, 0, NULL, 0);
}

static inline void own_clock_add(_Atomic int *count)
{
    atomic_fetch_add(count, 1);
    own_clock_wake(count);
}

static inline void own_clock_until(_Atomic int *count, int n)
{
    for (int seen; (seen = atomic_load(count)) < n;)
        (void)own_clock_wait(count, (const _Atomic uint32_t *)(const void *)count, (uint32_t)seen,
                             NULL, 0);
}

#endif
