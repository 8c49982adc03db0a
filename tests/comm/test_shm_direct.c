/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/async.h"
#include "comm/processes.h"
#include "comm/shm_impl.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Copies from process to process: every size around the limits, several at once, and what may go
 * wrong between the two barriers of a copy. If the kernel refuses such copies, the same calls go
 * through shared memory, and cases that only a direct copy can have are skipped. */

enum { MUCH = 1 << 20 }; /* elements, in many pieces */

static bool direct(const tt_dist *d)
{
    return atomic_load(d->all->path) == TT_SHM_DIRECT;
}

static _Atomic int *progress; /* of rank 1 in what is to be cut short; all share it */
static bool allowed;          /* may a process of this machine copy from its sibling? */

static void find_out(world *w, tt_dist *d)
{
    tt_error err;
    if (d->vt->barrier(d->all, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (direct(d))
        atomic_fetch_add(&w->count, 1);
}

static int setup(void **state)
{
    (void)state;
    progress = processes_shared(sizeof *progress);
    allowed = world_run(2, 30, find_out) == 2;
    return 0;
}

/* ---- results ---- */

/* Values whose sum depends on the order of addition. */
static float value(int rank, int64_t k)
{
    return (float)(k % 1009) * 0.37f + (rank == 2 ? 1e6f : (float)rank * 0.013f);
}

static void *filled(int rank, int64_t n, tt_dtype t)
{
    void *p = calloc((size_t)n + 1, tt_dtype_size(t));
    for (int64_t k = 0; k < n; k++) {
        if (t == TT_F32)
            ((float *)p)[k] = value(rank, k);
        else if (t == TT_F64)
            ((double *)p)[k] = (double)value(rank, k);
        else if (t == TT_BF16)
            ((uint16_t *)p)[k] = (uint16_t)(0x3f00 + (k * 7 + rank) % 200);
        else
            ((int32_t *)p)[k] = (int32_t)(k * 31 + rank);
    }
    return p;
}

/* The sum of all members' values, computed by the function that defines the order. */
static void *expected(int world_size, int64_t n, tt_dtype t, tt_reduce op)
{
    void *xs[5], *sum = calloc((size_t)n + 1, tt_dtype_size(t));
    for (int i = 0; i < world_size; i++)
        xs[i] = filled(i, n, t);
    tt_reduce_members(sum, (const void *const *)xs, world_size, n, t, op, NULL);
    for (int i = 0; i < world_size; i++)
        free(xs[i]);
    return sum;
}

static void reduces(world *w, tt_dist *d, int64_t n, tt_dtype t, tt_reduce op)
{
    const size_t size = tt_dtype_size(t);
    int64_t counts[5] = {0}, before = 0;
    tt_error err;
    for (int i = 0; i < d->world; i++) { /* uneven; the last has what is left, some nothing */
        counts[i] = i == d->world - 1 ? n - before : TT_MIN(n - before, n / 3 * (i % 2) + i * 5);
        before += counts[i];
    }
    before = tt_shm_sum(counts, d->rank);
    char *want = expected(d->world, n, t, op), *buf = filled(d->rank, n, t),
         *piece = calloc((size_t)n + 1, size);
    if (d->vt->reduce_scatter(d->all, buf, piece, counts, t, op, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (memcmp(piece, want + (size_t)before * size, (size_t)counts[d->rank] * size))
        world_fail(w, "reduce_scatter of %lld %s", (long long)n, tt_dtype_name(t));
    if (d->vt->all_reduce(d->all, buf, n, t, op, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (memcmp(buf, want, (size_t)n * size))
        world_fail(w, "all_reduce of %lld %s", (long long)n, tt_dtype_name(t));
    memset(buf, 0xee, (size_t)n * size); /* each its own piece, where it belongs, and aside */
    memcpy(buf + (size_t)before * size, piece, (size_t)counts[d->rank] * size);
    const void *own = n % 2 ? (const void *)piece : buf + (size_t)before * size;
    if (d->vt->all_gather(d->all, own, buf, counts, t, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    if (memcmp(buf, want, (size_t)n * size))
        world_fail(w, "all_gather of %lld %s", (long long)n, tt_dtype_name(t));
    free(want);
    free(buf);
    free(piece);
}

static void every_size(world *w, tt_dist *d)
{
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_I32, TT_F64};
    const int64_t piece = d->all->piece;
    for (int i = 0; i < 4; i++) {
        const int64_t size = (int64_t)tt_dtype_size(dtypes[i]),
                      borders[] = {0, TT_SHM_DIRECT_BYTES * d->world, piece, piece * d->world,
                                   2 * piece * d->world};
        for (int b = 0; b < 5; b++)
            for (int64_t n = borders[b] / size - 1; n <= borders[b] / size + 1; n++)
                if (n >= 0)
                    reduces(w, d, n, dtypes[i], (tt_reduce)((b + n) % 3 == 0));
    }
}
static void test_sizes_around_every_border_have_the_bits_of_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        world_run(n, 60, every_size);
}

static void sum_large(world *w, tt_dist *d, tt_comm *g, int64_t n, int32_t own, int32_t all)
{
    int32_t *x = calloc((size_t)n, sizeof *x);
    tt_error err;
    for (int64_t k = 0; k < n; k++)
        x[k] = own + (int32_t)k;
    if (d->vt->all_reduce(g, x, n, TT_I32, TT_MAX, &err) != TT_OK)
        world_fail(w, "%s", err.text);
    for (int64_t k = 0; k < n; k++)
        if (x[k] != all + (int32_t)k)
            world_fail(w, "element %lld is %d", (long long)k, x[k]);
    free(x);
}

/* Overlapping groups; two of them consist of the same two ranks and are used different numbers of
 * times. */
static void groups(world *w, tt_dist *d)
{
    static const int even[] = {0, 2, 4}, odd[] = {1, 3};
    const int *mine = d->rank % 2 ? odd : even, n = d->rank % 2 ? 2 : 3;
    tt_comm *g = world_group(w, d, mine, n), *again = world_group(w, d, mine, n);
    for (int i = 0; i < 10; i++) {
        sum_large(w, d, g, 70001, d->rank, mine[n - 1]);
        if (d->rank % 2)
            sum_large(w, d, again, 40000 + i, -d->rank, -1);
        sum_large(w, d, d->all, 50000 - i, d->rank * 2, 8);
    }
    d->vt->group_free(g);
    d->vt->group_free(again);
}
static void test_groups_copy_concurrently(void **state)
{
    (void)state;
    world_run(5, 60, groups);
}

typedef struct job {
    int32_t *buf;
    int64_t n;
} job;

static tt_status reduce_job(void *arg, const tt_comm_vt *vt, tt_comm *c, tt_error *err)
{
    const job *j = arg;
    return vt->all_reduce(c, j->buf, j->n, TT_I32, TT_SUM, err);
}

/* Two queues and the program itself copy at the same time. */
static void queues(world *w, tt_dist *d)
{
    static const int all[] = {0, 1, 2}, pair[] = {0, 1};
    tt_async *q[2] = {0};
    job jobs[2];
    tt_ticket t[2];
    tt_error err;
    const int n_queues = d->rank < 2 ? 2 : 1;
    for (int i = 0; i < n_queues; i++)
        if (tt_async_new(d, i ? pair : all, i ? 2 : 3, 4, &q[i], &err) != TT_OK)
            world_fail(w, "%s", err.text);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < n_queues; i++) {
            jobs[i] = (job){calloc(200000, 4), 200000 - round};
            for (int64_t k = 0; k < jobs[i].n; k++)
                jobs[i].buf[k] = (int32_t)k + d->rank;
            if (tt_async_begin(q[i], reduce_job, &jobs[i], &t[i], &err) != TT_OK)
                world_fail(w, "%s", err.text);
        }
        sum_large(w, d, d->all, 100000, d->rank, 2);
        for (int i = 0; i < n_queues; i++) {
            if (tt_async_wait(q[i], t[i], &err) != TT_OK)
                world_fail(w, "%s", err.text);
            for (int64_t k = 0; k < jobs[i].n; k++)
                if (jobs[i].buf[k] != (i ? 2 * (int32_t)k + 1 : 3 * (int32_t)k + 3))
                    world_fail(w, "queue %d, element %lld", i, (long long)k);
            free(jobs[i].buf);
        }
    }
    for (int i = 0; i < n_queues; i++)
        tt_async_free(q[i]);
}
static void test_queues_copy_concurrently_with_the_program(void **state)
{
    (void)state;
    world_run(3, 60, queues);
}

/* ---- calls that differ ---- */

static void expect_differ(world *w, tt_status s, const tt_error *err, const char *text)
{
    if (s != TT_ECOMM || !strstr(err->text, text))
        world_fail(w, "%d %s", s, err->text);
}

static void differing(world *w, tt_dist *d)
{
    const int64_t even[] = {30000, 30000}, uneven[] = {20000, 40000};
    double *x = calloc(60000, sizeof *x), *y = calloc(60000, sizeof *y);
    tt_error err = {0};
    const bool one = d->rank == 1;
    expect_differ(w, d->vt->all_reduce(d->all, x, 60000, one ? TT_F64 : TT_F32, TT_SUM, &err), &err,
                  "all_reduce of 60000 f64");
    expect_differ(w, d->vt->all_reduce(d->all, x, 60000, TT_F32, one ? TT_MAX : TT_SUM, &err), &err,
                  "f32 (max)");
    expect_differ(w, d->vt->all_gather(d->all, x, y, one ? even : uneven, TT_F32, &err), &err,
                  "with other counts per rank");
    expect_differ(w,
                  one ? d->vt->reduce_scatter(d->all, x, y, even, TT_F32, TT_SUM, &err)
                      : d->vt->all_reduce(d->all, x, 60000, TT_F32, TT_SUM, &err),
                  &err, "number 4");
    sum_large(w, d, d->all, 60000, d->rank, 1); /* the group is as good as before */
    free(x);
    free(y);
}
static void test_differing_large_calls_are_named_and_do_no_harm(void **state)
{
    (void)state;
    world_run(2, 30, differing);
}

static void differing_counts(world *w, tt_dist *d)
{
    int64_t sends[] = {50000, 50000, 50000}, recvs[] = {50000, 50000, 50000};
    int32_t *x = calloc(150000, sizeof *x), *y = calloc(150000, sizeof *y);
    tt_error err = {0};
    if (d->rank == 2)
        recvs[0] = 49999;
    const tt_status s = d->vt->all_to_all(d->all, x, sends, y, recvs, TT_I32, &err);
    if (d->rank == 2 ? s != TT_ECOMM || !strstr(err.text, "rank 0 sends 50000 elements where 49999")
                     : s != TT_OK)
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    sum_large(w, d, d->all, 60000, d->rank, 2);
    free(x);
    free(y);
}
static void test_all_to_all_with_different_counts_fails_on_the_ranks_that_see_it(void **state)
{
    (void)state;
    world_run(3, 30, differing_counts);
}

/* ---- refusals ---- */

/* From now on this process may not copy from or to others, as in some containers. */
static bool forbid(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog p = {sizeof f / sizeof *f, f};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, 2, &p, 0, 0);
}

static void refused_early(world *w, tt_dist *d)
{
    if (d->rank == 1 && !forbid())
        return;
    for (int i = 0; i < 3; i++)
        sum_large(w, d, d->all, MUCH, d->rank, 2);
    if (direct(d))
        world_fail(w, "rank %d copies though rank 1 may not", d->rank);
}
static void test_if_one_member_may_not_copy_all_use_shared_buffers(void **state)
{
    (void)state;
    world_run(3, 30, refused_early);
}

static void refused_late(world *w, tt_dist *d)
{
    int32_t *x = calloc(MUCH, sizeof *x);
    tt_error err = {0};
    sum_large(w, d, d->all, MUCH, d->rank, 2);
    if (d->rank == 1 && !forbid())
        world_fail(w, "seccomp");
    const tt_status s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
    if (s != TT_ECOMM ||
        !strstr(err.text, "all_reduce number 2: rank 1 cannot read from the memory of rank 2") ||
        !strstr(err.text, strerror(EPERM)))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_refused_copy_during_a_run_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    if (!allowed)
        skip();
    world_run(3, 30, refused_late);
}

/* Rank 1's buffer has a page in the middle that other processes may not write, or not even read. */
static int32_t *holed(int protection, int64_t from)
{
    char *p = mmap(NULL, MUCH * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 0, MUCH * 4);
    assert_int_equal(mprotect(p + from, 4096, protection), 0);
    return (int32_t *)p;
}

static void half_way(world *w, tt_dist *d)
{
    const int64_t counts[] = {MUCH / 2, MUCH / 2};
    int32_t *x = calloc(MUCH, 4), *y = d->rank ? holed(PROT_READ, MUCH) : calloc(MUCH, 4);
    tt_error err = {0};
    const tt_status s = d->vt->all_gather(d->all, x, y, counts, TT_I32, &err);
    if (s != TT_ECOMM || !strstr(err.text, "all_gather number 1: rank 0 cannot write to the memory "
                                           "of rank 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->vt->barrier(d->all, &err) != TT_ECOMM)
        world_fail(w, "the run goes on");
}
static void half_read(world *w, tt_dist *d)
{
    const int64_t counts[] = {MUCH / 2, MUCH / 2};
    int32_t *x = d->rank ? holed(PROT_NONE, MUCH) : calloc(MUCH, 4), *y = calloc(MUCH, 4);
    tt_error err = {0};
    const tt_status s = d->vt->reduce_scatter(d->all, x, y, counts, TT_I32, TT_SUM, &err);
    if (s != TT_ECOMM || !strstr(err.text, "rank 0 cannot read from the memory of rank 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
}
static void test_copy_that_fails_half_way_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    if (!allowed)
        skip();
    world_run(2, 30, half_way);
    world_run(2, 30, half_read);
}

/* ---- failures in the middle of a copy ---- */

/* From now on nobody may write to this buffer. */
static void expect_untouched(world *w, const tt_dist *d, unsigned char *x)
{
    memset(x, 0x5a, MUCH * sizeof(int32_t));
    usleep(30000);
    for (size_t k = 0; k < MUCH * sizeof(int32_t); k++)
        if (x[k] != 0x5a) {
            world_fail(w, "rank %d: byte %zu was written after the end", d->rank, k);
            return;
        }
}

/* Runs collectives until one fails; after that nobody may touch this rank's buffers. */
static tt_status until_it_fails(world *w, tt_dist *d, tt_error *err)
{
    int64_t counts[5];
    tt_status s = TT_OK;
    for (int i = 0; i < d->world; i++)
        counts[i] = MUCH / d->world;
    for (int i = 0; s == TT_OK; i++) {
        unsigned char *x = calloc(MUCH, 4), *y = calloc(MUCH, 4);
        s = i % 2 ? d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, err)
                  : d->vt->all_gather(d->all, y, x, counts, TT_I32, err);
        if (s != TT_OK)
            expect_untouched(w, d, x);
        if (d->rank == 1)
            atomic_fetch_add(progress, 1);
        free(x);
        free(y);
    }
    return s;
}

static void until_killed(world *w, tt_dist *d)
{
    tt_error err = {0};
    const tt_status s = until_it_fails(w, d, &err);
    if (s != TT_ECOMM || !strstr(err.text, "rank 1 was lost at all_"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    atomic_fetch_add(&w->count, 1);
}
static void test_rank_killed_in_the_middle_is_named_and_nothing_hangs(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const int n = 2 + i % 3;
        world *w = processes_shared(sizeof *w);
        pid_t pids[16];
        int status, n_killed = 0;
        const int64_t t0 = tt_now_ns();
        atomic_store(progress, 0);
        processes_start(w, n, 60, until_killed, pids);
        while (atomic_load(progress) < 3 && !atomic_load(&w->n_failed))
            usleep(100);
        usleep((useconds_t)i * 300);
        kill(pids[1], SIGKILL);
        for (int k = 0; k < n; k++) {
            assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
            n_killed += WIFSIGNALED(status) != 0;
        }
        assert_true(tt_now_ns() - t0 < INT64_C(20000000000));
        assert_int_equal(world_end(w), n - 1);
        assert_int_equal(n_killed, 1);
        munmap(w, sizeof *w);
    }
}

static void *stop_soon(void *dist)
{
    usleep((useconds_t)(20000 + getpid() % 32 * 500));
    tt_session_stop(((tt_dist *)dist)->session, "enough");
    return NULL;
}

static void until_stopped(world *w, tt_dist *d)
{
    tt_error err = {0};
    pthread_t t;
    if (d->rank == 0 && pthread_create(&t, NULL, stop_soon, d))
        world_fail(w, "no thread");
    const tt_status s = until_it_fails(w, d, &err);
    if (s != TT_ECOMM || !strstr(err.text, "enough"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 0)
        pthread_join(t, NULL);
}
static void test_stop_in_the_middle_leaves_no_one_copying(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        world_run(2 + i % 3, 60, until_stopped);
}

/* Another thread of rank 0 waits until its time limit: rank 0's collectives fail with that timeout,
 * those of the other ranks because rank 0 stopped the run. */
static void *time_out_soon(void *dist)
{
    usleep((useconds_t)(20000 + getpid() % 32 * 500));
    tt_session_timed_out(((tt_dist *)dist)->session, "that waited 1 s");
    return NULL;
}

static void until_one_times_out(world *w, tt_dist *d)
{
    tt_error err = {0};
    pthread_t t;
    if (d->rank == 0 && pthread_create(&t, NULL, time_out_soon, d))
        world_fail(w, "no thread");
    const tt_status s = until_it_fails(w, d, &err);
    if (s != (d->rank ? TT_ECOMM : TT_ETIMEOUT) || !strstr(err.text, "that waited 1 s") ||
        !strstr(err.text, "stopped: ") != !d->rank)
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    if (d->rank == 0)
        pthread_join(t, NULL);
}
static void test_timeout_of_another_thread_is_the_ranks_own_failure(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        world_run(2 + i % 3, 60, until_one_times_out);
}

/* One member arrives at about the moment when the time limit of the others passes. Either all pass
 * the opening barrier, or a member that gave up can be sure that nobody touches its buffer. */
static void late(world *w, tt_dist *d)
{
    for (int i = 0; i < 2; i++)
        sum_large(w, d, d->all, MUCH, d->rank, d->world - 1);
    unsigned char *x = calloc(MUCH, 4);
    tt_error err = {0};
    atomic_fetch_add(&w->count, 1);
    while (atomic_load(&w->count) <
           d->world) /* a rank that is still in number 2 would fail there */
        usleep(100);
    tt_dist_set_timeout(d, 0.05);
    if (d->rank == 1)
        usleep((useconds_t)(49000 + d->world * 500));
    if (d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err) != TT_OK) {
        expect_untouched(w, d, x);
        if (!strstr(err.text, "all_reduce number 3"))
            world_fail(w, "%s", err.text);
    }
    free(x);
}

/* The worst moment: this member has seen that the run goes on, but arrives at the barrier when the
 * others have left. */
static void too_late(world *w, tt_dist *d)
{
    sum_large(w, d, d->all, MUCH, d->rank, d->world - 1);
    unsigned char *x = calloc(MUCH, 4);
    tt_error err = {0};
    tt_status s;
    tt_dist_set_timeout(d, 0.5);
    const tt_shm_args a = {
        .op = TT_DOING_ALL_REDUCE, .send = x, .recv = x, .count = MUCH, .dtype = TT_I32};
    if (d->rank == 1) {
        if (tt_shm_begin(d->all, &a, &err) != TT_OK)
            world_fail(w, "%s", err.text);
        while (tt_session_stopped(d->session, NULL) == TT_OK)
            usleep(1000);
        usleep(10000);
        s = tt_shm_direct_all_reduce(d->all, &a, &err);
    } else {
        s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
        expect_untouched(w, d, x);
    }
    if (s == TT_OK || !strstr(err.text, "did not arrive: 1"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_late_rank_does_not_write_to_ranks_that_gave_up(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        world_run(2 + i % 4, 30, late);
    if (!allowed)
        skip();
    for (int n = 2; n <= 4; n++)
        world_run(n, 30, too_late);
}

static void missing(world *w, tt_dist *d)
{
    int32_t *x = calloc(MUCH, 4);
    tt_error err = {0};
    sum_large(w, d, d->all, MUCH, d->rank, 2);
    tt_dist_set_timeout(d, 1);
    while (d->rank == 2 && tt_session_stopped(d->session, NULL) == TT_OK)
        usleep(1000);
    const tt_status s = d->vt->all_reduce(d->all, x, MUCH, TT_I32, TT_SUM, &err);
    if (s == TT_OK || !strstr(err.text, "all_reduce number 2") ||
        !strstr(err.text, "did not arrive: 2"))
        world_fail(w, "rank %d: %d %s", d->rank, s, err.text);
    free(x);
}
static void test_rank_that_does_not_arrive_is_named(void **state)
{
    (void)state;
    world_run(3, 30, missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_around_every_border_have_the_bits_of_threads),
        cmocka_unit_test(test_groups_copy_concurrently),
        cmocka_unit_test(test_queues_copy_concurrently_with_the_program),
        cmocka_unit_test(test_differing_large_calls_are_named_and_do_no_harm),
        cmocka_unit_test(test_all_to_all_with_different_counts_fails_on_the_ranks_that_see_it),
        cmocka_unit_test(test_if_one_member_may_not_copy_all_use_shared_buffers),
        cmocka_unit_test(test_refused_copy_during_a_run_is_an_error_on_all_ranks),
        cmocka_unit_test(test_copy_that_fails_half_way_is_an_error_on_all_ranks),
        cmocka_unit_test(test_rank_killed_in_the_middle_is_named_and_nothing_hangs),
        cmocka_unit_test(test_stop_in_the_middle_leaves_no_one_copying),
        cmocka_unit_test(test_timeout_of_another_thread_is_the_ranks_own_failure),
        cmocka_unit_test(test_late_rank_does_not_write_to_ranks_that_gave_up),
        cmocka_unit_test(test_rank_that_does_not_arrive_is_named),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
