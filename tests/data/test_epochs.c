/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"
#include <math.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

/* Batches that end with the epoch, against a walk from step to step. */
static void test_epochs_agree_with_a_walk_over_the_steps(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 13; n++)
        for (int64_t batch = 1; batch <= 15; batch++)
            for (int64_t first = 0; first < 3 * n; first++) {
                const tt_epochs e = {n, batch};
                int64_t at = first, g = -1;
                for (int64_t k = 0; k < 12; k++) {
                    const int64_t left = n - at % n, want = left < batch ? left : batch;
                    assert_int_equal(tt_epoch_sample(&e, first, k, &g, NULL), TT_OK);
                    assert_int_equal(g, at);
                    assert_int_equal(tt_epoch_rest(&e, g), want);
                    assert_int_equal(tt_epochs_steps(&e, first, at), k);
                    at += want;
                }
            }
}

static void test_epochs_of_a_part_are_whole_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t n, batch;
        double epochs;
        int64_t steps, samples;
    } rows[] = {
        {40, 4,  2,    20,   80  }, /* 10 steps per epoch */
        {10, 4,  1,    3,    10  }, /* 4, 4, 2 */
        {10, 4,  1.5,  5,    18  }, /* 1.5 of 3 steps, rounded up */
        {10, 4,  0.1,  1,    4   },
        {10, 4,  0,    0,    0   },
        {10, 4,  1.99, 6,    20  },
        {40, 4,  1.1,  11,   44  }, /* 1.1 - 1 is above 0.1 */
        {40, 4,  2.3,  23,   92  },
        {40, 4,  2.31, 24,   96  },
        {28, 4,  2,    14,   56  },
        {3,  16, 2.5,  3,    9   },
        {1,  1,  1000, 1000, 1000},
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const tt_epochs e = {rows[i].n, rows[i].batch};
        int64_t samples = -1;
        assert_int_equal(tt_epochs_samples(&e, rows[i].epochs, &samples, NULL), TT_OK);
        assert_int_equal(samples, rows[i].samples);
        assert_int_equal(tt_epochs_steps(&e, 0, samples), rows[i].steps);
    }
}

static void test_epochs_past_the_last_number_are_an_error(void **state)
{
    (void)state;
    const tt_epochs e = {INT64_MAX / 4, 1000};
    int64_t samples = -7, g = -7;
    tt_error err = {0};
    assert_int_equal(tt_epochs_samples(&e, 1e9, &samples, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "past 2^63"));
    assert_int_equal(tt_epochs_samples(&e, (double)NAN, &samples, &err), TT_EINVAL);
    assert_int_equal(tt_epochs_samples(&e, (double)INFINITY, &samples, &err), TT_EINVAL);
    assert_int_equal(samples, -7);
    assert_int_equal(tt_epoch_sample(&e, 0, INT64_MAX, &g, &err), TT_EINVAL);
    assert_int_equal(g, -7);
}

/* ---- batches of such a run, and the weights of their tokens ---- */

enum { SEQ = 6, SAMPLES = 7 };

/* Sample i: document 0 has i % 3 labels that count and then some that do not, document 1 three. */
static tt_status read_sample(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    (void)self;
    (void)err;
    for (int t = 0; t < SEQ; t++) {
        out->ids[t] = (int32_t)i;
        out->seg[t] = t >= 3;
        out->labels[t] = t >= 3 || t < i % 3 ? 1 : -100;
        ((float *)out->inputs[0])[t] = (float)t;
    }
    return TT_OK;
}

static const tt_dataloader_vt loader = {.struct_size = sizeof loader, .read = read_sample};

static tt_stream *open_weighted(const char *weights, tt_inputs *inputs, int64_t n_steps, int rank)
{
    tt_stream *s = NULL;
    tt_error err = {0};
    *inputs = (tt_inputs){.items = {{"own", TT_F32, 0}}, .n = 1, .n_of_loader = 1};
    if (weights)
        assert_int_equal(tt_inputs_add_weights(inputs, weights, &err), TT_OK);
    const tt_stream_opts o = {
        .loader = &loader,
        .order = {.n_samples = SAMPLES},
        .seq_len = SEQ,
        .local = 2,
        .micro_batches = 1,
        .global_batch = 4,
        .data_rank = rank,
        .data_world = 2,
        .n_steps = n_steps,
        .by_epoch = true,
        .vocab_size = 100,
        .inputs = inputs,
        .weights = weights,
    };
    assert_int_equal(tt_stream_new(&o, &s, &err), TT_OK);
    return s;
}

static void test_epochs_end_with_the_samples_that_are_left(void **state)
{
    (void)state;
    static const int64_t want[2][4][2] = {
        {{0, 1}, {4, 5},  {0, 1}, {4, 5} },
        {{2, 3}, {6, -1}, {2, 3}, {6, -1}}
    };
    for (int rank = 0; rank < 2; rank++) {
        tt_inputs inputs;
        tt_stream *s = open_weighted(NULL, &inputs, 4, rank);
        for (int k = 0; k < 4; k++) {
            const tt_batch *b = NULL;
            int64_t epoch = -1;
            tt_error err;
            assert_int_equal(tt_stream_next(s, &b, &epoch, &err), TT_OK);
            assert_int_equal(epoch, k / 2);
            for (int j = 0; j < 2; j++) {
                const int64_t i = want[rank][k][j];
                assert_int_equal(b->ids[j * SEQ], i < 0 ? 0 : i);
                for (int t = 0; t < SEQ; t++) {
                    assert_int_equal(b->labels[j * SEQ + t] >= 0, i >= 0 && (t >= 3 || t < i % 3));
                    const float own = ((const float *)b->more[0])[j * SEQ + t];
                    assert_true(own >= (float)(i < 0 ? 0 : t) && own <= (float)(i < 0 ? 0 : t));
                }
            }
            assert_true(fabs(b->weight - (double)b->counted) < 1e-12);
        }
        tt_stream_free(s);
    }
}

static void test_epochs_weigh_documents_by_their_counted_labels(void **state)
{
    (void)state;
    for (int root = 0; root < 2; root++) {
        const char *name = root ? TT_INPUT_ROOT_WEIGHTS : TT_INPUT_MEAN_WEIGHTS;
        tt_inputs inputs;
        tt_stream *s = open_weighted(name, &inputs, 1, 0); /* samples 0 and 1 */
        const tt_batch *b = NULL;
        tt_error err;
        assert_int_equal(inputs.n, 2);
        assert_int_equal(tt_stream_next(s, &b, NULL, &err), TT_OK);
        const float *w = b->more[1];
        const double third = root ? 1 / sqrt(3) : 1.0 / 3;
        for (int t = 0; t < SEQ; t++) {
            assert_true(fabs((double)w[t] - (t >= 3 ? third : 0)) < 1e-7); /* none counts: 0 */
            assert_true(fabs((double)w[SEQ + t] - (t >= 3 ? third : 1)) < 1e-7);
        }
        assert_true(fabs(b->weight - (6 * third + 1)) < 1e-6); /* by 1/n: three documents */
        tt_stream_free(s);
    }
}

static void test_epochs_refuse_weights_that_are_no_weights(void **state)
{
    (void)state;
    tt_inputs t = {.items = {{"own", TT_I32, 0}}, .n = 1, .n_of_loader = 1};
    tt_error err = {0};
    assert_int_equal(tt_inputs_add_weights(&t, "own", &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "is i32; loss weights are f32"));
    assert_int_equal(tt_inputs_add_weights(&t, "other", &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "has no input \"other\""));
    for (t.n = 1; t.n < TT_MAX_INPUTS; t.n++)
        t.items[t.n] = (tt_input_info){"more", TT_F32, 0};
    assert_int_equal(tt_inputs_add_weights(&t, TT_INPUT_MEAN_WEIGHTS, &err), TT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_agree_with_a_walk_over_the_steps),
        cmocka_unit_test(test_epochs_of_a_part_are_whole_steps),
        cmocka_unit_test(test_epochs_past_the_last_number_are_an_error),
        cmocka_unit_test(test_epochs_end_with_the_samples_that_are_left),
        cmocka_unit_test(test_epochs_weigh_documents_by_their_counted_labels),
        cmocka_unit_test(test_epochs_refuse_weights_that_are_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
