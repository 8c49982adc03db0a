/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/async.h"
#include "comm/shm_direct.h"

/* Copies from process to process: every size around the limits, and several at once. */

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
        world_run(n, every_size);
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
    world_run(5, groups);
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
    world_run(3, queues);
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
    world_run(2, differing);
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
    world_run(3, differing_counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_around_every_border_have_the_bits_of_threads),
        cmocka_unit_test(test_groups_copy_concurrently),
        cmocka_unit_test(test_queues_copy_concurrently_with_the_program),
        cmocka_unit_test(test_differing_large_calls_are_named_and_do_no_harm),
        cmocka_unit_test(test_all_to_all_with_different_counts_fails_on_the_ranks_that_see_it),
    };
    return cmocka_run_group_tests(tests, find_out_first, NULL);
}
