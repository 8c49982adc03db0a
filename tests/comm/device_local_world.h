/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_DEVICE_LOCAL_WORLD_H
#define TT_TESTS_DEVICE_LOCAL_WORLD_H
#include "comm/data_comm.h"
#include "comm/member_must.h"
#include "comm/own_clock.h"
#include "plugins/far_test.h"
#include <pthread.h>
#include <stdatomic.h>

/* Rank-threads with the communicator "local" on the device "far", on a clock of their own and without limits. */

enum { MOST = 5, ROOM = 1 << 16 }; /* ROOM: bytes of each buffer */

typedef struct member {
    int rank, n, seed;
    void (*fn)(struct member *);
    tt_threads *threads;
    tt_dist dist;
    dev d;
    tt_comm *all;
    char *a, *b, *c;       /* of the device */
    char *p;               /* pinned: three times ROOM */
    int n_waits, left_out; /* the wait of that number is left out; 0: none */
} member;

static _Atomic int n_failed;
static char first_failure[400];
static const tt_comm_vt *lvt = &tt_local_vt;
static _Thread_local member *self;
static bool reach = true, with_mutant, may_die;
static bool
    calls_fail; /* on some members alone: what the others enqueued still reads their memory */
static pthread_barrier_t all_synced;

static void member_fail(member *m, int line, tt_status s, const char *text)
{
    if (!atomic_fetch_add(&n_failed, 1))
        snprintf(first_failure, sizeof first_failure, "line %d, rank %d, seed %d: %s: %s", line,
                 m->rank, m->seed, tt_status_name(s), text);
    tt_dist_abort(&m->dist, "a member failed");
}
/* ---- a world ---- */

static int first_to_leave;
static _Atomic int has_left;

static tt_device_vt wrapped;

static tt_status wait_or_not(void *backend, tt_device_queue *q, tt_device_event *e, tt_error *err)
{
    return ++self->n_waits == self->left_out ? TT_OK : dvt->wait(backend, q, e, err);
}
static int reaches_or_not(void *backend, void *other)
{
    return reach && dvt->reaches(backend, other);
}

static void run_member(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3, 4};
    void *p[4] = {0};
    const tt_data_opts o = {
        .device = {&wrapped, m->d.self},
        .reduce_members = far_vt->kernel(m->d.self, TT_OP_REDUCE_MEMBERS),
        .timeout_s = 0
    };
    MUST(tt_dist_open_data(&m->dist, &o, E));
    EXPECT(m->dist.data_vt == (reach ? &tt_local_vt : &tt_staged_vt));
    for (int i = 0; i < 3; i++)
        MUST(dvt->alloc(m->d.self, ROOM, &p[i], E));
    MUST(dvt->alloc_pinned(m->d.self, 3 * ROOM, &p[3], E));
    m->a = p[0], m->b = p[1], m->c = p[2], m->p = p[3];
    MUST(m->dist.data_vt->group(m->dist.data_self, ranks, m->n, 7, &m->all, E));
    MUST(m->dist.data_vt->on(m->all, m->d.q[0], E));
    m->fn(m);
    (void)dev_sync(&m->d, 0, NULL);
    if (with_mutant ||
        calls_fail) /* far ends the process if one frees what others' work still uses */
        pthread_barrier_wait(&all_synced);
    m->dist.data_vt->group_free(m->all);
    has_left = m->rank == first_to_leave ? 1 : has_left;
    for (int i = 0; i < 3; i++)
        dvt->free(m->d.self, p[i]);
    dvt->free_pinned(m->d.self, p[3]);
}

static void *member_main(void *arg)
{
    member *m = self = arg;
    tt_error err;
    if (tt_threads_join(m->threads, m->rank, &m->dist, &err) != TT_OK)
        abort();
    m->d = dev_open_rank(m->seed, true, m->rank, m->n);
    run_member(m);
    tt_dist_close_data(&m->dist, true);
    dev_close(&m->d);
    tt_dist_leave(&m->dist);
    own_clock_leave();
    return NULL;
}

/* Returns the largest number of waits of a member. victim: of which the wait `left_out` is left out. */
static int world(int n, int seed, void (*fn)(member *), int victim, int left_out)
{
    pthread_t threads[MOST];
    member members[MOST];
    tt_threads *t = NULL;
    int most = 0;
    n_failed = has_left = 0;
    first_to_leave = victim;
    with_mutant = left_out > 0 && !may_die;
    pthread_barrier_init(&all_synced, NULL, (unsigned)n);
    wrapped = *dvt;
    wrapped.wait = wait_or_not;
    wrapped.reaches = reaches_or_not;
    OK(tt_threads_new(n, 0, &t, E));
    own_clock_open(n);
    for (int i = 0; i < n; i++) {
        members[i] = (member){.rank = i, .n = n, .seed = seed, .fn = fn, .threads = t};
        members[i].left_out = i == victim ? left_out : 0;
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        if (i == victim || victim < 0)
            most = members[i].n_waits > most ? members[i].n_waits : most;
    }
    own_clock_close();
    tt_threads_free(t);
    return most;
}

static inline void right(int n, int seed, void (*fn)(member *))
{
    world(n, seed, fn, -1, 0);
    if (n_failed)
        fail_msg("%d ranks, %d failures, the first: %s", n, n_failed, first_failure);
}

#endif
