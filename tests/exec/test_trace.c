/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/steps.h"
#include "train/trace.h"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Tracing costs two clock readings per op, and none when it is off. The test's own clock_gettime
 * overrides the C library's. */

static int64_t looks;

int clock_gettime(clockid_t id, struct timespec *t)
{
    looks++;
    return (int)syscall(SYS_clock_gettime, id, t);
}

static int64_t calls_of(const tt_exec *x, const tt_machine *limit, const char *op, double *flops,
                        double *bound_s)
{
    tt_op_sum sums[64];
    int64_t calls = 0;
    const size_t n = tt_trace_sums(tt_exec_traced(x), limit, sums, 0, TT_COUNT(sums));
    for (size_t i = 0; i < n; i++) {
        if (op && strcmp(sums[i].op, op))
            continue;
        calls += sums[i].calls;
        *flops = sums[i].flops;
        *bound_s = sums[i].bound_s;
    }
    return calls;
}

static void test_trace_reads_the_clock_twice_per_op_and_never_when_off(void **state)
{
    (void)state;
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    double flops = 0, bound = 0;
    job_open(&j, "training.global_batch_size 8");
    steps s = {.setup = &j.setup};
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
    looks = 0;
    assert_int_equal(steps_one(&s, &r, 0, 0, &err), TT_OK);
    assert_int_equal(looks, 0);

    assert_int_equal(tt_exec_trace_open(r.exec, &err), TT_OK);
    looks = 0;
    assert_int_equal(steps_one(&s, &r, 1, 0, &err), TT_OK); /* open, not on */
    assert_int_equal(looks, 0);
    tt_exec_trace(r.exec, true);
    assert_int_equal(steps_one(&s, &r, 2, 0, &err), TT_OK);
    tt_exec_trace(r.exec, false);
    const tt_machine limit = {.flops_f32 = 1e9, .flops_vector = 1e8, .matmul_efficiency = 1};
    const int64_t events = calls_of(r.exec, &limit, NULL, &flops, &bound);
    assert_true(events > 300);
    const int items = tt_exec_traced(r.exec)->n_items;
    assert_int_equal(items, 2 * 2); /* F and B of two micro-batches: the clock, and the thread's */
    assert_int_equal(looks, 2 * events + 4 * items);
    assert_int_equal(tt_trace_dropped(tt_exec_traced(r.exec)), 0);

    /* two micro-batches; in five layers v and gate are products without an epilogue, and so is
     * the head */
    const double tokens = 2 * 4 * 37;
    assert_int_equal(calls_of(r.exec, &limit, "linear", &flops, &bound), 2 * (5 * 2 + 1));
    const double alone = 5 * (16 * 48 + 70 * 48) + 263 * 48;
    assert_true(flops == 2 * tokens * alone);
    assert_true(bound > 0.999e-9 * flops && bound < 1.001e-9 * flops);
    /* ops that are not products have a limit of their own */
    assert_int_equal(calls_of(r.exec, &limit, "attention", &flops, &bound), 2 * 5);
    assert_true(flops > 0 && bound > 0.999e-8 * flops && bound < 1.001e-8 * flops);
    /* o and down add the residual, up has silu and the product: two FLOPs per instruction */
    assert_int_equal(calls_of(r.exec, &limit, "linear_fused", &flops, &bound), 2 * 5 * 3);
    const double fused = 5 * (48 * 48 + 2 * 70 * 48 + 48 + 2 * 70 + 48);
    assert_true(flops == 2 * tokens * fused);
    /* q and k with RoPE: three per element */
    assert_int_equal(calls_of(r.exec, &limit, "linear_fused_rope", &flops, &bound), 2 * 5 * 2);
    assert_true(flops == 2 * tokens * 5 * (48 + 16) * (48 + 1.5));

    tt_exec_trace(r.exec, true); /* forgets the step before */
    tt_exec_trace(r.exec, false);
    assert_int_equal(calls_of(r.exec, &limit, NULL, &flops, &bound), 0);
    tt_rank_close(&r);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_reads_the_clock_twice_per_op_and_never_when_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
