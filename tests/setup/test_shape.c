/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "setup/setup_impl.h"

/* Setup learns about a model from the graph that its describe() writes. Each model is tested by its
 * own names; the core has no names of its own. */

static void open_model(job *j, const char *spec, const char *args)
{
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .data = true};
    char text[400];
    tt_error err = {0};
    snprintf(text, sizeof text,
             "{\"spec\":\"%s\",\"model\":{\"args\":{\"dim\":48,\"n_layers\":3,\"n_heads\":6%s}},"
             "\"training\":{\"seq_len\":32},\"checkpoint\":{\"enable\":false}}",
             spec, args);
    tt_log_setup(TT_ERROR, 0, 1, false);
    if (job_try(j, text, "", &o, &err) != TT_OK)
        fail_msg("%s: %s", spec, err.text);
}

typedef struct wanted {
    const char *spec, *args, *block; /* of block 2 */
    int64_t kv_heads;
    const char *layers[4], *heads[5], *neither[4];
} wanted;

static void test_shape_of_each_model(void **state)
{
    static const wanted all[] = {
        {"llama3",
         ",\"n_kv_heads\":2,\"hidden_dim\":64",                         "model.layers.2",
         2, {"layers.2", "model.layers.2", "layers.2.mlp", "model.layers.2.self_attn.q_proj"},
         {"norm", "model.norm", "lm_head", "output"},
         {"tok_embeddings", "model.embed_tokens", "weight", "layers"}},
 /* a head that is the embedding's table is still a head by its own name */
        {"llama3",
         ",\"n_kv_heads\":3,\"hidden_dim\":64,\"tie_embeddings\":true", "model.layers.2",
         3, {"layers.2"},
         {"norm", "lm_head", "output"},
         {"tok_embeddings", "embed_tokens"}                          },
        {"gpt2",
         "",                                                            "transformer.h.2",
         6, {"transformer.h.2", "h.2", "layers.2", "h.2.mlp"},
         {"ln_f", "transformer.ln_f"},
         {"wpe", "transformer.wte", "h", "norm"}                     },
        {"qwen3",
         ",\"n_kv_heads\":6,\"hidden_dim\":64",                         "model.layers.2",
         6, {"layers.2", "model.layers.2"},
         {"norm", "model.norm"},
         {"embed_tokens", "layers.x"}                                },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        const wanted *w = &all[i];
        job j;
        open_model(&j, w->spec, w->args);
        const tt_setup *s = &j.setup;
        assert_int_equal(s->shape.n_blocks, 3);
        assert_string_equal(s->shape.blocks[2], w->block);
        assert_int_equal(s->shape.kv_heads, w->kv_heads);
        for (int k = 0; k < 4 && w->layers[k]; k++)
            if (tt_setup_block(s, w->layers[k]) != 2 || tt_setup_is_head(s, w->layers[k]))
                fail_msg("%s: \"%s\" is not block 2", w->spec, w->layers[k]);
        for (int k = 0; k < 5 && w->heads[k]; k++)
            if (tt_setup_block(s, w->heads[k]) != -1 || !tt_setup_is_head(s, w->heads[k]))
                fail_msg("%s: \"%s\" is not the head", w->spec, w->heads[k]);
        for (int k = 0; k < 4 && w->neither[k]; k++)
            if (tt_setup_block(s, w->neither[k]) != -1 || tt_setup_is_head(s, w->neither[k]))
                fail_msg("%s: \"%s\" means something", w->spec, w->neither[k]);
        job_close(&j);
    }
}

/* A stage boundary after the last block of a model whose final norm is not called "norm". */
static void test_shape_cuts_gpt2_before_its_head(void **state)
{
    job j;
    (void)state;
    job_open_text(&j,
                  "{\"spec\":\"gpt2\",\"model\":{\"args\":{\"dim\":48,\"n_layers\":3,"
                  "\"n_heads\":6,\"vocab_size\":263}},\"checkpoint\":{\"enable\":false},"
                  "\"training\":{\"seq_len\":32,\"local_batch_size\":4}}",
                  "parallelism.pipeline_parallel_degree 2 "
                  "parallelism.pipeline_parallel_split_points [\"transformer.ln_f\"]");
    const tt_graph *g = j.setup.graph;
    int most = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->block >= 0)
            most = TT_MAXV(most, g->nodes.items[i]->when->stage);
    assert_int_equal(j.setup.n_stages, 2);
    assert_int_equal(most, 0); /* all blocks are on the first */
    job_close(&j);
}

static void test_a_plan_larger_than_memory_is_refused(void **state)
{
    job j;
    tt_error err = {0};
    (void)state;
    open_model(&j, "llama3", "");
    assert_int_equal(tt_setup_check_size(&j.setup, 4e9, &err), TT_OK);
    assert_int_equal(tt_setup_check_size(&j.setup, 1e6, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "model llama3: 3 blocks of "));
    assert_non_null(strstr(err.text, "; take fewer layers, model.args.n_layers"));
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_larger_than_memory_is_refused),
        cmocka_unit_test(test_shape_of_each_model),
        cmocka_unit_test(test_shape_cuts_gpt2_before_its_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
