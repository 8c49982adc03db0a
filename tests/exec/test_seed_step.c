/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"

/* Kernels read training.seed and the number of the step from states of the program. A call has
 * the same pointers in every step, so it can be repeated without a change (R7). */

static tt_backend_vt watching;
static const tt_backend_vt *real;
static tt_kernel kernels[512];
static const tt_kernel *kernels_real[512];
static size_t n_kernels;
static const void *seen_seed, *seen_step;
static int64_t calls;
static int64_t expected_step;

static tt_status watch(void *self, const tt_kernel_call *c, tt_error *err)
{
    size_t i = 0;
    while (strcmp(kernels[i].op, c->op))
        i++;
    if (!calls++) {
        seen_seed = c->seed;
        seen_step = c->step;
    }
    if (!c->seed || c->seed != seen_seed || c->step != seen_step)
        return TT_FAIL(err, TT_EINTERNAL, "%s: other pointers", c->op);
    if (tt_call_seed(c) != UINT64_C(9007199254740993) || tt_call_step(c) != expected_step)
        return TT_FAIL(err, TT_EINTERNAL, "%s: seed %llu, step %lld", c->op,
                       (unsigned long long)tt_call_seed(c), (long long)tt_call_step(c));
    return kernels_real[i]->run(self, c, err);
}

static const tt_kernel *watched(void *self, const char *op)
{
    const tt_kernel *k = real->kernel(self, op);
    for (size_t i = 0; k && i < n_kernels; i++)
        if (!strcmp(kernels[i].op, op))
            return &kernels[i];
    if (!k)
        return NULL;
    assert_true(n_kernels < TT_COUNT(kernels));
    kernels[n_kernels] = *k;
    kernels[n_kernels].run = watch;
    kernels_real[n_kernels] = k;
    return &kernels[n_kernels++];
}

static void test_kernels_read_seed_and_step_from_the_program(void **state)
{
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    (void)state;
    job_open(&j, "training.seed 9007199254740993 training.global_batch_size 8");
    steps s = {.setup = &j.setup};
    real = j.setup.kernels.backend;
    watching = *real;
    watching.kernel = watched;
    j.setup.kernels.backend = &watching;
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
    for (int step = 0; step < 3; step++) {
        expected_step = step + 1;
        if (steps_one(&s, &r, step, 0, &err) != TT_OK)
            fail_msg("%s", err.text);
    }
    assert_true(calls > 3 * 100);
    tt_tensor seed, step;
    assert_int_equal(tt_exec_state_tensor(r.exec, TT_SCALAR_SEED, &seed, &err), TT_OK);
    assert_int_equal(tt_exec_state_tensor(r.exec, TT_SCALAR_STEP, &step, &err), TT_OK);
    assert_true(seed.data == seen_seed && step.data == seen_step);
    tt_rank_close(&r);
    job_close(&j);
}

/* ---- the inputs of a step ---- */

enum { MICRO_BATCHES = 3 };

static int64_t asked[MICRO_BATCHES]; /* rows, of all inputs */

static tt_status count_asked(void *user, const char *input, int micro, int64_t begin, int64_t end,
                             int32_t *dst, tt_error *err)
{
    assert_true(micro >= 0 && micro < MICRO_BATCHES);
    asked[micro] += end - begin;
    return steps_fill(user, input, micro, begin, end, dst, err);
}

static void test_each_micro_batch_has_inputs_of_its_own(void **state)
{
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    (void)state;
    job_open(&j, "training.local_batch_size 2 training.global_batch_size 6");
    steps s = {.setup = &j.setup};
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
    if (tt_exec_micro_batches(r.exec, 1, count_asked, &s, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (int m = 0; m < MICRO_BATCHES; m++)
        assert_int_equal(asked[m], asked[0]);
    assert_true(asked[0] >= 3 * 2 * 37); /* ids, labels and pos of two lines */
    tt_rank_close(&r);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_read_seed_and_step_from_the_program),
        cmocka_unit_test(test_each_micro_batch_has_inputs_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
