/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/check.h"

/* bf16 mixed precision: one step and ten AdamW steps against PyTorch under the same policy, and
 * fifty steps on every mesh against one rank and against f32. docs/numerics.md argues the
 * tolerances. */

#define MAX_OVERRIDES 8

static const tt_override bf16 = {"training.mixed_precision_param", "bfloat16"};

/* Relative distance of the sampled elements of two gradients. */
static double sample_distance(const oracle_tensor *t, const tt_json *want)
{
    const tt_json *samples = oracle_get(want, "samples");
    double d = 0, all = 0;
    for (size_t j = 0; j < samples->n; j++) {
        const int64_t i = t->n <= ORACLE_SAMPLES
                              ? (int64_t)j
                              : (int64_t)((j * UINT64_C(2654435761) + 97) % (uint64_t)t->n);
        const double a = (double)t->data[i], b = samples->items[j]->real;
        d += (a - b) * (a - b);
        all += b * b;
    }
    return all > 0 ? sqrt(d / all) : sqrt(d);
}

static void check_pytorch(const char *golden, const char *backend, double loss, double norm)
{
    oracle_golden g;
    oracle_open(golden, &g);
    oracle_run *r = oracle_run_on(&g, backend);
    oracle_check_first_steps(&g, r, oracle_steps_on(&g, backend), loss, norm);
    const tt_json *gradients = tt_json_get(g.root, "gradients");
    double worst = 0;
    for (size_t i = 0; gradients && i < gradients->n; i++) {
        const oracle_tensor *t = oracle_find(r, gradients->keys[i], "momentum_buffer");
        const double e = sample_distance(t, gradients->items[i]);
        worst = fmax(worst, e);
        if (!(e <= 0.02))
            fail_msg("gradient of %s: off by %.4f of its size", t->name, e);
    }
    if (gradients)
        print_message("    gradients: %.4f\n", worst);
    oracle_free(r);
    tt_arena_free(g.arena);
}

static void test_first_step_in_bf16_equals_pytorch(void **state)
{
    check_pytorch("bf16_gradient", *state, 1e-3, 1e-3);
}

static void test_ten_steps_in_bf16_equal_pytorch(void **state)
{
    check_pytorch("bf16_adamw", *state, 5e-3, 1e-2);
}

/* ---- meshes ---- */

typedef struct mesh_case {
    const char *name;
    tt_override o[MAX_OVERRIDES];
} mesh_case;

#define P(key, n)                                                                                  \
    {                                                                                              \
        "parallelism." key, n                                                                      \
    }
#define LOCAL(n)                                                                                   \
    {                                                                                              \
        "training.local_batch_size", n                                                             \
    }
#define REDUCE                                                                                     \
    {                                                                                              \
        "training.mixed_precision_reduce", "bfloat16"                                              \
    }
#define SHARD(n) P("data_parallel_shard_degree", n)
#define REPLICATE(n) P("data_parallel_replicate_degree", n)
#define TP(n) P("tensor_parallel_degree", n)
#define CP(n) P("context_parallel_degree", n)
#define PP(n) P("pipeline_parallel_degree", n)
#define ROTATE(how) P("context_parallel_rotate_method", how)
#define NO_SP P("enable_sequence_parallel", "false")

static const mesh_case meshes[] = {
    {"one rank, reduce",           {LOCAL("4"), REDUCE}                          },
    {"two micro-batches",          {LOCAL("2")}                                  },
    {"ddp 2",                      {REPLICATE("2"), LOCAL("2")}                  },
    {"ddp 2, reduce",              {REPLICATE("2"), LOCAL("2"), REDUCE}          },
    {"fsdp 2",                     {SHARD("2"), LOCAL("2")}                      },
    {"fsdp 4, reduce",             {SHARD("4"), LOCAL("1"), REDUCE}              },
    {"hsdp 2x2",                   {REPLICATE("2"), SHARD("2"), LOCAL("1")}      },
    {"tp 2",                       {TP("2"), LOCAL("4")}                         },
    {"tp 2, no sequence parallel", {TP("2"), LOCAL("4"), NO_SP}                  },
    {"cp 2",                       {CP("2"), LOCAL("4")}                         },
    {"cp 4, ring",                 {CP("4"), LOCAL("1"), ROTATE("ring")}         },
    {"cp 2 x tp 2, ring",          {CP("2"), TP("2"), LOCAL("1"), ROTATE("ring")}},
    {"cp 2, ulysses",              {CP("2"), LOCAL("1"), ROTATE("ulysses")}      },
    {"pp 2",                       {PP("2"), LOCAL("4")}                         },
    {"fsdp 2 x tp 2, reduce",      {SHARD("2"), TP("2"), LOCAL("2"), REDUCE}     },
    {"fsdp 2 x pp 2",              {SHARD("2"), PP("2"), LOCAL("2")}             },
    {"cp 2 x tp 2",                {CP("2"), TP("2"), LOCAL("4")}                },
};

static oracle_golden job;
static oracle_run *one_rank, *one_rank_f32;

static oracle_run *fifty_steps(const tt_override *more, bool half)
{
    tt_override all[MAX_OVERRIDES + 12] = {
        {"model.args.dim",             "48"   },
        {"model.args.n_layers",        "2"    },
        {"model.args.vocab_size",      "263"  },
        {"model.args.hidden_dim",      "71"   },
        {"model.args.n_heads",         "4"    },
        {"training.global_batch_size", "4"    },
        {"training.local_batch_size",  "4"    },
        {"training.steps",             "50"   },
        {"comm.backend",               "local"},
        {"comm.train_timeout_seconds", "30"   },
    };
    size_t n = 10;
    if (half)
        all[n++] = bf16;
    for (int i = 0; more && i < MAX_OVERRIDES && more[i].key; i++)
        all[n++] = more[i];
    return oracle_run_job(&job, all, n);
}

static double farthest(const oracle_run *a, const oracle_run *b)
{
    assert_int_equal(a->n_steps, 50);
    return oracle_farthest(a->loss, b->loss, a->n_steps);
}

static void test_fifty_steps_in_bf16_equal_one_rank(void **state)
{
    const mesh_case *m = *state;
    oracle_run *r = fifty_steps(m->o, true);
    const double near = farthest(r, one_rank), f32 = farthest(r, one_rank_f32);
    print_message("    %.1e of one rank, %.1e of f32\n", near, f32);
    assert_true(near <= 5e-3);
    assert_true(f32 <= 2e-2);
    assert_true(memcmp(r->loss, one_rank_f32->loss, 50 * sizeof *r->loss) != 0);
    oracle_free(r);
}

static int begin(void **state)
{
    (void)state;
    oracle_open("untied_adamw", &job);
    one_rank = fifty_steps(NULL, true);
    one_rank_f32 = fifty_steps(NULL, false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    oracle_free(one_rank);
    oracle_free(one_rank_f32);
    tt_arena_free(job.arena);
    return 0;
}

#define CASE(f, backend)                                                                           \
    {                                                                                              \
#f " " backend, f, NULL, NULL, (void *)(uintptr_t)backend                                  \
    }

/* test_precision [PATTERN]: only tests whose name matches. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[4 + TT_COUNT(meshes)] = {
        CASE(test_first_step_in_bf16_equals_pytorch, "reference"),
        CASE(test_first_step_in_bf16_equals_pytorch, "cpu"),
        CASE(test_ten_steps_in_bf16_equal_pytorch, "reference"),
        CASE(test_ten_steps_in_bf16_equal_pytorch, "cpu"),
    };
    static char names[TT_COUNT(meshes)][80];
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        snprintf(names[i], sizeof names[0], "test_fifty_steps_in_bf16_equal_one_rank %s",
                 meshes[i].name);
        tests[4 + i] = (struct CMUnitTest){names[i], test_fifty_steps_in_bf16_equal_one_rank, NULL,
                                           NULL, (void *)(uintptr_t)&meshes[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
