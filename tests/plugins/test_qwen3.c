/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/qwen3.c"
#include "plugins/model_test.h"

static decoder flavor(tt_arena *a, const char *args_json)
{
    decoder c = {0};
    tt_error err = {0};
    model_options(a, args_json, options, TT_COUNT(options), &c);
    if (decoder_finish(&c, &err) != TT_OK)
        fail_msg("%s: %s", args_json, err.text);
    return c;
}

static tt_graph *graph_of(tt_arena *a, const decoder *c)
{
    tt_error err = {0};
    tt_graph *g = model_graph(a, &vt, c, 64, &err);
    if (!g)
        fail_msg("%s", err.text);
    return g;
}

/* Counts of qwen3_describe(); the released sizes are those of the published checkpoints. */
static void test_qwen3_flavors_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, looked_up, width;
    } want[] = {
        {"debugmodel", 31987968,    0,         8 * 16 * 256 },
        {"0.6B",       596049920,   0,         28 * 16 * 256},
        {"1.7B",       1720574976,  0,         28 * 16 * 256},
        {"4B",         4022468096,  0,         36 * 32 * 256},
        {"8B",         8190735360,  622329856, 36 * 32 * 256},
        {"14B",        14768307200, 777912320, 40 * 40 * 256},
        {"32B",        32762123264, 777912320, 64 * 64 * 256},
    };
    tt_arena *a = tt_arena_new();
    assert_int_equal(TT_COUNT(flavors), TT_COUNT(want));
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const decoder c = flavor(a, flavors[i].args_json);
        tt_model_size size;
        assert_string_equal(flavors[i].name, want[i].name);
        assert_int_equal(tt_model_measure(graph_of(a, &c), decoder_attention_width(&c), 64, &size),
                         TT_OK);
        assert_int_equal(size.parameters, want[i].parameters);
        assert_int_equal(size.embedding, want[i].looked_up);
        assert_int_equal(decoder_attention_width(&c), want[i].width);
        assert_int_equal(decoder_vocab_size(&c), i ? 151936 : 2048);
        assert_true(c.head_dim == 128 && c.norm_eps == 1e-6 && c.rope_theta == 1e6);
    }
    tt_arena_free(a);
}

static void test_qwen3_normalizes_each_head_with_the_same_weight(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    const decoder c = flavor(a, "{\"dim\": 48, \"n_layers\": 2, \"n_heads\": 4, \"n_kv_heads\": 2, "
                                "\"head_dim\": 10, \"tie_embeddings\": false}");
    const tt_graph *g = graph_of(a, &c);
    const tt_param_info *q = model_param(g, "model.layers.1.self_attn.q_norm.weight"),
                        *k = model_param(g, "model.layers.1.self_attn.k_norm.weight"),
                        *o = model_param(g, "model.layers.0.self_attn.o_proj.weight"),
                        *head = model_param(g, "lm_head.weight");
    assert_int_equal(g->params.n, 1 + 2 * 11 + 2);
    assert_true(q->type.n_dims == 1 && q->type.dims[0].size == 10 && k->type.dims[0].size == 10);
    assert_string_equal(q->tags, "norm");
    assert_true(q->init.kind == TT_INIT_CONSTANT && q->init.a == 1.0);
    assert_true(o->type.dims[0].size == 48 && o->type.dims[1].size == 40);
    assert_true(o->init.kind == TT_INIT_NORMAL && fabs(o->init.a - 0.01) < 1e-12); /* √(2·2) */
    assert_true(head->init.kind == TT_INIT_NORMAL && head->init.a == 0.02);
    tt_arena_free(a);
}

static void test_qwen3_refuses_sizes_that_do_not_fit(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    decoder c = flavor(a, "{}");
    c.n_kv_heads = 5;
    assert_int_equal(decoder_finish(&c, &err), TT_EINVAL);
    assert_string_equal(err.text, "model.args.n_kv_heads: 5 does not divide n_heads 16");
    c = flavor(a, "{}");
    c.head_dim = 9;
    assert_int_equal(decoder_finish(&c, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "model.args.head_dim: 9 is odd"));
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen3_flavors_have_the_published_sizes),
        cmocka_unit_test(test_qwen3_normalizes_each_head_with_the_same_weight),
        cmocka_unit_test(test_qwen3_refuses_sizes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
