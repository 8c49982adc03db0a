/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"
#include <math.h>

/* The optimizer schedule_free where the rate falls: each step has the weight of the largest rate so far, squared. With
 * a rate that rises, or stays, tests/oracle compares it with the authors' code. */

static const float *state_of(const tt_rank *r, const char *suffix)
{
    tt_exec_tensor *t;
    const size_t n = tt_exec_tensors(r->exec, r->arena, &t);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(t[i].name, "lm_head.weight") && t[i].suffix && !strcmp(t[i].suffix, suffix))
            return t[i].tensor.data;
    fail_msg("there is no state %s", suffix);
    return NULL;
}

static void one_step(steps *s, tt_rank *r, int64_t step, double lr)
{
    tt_error err = {0};
    tt_exec_set_scalar(r->exec, TT_SCALAR_INV_TOKENS, 1.0 / 300);
    tt_exec_set_scalar(r->exec, TT_SCALAR_LR, lr);
    if (tt_exec_micro_batches(r->exec, step, steps_fill, s, &err) != TT_OK ||
        tt_exec_epilogue(r->exec, &err) != TT_OK || tt_exec_update(r->exec, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-6 * fabs(want)))
        fail_msg("%.9g is not %.9g", have, want);
}

static void test_the_largest_rate_is_the_weight(void **state)
{
    static const double rates[] = {0.05, 0.1, 0.02, 0.04}, largest[] = {0.05, 0.1, 0.1, 0.1};
    enum { SOME = 100 };
    job j;
    tt_rank r;
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    float was[SOME];
    double sum = 0;
    (void)state;
    job_open(&j, "optimizer.name schedule_free model.args.n_layers 1 training.seq_len 8");
    steps s = {.setup = &j.setup};
    if (tt_rank_open(&j.setup, &d, false, &r, &err) != TT_OK ||
        tt_rank_init_params(&r, &err) != TT_OK || tt_rank_start_copies(&r, NULL, &err) != TT_OK)
        fail_msg("%s", err.text);
    const float *x = state_of(&r, "x"), *z = state_of(&r, "z");
    for (int i = 0; i < 4; i++) {
        const double weight = largest[i] * largest[i];
        memcpy(was, x, sizeof was);
        one_step(&s, &r, i + 1, rates[i]);
        sum += weight;
        near((double)*state_of(&r, "lr_max"), largest[i]);
        near((double)*state_of(&r, "weight_sum"), sum);
        for (int k = 0; k < SOME; k++) { /* in f32 */
            const double by = (double)z[k] - (double)was[k];
            const double want = (double)was[k] + weight / sum * by;
            assert_true(fabs((double)x[k] - want) <= 1e-6 * (fabs((double)was[k]) + fabs(by)));
        }
    }
    tt_rank_close(&r);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_largest_rate_is_the_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
