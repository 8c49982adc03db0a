/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/pipelines.h"

/* Every schedule trains alike on the executor (P5), on any mesh, and as without a pipeline;
 * values are in slots, whose bytes are NaN while no value is alive in them. */

static void test_all_schedules_give_the_same_training(void **state)
{
    (void)state;
    all_train_alike(PP2, FOUR_OF_2 "8", "");
}

static void test_all_schedules_with_recompute(void **state)
{
    (void)state;
    all_train_alike(PP2, FOUR_OF_2 "8", "activation_checkpoint.mode full");
    all_train_alike(PP2, FOUR_OF_2 "8", "activation_checkpoint.mode selective");
}

static void test_all_schedules_with_fsdp(void **state)
{
    (void)state;
    all_train_alike(PP2 "parallelism.data_parallel_shard_degree 2",
                    FOUR_OF_2 "16 parallelism.data_parallel_shard_degree 2", "");
}

static void test_all_schedules_with_tensor_parallelism(void **state)
{
    (void)state;
    all_train_alike(PP2 "parallelism.tensor_parallel_degree 2",
                    FOUR_OF_2 "8 parallelism.tensor_parallel_degree 2", "");
}

/* Seven layers on three ranks with six stages: no number divides another. */
static void test_all_schedules_on_three_ranks(void **state)
{
    (void)state;
    all_train_alike(PP3, "training.local_batch_size 1 training.global_batch_size 8",
                    "model.args.n_layers 7");
}

/* On every rank of every schedule, the work memory that is used equals the plan to the byte. */
static void test_high_water_on_every_rank(void **state)
{
    (void)state;
    for (size_t k = 0; k < TT_COUNT(schedules); k++) {
        char text[400];
        steps s;
        snprintf(text, sizeof text, PLAIN PP2 "debug.poison true" SCHEDULE "%s", schedules[k]);
        steps_run(text, 1, &s);
        for (int r = 0; r < 2; r++)
            if (s.ranks[r].high_water != s.ranks[r].planned || !s.ranks[r].planned)
                fail_msg("%s, rank %d: %lld bytes used, %lld planned", text, r,
                         (long long)s.ranks[r].high_water, (long long)s.ranks[r].planned);
    }
}

/* In every model, one value crosses between stages in each direction, so two messages of a
 * directed pair do not wait for their receiver: the program that runs is the one that
 * tests/pipeline/test_programs.c proves. */
static void test_two_messages_do_not_wait_for_their_receiver(void **state)
{
    static const char *const specs[] = {"llama3",  "gpt2",   "qwen2", "qwen3",
                                        "mistral", "gemma2", "phi3",  "olmo2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(specs); i++) {
        job j;
        tt_plan *p;
        tt_error err = {0};
        char text[300];
        snprintf(text, sizeof text,
                 "{\"spec\":\"%s\",\"model\":{\"flavor\":\"debugmodel\",\"args\":{\"n_layers\":4}},"
                 "\"training\":{\"local_batch_size\":4,\"seq_len\":32,\"steps\":1},"
                 "\"checkpoint\":{\"enable\":false}}",
                 specs[i]);
        job_open_text(
            &j, text,
            "parallelism.pipeline_parallel_degree 4 parallelism.tensor_parallel_degree 2");
        if (tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err) != TT_OK)
            fail_msg("%s: %s", specs[i], err.text);
        assert_int_equal(p->buffered_messages, 2);
        job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_schedules_give_the_same_training),
        cmocka_unit_test(test_all_schedules_with_recompute),
        cmocka_unit_test(test_all_schedules_with_fsdp),
        cmocka_unit_test(test_all_schedules_with_tensor_parallelism),
        cmocka_unit_test(test_all_schedules_on_three_ranks),
        cmocka_unit_test(test_high_water_on_every_rank),
        cmocka_unit_test(test_two_messages_do_not_wait_for_their_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
