/* SPDX-License-Identifier: Apache-2.0 */
#include "data/mixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 12 };

static const double sets[][MOST] = {
    {1    },
    {        3,    1     },
    {                1,             1,    1},
    {         1e6,    1e-3            },
    {                           1e-3, 1e6,  1, 7},
    {             1,     1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6},
    { 1,           1,               2, 3, 5, 8, 13, 21, 34, 55, 89, 144},
    {                            0.3,  0.3,    0.3, 0.05, 0.05},
};

static int size_of(const double *w)
{
    int n = 0;
    while (n < MOST && w[n] > 0)
        n++;
    return n;
}

/* After any number g of samples each source was drawn its share of g times, within 2, and its
 * samples were numbered 0, 1, 2, … Of two sources each has its share to the nearest whole number. */
static void test_mixture_keeps_proportions_after_any_sample(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(sets); k++) {
        tt_arena *a = tt_arena_new();
        const int n = size_of(sets[k]);
        const tt_mix *m = tt_mix_new(a, sets[k], n);
        int64_t drawn[MOST] = {0}, index;
        double sum = 0;
        const double off = n == 2 ? 0.5 + 1e-9 : 2;
        for (int i = 0; i < n; i++)
            sum += sets[k][i];
        for (int64_t g = 0; g < 30000; g++) {
            int source;
            tt_mix_at(m, g, &source, &index);
            assert_in_range(source, 0, n - 1);
            assert_int_equal(index, drawn[source]++);
            for (int i = 0; i < n; i++)
                assert_true(fabs((double)drawn[i] - sets[k][i] / sum * (double)(g + 1)) < off);
        }
        tt_arena_free(a);
    }
}

/* Of equal weights the first sources are joined first. A run that goes on in a later version must draw the same samples. */
static void test_mixture_of_equal_weights_has_its_order(void **state)
{
    (void)state;
    static const double weights[] = {1, 1, 1, 1};
    static const int wanted[][4] = {
        {0, 2, 1, 0},
        {0, 2, 1, 3}
    };
    tt_arena *a = tt_arena_new();
    for (int n = 3; n <= 4; n++) {
        const tt_mix *m = tt_mix_new(a, weights, n);
        for (int g = 0; g < 4; g++) {
            int source;
            int64_t index;
            tt_mix_at(m, g, &source, &index);
            assert_int_equal(source, wanted[n - 3][g]);
        }
    }
    tt_arena_free(a);
}

/* For a very large g, up to which nobody can count: the numbers of one source still follow each
 * other, and its share has not drifted. */
static void test_mixture_of_a_late_sample_depends_on_its_number_alone(void **state)
{
    (void)state;
    static const double weights[] = {2, 1, 1e-3};
    tt_arena *a = tt_arena_new();
    const tt_mix *m = tt_mix_new(a, weights, 3);
    int64_t last[3] = {-1, -1, -1};
    const int64_t far = (int64_t)1 << 45;
    for (int64_t g = far; g < far + 20000; g++) {
        int source, again;
        int64_t index, same;
        tt_mix_at(m, g, &source, &index);
        tt_mix_at(m, 5, &again, &same); /* no state */
        tt_mix_at(m, g, &again, &same);
        assert_int_equal(source, again);
        assert_int_equal(index, same);
        assert_true(last[source] < 0 || index == last[source] + 1);
        last[source] = index;
        assert_true(fabs((double)index - weights[source] / 3.001 * (double)g) < 3);
    }
    assert_true(last[0] >= 0 && last[1] >= 0 && last[2] >= 0);
    int source;
    int64_t index;
    tt_mix_at(m, INT64_MAX - 1, &source, &index); /* no overflow */
    assert_true(index > 0);
    tt_arena_free(a);
}

/* ---- as a loader ---- */

static tt_status fake_read(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const int32_t *base = self;
    if (*base < 0)
        return TT_FAIL(err, TT_EIO, "the disk is gone");
    out->ids[0] = *base + (int32_t)i;
    out->labels[0] = 1;
    return TT_OK;
}

static const tt_dataloader_vt fake = {.struct_size = sizeof fake, .read = fake_read};
static const tt_dataloader_vt mixed = {
    .struct_size = sizeof mixed, .n_samples = tt_mixture_samples, .read = tt_mixture_read};
static int32_t bases[] = {0, 100, 200};

static tt_mixture mixture_of(tt_arena *a, tt_mixture_source sources[3])
{
    static const double weights[] = {4, 2, 1};
    static const int64_t sizes[] = {5, 13, 2};
    for (int i = 0; i < 3; i++)
        sources[i] = (tt_mixture_source){
            &fake,
            &bases[i],
            "fake",
            weights[i],
            {.n_samples = sizes[i], .seed = 3, .shuffle = true}
        };
    return (tt_mixture){tt_mix_new(a, weights, 3), sources, 3, 20};
}

/* Each source yields all its samples once per epoch of its own, in a new order each time. */
static void test_mixture_sources_have_epochs_of_their_own(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_mixture_source sources[3];
    const tt_mixture m = mixture_of(a, sources);
    int times[3][13] = {{0}}, changed = 0;
    int64_t order[5] = {0}, at[3] = {0};
    for (int64_t g = 0; g < 7 * 65; g++) { /* 65 draws of source 2 … 260 of source 0 */
        int i;
        int64_t epoch;
        const int64_t index = tt_mixture_find(&m, g, &i, &epoch);
        assert_int_equal(epoch, at[i] / sources[i].order.n_samples);
        assert_int_equal(++times[i][index], epoch + 1);
        if (i == 0) {
            changed += order[at[0] % 5] != index;
            order[at[0] % 5] = index;
        }
        at[i]++;
    }
    assert_int_equal(at[0], 260);
    assert_int_equal(at[1], 130);
    assert_int_equal(at[2], 65);
    assert_true(changed > 100);
    tt_arena_free(a);
}

static tt_stream *stream_of(tt_mixture *m, int64_t first, int64_t local, int rank, int world)
{
    const tt_stream_opts o = {
        .loader = &mixed,
        .loader_self = m,
        .order = {.n_samples = m->n_samples, .shuffle = true, .endless = true},
        .seq_len = 1,
        .local = local,
        .micro_batches = 1,
        .global_batch = local * world,
        .data_rank = rank,
        .data_world = world,
        .first_sample = first,
        .n_steps = -1,
        .vocab_size = 1000,
        .depth = 2
    };
    tt_stream *s = NULL;
    tt_error err;
    assert_int_equal(tt_stream_new(&o, &s, &err), TT_OK);
    return s;
}

/* One rank with 12 samples per step, and 3 of 4 ranks that start at its second step, get the same
 * samples. */
static void test_mixture_continues_on_another_mesh(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_mixture_source sources[3];
    tt_mixture m = mixture_of(a, sources);
    tt_stream *whole = stream_of(&m, 0, 12, 0, 1), *part[3];
    const tt_batch *b, *p;
    int64_t epoch;
    tt_error err;
    for (int r = 0; r < 3; r++)
        part[r] = stream_of(&m, 12, 4, r, 3);
    assert_int_equal(tt_stream_next(whole, &b, &epoch, &err), TT_OK);
    for (int64_t step = 1; step < 20; step++) {
        assert_int_equal(tt_stream_next(whole, &b, &epoch, &err), TT_OK);
        assert_int_equal(epoch, step * 12 / 20);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(tt_stream_next(part[r], &p, &epoch, &err), TT_OK);
            assert_memory_equal(p->ids, b->ids + 4 * r, 4 * sizeof *p->ids);
        }
    }
    tt_stream_free(whole);
    for (int r = 0; r < 3; r++)
        tt_stream_free(part[r]);
    tt_arena_free(a);
}

static void test_mixture_names_the_source_that_failed(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_mixture_source sources[3];
    tt_mixture m = mixture_of(a, sources);
    int32_t bad = -1, planes[4];
    tt_sample x = {sizeof x, 1, planes, planes + 1, planes + 2, planes + 3, NULL};
    tt_error err = {0};
    sources[0].self = &bad;
    tt_status s = TT_OK;
    for (int64_t g = 0; g < 7 && s == TT_OK; g++)
        s = tt_mixture_read(&m, g, &x, &err);
    assert_int_equal(s, TT_EIO);
    assert_non_null(strstr(err.text, "mixture[0] (fake), its sample "));
    assert_non_null(strstr(err.text, "the disk is gone"));
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixture_keeps_proportions_after_any_sample),
        cmocka_unit_test(test_mixture_of_equal_weights_has_its_order),
        cmocka_unit_test(test_mixture_of_a_late_sample_depends_on_its_number_alone),
        cmocka_unit_test(test_mixture_sources_have_epochs_of_their_own),
        cmocka_unit_test(test_mixture_continues_on_another_mesh),
        cmocka_unit_test(test_mixture_names_the_source_that_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
