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

/* Tokens per line that attention of the graph is told of; 0: it looks at pos and seg; -1: it is not told the same everywhere. */
static int64_t lines_of(const tt_graph *g)
{
    int64_t line = -2;
    for (size_t i = 0; g && i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (strcmp(n->op->name, "attention") != 0)
            continue;
        char text[200];
        n->op->print_attrs(n->attrs, text, sizeof text); /* as in dumped graphs */
        const char *said = strstr(text, " line=");
        const int64_t told = said ? strtoll(said + strlen(" line="), NULL, 10) : 0;
        line = line == -2 || line == told ? told : -1;
    }
    return line;
}

#define VALID "validation.enable true validation.seq_len 16 validation.dataloader.path [\"a\"] "
#define SETS                                                                                       \
    "validation.enable true validation.datasets.a.path [\"a\"] validation.datasets.b.path "        \
    "[\"b\"] "
#define P "parallelism."

/* Where the loader promises that each sample is one segment, and no rank has a part of a sample. */
static void test_attention_is_told_of_lines(void **state)
{
    static const struct {
        const char *overrides;
        tt_mode mode;
        int64_t train, eval;
    } rows[] = {
        {"",                                                                   TT_MODE_TRAIN,  37, -2},
        {"",                                                                   TT_MODE_EVAL,   37, 37},
        {"",                                                                   TT_MODE_LOGITS, 0,  0 },
        {VALID,                                                                TT_MODE_TRAIN,  37, 16},
        {VALID "validation.dataloader.document_mask true",                     TT_MODE_TRAIN,  37, 0 },
        {VALID "dataloader.document_mask true",                                TT_MODE_TRAIN,  0,  16},
        {SETS,                                                                 TT_MODE_TRAIN,  37, 37},
        {SETS "validation.datasets.a.document_mask true",                      TT_MODE_TRAIN,  37, 0 },
        {SETS "validation.datasets.b.packing best_fit",                        TT_MODE_TRAIN,  37, 0 },
        {"dataloader.document_mask true",                                      TT_MODE_EVAL,   0,  0 },
        {"dataloader.packing best_fit",                                        TT_MODE_TRAIN,  0,  -2},
        {VALID P "data_parallel_shard_degree 2 " P "tensor_parallel_degree 2", TT_MODE_TRAIN,  37,
         16                                                                                          },
        {VALID P "context_parallel_degree 2",                                  TT_MODE_TRAIN,  0,  0 },
    };
    (void)state;
    tt_log_setup(TT_ERROR, 0, 1, false);
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const tt_setup_opts o = {.mode = rows[i].mode, .compile = true, .data = true};
        job j;
        tt_error err = {0};
        if (job_try(&j, job_text, rows[i].overrides, &o, &err) != TT_OK)
            fail_msg("%s: %s", rows[i].overrides, err.text);
        const int64_t train = lines_of(j.setup.graph), eval = lines_of(j.setup.eval_graph);
        if (train != rows[i].train || eval != rows[i].eval)
            fail_msg("%s: lines of %lld, in evaluation %lld", rows[i].overrides, (long long)train,
                     (long long)eval);
        job_close(&j);
    }
}

static int never(const void *config)
{
    (void)config;
    return 0;
}

static int always(const void *config)
{
    (void)config;
    return 1;
}

/* The loader of the part makes the promise, or not. */
static void promise(job *j, tt_part *p, bool made)
{
    tt_component *c = tt_arena_dup(j->arena, p->component, sizeof *c);
    tt_dataloader_vt *vt = tt_arena_alloc(j->arena, sizeof *vt);
    *vt = *(const tt_dataloader_vt *)c->vtable;
    vt->one_segment = made ? always : never;
    c->vtable = vt;
    p->component = c;
}

/* What the loss's reference says of validation's samples is computed as these are, not as training's. */
static void test_references_are_told_of_their_own_lines(void **state)
{
    static const struct {
        const char *overrides;
        bool train, valid; /* the promise */
        int64_t reference, of_valid;
    } rows[] = {
        {"",                       true,  true,  64, 64},
        {"",                       true,  false, 64, 0 },
        {"",                       false, true,  0,  64},
        {"",                       false, false, 0,  0 },
        {"validation.seq_len 48 ", true,  true,  64, 48},
        {"validation.seq_len 48 ", true,  false, 64, 0 },
        {"validation.seq_len 48 ", false, true,  0,  48},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .data = true};
        job j;
        tt_error err = {0};
        char all[400];
        snprintf(
            all, sizeof all,
            "dataloader.name chat dataloader.pairs true dataloader.template chatml loss.name "
            "dpo training.seq_len 64 validation.enable true validation.dataloader.path [\"a\"] "
            "validation.dataloader.pairs true %s",
            rows[i].overrides);
        if (job_try(&j, job_text, all, &o, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_int_equal(j.setup.n_validation, 1);
        promise(&j, &j.setup.dataloader, rows[i].train);
        promise(&j, &j.setup.validation[0].data, rows[i].valid);
        if (tt_setup_compile(&j.setup, &o, &err) != TT_OK)
            fail_msg("%s", err.text);
        const int64_t reference = lines_of(j.setup.reference_graph),
                      of_valid = lines_of(j.setup.eval_reference_graph);
        if (reference != rows[i].reference || of_valid != rows[i].of_valid)
            fail_msg("row %zu: lines of %lld, of validation %lld", i, (long long)reference,
                     (long long)of_valid);
        job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_larger_than_memory_is_refused),
        cmocka_unit_test(test_shape_of_each_model),
        cmocka_unit_test(test_shape_cuts_gpt2_before_its_head),
        cmocka_unit_test(test_attention_is_told_of_lines),
        cmocka_unit_test(test_references_are_told_of_their_own_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
