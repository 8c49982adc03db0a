/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/oracle.h"
#include "tier.h"

/* Changes that may not change a bit: a second run, the number of threads, fusion, recomputation,
 * poisoned memory. After three AdamW steps (on `reference` one, but for the long tier) of two micro-batches each, every
 * parameter and optimizer state, every loss and norm are compared. */

#define MAX_OVERRIDES 6

typedef struct bitwise_case {
    const char *name, *golden;
    tt_override base[MAX_OVERRIDES], other[MAX_OVERRIDES];
} bitwise_case;

#define THREADS(n)                                                                                 \
    {                                                                                              \
        "backend.threads", n                                                                       \
    }
#define BACKEND(name)                                                                              \
    {                                                                                              \
        "backend.name", name                                                                       \
    }
#define BLAS(name)                                                                                 \
    {                                                                                              \
        "backend.blas", name                                                                       \
    }
#define ISA(name)                                                                                  \
    {                                                                                              \
        "backend.isa", name                                                                        \
    }
#define UNFUSED                                                                                    \
    {                                                                                              \
        "debug.disable_fusion", "true"                                                             \
    }
#define POISON                                                                                     \
    {                                                                                              \
        "debug.poison", "true"                                                                     \
    }
#define NAN_CHECK                                                                                  \
    {                                                                                              \
        "debug.detect_nan", "true"                                                                 \
    }
#define RECOMPUTE(mode)                                                                            \
    {                                                                                              \
        "activation_checkpoint.mode", mode                                                         \
    }
#define FSDP                                                                                       \
    {                                                                                              \
        "parallelism.data_parallel_shard_degree", "2"                                              \
    }
#define TP                                                                                         \
    {                                                                                              \
        "parallelism.tensor_parallel_degree", "2"                                                  \
    }
#define PP                                                                                         \
    {                                                                                              \
        "parallelism.pipeline_parallel_degree", "2"                                                \
    }
#define HALF                                                                                       \
    {                                                                                              \
        "training.mixed_precision_param", "bfloat16"                                               \
    }
#define HALF_REDUCE                                                                                \
    {                                                                                              \
        "training.mixed_precision_reduce", "bfloat16"                                              \
    }
#define HALF_PARAM                                                                                 \
    {                                                                                              \
        "training.dtype", "bfloat16"                                                               \
    }
#define RESHARD(when)                                                                              \
    {                                                                                              \
        "parallelism.fsdp_reshard_after_forward", when                                             \
    }

static const bitwise_case cases[] = {
    {"second run",                     "untied", {THREADS("2")},                              {THREADS("2")}                  },
    {"2 threads",                      "untied", {THREADS("1")},                              {THREADS("2")}                  },
    {"4 threads",                      "untied", {THREADS("1")},                              {THREADS("4")}                  },
    {"4 threads, tied, documents",     "tied",   {THREADS("1")},                              {THREADS("4")}                  },
    {"4 threads, OpenBLAS",
     "untied",                                   {THREADS("1"), BLAS("openblas")},
     {THREADS("4"), BLAS("openblas")}                                                                                         },
    {"4 threads, generic, own",
     "untied",                                   {THREADS("1"), ISA("generic"), BLAS("own")},
     {THREADS("4"), ISA("generic"), BLAS("own")}                                                                              },
    {"unfused",                        "untied", {{NULL, NULL}},                              {UNFUSED}                       },
    {"unfused, reference",             "tied",   {BACKEND("reference")},                      {BACKEND("reference"), UNFUSED} },
    {"recompute selective",            "untied", {{NULL, NULL}},                              {RECOMPUTE("selective")}        },
    {"recompute full",                 "untied", {{NULL, NULL}},                              {RECOMPUTE("full")}             },
    {"recompute full, unfused",        "tied",   {{NULL, NULL}},                              {RECOMPUTE("full"), UNFUSED}    },
    {"poison",                         "untied", {{NULL, NULL}},                              {POISON}                        },
    {"detect_nan",                     "untied", {{NULL, NULL}},                              {NAN_CHECK}                     },
    {"fsdp: 2 threads, unfused",       "untied", {FSDP, THREADS("1")},                        {FSDP, THREADS("2"), UNFUSED}   },
    {"fsdp: weights kept",             "tied",   {FSDP},                                      {FSDP, RESHARD("never")}        },
    {"fsdp: recompute full",           "untied", {FSDP},                                      {FSDP, RECOMPUTE("full")}       },
    {"fsdp x tp: selective, poison",
     "tied",                                     {FSDP, TP},
     {FSDP, TP, RECOMPUTE("selective"), POISON}                                                                               },
    {"tp: full, unfused",              "untied", {TP},                                        {TP, RECOMPUTE("full"), UNFUSED}},
    {"pp: full, poison",               "untied", {PP},                                        {PP, RECOMPUTE("full"), POISON} },
    {"bf16: 4 threads",                "untied", {HALF, THREADS("1")},                        {HALF, THREADS("4")}            },
    {"bf16: unfused",                  "untied", {HALF},                                      {HALF, UNFUSED}                 },
    {"bf16: unfused, reference",
     "tied",                                     {HALF, BACKEND("reference")},
     {HALF, BACKEND("reference"), UNFUSED}                                                                                    },
    {"bf16: recompute full",           "untied", {HALF},                                      {HALF, RECOMPUTE("full")}       },
    {"bf16: recompute selective",      "tied",   {HALF},                                      {HALF, RECOMPUTE("selective")}  },
    {"bf16: poison, detect_nan",       "tied",   {HALF},                                      {HALF, POISON, NAN_CHECK}       },
    {"bf16: fsdp, weights kept",       "tied",   {HALF, FSDP},                                {HALF, FSDP, RESHARD("never")}  },
    {"bf16: fsdp x tp, full, unfused",
     "untied",                                   {HALF, HALF_REDUCE, FSDP, TP},
     {HALF, HALF_REDUCE, FSDP, TP, RECOMPUTE("full"), UNFUSED}                                                                },
    {"bf16: parameters too, poison",
     "untied",                                   {HALF, HALF_PARAM, FSDP},
     {HALF, HALF_PARAM, FSDP, UNFUSED, POISON}                                                                                },
    {"bf16: pp: GPipe and 1F1B",
     "untied",                                   {HALF, PP},
     {HALF, PP, {"parallelism.pipeline_parallel_schedule", "GPipe"}}                                                          },
    {"pp: GPipe and 1F1B",
     "untied",                                   {PP},
     {PP, {"parallelism.pipeline_parallel_schedule", "GPipe"}}                                                                },
};

static int steps_of(const bitwise_case *c)
{
    bool slow = false;
    for (int i = 0; i < MAX_OVERRIDES && c->base[i].key; i++)
        slow |= !strcmp(c->base[i].value, "reference");
    return slow && !is_long() ? 1 : 3;
}

static oracle_run *run_with(const oracle_golden *g, const bitwise_case *c, const tt_override *more)
{
    tt_override all[MAX_OVERRIDES + 5] = {
        {"training.steps",             steps_of(c) == 1 ? "1" : "3"},
        {"training.local_batch_size",  "2"                         },
        {"training.global_batch_size", "4"                         },
        {"comm.train_timeout_seconds", "30"                        }
    };
    size_t n = 4;
    for (int i = 0; i < MAX_OVERRIDES && more[i].key; i++)
        all[n++] = more[i];
    return oracle_run_job(g, all, n);
}

static void test_results_are_bitwise_the_same(void **state)
{
    const bitwise_case *c = *state;
    oracle_golden g;
    char name[64];
    snprintf(name, sizeof name, "%s_adamw", c->golden);
    oracle_open(name, &g);
    oracle_run *a = run_with(&g, c, c->base), *b = run_with(&g, c, c->other);
    assert_int_equal(a->n_steps, steps_of(c));
    oracle_assert_same_run(a, b);
    oracle_free(a);
    oracle_free(b);
    tt_arena_free(g.arena);
}

/* test_bitwise [PATTERN]: only cases whose name matches. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[TT_COUNT(cases)];
    static char names[TT_COUNT(cases)][80];
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        snprintf(names[i], sizeof names[0], "test_results_are_bitwise_the_same %s", cases[i].name);
        tests[i] = (struct CMUnitTest){names[i], test_results_are_bitwise_the_same, NULL, NULL,
                                       (void *)(uintptr_t)&cases[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
