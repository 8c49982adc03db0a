/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/cases.h"

/* Other models against transformers in float64, on one rank and on meshes: tests/golden/oracle/,
 * written by tests/golden/models_golden.py. Initial values, loss, norm and every gradient of a
 * step; of mixtures of experts also losses and norms of ten steps of AdamW, with the biases that keep
 * the experts equally busy. Sizes divide nothing: 777 ids, hidden width 211, 37 tokens, 3 layers. */

#define EXPERT DEGREE("expert_parallel", "2")
/* two ranks, one micro-batch */
#define HALF                                                                                       \
    {                                                                                              \
        "training.local_batch_size", "2"                                                           \
    }
#define WHOLE                                                                                      \
    {                                                                                              \
        "parallelism.pipeline_parallel_microbatches", "1"                                          \
    }

static const oracle_case cases[] = {
    {"gpt2 reference",               "gpt2",           {BACKEND("reference")}},
    {"gpt2 cpu",                     "gpt2",           {BACKEND("cpu")}      },
    {"gpt2 fsdp 2",                  "gpt2",           {SHARD}               },
    {"gpt2 tp 2",                    "gpt2",           {TENSOR}              },
    {"gpt2 cp 2",                    "gpt2",           {CONTEXT}             },
    {"gpt2 fsdp 2 x tp 2",           "gpt2",           {SHARD, TENSOR}       },
    {"gpt2 untied",                  "gpt2_untied",    {BACKEND("cpu")}      },
    {"gpt2 untied pp 2",             "gpt2_untied",    {PIPELINE}            },
    {"gpt2 untied cp 2 x tp 2",      "gpt2_untied",    {CONTEXT, TENSOR}     },
    {"qwen3 reference",              "qwen3",          {BACKEND("reference")}},
    {"qwen3 cpu",                    "qwen3",          {BACKEND("cpu")}      },
    {"qwen3 fsdp 2",                 "qwen3",          {SHARD}               },
    {"qwen3 tp 2",                   "qwen3",          {TENSOR}              },
    {"qwen3 cp 2",                   "qwen3",          {CONTEXT}             },
    {"qwen3 fsdp 2 x tp 2",          "qwen3",          {SHARD, TENSOR}       },
    {"qwen3 untied",                 "qwen3_untied",   {BACKEND("cpu")}      },
    {"qwen3 untied pp 2",            "qwen3_untied",   {PIPELINE}            },
    {"qwen3 untied cp 2 x tp 2",     "qwen3_untied",   {CONTEXT, TENSOR}     },
    {"qwen2 reference",              "qwen2",          {BACKEND("reference")}},
    {"qwen2 cpu",                    "qwen2",          {BACKEND("cpu")}      },
    {"qwen2 fsdp 2",                 "qwen2",          {SHARD}               },
    {"qwen2 tp 2",                   "qwen2",          {TENSOR}              },
    {"qwen2 cp 2 x tp 2",            "qwen2",          {CONTEXT, TENSOR}     },
    {"qwen2 window reference",       "qwen2_window",   {BACKEND("reference")}},
    {"qwen2 window",                 "qwen2_window",   {BACKEND("cpu")}      },
    {"qwen2 window cp 2",            "qwen2_window",   {CONTEXT}             },
    {"qwen2 window pp 2",            "qwen2_window",   {PIPELINE}            },
    {"mistral reference",            "mistral",        {BACKEND("reference")}},
    {"mistral cpu",                  "mistral",        {BACKEND("cpu")}      },
    {"mistral fsdp 2 x tp 2",        "mistral",        {SHARD, TENSOR}       },
    {"mistral cp 2",                 "mistral",        {CONTEXT}             },
    {"mistral cp 2 x tp 2",          "mistral",        {CONTEXT, TENSOR}     },
    {"mistral pp 2",                 "mistral",        {PIPELINE}            },
    {"gemma2 reference",             "gemma2",         {BACKEND("reference")}},
    {"gemma2 cpu",                   "gemma2",         {BACKEND("cpu")}      },
    {"gemma2 fsdp 2 x tp 2",         "gemma2",         {SHARD, TENSOR}       },
    {"gemma2 cp 2 x tp 2",           "gemma2",         {CONTEXT, TENSOR}     },
    {"gemma2 pp 2",                  "gemma2",         {PIPELINE}            },
    {"gemma3 reference",             "gemma3",         {BACKEND("reference")}},
    {"gemma3 cpu",                   "gemma3",         {BACKEND("cpu")}      },
    {"gemma3 fsdp 2 x tp 2",         "gemma3",         {SHARD, TENSOR}       },
    {"gemma3 cp 2 x tp 2",           "gemma3",         {CONTEXT, TENSOR}     },
    {"gemma3 pp 2",                  "gemma3",         {PIPELINE}            },
    {"phi3 reference",               "phi3",           {BACKEND("reference")}},
    {"phi3 cpu",                     "phi3",           {BACKEND("cpu")}      },
    {"phi3 fsdp 2 x tp 2",           "phi3",           {SHARD, TENSOR}       },
    {"phi3 cp 2 x tp 2",             "phi3",           {CONTEXT, TENSOR}     },
    {"phi3 pp 2",                    "phi3",           {PIPELINE}            },
    {"olmo2 reference",              "olmo2",          {BACKEND("reference")}},
    {"olmo2 cpu",                    "olmo2",          {BACKEND("cpu")}      },
    {"olmo2 fsdp 2 x tp 2",          "olmo2",          {SHARD, TENSOR}       },
    {"olmo2 cp 2 x tp 2",            "olmo2",          {CONTEXT, TENSOR}     },
    {"olmo2 pp 2",                   "olmo2",          {PIPELINE}            },
    {"gemma reference",              "gemma",          {BACKEND("reference")}},
    {"gemma cpu",                    "gemma",          {BACKEND("cpu")}      },
    {"gemma fsdp 2 x tp 2",          "gemma",          {SHARD, TENSOR}       },
    {"gemma cp 2",                   "gemma",          {CONTEXT}             },
    {"gemma pp 2",                   "gemma",          {PIPELINE}            },
    {"olmo3 reference",              "olmo3",          {BACKEND("reference")}},
    {"olmo3 cpu",                    "olmo3",          {BACKEND("cpu")}      },
    {"olmo3 fsdp 2 x tp 2",          "olmo3",          {SHARD, TENSOR}       },
    {"olmo3 cp 2 x tp 2",            "olmo3",          {CONTEXT, TENSOR}     },
    {"olmo3 pp 2",                   "olmo3",          {PIPELINE}            },
    {"smollm3 reference",            "smollm3",        {BACKEND("reference")}},
    {"smollm3 cpu",                  "smollm3",        {BACKEND("cpu")}      },
    {"smollm3 fsdp 2 x tp 2",        "smollm3",        {SHARD, TENSOR}       },
    {"smollm3 cp 2 x tp 2",          "smollm3",        {CONTEXT, TENSOR}     },
    {"smollm3 pp 2",                 "smollm3",        {PIPELINE}            },
    {"mixtral reference",            "mixtral",        {BACKEND("reference")}},
    {"mixtral cpu",                  "mixtral",        {BACKEND("cpu")}      },
    {"mixtral fsdp 2 x tp 2",        "mixtral",        {SHARD, TENSOR}       },
    {"mixtral cp 2 x tp 2",          "mixtral",        {CONTEXT, TENSOR}     },
    {"mixtral pp 2",                 "mixtral",        {PIPELINE}            },
    {"qwen3_moe reference",          "qwen3_moe",      {BACKEND("reference")}},
    {"qwen3_moe cpu",                "qwen3_moe",      {BACKEND("cpu")}      },
    {"qwen3_moe fsdp 2 x tp 2",      "qwen3_moe",      {SHARD, TENSOR}       },
    {"qwen3_moe cp 2 x tp 2",        "qwen3_moe",      {CONTEXT, TENSOR}     },
    {"qwen3_moe pp 2",               "qwen3_moe",      {PIPELINE}            },
    {"qwen3_moe aux reference",      "qwen3_moe_aux",  {BACKEND("reference")}},
    {"qwen3_moe aux cpu",            "qwen3_moe_aux",  {BACKEND("cpu")}      },
    {"qwen3_moe aux fsdp 2",         "qwen3_moe_aux",  {SHARD, HALF}         },
    {"qwen3_moe aux tp 2",           "qwen3_moe_aux",  {TENSOR}              },
    {"qwen3_moe aux cp 2",           "qwen3_moe_aux",  {CONTEXT}             },
    {"qwen3_moe aux pp 2",           "qwen3_moe_aux",  {PIPELINE, WHOLE}     },
    {"deepseek reference",           "deepseek",       {BACKEND("reference")}},
    {"deepseek cpu",                 "deepseek",       {BACKEND("cpu")}      },
    {"deepseek fsdp 2",              "deepseek",       {SHARD}               },
    {"deepseek tp 2",                "deepseek",       {TENSOR}              },
    {"deepseek cp 2 x tp 2",         "deepseek",       {CONTEXT, TENSOR}     },
    {"deepseek pp 2",                "deepseek",       {PIPELINE}            },
    {"deepseek q reference",         "deepseek_q",     {BACKEND("reference")}},
    {"deepseek q fsdp 2 x tp 2",     "deepseek_q",     {SHARD, TENSOR}       },
    {"deepseek_v3 reference",        "deepseek_v3",    {BACKEND("reference")}},
    {"deepseek_v3 cpu",              "deepseek_v3",    {BACKEND("cpu")}      },
    {"deepseek_v3 fsdp 2 x tp 2",    "deepseek_v3",    {SHARD, TENSOR}       },
    {"deepseek_v3 cp 2",             "deepseek_v3",    {CONTEXT}             },
    {"deepseek_v3 pp 2",             "deepseek_v3",    {PIPELINE}            },
    {"deepseek_mtp reference",       "deepseek_mtp",   {BACKEND("reference")}},
    {"deepseek_mtp cpu",             "deepseek_mtp",   {BACKEND("cpu")}      },
    {"deepseek_mtp fsdp 2 x tp 2",   "deepseek_mtp",   {SHARD, TENSOR}       },
    {"deepseek_mtp cp 2",            "deepseek_mtp",   {CONTEXT}             },
    {"deepseek_mtp pp 2",            "deepseek_mtp",   {PIPELINE}            },
    {"deepseek_v2 cpu",              "deepseek_v2",    {BACKEND("cpu")}      },
    {"deepseek_v2 fsdp 2 x tp 2",    "deepseek_v2",    {SHARD, TENSOR}       },
    {"kimi_k2 reference",            "kimi_k2",        {BACKEND("reference")}},
    {"kimi_k2 cpu",                  "kimi_k2",        {BACKEND("cpu")}      },
    {"kimi_k2 fsdp 2 x tp 2",        "kimi_k2",        {SHARD, TENSOR}       },
    {"kimi_k2 ep 2",                 "kimi_k2",        {SHARD, EXPERT}       },
    {"kimi_k2 cp 2",                 "kimi_k2",        {CONTEXT}             },
    {"kimi_k2 pp 2",                 "kimi_k2",        {PIPELINE}            },
    {"glm4_moe reference",           "glm4_moe",       {BACKEND("reference")}},
    {"glm4_moe cpu",                 "glm4_moe",       {BACKEND("cpu")}      },
    {"glm4_moe fsdp 2 x tp 2",       "glm4_moe",       {SHARD, TENSOR}       },
    {"glm4_moe ep 2",                "glm4_moe",       {SHARD, EXPERT}       },
    {"glm4_moe cp 2",                "glm4_moe",       {CONTEXT}             },
    {"glm4_moe pp 2",                "glm4_moe",       {PIPELINE}            },
    {"glm4_air reference",           "glm4_air",       {BACKEND("reference")}},
    {"glm4_air cpu",                 "glm4_air",       {BACKEND("cpu")}      },
    {"glm4_air fsdp 2 x tp 2",       "glm4_air",       {SHARD, TENSOR}       },
    {"glm4_air ep 2",                "glm4_air",       {SHARD, EXPERT}       },
    {"glm4_air cp 2",                "glm4_air",       {CONTEXT}             },
    {"glm4_air pp 2",                "glm4_air",       {PIPELINE}            },
    {"llama4 reference",             "llama4",         {BACKEND("reference")}},
    {"llama4 cpu",                   "llama4",         {BACKEND("cpu")}      },
    {"llama4 fsdp 2 x tp 2",         "llama4",         {SHARD, TENSOR}       },
    {"llama4 ep 2",                  "llama4",         {SHARD, EXPERT}       },
    {"llama4 cp 2",                  "llama4",         {CONTEXT}             },
    {"llama4 pp 2",                  "llama4",         {PIPELINE}            },
    {"llama4_two reference",         "llama4_two",     {BACKEND("reference")}},
    {"llama4_two cpu",               "llama4_two",     {BACKEND("cpu")}      },
    {"llama4_two fsdp 2 x tp 2",     "llama4_two",     {SHARD, TENSOR}       },
    {"llama4_two ep 2",              "llama4_two",     {SHARD, EXPERT}       },
    {"llama4_two cp 2",              "llama4_two",     {CONTEXT}             },
    {"llama4_two pp 2",              "llama4_two",     {PIPELINE}            },
    {"gpt_oss reference",            "gpt_oss",        {BACKEND("reference")}},
    {"gpt_oss cpu",                  "gpt_oss",        {BACKEND("cpu")}      },
    {"gpt_oss fsdp 2 x tp 2",        "gpt_oss",        {SHARD, TENSOR}       },
    {"gpt_oss cp 2 x tp 2",          "gpt_oss",        {CONTEXT, TENSOR}     },
    {"gpt_oss pp 2",                 "gpt_oss",        {PIPELINE}            },
    {"qwen3_next reference",         "qwen3_next",     {BACKEND("reference")}},
    {"qwen3_next cpu",               "qwen3_next",     {BACKEND("cpu")}      },
    {"qwen3_next fsdp 2",            "qwen3_next",     {SHARD}               },
    {"qwen3_next tp 2",              "qwen3_next",     {TENSOR}              },
    {"qwen3_next cp 2",              "qwen3_next",     {CONTEXT}             },
    {"qwen3_next pp 2",              "qwen3_next",     {PIPELINE}            },
    {"qwen3_next ep 2",              "qwen3_next",     {SHARD, EXPERT}       },
    {"qwen3_next cp 2 x tp 2",       "qwen3_next",     {CONTEXT, TENSOR}     },
    {"qwen3_next aux cpu",           "qwen3_next_aux", {BACKEND("cpu")}      },
    {"qwen3_next aux fsdp 2",        "qwen3_next_aux", {SHARD, HALF}         },
    {"qwen3_moe each cpu",           "qwen3_moe_each", {BACKEND("cpu")}      },
    {"qwen3_moe each fsdp 2 x tp 2", "qwen3_moe_each", {SHARD, TENSOR}       },
    {"qwen3_moe each cp 2 x tp 2",   "qwen3_moe_each", {CONTEXT, TENSOR}     },
    {"qwen3_moe each pp 2",          "qwen3_moe_each", {PIPELINE}            },
};

#define TEN(golden, mesh, ...)                                                                     \
    {golden " cpu", golden "_adamw", {BACKEND("cpu")}},                                            \
    {                                                                                              \
        golden " " mesh, golden "_adamw",                                                          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const oracle_case ten_steps[] = {
    TEN("mixtral", "fsdp 2 x tp 2", SHARD, TENSOR),
    TEN("qwen3_moe", "fsdp 2 x tp 2", SHARD, TENSOR),
    TEN("gpt_oss", "pp 2", PIPELINE),
    TEN("deepseek_v3", "ep 2", SHARD, EXPERT),
    TEN("kimi_k2", "ep 2 x tp 2", SHARD, EXPERT, TENSOR),
    TEN("glm4_moe", "ep 2", SHARD, EXPERT),
    TEN("llama4", "cp 2 x tp 2", CONTEXT, TENSOR),
    TEN("llama4_many", "ep 2", SHARD, EXPERT),
    TEN("qwen3_next", "ep 2 x tp 2", SHARD, EXPERT, TENSOR),
};

static oracle_golden golden_of(const oracle_case *c)
{
    oracle_golden g;
    oracle_open(c->golden, &g);
    return g;
}

static void test_first_step_equals_transformers(void **state)
{
    const oracle_golden g = golden_of(*state);
    oracle_run *r = run_case(*state, &g);
    oracle_check_first_step(&g, r);
    oracle_free(r);
    tt_arena_free(g.arena);
}

static void test_ten_steps_equal_transformers(void **state)
{
    const oracle_golden g = golden_of(*state);
    oracle_run *r = run_case(*state, &g);
    oracle_check_steps(&g, r, 1e-5, 1e-5);
    oracle_free(r);
    tt_arena_free(g.arena);
}

/* 41 positions: the error comes before anything is trained, and names both numbers. */
static void test_gpt2_refuses_more_tokens_than_positions(void **state)
{
    (void)state;
    const oracle_golden g = golden_of(&cases[0]);
    const tt_override fits[] = {
        {"training.seq_len", "41"}
    };
    const tt_override more[] = {
        {"training.seq_len", "42"}
    };
    oracle_run *r = NULL;
    tt_error err = {0};
    oracle_free(oracle_run_job(&g, fits, 1));
    assert_int_equal(oracle_try(&g, more, 1, &r, &err), TT_EINVAL);
    assert_null(r);
    assert_non_null(strstr(err.text, "training.seq_len: 42 tokens"));
    assert_non_null(strstr(err.text, "only 41 positions"));
    tt_arena_free(g.arena);
}

/* test_models [PATTERN]: only tests of that name. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[1 + TT_COUNT(cases) + TT_COUNT(ten_steps)] = {
        cmocka_unit_test(test_gpt2_refuses_more_tokens_than_positions)};
    static char names[TT_COUNT(tests)][80];
    for (size_t i = 1; i < TT_COUNT(tests); i++) {
        const bool one = i <= TT_COUNT(cases);
        const oracle_case *c = one ? &cases[i - 1] : &ten_steps[i - 1 - TT_COUNT(cases)];
        snprintf(names[i], sizeof names[i], "%s %s",
                 one ? "test_first_step_equals_transformers" : "test_ten_steps_equal_transformers",
                 c->name);
        tests[i] = (struct CMUnitTest){
            names[i], one ? test_first_step_equals_transformers : test_ten_steps_equal_transformers,
            NULL, NULL, (void *)(uintptr_t)c};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
