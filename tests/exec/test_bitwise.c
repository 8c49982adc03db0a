/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"

/* Bits of whole steps: a repeated run has the same bits, and neither the number of threads nor
 * fusion changes one. */

static void same(const char *a, const char *b)
{
    steps x, y;
    char what[400];
    steps_run(a, 3, &x);
    steps_run(b, 3, &y);
    snprintf(what, sizeof what, "\"%s\" and \"%s\"", a, b);
    steps_same_bits(&x, &y, what);
}

static void test_runs_repeat_on_every_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes); i++)
        same(job_meshes[i], job_meshes[i]);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    same("backend.threads 1", "backend.threads 2");
    same("backend.threads 1", "backend.threads 4");
    same("parallelism.tensor_parallel_degree 2 backend.threads 1",
         "parallelism.tensor_parallel_degree 2 backend.threads 3");
    same("backend.name reference backend.threads 1", "backend.name reference backend.threads 4");
}

static void test_fusion_changes_no_bit(void **state)
{
    (void)state;
    same("", "debug.disable_fusion true");
    same("parallelism.data_parallel_shard_degree 2",
         "parallelism.data_parallel_shard_degree 2 debug.disable_fusion true");
    same("", "debug.detect_nan true");
}

static void keep_apart(job *j)
{
    j->setup.apart = true;
}

/* Outputs that take over their operands' bytes give the same numbers in less memory. */
static void test_reuse_in_place_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes); i++) {
        steps x, y;
        steps_run(job_meshes[i], 3, &x);
        steps_change = keep_apart;
        steps_run(job_meshes[i], 3, &y);
        steps_change = NULL;
        steps_same_bits(&x, &y, job_meshes[i]);
        assert_true(x.ranks[0].planned <= y.ranks[0].planned);
    }
}

static void test_recompute_changes_no_bit(void **state)
{
    (void)state;
    same("", "activation_checkpoint.mode full");
    same("", "activation_checkpoint.mode selective");
}

/* P5: micro-batches are accumulated in ascending order whatever the schedule. */
static void test_schedule_changes_no_bit(void **state)
{
    (void)state;
    same("parallelism.pipeline_parallel_degree 2 training.global_batch_size 8",
         "parallelism.pipeline_parallel_degree 2 training.global_batch_size 8 "
         "parallelism.pipeline_parallel_schedule GPipe");
    same("parallelism.pipeline_parallel_degree 4 training.global_batch_size 16",
         "parallelism.pipeline_parallel_degree 4 training.global_batch_size 16 "
         "parallelism.pipeline_parallel_schedule GPipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_repeat_on_every_mesh),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_fusion_changes_no_bit),
        cmocka_unit_test(test_reuse_in_place_changes_no_bit),
        cmocka_unit_test(test_recompute_changes_no_bit),
        cmocka_unit_test(test_schedule_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
