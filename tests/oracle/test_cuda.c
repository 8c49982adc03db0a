/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/check.h"

/* The kernels of the backend cuda, which the fake driver of tests/fake runs on the host, against PyTorch
 * in float64: the goldens and the tolerances of test_oracle.c and test_models.c. TT_CUDA_LIBRARIES, if
 * it is set, names a folder of NVIDIA's libraries, or nothing: then they run on a GPU. */

typedef struct cuda_case {
    const char *golden, *axis, *ranks; /* ranks along this axis */
} cuda_case;

static oracle_run *run_case(const cuda_case *c, oracle_golden *g)
{
    const char *build = oracle_env("BUILD", "build/release");
    oracle_open(c->golden, g);
    const tt_override o[] = {
        {"backend.name",            "cuda"               },
        {        "backend.libraries",
         oracle_env("TT_CUDA_LIBRARIES",   tt_arena_printf(g->arena, "%s/tests/fake/lib", build))},
        { "backend.cache",                    tt_arena_printf(g->arena, "%s/tests/fake/cubin", build)},
        {  tt_arena_printf(g->arena,  "parallelism.%s_degree",              c->axis), c->ranks},
    };
    return oracle_run_job(g, o, TT_COUNT(o));
}

static void test_first_step_on_cuda_equals_pytorch(void **state)
{
    oracle_golden g;
    oracle_run *r = run_case(*state, &g);
    oracle_check_first_step(&g, r);
    oracle_free(r);
    tt_arena_free(g.arena);
}

static void test_ten_steps_on_cuda_equal_pytorch(void **state)
{
    oracle_golden g;
    oracle_run *r = run_case(*state, &g);
    oracle_check_steps(&g, r, 1e-4, 1e-4);
    oracle_free(r);
    tt_arena_free(g.arena);
}

#define CASE(test, golden, axis, ranks)                                                            \
    {                                                                                              \
#test " " golden " " axis " " ranks, test, NULL, NULL, &(cuda_case)                        \
        {                                                                                          \
            golden, axis, ranks                                                                    \
        }                                                                                          \
    }
#define FIRST(golden, axis, ranks) CASE(test_first_step_on_cuda_equals_pytorch, golden, axis, ranks)
#define TEN(golden, axis, ranks) CASE(test_ten_steps_on_cuda_equal_pytorch, golden, axis, ranks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIRST("untied_gradient", "data_parallel_shard", "1"),
        FIRST("small_gradient", "data_parallel_shard", "1"),
        FIRST("gpt2", "data_parallel_shard", "1"),
        FIRST("gpt2", "data_parallel_shard", "2"),
        FIRST("gpt2", "tensor_parallel", "2"),
        FIRST("qwen3", "data_parallel_shard", "1"),
        FIRST("qwen2_window", "data_parallel_shard", "1"),
        TEN("small_sgd", "data_parallel_shard", "1"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
