/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/cases.h"

/* QK-clip against PyTorch in float64, on one rank and on meshes: tests/golden/oracle/qk_clip_*.json, written by
 * tests/golden/qk_clip_golden.py. Ten steps: losses, norms, how many heads are clipped, and the weights and biases of
 * queries and keys after the last. Grouped and plain heads, biases, and MLA with and without a latent vector of
 * queries; 6 heads, which two ranks share, 3 layers. */

#define RING                                                                                       \
    CONTEXT,                                                                                       \
    {                                                                                              \
        "parallelism.context_parallel_rotate_method", "alltoall"                                   \
    }
#define WHOLE_BATCH                                                                                \
    {                                                                                              \
        "training.local_batch_size", "4"                                                           \
    }

static const oracle_case cases[] = {
    {"llama3 reference",       "qk_clip_llama3",     {BACKEND("reference")}                          },
    {"llama3 cpu",             "qk_clip_llama3",     {BACKEND("cpu")}                                },
    {"llama3 one micro-batch", "qk_clip_llama3",     {WHOLE_BATCH}                                   },
    {"llama3 fsdp 2",          "qk_clip_llama3",     {SHARD}                                         },
    {"llama3 fsdp 2 x tp 2",   "qk_clip_llama3",     {SHARD, TENSOR}                                 },
    {"llama3 ring 2",          "qk_clip_llama3",     {RING}                                          },
    {"llama3 pp 2",            "qk_clip_llama3",     {PIPELINE}                                      },
    {"llama3 offloaded",       "qk_clip_llama3",     {{"training.enable_cpu_offload", "true"}, SHARD}},
    {"mha reference",          "qk_clip_llama3_mha", {BACKEND("reference")}                          },
    {"mha cpu",                "qk_clip_llama3_mha", {BACKEND("cpu")}                                },
    {"mha fsdp 2 x tp 2",      "qk_clip_llama3_mha", {SHARD, TENSOR}                                 },
    {"mha cp 2 x tp 2",        "qk_clip_llama3_mha", {CONTEXT, TENSOR}                               },
    {"qwen2 cpu",              "qk_clip_qwen2",      {BACKEND("cpu")}                                },
    {"qwen2 tp 2",             "qk_clip_qwen2",      {TENSOR}                                        },
    {"gpt2 reference",         "qk_clip_gpt2",       {BACKEND("reference")}                          },
    {"gpt2 cpu",               "qk_clip_gpt2",       {BACKEND("cpu")}                                },
    {"gpt2 fsdp 2 x tp 2",     "qk_clip_gpt2",       {SHARD, TENSOR}                                 },
    {"gpt2 pp 2 x tp 2",       "qk_clip_gpt2",       {PIPELINE, TENSOR}                              },
    {"deepseek reference",     "qk_clip_deepseek",   {BACKEND("reference")}                          },
    {"deepseek cpu",           "qk_clip_deepseek",   {BACKEND("cpu")}                                },
    {"deepseek fsdp 2 x tp 2", "qk_clip_deepseek",   {SHARD, TENSOR}                                 },
    {"deepseek cp 2 x tp 2",   "qk_clip_deepseek",   {CONTEXT, TENSOR}                               },
    {"deepseek pp 2",          "qk_clip_deepseek",   {PIPELINE}                                      },
    {"deepseek_q cpu",         "qk_clip_deepseek_q", {BACKEND("cpu")}                                },
    {"deepseek_q fsdp 2",      "qk_clip_deepseek_q", {SHARD}                                         },
    {"muon cpu",               "qk_clip_muon",       {BACKEND("cpu")}                                },
    {"muon fsdp 2 x tp 2",     "qk_clip_muon",       {SHARD, TENSOR}                                 },
};

static void check_clipped(const oracle_golden *g, const oracle_run *r)
{
    const tt_json *want = oracle_get(g->root, "clipped");
    for (int i = 0; i < r->n_steps; i++)
        if (r->clipped[i] != want->items[i]->real)
            fail_msg("step %d: %g heads are clipped, PyTorch has %g", i + 1, r->clipped[i],
                     want->items[i]->real);
}

/* AdamW multiplies float32's rounding where gradients are small: 1e-3 of lr in each of ten steps. */
static void check_final(const oracle_golden *g, const oracle_run *r)
{
    const tt_json *final = oracle_get(g->root, "final");
    const double lr = oracle_get(oracle_get(g->root, "steps")->items[9], "lr")->real;
    for (size_t i = 0; i < final->n; i++)
        oracle_check_samples(oracle_find(r, final->keys[i], NULL), final->items[i], 1e-2 * lr);
}

static void test_ten_steps_equal_pytorch(void **state)
{
    const oracle_case *c = *state;
    oracle_golden g;
    oracle_open(c->golden, &g);
    oracle_run *r = run_case(c, &g);
    oracle_check_steps(&g, r, 1e-5, 1e-5);
    check_clipped(&g, r);
    check_final(&g, r);
    oracle_free(r);
    tt_arena_free(g.arena);
}

/* A value that no logit reaches changes no bit: the factors are exactly 1. */
static void test_large_tau_changes_no_bit(void **state)
{
    static const tt_override large[] = {
        {"optimizer.qk_clip", "1e6"}
    };
    static const tt_override none[] = {
        {"optimizer.qk_clip", "null"}
    };
    static const char *const names[] = {"qk_clip_llama3_mha", "qk_clip_gpt2", "qk_clip_deepseek"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        oracle_golden g;
        oracle_open(names[i], &g);
        oracle_run *a = oracle_run_job(&g, large, 1), *b = oracle_run_job(&g, none, 1);
        oracle_assert_same_run(a, b);
        assert_true(a->clipped[9] == 0 && isnan(b->clipped[9]));
        oracle_free(a);
        oracle_free(b);
        tt_arena_free(g.arena);
    }
}

/* test_qk_clip [PATTERN]: only tests of that name. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[1 + TT_COUNT(cases)] = {
        cmocka_unit_test(test_large_tau_changes_no_bit)};
    static char names[TT_COUNT(tests)][80];
    for (size_t i = 1; i < TT_COUNT(tests); i++) {
        snprintf(names[i], sizeof names[i], "test_ten_steps_equal_pytorch %s", cases[i - 1].name);
        tests[i] = (struct CMUnitTest){names[i], test_ten_steps_equal_pytorch, NULL, NULL,
                                       (void *)(uintptr_t)&cases[i - 1]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
