/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/mesh.h"

/* Experts over 2 and over 4 ranks, with each of the other kinds of parallelism: the losses, and every element of every
 * gradient of two steps, are those of one rank with the same global batch. The second gradient is at
 * parameters that have moved, with biases of routers that the first step's counts have moved. test_random_meshes.c draws
 * further combinations and odd sizes. */

#define GLOBAL "24" /* samples of a step, on every mesh */

/* Products whose bits do not depend on the number of rows, so that a token's choice of experts does not either. */
#define COMMON                                                                                     \
    "global " GLOBAL " backend.blas own backend.f32_products fma training.seq_len 13 "             \
    "training.steps 2 optimizer.lr 0.05 "
/* With experts in turn: a router's choice between two experts that are equal but for bf16's rounding may be another one. Of 16
 * tokens with 3 choices each, the first token of a sample goes to expert 0 of 8 or 12 wherever the sample is. */
#define HALF                                                                                       \
    "training.mixed_precision_param bfloat16 debug.moe_force_load_balance true "                   \
    "training.seq_len 16 "

/* Of the tolerance: with the second step's parameters, which differ by rounding; and where each value is rounded to
 * bf16. What a missing sum over ranks leaves is 1e5 tolerances. */
#define USUAL 3
#define OF_HALF 20000

typedef struct expert_mesh {
    const char *name, *how;
} expert_mesh;

static const expert_mesh meshes[] = {
    {"ep 2, fsdp",           "shard 2 ep 2 local 12"                                      },
    {"ep 2, fsdp 4",         "shard 4 ep 2 local 6"                                       },
    {"ep 2, hsdp",           "rep 2 shard 2 ep 2 local 6"                                 },
    {"ep 2, tp",             "tp 2 ep 2 local 24"                                         },
    {"ep 2, fsdp, tp",       "shard 2 tp 2 ep 2 local 12"                                 },
    {"ep 2, cp",             "cp 2 ep 2 local 24"                                         },
    {"ep 2, pp interleaved", "pp 2 shard 2 ep 2 local 12 mb 4 schedule Interleaved1F1B"   },
    {"ep 2, pp zbv",         "pp 2 shard 2 ep 2 local 12 mb 4 schedule ZBVZeroBubble"     },
    {"ep 2, accumulation 3", "shard 2 ep 2 local 4"                                       },
    {"ep 2, ac full",        "shard 2 ep 2 local 12 ac full"                              },
    {"ep 2, bf16",           "shard 2 ep 2 local 12 " HALF                                },
    {"ep 4, fsdp",           "shard 4 ep 4 local 6"                                       },
    {"ep 4, fsdp 8",         "shard 8 ep 4 local 3"                                       },
    {"ep 4, hsdp",           "rep 2 shard 4 ep 4 local 3"                                 },
    {"ep 4, fsdp, tp",       "shard 2 tp 2 ep 4 local 12"                                 },
    {"ep 4, fsdp, cp",       "shard 2 cp 2 ep 4 local 12"                                 },
    {"ep 4, cp, tp",         "cp 2 tp 2 ep 4 local 24"                                    },
    {"ep 4, pp interleaved", "pp 2 shard 4 ep 4 local 6 mb 6 schedule Interleaved1F1B"    },
    {"ep 4, pp zbv",         "pp 2 shard 4 ep 4 local 6 mb 6 schedule ZBVZeroBubble"      },
    {"ep 4, accumulation 3", "shard 4 ep 4 local 2"                                       },
    {"ep 4, ac full",        "shard 4 ep 4 local 6 ac full"                               },
    {"ep 4, bf16",           "shard 2 tp 2 ep 4 local 12 " HALF                           },
    {"ep 4, bf16, pp zbv",   "pp 2 shard 4 ep 4 local 6 mb 6 schedule ZBVZeroBubble " HALF},
};

/* The losses of its routers do not depend on micro-batches; groups of experts and a bias for the choice. */
static const expert_mesh models[] = {
    {"qwen3_moe_each", "model.args.num_experts 8 model.args.num_experts_per_tok 3 "},
    {"deepseek_v3",    ""                                                          },
};

static oracle_run *run(const oracle_golden *g, const char *sizes, const char *how)
{
    mesh_line m = {0};
    char text[700];
    snprintf(text, sizeof text, COMMON "%s%s", sizes, how);
    mesh_parse(text, &m);
    return oracle_run_job(g, m.o, m.n);
}

static void test_experts_over_ranks_equal_one_rank(void **state)
{
    const expert_mesh *mesh = *state;
    const bool half = strstr(mesh->how, HALF) != NULL;
    for (size_t i = 0; i < TT_COUNT(models); i++) {
        oracle_golden g;
        oracle_open(models[i].name, &g);
        oracle_run *one = run(&g, models[i].how, half ? "local " GLOBAL " " HALF : "local " GLOBAL);
        oracle_run *r = run(&g, models[i].how, mesh->how);
        (void)mesh_check_steps(r, one, half ? 2e-3 : 1e-5, half ? 2e-2 : 1e-5);
        print_message("    %s, %s: %.2f of the tolerance\n", mesh->name, models[i].name,
                      mesh_check_gradients(r, one, half ? OF_HALF : USUAL));
        oracle_free(r);
        oracle_free(one);
        tt_arena_free(g.arena);
    }
}

/* test_expert_meshes [PATTERN]: only tests of that name. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[TT_COUNT(meshes)];
    static char names[TT_COUNT(meshes)][80];
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        snprintf(names[i], sizeof names[i], "test_experts_over_ranks_equal_one_rank %s",
                 meshes[i].name);
        tests[i] = (struct CMUnitTest){names[i], test_experts_over_ranks_equal_one_rank, NULL, NULL,
                                       (void *)(uintptr_t)&meshes[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
