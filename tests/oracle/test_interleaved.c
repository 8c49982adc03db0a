/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/mesh.h"

/* Several micro-batches in one call of the program (training.intra_layer_micro_batch, "turns") compared with one
 * rank that runs one after the other: losses, norms, and every element of every gradient. The sizes do not
 * divide evenly: 777 ids, hidden width 211, 37 tokens, 3 layers. */

typedef struct turns_case {
    const char *golden;
    const char *common; /* of both: a mesh where a loss depends on how samples are grouped */
    const char *mesh;
} turns_case;

static const turns_case cases[] = {
  /* one rank */
    {"untied_gradient", "local 2 global 4",                                                       "turns 2"                                              },
    {"untied_gradient", "local 2 global 8",                                                       "turns 2"                                              },
    {"tied_gradient",   "local 1 global 6",                                                       "turns 3 ac full"                                      },
    {"gpt2",            "local 2 global 8",                                                       "turns 4 ac selective"                                 },
    {"untied_gradient", "local 2 global 8",
     "turns 2 activation_checkpoint.mode budget activation_checkpoint.memory_budget 0.3"                                                                 },
    {"z_loss_gradient", "local 2 global 8",                                                       "turns 2"                                              },
 /* meshes */
    {"untied_gradient", "local 2 global 8",                                                       "turns 2 shard 2 comm.overlap on"                      },
    {"tied_gradient",   "local 1 global 12",                                                      "turns 3 shard 2 reshard never comm.overlap on ac full"},
    {"untied_gradient", "local 1 global 8",                                                       "turns 2 rep 2 shard 2 comm.overlap on"                },
    {"untied_gradient", "local 2 global 8",                                                       "turns 2 tp 2 comm.overlap on"                         },
    {"untied_gradient", "local 2 global 8",                                                       "turns 2 tp 2 async true comm.overlap on"              },
    {"tied_gradient",   "local 2 global 8",                                                       "turns 4 tp 2 sp false comm.overlap on"                },
    {"untied_gradient", "local 1 global 4",                                                       "turns 2 cp 2 rotate ring comm.overlap on"             },
    {"untied_gradient", "local 1 global 4",                                                       "turns 2 cp 2 rotate ulysses comm.overlap on"          },
    {"untied_gradient", "local 1 global 8",
     "turns 2 shard 2 tp 2 cp 2 comm.overlap on ac selective"                                                                                            },
    {"untied_gradient", "local 4 global 8",                                                       "turns 2 pp 2 mb 4 schedule 1F1B comm.overlap on"      },
    {"tied_gradient",   "local 4 global 8",
     "turns 2 pp 2 mb 4 schedule ZBVZeroBubble comm.overlap on"                                                                                          },
    {"tied_gradient",   "local 8 global 8",                                                       "turns 2 pp 2 mb 8 schedule DualPipeV comm.overlap on" },
    {"untied_gradient", "local 8 global 8",
     "turns 2 pp 2 mb 8 schedule GPipe shard 1 tp 2 comm.overlap on"                                                                                     },
    {"untied_gradient", "local 8 global 8",
     "turns 2 pp 2 mb 8 schedule InterleavedZeroBubble comm.overlap on"                                                                                  },
    {"untied_gradient", "local 8 global 16",
     "turns 2 pp 2 mb 8 schedule Interleaved1F1B shard 2 local 4 mb 4 reshard always comm.overlap "
     "on"                                                                                                                                                },
 /* experts, their losses and biases, and further heads */
    {"qwen3_moe_aux",   "local 1 global 4",                                                       "turns 2"                                              },
    {"qwen3_moe_aux",   "local 1 global 8 shard 2 ep 2 model.args.num_experts 6 comm.overlap on",
     "turns 2"                                                                                                                                           },
    {"qwen3_moe_each",  "local 2 global 8 model.args.num_experts 8",
     "turns 2 local 1 shard 2 tp 2 ep 4 comm.overlap on"                                                                                                 },
    {"mixtral",         "local 2 global 8 model.args.num_experts 6",
     "turns 4 local 1 shard 2 ep 2 buffer 1 comm.overlap on ac full"                                                                                     },
    {"mixtral",         "local 2 global 8 model.args.num_experts 6",
     "turns 2 local 1 shard 2 ep 2 replicas 1 comm.overlap on"                                                                                           },
    {"deepseek_v3",     "local 2 global 4",                                                       "turns 2 local 1 shard 2 ep 2 comm.overlap on"         },
    {"deepseek_mtp",    "local 1 global 4",                                                       "turns 2"                                              },
    {"deepseek_mtp",    "local 2 global 4",                                                       "turns 2 local 1 shard 2 ep 2 comm.overlap on"         },
    {"qwen3_next",      "local 1 global 4",                                                       "turns 2 shard 2 comm.overlap on"                      },
};

/* With products that sum in one order for any number of rows: a BLAS may not, and micro-batches of a pipeline have fewer. */
static oracle_run *run(const oracle_golden *g, const char *common, const char *how, int steps)
{
    mesh_line m = {0};
    char text[1024];
    snprintf(text, sizeof text, "backend.blas own backend.f32_products fma %s %s training.steps %d",
             common, how, steps);
    mesh_parse(text, &m);
    return oracle_run_job(g, m.o, m.n);
}

/* The losses besides the cross-entropy that are logged. */
static void check_logged(const oracle_run *r, const oracle_run *one)
{
    for (int i = 0; i < r->n_steps; i++) {
        assert_int_equal(r->losses[i] != NULL, one->losses[i] != NULL);
        for (size_t k = 0; one->losses[i] && k < one->losses[i]->n; k++) {
            const double b = one->losses[i]->items[k]->real,
                         a = oracle_get(r->losses[i], one->losses[i]->keys[k])->real;
            if (!(fabs(a - b) <= 1e-5 * fmax(1, fabs(b))))
                fail_msg("loss %s: %.9g, one rank has %.9g", one->losses[i]->keys[k], a, b);
        }
    }
}

static void test_equals_one_rank_without_turns(void **state)
{
    const turns_case *c = *state;
    const bool one_rank = !strstr(c->mesh, "overlap") && !strstr(c->common, "overlap");
    oracle_golden g;
    oracle_open(c->golden, &g);
    oracle_run *one = run(&g, c->common, "", 1), *r = run(&g, c->common, c->mesh, 1);
    mesh_check_initial(r, one);
    print_message("    gradients: %.3f of the tolerance\n", mesh_check_gradients(r, one, 1));
    check_logged(r, one);
    (void)mesh_check_steps(r, one, one_rank ? 0 : 1e-5, 1e-5); /* the same products of one rank */
    oracle_free(r);
    oracle_free(one);
    tt_arena_free(g.arena);
}

/* Two runs have the same bits. */
static void test_repeats(void **state)
{
    const turns_case *c = *state;
    oracle_golden g;
    oracle_open(c->golden, &g);
    oracle_run *a = run(&g, c->common, c->mesh, 3), *b = run(&g, c->common, c->mesh, 3);
    oracle_assert_same_run(a, b);
    oracle_free(a);
    oracle_free(b);
    tt_arena_free(g.arena);
}

/* test_interleaved [WORD]: only cases whose name holds the word. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[2 * TT_COUNT(cases)];
    static char names[2 * TT_COUNT(cases)][240];
    int n = 0;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        void *c = (void *)(uintptr_t)&cases[i];
        snprintf(names[n], sizeof names[n], "test_equals_one_rank_without_turns %s %s %s",
                 cases[i].golden, cases[i].common, cases[i].mesh);
        tests[n] = (struct CMUnitTest){names[n], test_equals_one_rank_without_turns, NULL, NULL, c};
        n++;
        if (i % 6)
            continue;
        snprintf(names[n], sizeof names[n], "test_repeats %s %s", cases[i].golden, cases[i].mesh);
        tests[n] = (struct CMUnitTest){names[n], test_repeats, NULL, NULL, c};
        n++;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("tests", tests, (size_t)n, NULL, NULL);
}
