/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include <math.h>

/* Head-tail balance: which token a context-parallel rank has. */

static void order_of(job *j, const char *overrides)
{
    char text[600];
    snprintf(text, sizeof text, "parallelism.context_parallel_degree %s", overrides);
    job_open(j, text);
}

/* Rank i has chunks i and 2n-1-i, as with torchtitan's balancer. */
static void test_equal_chunks_are_dealt_in_pairs(void **state)
{
    job j;
    (void)state;
    order_of(&j, "4 training.seq_len 48 training.local_batch_size 1");
    const int32_t *from = j.setup.token_order->from;
    for (int i = 0; i < 48; i++) { /* 8 chunks of 6 */
        const int rank = i / 12, chunk = i % 12 < 6 ? rank : 7 - rank;
        assert_int_equal(from[i], chunk * 6 + i % 6);
    }
    assert_true(fabs(j.setup.token_order->busiest - 1) < 1e-12);
    /* the last 12 tokens see 37 to 48 keys, a rank on the mean 294 */
    assert_true(fabs(j.setup.token_order->busiest_plain - 510.0 / 294.0) < 1e-12);
    job_close(&j);
}

/* For any length and number of samples: every token occurs once and stays in its sequence, tokens
 * ascend within a piece, and no rank sees more than its share of tokens plus two. */
static void test_any_size_is_dealt_evenly(void **state)
{
    static const char *const jobs[] = {
        "2 training.seq_len 37 training.local_batch_size 1",
        "2 training.seq_len 37 training.local_batch_size 3",
        "3 training.seq_len 37 training.local_batch_size 2",
        "4 training.seq_len 37 training.local_batch_size 2 parallelism.data_parallel_shard_degree "
        "2",
        "5 training.seq_len 7 training.local_batch_size 1",
        "4 training.seq_len 5 training.local_batch_size 1", /* the last rank has none */
        "3 training.seq_len 37 training.local_batch_size 5 parallelism.pipeline_parallel_degree 2",
    };
    (void)state;
    for (size_t k = 0; k < TT_COUNT(jobs); k++) {
        job j;
        order_of(&j, jobs[k]);
        const tt_setup *s = &j.setup;
        const int64_t line = s->core.training.seq_len, n = s->local * line;
        char *seen = tt_arena_alloc(j.arena, (size_t)n + 1);
        assert_non_null(s->token_order);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = s->token_order->from[i];
            assert_int_equal(at / line, i / line);
            assert_int_equal(seen[at]++, 0);
        }
        assert_true(s->token_order->busiest <= s->token_order->busiest_plain + 1e-12);
        const double pieces = k < 4 ? 1.08 : 1.7; /* of few tokens one is much */
        if (s->token_order->busiest > pieces)
            fail_msg("%s: busiest %.3f", jobs[k], s->token_order->busiest);
        job_close(&j);
    }
}

static void test_tokens_keep_their_order_if_no_sequence_is_cut(void **state)
{
    static const char *const jobs[] = {"1 training.local_batch_size 1",
                                       "2 training.local_batch_size 4"};
    job j;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(jobs); k++) {
        order_of(&j, jobs[k]);
        assert_null(j.setup.token_order);
        job_close(&j);
    }
    order_of(&j, "2 training.local_batch_size 1 parallelism.context_parallel_load_balancer none");
    assert_null(j.setup.token_order->from);
    assert_true(j.setup.token_order->busiest > 1.4);
    job_close(&j);
}

/* `ttrun eval` deals tokens as a run does: ranks have equal work, and what is summed is summed in the order of a validation. */
static void test_evaluation_has_the_order_of_training(void **state)
{
    static const char cut[] = "parallelism.context_parallel_degree 4 training.local_batch_size 1";
    const tt_setup_opts o = {.mode = TT_MODE_EVAL, .compile = true, .data = true};
    tt_error err = {0};
    job train, eval;
    (void)state;
    job_open(&train, cut);
    if (job_try(&eval, job_text, cut, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_non_null(eval.setup.token_order);
    assert_memory_equal(eval.setup.token_order->from, train.setup.token_order->from,
                        37 * sizeof(int32_t));
    job_close(&train);
    job_close(&eval);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_chunks_are_dealt_in_pairs),
        cmocka_unit_test(test_any_size_is_dealt_evenly),
        cmocka_unit_test(test_tokens_keep_their_order_if_no_sequence_is_cut),
        cmocka_unit_test(test_evaluation_has_the_order_of_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
