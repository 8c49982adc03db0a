/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/check.h"

/* activation_checkpoint.store_dtype bfloat16: the curve against that of exact activations and, on
 * meshes, schedules, threads, fused or not, against one rank's. docs/numerics.md argues the
 * tolerances. */

enum { STEPS = 30, MOST = 6 };

typedef struct run_case {
    const char *name;
    double near; /* relative, of one rank's losses; 0: the same bits */
    tt_override o[MOST];
} run_case;

#define P(key, n)                                                                                  \
    {                                                                                              \
        "parallelism." key, n                                                                      \
    }
#define LOCAL(n)                                                                                   \
    {                                                                                              \
        "training.local_batch_size", n                                                             \
    }

static const run_case cases[] = {
    {"one thread",        0,    {{"backend.threads", "1"}}                        },
    {"unfused",           0,    {{"debug.disable_fusion", "true"}}                },
    {"poisoned",          0,    {{"debug.poison", "true"}}                        },
    {"fsdp 2",            2e-6, {P("data_parallel_shard_degree", "2"), LOCAL("2")}},
    {"tp 2",              2e-6, {P("tensor_parallel_degree", "2")}                },
    {"cp 2",              2e-6, {P("context_parallel_degree", "2")}               },
    {"pp 2",              2e-6, {P("pipeline_parallel_degree", "2")}              },
    {"pp 2, zero bubble",
     2e-6,                      {P("pipeline_parallel_degree", "2"),
      P("pipeline_parallel_schedule", "InterleavedZeroBubble"),
      {"debug.poison", "true"}}                                         },
    {"recomputed",        1e-4, {{"activation_checkpoint.mode", "full"}}          },
    {"two micro-batches", 2e-6, {LOCAL("2")}                                      },
};

static oracle_golden job;
static oracle_run *exact, *stored;

static oracle_run *steps(const tt_override *more, const char *dtype)
{
    tt_override all[MOST + 10] = {
        {"model.args.dim",                    "48"   },
        {"model.args.n_layers",               "4"    },
        {"model.args.vocab_size",             "263"  },
        {"model.args.hidden_dim",             "71"   },
        {"model.args.n_heads",                "4"    },
        {"training.global_batch_size",        "4"    },
        {"training.local_batch_size",         "4"    },
        {"training.steps",                    "30"   },
        {"comm.backend",                      "local"},
        {"activation_checkpoint.store_dtype", dtype  },
    };
    size_t n = 10;
    for (int i = 0; more && i < MOST && more[i].key; i++)
        all[n++] = more[i];
    oracle_run *r = oracle_run_job(&job, all, n);
    assert_int_equal(r->n_steps, STEPS);
    return r;
}

/* In the first step the forward is exact, but the gradients are not. */
static void test_loss_curve_is_close_to_that_of_exact_activations(void **state)
{
    (void)state;
    const double loss = oracle_farthest(stored->loss, exact->loss, STEPS),
                 norm = oracle_farthest(stored->norm, exact->norm, STEPS);
    print_message("    loss %.1e, norm %.1e of exact activations\n", loss, norm);
    assert_true(stored->loss[0] == exact->loss[0]);
    assert_true(stored->norm[0] != exact->norm[0]);
    assert_true(loss <= 1e-4);
    assert_true(norm <= 1e-2);
}

static void test_run_with_stored_activations_equals_one_rank(void **state)
{
    const run_case *c = *state;
    oracle_run *r = steps(c->o, "bfloat16");
    const double loss = oracle_farthest(r->loss, stored->loss, STEPS);
    print_message("    loss %.1e of one rank\n", loss);
    assert_true(loss <= c->near);
    oracle_free(r);
}

static int begin(void **state)
{
    (void)state;
    oracle_open("untied_adamw", &job);
    exact = steps(NULL, "float32");
    stored = steps(NULL, "bfloat16");
    return 0;
}

static int end(void **state)
{
    (void)state;
    oracle_free(exact);
    oracle_free(stored);
    tt_arena_free(job.arena);
    return 0;
}

/* test_stored [PATTERN]: only tests whose name matches. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[1 + TT_COUNT(cases)] = {
        cmocka_unit_test(test_loss_curve_is_close_to_that_of_exact_activations)};
    static char names[TT_COUNT(cases)][80];
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        snprintf(names[i], sizeof names[0], "test_run_with_stored_activations_equals_one_rank %s",
                 cases[i].name);
        tests[1 + i] =
            (struct CMUnitTest){names[i], test_run_with_stored_activations_equals_one_rank, NULL,
                                NULL, (void *)(uintptr_t)&cases[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
