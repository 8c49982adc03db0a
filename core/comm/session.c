/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "comm/session_impl.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The ranks of one machine: their shared memory, how they learn of failures, and how they wait. */

/* Longer than waking a sleeping thread takes, which is about 40 us on a virtual machine. If it were
 * shorter, a rank would fall asleep whenever the rank it waits for had to be woken, and from then
 * on all of them would sleep in every wait. */
#define SPIN_NS 100000
/* For a wait that may be long: the core may have other threads to run. Now and then the spin lasts
 * SPIN_NS, to find out whether the wait has become short. */
#define BRIEF_SPIN_NS 20000
#define NAP_NS 100000000 /* a sleeper checks for a stop this often, so a stop need not wake it */

static void nap(void)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
}

/* ---- notes: the first rank that claims a note writes it, once ---- */

static bool note_claim(_Atomic uint32_t *note)
{
    uint32_t none = TT_NOTE_NONE;
    return atomic_compare_exchange_strong(note, &none, TT_NOTE_CLAIMED);
}

/* Safe in a signal handler. */
static void note_text(char to[TT_SESSION_TEXT], const char *from)
{
    const size_t n = strnlen(from, TT_SESSION_TEXT - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

/* Whether the note is written. Waits a moment for a note that is being written. */
static bool note_read(_Atomic uint32_t *note)
{
    const int64_t until = tt_now_ns() + tt_patience(TT_RANK_NOTE_NS);
    while (atomic_load(note) == TT_NOTE_CLAIMED && tt_now_ns() < until)
        nap();
    return atomic_load(note) == TT_NOTE_WRITTEN;
}

static void stop(tt_session *s, const char *why, int32_t waited)
{
    if (!note_claim(&s->m->stopped))
        return;
    s->m->waited = waited;
    note_text(s->m->why, why);
    atomic_store(&s->m->stopped, TT_NOTE_WRITTEN);
}

void tt_session_stop(tt_session *s, const char *why)
{
    stop(s, why, 0);
}

void tt_session_timed_out(tt_session *s, const char *why)
{
    stop(s, why, 1 + s->launch.local_rank);
}

tt_status tt_session_stopped(tt_session *s, tt_error *err)
{
    if (atomic_load_explicit(&s->m->stopped, memory_order_acquire) == TT_NOTE_NONE)
        return TT_OK;
    if (!note_read(&s->m->stopped))
        return TT_FAIL(err, TT_ECOMM, "stopped: a rank was lost");
    if (s->m->waited == 1 + s->launch.local_rank)
        return TT_FAIL(err, TT_ETIMEOUT, "%s", s->m->why);
    return TT_FAIL(err, TT_ECOMM, "stopped: %s", s->m->why);
}

bool tt_session_claim(tt_session *s, tt_status status, const char *text, bool own)
{
    const int64_t until = tt_now_ns() + tt_patience(TT_RANK_MOMENT_NS);
    while (!own && atomic_load(&s->m->first_failure) == TT_NOTE_NONE && tt_now_ns() < until)
        nap();
    if (!note_claim(&s->m->first_failure))
        return false;
    s->m->speaker = s->launch.local_rank;
    s->m->status = (int32_t)status;
    note_text(s->m->text, text);
    atomic_store(&s->m->first_failure, TT_NOTE_WRITTEN);
    return true;
}

tt_status tt_session_first_failure(tt_session *s, tt_error *err)
{
    if (!note_read(&s->m->first_failure)) /* its writer was killed: two messages beat none */
        return TT_FAIL(err, TT_ECOMM, "a rank was lost");
    const bool mine = s->m->speaker == s->launch.local_rank;
    return TT_FAIL(err, (tt_status)s->m->status, "%s", mine ? s->m->text : "");
}

const char *tt_doing_name(tt_doing d)
{
    static const char *const names[TT_DOING_END] = {
        [TT_DOING_ALL_GATHER] = "all_gather", [TT_DOING_REDUCE_SCATTER] = "reduce_scatter",
        [TT_DOING_ALL_REDUCE] = "all_reduce", [TT_DOING_ALL_TO_ALL] = "all_to_all",
        [TT_DOING_BARRIER] = "barrier",       [TT_DOING_SEND] = "send",
        [TT_DOING_RECEIVE] = "receive"};
    return (unsigned)d < TT_DOING_END ? names[d] : "?";
}

void tt_session_doing(tt_session *s, tt_doing d, uint64_t number)
{
    tt_session_rank *r = &s->m->ranks[s->launch.local_rank];
    atomic_store_explicit(&r->doing, number << 8 | (uint64_t)d, memory_order_relaxed);
}

tt_status tt_session_agree(tt_session *s, tt_status mine, tt_error *err)
{
    tt_session_rank *r = s->m->ranks;
    int failed = -1;
    atomic_store(&r[s->launch.local_rank].agreed, 1 - (int32_t)mine);
    const int64_t until = tt_session_deadline(s);
    int64_t asked_ns = 0;
    for (int i = s->launch.local_world; i-- > 0;) {
        int32_t said;
        while (!(said = atomic_load(&r[i].agreed))) {
            TT_TRY(tt_session_stopped(s, err));
            TT_TRY(tt_session_asked_to_stop(s->stop, &asked_ns, err));
            if (until && tt_now_ns() >= until)
                return TT_FAIL(err, TT_ETIMEOUT, "rank %d did not arrive within %g s",
                               (int)r[i].rank, (double)s->timeout_s);
            nap();
        }
        if (said != 1)
            failed = i;
    }
    if (failed < 0)
        return TT_OK;
    if (failed == s->launch.local_rank)
        return mine;
    return TT_FAIL(err, TT_ECOMM, "rank %d failed", (int)r[failed].rank);
}

/* ---- memory ---- */

uint64_t tt_session_alloc(tt_session *s, uint64_t bytes)
{
    const uint64_t most = s->bytes;
    bytes = (bytes + TT_SESSION_LINE - 1) / TT_SESSION_LINE * TT_SESSION_LINE;
    uint64_t at = atomic_load(&s->m->used);
    do {
        if (bytes > most || at > most - bytes)
            return 0;
    } while (!atomic_compare_exchange_weak(&s->m->used, &at, at + bytes));
    return at;
}

void *tt_session_at(const tt_session *s, uint64_t offset)
{
    return (char *)s->m + offset;
}

_Atomic uint64_t *tt_session_root(tt_session *s)
{
    return &s->m->root;
}

_Atomic uint64_t *tt_session_log(tt_session *s)
{
    return &s->m->log;
}

void tt_session_on_lost(tt_session *s, void (*fn)(void *arg, tt_error *why), void *arg)
{
    pthread_mutex_lock(&s->on_lost_lock);
    s->on_lost = fn;
    s->on_lost_arg = arg;
    pthread_mutex_unlock(&s->on_lost_lock);
}

/* A rank that is killed while it holds the lock stops the run, and that ends this wait. */
tt_status tt_session_lock(tt_session *s, tt_error *err)
{
    uint32_t open = 0;
    while (!atomic_compare_exchange_strong(&s->m->lock, &open, 1)) {
        TT_TRY(tt_session_stopped(s, err));
        open = 0;
        sched_yield();
    }
    return TT_OK;
}

void tt_session_unlock(tt_session *s)
{
    atomic_store(&s->m->lock, 0);
}

int tt_session_first_rank(const tt_session *s)
{
    return s->m->ranks[0].rank;
}

/* ---- waiting ---- */

void tt_word_set(tt_word *w, uint32_t value)
{
    atomic_store(&w->value, value);
    if (atomic_load(&w->n_sleeping) > 0)
        syscall(SYS_futex, (void *)&w->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

typedef struct arrival {
    tt_word *w;
    uint32_t want, seen;
} arrival;

static bool has_arrived(void *arg)
{
    arrival *a = arg;
    a->seen = atomic_load_explicit(&a->w->value, memory_order_acquire);
    return (int32_t)(a->seen - a->want) >= 0;
}

/* Spins for a short time. True: the word has reached the wanted value. */
static bool spin(tt_session *s, arrival *a, bool soon)
{
    if (has_arrived(a))
        return true;
    if (s->crowded) {
        sched_yield();
        return has_arrived(a);
    }
    return tt_spin_until(&s->spin, soon, soon ? SPIN_NS : BRIEF_SPIN_NS, SPIN_NS, has_arrived, a);
}

tt_status tt_session_await(tt_session *s, tt_word *w, uint32_t want, bool soon, int64_t until_ns)
{
    arrival a = {w, want, 0};
    while (!spin(s, &a, soon)) {
        if (atomic_load_explicit(&s->m->stopped, memory_order_acquire))
            return TT_ECOMM;
        int64_t left = until_ns ? until_ns - tt_now_ns() : NAP_NS;
        if (left <= 0)
            return TT_ETIMEOUT;
        left = TT_MIN(left, (int64_t)NAP_NS);
        const struct timespec ts = {0, (long)TT_MIN(left, INT64_C(999999999))};
        /* Counted before the kernel compares the word: a rank that sets the word later sees that
         * somebody sleeps and wakes it. */
        atomic_fetch_add(&w->n_sleeping, 1);
        syscall(SYS_futex, (void *)&w->value, FUTEX_WAIT, a.seen, &ts, NULL, 0);
        atomic_fetch_sub(&w->n_sleeping, 1);
    }
    return TT_OK;
}

void tt_session_set_timeout(tt_session *s, double timeout_s)
{
    s->timeout_s = timeout_s;
}

double tt_session_timeout(const tt_session *s)
{
    return s->timeout_s;
}

int64_t tt_session_deadline(const tt_session *s)
{
    const double limit = s->timeout_s;
    return limit > 0 ? tt_now_ns() + (int64_t)(TT_MIN(limit, 1e9) * 1e9) : 0;
}

/* ---- life ---- */

static void session_release(tt_session *s)
{
    for (int i = 0; s->socks && i < s->launch.local_world; i++)
        if (s->socks[i] >= 0)
            close(s->socks[i]);
    if (s->m)
        munmap(s->m, s->bytes);
    if (s->memfd >= 0)
        close(s->memfd);
    if (s->wake >= 0)
        close(s->wake);
    pthread_mutex_destroy(&s->on_lost_lock);
    free(s->socks);
    free(s->polled);
    free(s);
}

tt_status tt_session_open(const tt_session_opts *o, tt_session **out, tt_error *err)
{
    tt_session *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the session of the ranks");
    s->launch = *o->launch;
    s->timeout_s = o->timeout_s;
    s->overdue = o->overdue;
    s->lost = o->lost;
    s->stop = o->stop;
    pthread_mutex_init(&s->on_lost_lock, NULL);
    tt_spin_init(&s->spin, BRIEF_SPIN_NS);
    s->crowded = s->launch.local_world > tt_cpu_count_of_ranks();
    s->memfd = s->wake = -1;
    s->socks = calloc((size_t)s->launch.local_world, sizeof *s->socks);
    s->polled = calloc((size_t)s->launch.local_world + 1, sizeof *s->polled);
    for (int i = 0; s->socks && i < s->launch.local_world; i++)
        s->socks[i] = -1;
    if (!s->socks || !s->polled) {
        session_release(s);
        return TT_FAIL(err, TT_ENOMEM, "no memory for the session of %d ranks",
                       (int)o->launch->local_world);
    }
    tt_status st = tt_session_rendezvous(s, o, err);
    const bool met = st == TT_OK;
    if (st == TT_OK && (s->wake = eventfd(0, EFD_CLOEXEC)) < 0)
        st = TT_FAIL(err, TT_ECOMM, "cannot create an eventfd for the session of the ranks");
    if (st == TT_OK && pthread_create(&s->watch, NULL, tt_session_watch, s))
        st = TT_FAIL(err, TT_EINVAL,
                     "cannot start the thread that watches the other ranks; allow more processes "
                     "(ulimit -u)");
    if (st != TT_OK && met) { /* the others learn why this rank goes */
        tt_session_claim(s, st, err ? err->text : "", true);
        tt_session_stop(s, err ? err->text : "");
        atomic_store(&s->m->ranks[s->launch.local_rank].left, 1);
        st = tt_session_first_failure(s, err);
    }
    if (st != TT_OK) {
        session_release(s);
        return st;
    }
    s->watching = true;
    *out = s;
    return TT_OK;
}

static bool all_left(const tt_session *s)
{
    for (int i = 0; i < s->launch.local_world; i++)
        if (!atomic_load(&s->m->ranks[i].left))
            return false;
    return true;
}

void tt_session_close(tt_session *s, bool ok)
{
    if (!s)
        return;
    atomic_store(&s->m->ranks[s->launch.local_rank].left, 1);
    const int64_t until = tt_now_ns() + tt_patience(TT_RANK_MOMENT_NS);
    while (!ok && !all_left(s) && tt_now_ns() < until)
        nap();
    const uint64_t one = 1;
    atomic_store(&s->quits,
                 true); /* it looks from time to time, if a plugin has closed what wakes it */
    if (write(s->wake, &one, sizeof one) != sizeof one)
        tt_log(TT_DEBUG, "comm", "the watching thread cannot be woken");
    pthread_join(s->watch, NULL);
    session_release(s);
}
