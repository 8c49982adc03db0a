/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/gpt2.c"
#include "plugins/model_test.h"

static config flavor(tt_arena *a, const char *args_json)
{
    config c = {0};
    tt_error err = {0};
    model_options(a, args_json, options, TT_COUNT(options), &c);
    if (gpt2_finish(&c, &err) != TT_OK)
        fail_msg("%s: %s", args_json, err.text);
    return c;
}

static tt_graph *graph_of(tt_arena *a, const config *c, int64_t seq_len)
{
    tt_error err = {0};
    tt_graph *g = model_graph(a, &vt, c, seq_len, &err);
    if (!g)
        fail_msg("%s", err.text);
    return g;
}

/* Counts of gpt2_describe(); 124,439,808 and so on are transformers' num_parameters(). */
static void test_gpt2_flavors_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, width;
    } want[] = {
        {"debugmodel", 5525504,    6 * 512  },
        {"124M",       124439808,  12 * 1536},
        {"350M",       354823168,  24 * 2048},
        {"774M",       774030080,  36 * 2560},
        {"1558M",      1557611200, 48 * 3200},
    };
    tt_arena *a = tt_arena_new();
    assert_int_equal(TT_COUNT(flavors), TT_COUNT(want));
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const config c = flavor(a, flavors[i].args_json);
        tt_model_size size;
        assert_string_equal(flavors[i].name, want[i].name);
        assert_int_equal(tt_model_measure(graph_of(a, &c, 1024), attention_width(&c), 1024, &size),
                         TT_OK);
        assert_int_equal(size.parameters, want[i].parameters);
        assert_int_equal(attention_width(&c), want[i].width);
        assert_int_equal(vocab_size(&c), i ? 50257 : 2048);
    }
    tt_arena_free(a);
}

/* The embedding counts as work because it is also the output layer; positions are only looked up.
 */
static void test_gpt2_counts_no_work_for_positions(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const config c = flavor(a, flavors[1].args_json);
    tt_model_size size;
    assert_int_equal(tt_model_measure(graph_of(a, &c, 1024), attention_width(&c), 1024, &size),
                     TT_OK);
    assert_int_equal(size.embedding, 1024 * 768);
    assert_int_equal(size.parameters, 124439808);
    assert_true(size.flops_per_token == 6.0 * (124439808 - 786432) + 6.0 * 18432 * 1024);
    tt_arena_free(a);
}

/* Where a file stores each parameter: q, k and v are thirds of c_attn; linear layers are stored as
 * [in, out]. */
static void test_gpt2_says_where_files_keep_its_weights(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
        int64_t begin;
        int transpose;
    } want[] = {
        {"transformer.h.1.attn.q.weight",      "transformer.h.1.attn.c_attn.weight", 0,   1},
        {"transformer.h.1.attn.k.weight",      "transformer.h.1.attn.c_attn.weight", 64,  1},
        {"transformer.h.1.attn.v.weight",      "transformer.h.1.attn.c_attn.weight", 128, 1},
        {"transformer.h.1.attn.q.bias",        "transformer.h.1.attn.c_attn.bias",   0,   0},
        {"transformer.h.1.attn.k.bias",        "transformer.h.1.attn.c_attn.bias",   64,  0},
        {"transformer.h.1.attn.v.bias",        "transformer.h.1.attn.c_attn.bias",   128, 0},
        {"transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.weight", 0,   1},
        {"transformer.h.0.mlp.c_fc.weight",    "transformer.h.0.mlp.c_fc.weight",    0,   1},
        {"transformer.h.0.mlp.c_proj.weight",  "transformer.h.0.mlp.c_proj.weight",  0,   1},
        {"transformer.h.0.mlp.c_proj.bias",    "transformer.h.0.mlp.c_proj.bias",    0,   0},
    };
    static const char *const plain[] = {"transformer.wte.weight", "transformer.wpe.weight",
                                        "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                                        "transformer.ln_f.bias"};
    tt_arena *a = tt_arena_new();
    const config c = flavor(a, "{\"dim\": 64, \"n_layers\": 2, \"n_heads\": 4}");
    const tt_graph *g = graph_of(a, &c, 16);
    assert_int_equal(g->params.n, 2 + 2 * 16 + 2);
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const tt_param_info *p = model_param(g, want[i].name);
        assert_int_equal(p->n_storage, 1);
        assert_string_equal(p->storage[0].name, want[i].file);
        assert_int_equal(p->storage[0].file_begin, want[i].begin);
        assert_int_equal(p->storage[0].transpose, want[i].transpose);
        assert_true(p->storage[0].begin == 0 && p->storage[0].size == 0);
    }
    for (size_t i = 0; i < TT_COUNT(plain); i++)
        assert_int_equal(model_param(g, plain[i])->n_storage, 0);
    tt_arena_free(a);
}

static void test_gpt2_initial_values_are_as_published(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const config c = flavor(a, "{\"dim\": 64, \"n_layers\": 8, \"n_heads\": 4}");
    const tt_graph *g = graph_of(a, &c, 16);
    const tt_init wpe = model_param(g, "transformer.wpe.weight")->init,
                  fc = model_param(g, "transformer.h.7.mlp.c_fc.weight")->init,
                  out = model_param(g, "transformer.h.0.attn.c_proj.weight")->init,
                  bias = model_param(g, "transformer.h.0.attn.k.bias")->init;
    assert_true(wpe.kind == TT_INIT_NORMAL && wpe.a == 0.02);
    assert_true(fc.kind == TT_INIT_NORMAL && fc.a == 0.02);
    assert_true(out.kind == TT_INIT_NORMAL && fabs(out.a - 0.005) < 1e-12); /* 0.02/sqrt(2*8) */
    assert_true(bias.kind == TT_INIT_CONSTANT && bias.a == 0.0);
    assert_string_equal(model_param(g, "transformer.h.0.attn.k.bias")->tags, "bias");
    assert_string_equal(model_param(g, "transformer.wpe.weight")->tags, "embedding");
    tt_arena_free(a);
}

static void test_gpt2_refuses_sizes_that_do_not_fit(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    config c = flavor(a, "{\"n_positions\": 128}");
    assert_int_equal(c.hidden_dim, 1024);
    assert_non_null(model_graph(a, &vt, &c, 128, &err));
    assert_null(model_graph(a, &vt, &c, 129, &err));
    assert_non_null(strstr(err.text, "training.seq_len: 129 tokens, but gpt2 has learned only 128 "
                                     "positions; shorten it or raise model.args.n_positions"));
    c.n_heads = 7;
    assert_int_equal(gpt2_finish(&c, &err), TT_EINVAL);
    assert_string_equal(err.text, "model.args.n_heads: 7 does not divide dim 256");
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_flavors_have_the_published_sizes),
        cmocka_unit_test(test_gpt2_counts_no_work_for_positions),
        cmocka_unit_test(test_gpt2_says_where_files_keep_its_weights),
        cmocka_unit_test(test_gpt2_initial_values_are_as_published),
        cmocka_unit_test(test_gpt2_refuses_sizes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
