/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/check.h"

/* Whole jobs against PyTorch in float64: tests/golden/oracle/, written by tests/golden/oracle.py.
 * Initial values, the first step's gradients (sgd's momentum after one step), losses, norms and
 * rates of ten steps; on both backends. */

typedef struct oracle_case {
    const char *golden, *backend;
} oracle_case;

static oracle_run *run_case(const oracle_case *c, oracle_golden *g)
{
    oracle_open(c->golden, g);
    return oracle_run_on(g, c->backend);
}

static void test_first_step_equals_pytorch(void **state)
{
    oracle_golden g;
    oracle_run *r = run_case(*state, &g);
    oracle_check_first_step(&g, r);
    oracle_free(r);
    tt_arena_free(g.arena);
}

/* On `reference` three, but for the long tier. */
static void test_ten_steps_equal_pytorch(void **state)
{
    const oracle_case *c = *state;
    oracle_golden g;
    oracle_run *r = run_case(c, &g);
    oracle_check_first_steps(&g, r, oracle_steps_on(&g, c->backend), 1e-4, 1e-4);
    oracle_free(r);
    tt_arena_free(g.arena);
}

/* Muon's matrices are orthogonalized in bf16, so f32 and f64 differ by some roundings of bf16. */
static void test_ten_steps_of_muon_equal_pytorch(void **state)
{
    const oracle_case *c = *state;
    oracle_golden g;
    oracle_run *r = run_case(c, &g);
    oracle_check_first_steps(&g, r, oracle_steps_on(&g, c->backend), 1e-5, 1e-5);
    oracle_free(r);
    tt_arena_free(g.arena);
}

#define FIRST(golden, backend)                                                                     \
    {                                                                                              \
        "test_first_step_equals_pytorch " golden " " backend, test_first_step_equals_pytorch,      \
            NULL, NULL, &(oracle_case)                                                             \
        {                                                                                          \
            golden, backend                                                                        \
        }                                                                                          \
    }
#define TEN(golden, backend)                                                                       \
    {                                                                                              \
        "test_ten_steps_equal_pytorch " golden " " backend, test_ten_steps_equal_pytorch, NULL,    \
            NULL, &(oracle_case)                                                                   \
        {                                                                                          \
            golden, backend                                                                        \
        }                                                                                          \
    }
#define MUON(golden, backend)                                                                      \
    {                                                                                              \
        "test_ten_steps_of_muon_equal_pytorch " golden " " backend,                                \
            test_ten_steps_of_muon_equal_pytorch, NULL, NULL, &(oracle_case)                       \
        {                                                                                          \
            golden, backend                                                                        \
        }                                                                                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIRST("untied_gradient", "reference"),
        FIRST("untied_gradient", "cpu"),
        FIRST("tied_gradient", "reference"),
        FIRST("tied_gradient", "cpu"),
        FIRST("small_gradient", "reference"),
        FIRST("small_gradient", "cpu"),
        FIRST("z_loss_gradient", "reference"),
        FIRST("z_loss_gradient", "cpu"),
        TEN("untied_adamw", "reference"),
        TEN("untied_adamw", "cpu"),
        TEN("tied_adamw", "cpu"),
        TEN("small_sgd", "reference"),
        TEN("small_sgd", "cpu"),
        TEN("adam", "cpu"),
        TEN("lion", "cpu"),
        TEN("lion", "reference"),
        TEN("schedule_free", "cpu"),
        TEN("schedule_free", "reference"),
        TEN("adamw8bit", "cpu"),
        TEN("adamw8bit", "reference"),
        TEN("adamw8bit_torchao", "cpu"),
        TEN("adamw8bit_torchao", "reference"),
        TEN("soap", "cpu"),
        TEN("soap", "reference"),
        TEN("mixed_groups", "cpu"),
        TEN("norm_1", "cpu"),
        TEN("norm_inf", "cpu"),
        TEN("norm_inf", "reference"),
        TEN("norm_3", "cpu"),
        TEN("norm_0.5", "cpu"),
        TEN("norm_of_groups", "cpu"),
        MUON("muon_original", "reference"),
        MUON("muon_original", "cpu"),
        MUON("muon_match_rms_adamw", "cpu"),
        MUON("muon_spectral_unclamped", "cpu"),
        MUON("muon_polar_express", "reference"),
        MUON("muon_polar_express", "cpu"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
