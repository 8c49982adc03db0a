/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/pipelines.h"
#include "setup/setup_impl.h"

/* Where stages begin, what they share, and which of this a job may set. */

/* Tied embeddings (P6): the run equals, to rounding, the run without a pipeline, which has one
 * accumulator for both uses. It is bitwise the same for every schedule and every division into
 * stages, also if both stages are on one rank. */
static void tied_train_alike(const char *mesh, const char *plain, const char *more)
{
    steps none, one, s;
    char text[600];
    snprintf(text, sizeof text, PLAIN "%s %s model.args.tie_embeddings true", plain, more);
    steps_run(text, 3, &none);
    for (size_t k = 0; k < TT_COUNT(schedules); k++) {
        snprintf(text, sizeof text,
                 PLAIN "%s %s model.args.tie_embeddings true debug.poison true" SCHEDULE "%s", mesh,
                 more, schedules[k]);
        steps_run(text, 3, &s);
        if (!k)
            one = s;
        same_training(&one, &s, text);
        for (int i = 0; i < 3; i++)
            if (!(fabs(s.loss[i] / none.loss[i] - 1) < 1e-5) ||
                !(fabs(s.norm[i] / none.norm[i] - 1) < 1e-5))
                fail_msg("%s: step %d: loss %.9g and %.9g, norm %.9g and %.9g", text, i + 1,
                         s.loss[i], none.loss[i], s.norm[i], none.norm[i]);
    }
}

static void test_tied_embeddings(void **state)
{
    (void)state;
    tied_train_alike(PP2, FOUR_OF_2 "8", "");
    tied_train_alike(PP3, "training.local_batch_size 1 training.global_batch_size 8",
                     "model.args.n_layers 6 activation_checkpoint.mode full");
}

static void test_tied_embeddings_with_other_axes(void **state)
{
    (void)state;
    tied_train_alike(PP2 "parallelism.data_parallel_shard_degree 2",
                     FOUR_OF_2 "16 parallelism.data_parallel_shard_degree 2", "");
    tied_train_alike(PP2 "parallelism.tensor_parallel_degree 2",
                     FOUR_OF_2 "8 parallelism.tensor_parallel_degree 2", "");
}

/* A schedule whose micro-batches do not ascend gives the same numbers to rounding. A schedule
 * with its own map of stages to ranks, and with B as well as I and W, gives them to the bit. */
static void test_csv_schedules(void **state)
{
    static const char back[] = "0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\n";
    steps one, s;
    char path[300], text[800];
    tt_error err;
    (void)state;
    steps_run(PLAIN FOUR_OF_2 "8", 2, &one);
    snprintf(path, sizeof path, "%s/back.csv", job_folder());
    assert_int_equal(tt_write_file_atomic(path, back, strlen(back), &err), TT_OK);
    snprintf(text, sizeof text, PLAIN PP2 "parallelism.pipeline_parallel_schedule_csv %s", path);
    steps_run(text, 2, &s);
    for (int i = 0; i < 2; i++)
        assert_true(fabs(s.loss[i] / one.loss[i] - 1) < 1e-6);
    static const char mixed[] =
        "0F0,1F0,0F1,1F1,1I0,0B0,0F2,1W0,1F2,1B1,0I1,0W1,0F3,1F3,1B2,0B2,1I3,1W3,0B3\n"
        "2F0,2I0,2F1,2W0,2B1,2F2,2B2,2F3,2I3,2W3\n";
    snprintf(path, sizeof path, "%s/mixed.csv", job_folder());
    assert_int_equal(tt_write_file_atomic(path, mixed, strlen(mixed), &err), TT_OK);
    snprintf(text, sizeof text,
             PLAIN PP2 "debug.poison true parallelism.pipeline_parallel_schedule_csv %s", path);
    steps_run(text, 2, &s);
    same_training(&one, &s, text);
}

#define PP7 "parallelism.pipeline_parallel_degree 7 parallelism.pipeline_parallel_microbatches 4 "

/* Where stages begin does not change a bit. */
static void test_stage_cuts_change_no_bit(void **state)
{
    static const char *const cuts[] = {
        PP2 "parallelism.pipeline_parallel_split_points [\"layers.1\"]",
        PP2 "parallelism.pipeline_parallel_split_points [\"model.layers.4\"]",
        PP2 "parallelism.pipeline_parallel_layers_per_stage 2" SCHEDULE "Interleaved1F1B",
        PP2 "parallelism.pipeline_parallel_layers_per_stage 4",
        PP2
        "parallelism.module_fqns_per_model_part "
        "[[\"tok_embeddings\",\"layers.0\",\"layers.1\",\"layers.2\"],[\"layers.3\",\"layers.4\","
        "\"norm\",\"output\"]]",
        PP2 "parallelism.module_fqns_per_model_part "
            "[[\"layers.0\"],[\"layers.1\"],[\"layers.2\",\"layers.3\"],[\"layers.4\"]]" SCHEDULE
            "ZBVZeroBubble",
        /* the embedding, or the head, or both on a stage of their own */
        PP2 "parallelism.pipeline_parallel_split_points [\"layers.0\"]",
        PP2 "parallelism.pipeline_parallel_split_points [\"norm\"]",
        PP2 "parallelism.pipeline_parallel_split_points [\"layers.5\"]",
        PP2 "parallelism.module_fqns_per_model_part "
            "[[\"tok_embeddings\"],[\"layers.0\",\"layers.1\"],[\"layers.2\",\"layers.3\","
            "\"layers.4\"],[\"norm\",\"output\"]]" SCHEDULE "ZBVZeroBubble",
        PP3 "parallelism.pipeline_parallel_microbatches 4" SCHEDULE "Interleaved1F1B",
        PP7 "parallelism.pipeline_parallel_layers_per_stage 1",
    };
    steps one, s;
    (void)state;
    steps_run(PLAIN FOUR_OF_2 "8", 2, &one);
    for (size_t i = 0; i < TT_COUNT(cuts); i++) {
        char text[600];
        snprintf(text, sizeof text, PLAIN "%s", cuts[i]);
        steps_run(text, 2, &s);
        same_training(&one, &s, text);
    }
}

/* ---- jobs that are refused ---- */

#define PP4 "parallelism.pipeline_parallel_degree 4 parallelism.pipeline_parallel_microbatches 8 "

static void test_wrong_cuts_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {PP2 SCHEDULE "ZigZag",                                                                     "known: 1F1B"        },
        {PP2 "parallelism.pipeline_parallel_split_points [\"wte\"]",                                "is not a layer"     },
        {PP3 "parallelism.pipeline_parallel_split_points [\"norm\",\"layers.2\"]",
         "is not a layer"                                                                                                },
        {PP3 "parallelism.pipeline_parallel_split_points [\"layers.2\",\"layers.2\"]",
         "does not come after"                                                                                           },
        {PP3 "parallelism.pipeline_parallel_split_points [\"layers.0\",\"layers.0\"]",
         "does not come after"                                                                                           },
        {PP3 "parallelism.pipeline_parallel_split_points [\"layers.5\",\"layers.6\"]",
         "one layer or more"                                                                                             },
        {PP2 "parallelism.pipeline_parallel_split_points [\"layers.1\",\"layers.2\"]",
         "3 stages cannot be placed on 2"                                                                                },
        {PP2 "parallelism.pipeline_parallel_layers_per_stage 2",                                    "cannot be placed on"},
        {PP2 "parallelism.module_fqns_per_model_part [[\"layers.0\",\"layers.2\"],[\"layers.1\"]]",
         "expected layer 1 here"                                                                                         },
        {PP2 "parallelism.module_fqns_per_model_part [[\"layers.0\"],[\"norm\"]]",
         "1 of the model's 5 layers"                                                                                     },
        {PP2 "parallelism.module_fqns_per_model_part [[\"layers.0\"],[]]",                          "has no layer"       },
        {PP3 "parallelism.module_fqns_per_model_part [[\"layers.0\"],[],[\"norm\"]]",
         "has no layer"                                                                                                  },
        {PP2 "parallelism.module_fqns_per_model_part [[\"layers.0\"],[3]]",                         "expected lists"     },
        {PP2 "parallelism.module_fqns_per_model_part 7",                                            "expected a list"    },
        {PP2 "parallelism.pipeline_parallel_schedule_csv none.csv",                                 "none.csv"           },
        {PP4 SCHEDULE "Interleaved1F1B",                                                            "8 stages, but"      },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        char text[500];
        job j;
        tt_error err = {0};
        const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
        snprintf(text, sizeof text, PLAIN "%s", bad[i][0]);
        assert_int_not_equal(job_try(&j, job_text, text, &o, &err), TT_OK);
        if (!strstr(err.text, bad[i][1]) || !strstr(err.text, "parallelism"))
            fail_msg("%s: \"%s\" does not say \"%s\"", text, err.text, bad[i][1]);
        job_close(&j);
    }
}

/* ---- several values between two stages ---- */

static tt_value *mixed(tt_builder *b, tt_value *x, tt_value *by, const char *name)
{
    return tt_add(b, x, tt_linear(b, tt_silu(b, by), name, TT_DIM(20, "embed"), NULL));
}

/* Three streams run through all blocks, the last block also reads the output of the first one,
 * and every stage reads a value that depends on the positions alone. */
static void describe_wide(const void *config, tt_builder *b)
{
    static const int turned[] = {1, 0};
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", TT_DIM(263, "vocab"),
                               TT_DIM(20, "embed"), NULL);
    tt_value *fade = tt_exp(b, tt_scale(b, tt_cast(b, tt_input(b, "pos"), TT_F32), -0.05));
    tt_value *y = tt_scale(b, x, 0.5), *z = tt_neg(b, x), *first = NULL;
    (void)config;
    for (int i = 0; i < 6; i++) {
        tt_block(b, "layers.%d", i);
        x = mixed(b, x, y, "x");
        y = mixed(b, y, z, "y");
        z = mixed(b, z, x, "z");
        x = tt_transpose(b, tt_mul(b, tt_transpose(b, x, turned), fade), turned);
        if (!i)
            first = y;
        if (i == 5)
            x = tt_add(b, x, first);
        tt_block_end(b);
    }
    x = tt_rms_norm(b, tt_add(b, x, tt_mul(b, y, z)), "norm", 1e-5);
    tt_output(b, "logits", tt_linear(b, x, "head", TT_DIM(263, "vocab"), NULL));
}

static void make_wide(job *j)
{
    static const tt_model_vt vt = {.struct_size = sizeof vt, .describe = describe_wide};
    static const tt_component wide = {.struct_size = sizeof wide,
                                      .kind = TT_KIND_MODEL,
                                      .name = "wide",
                                      .doc = "",
                                      .vtable = &vt};
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN};
    tt_error err = {0};
    j->setup.model = (tt_part){.component = &wide, .name = "wide"};
    j->setup.graph = NULL;
    if (tt_setup_compile(&j->setup, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
    int crossing[TT_MAX_STAGES] = {0}, most = 0;
    for (size_t i = 0; i < j->setup.graph->nodes.n; i++) {
        const tt_node *n = j->setup.graph->nodes.items[i];
        if (n->op != &tt_op_transfer)
            continue;
        assert_true(n->out[0]->type.n_dims == 2); /* the fade is computed on each stage */
        if (n->when->region == TT_FORWARD)
            most += ++crossing[n->when->stage] > most;
    }
    assert_int_equal(most, j->setup.n_stages > 1 ? 4 : 0);
}

static void test_many_values_cross_a_stage_boundary(void **state)
{
    (void)state;
    steps_change = make_wide;
    all_train_alike(PP2, FOUR_OF_2 "8", "model.args.n_layers 6");
    all_train_alike(PP3, "training.local_batch_size 1 training.global_batch_size 8",
                    "model.args.n_layers 6");
    steps_change = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied_embeddings),
        cmocka_unit_test(test_tied_embeddings_with_other_axes),
        cmocka_unit_test(test_csv_schedules),
        cmocka_unit_test(test_stage_cuts_change_no_bit),
        cmocka_unit_test(test_many_values_cross_a_stage_boundary),
        cmocka_unit_test(test_wrong_cuts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
