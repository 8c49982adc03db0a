/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/qwen2.c"
#include "plugins/model_test.h"

/* What all models of decoder.h share, tested on qwen2, which uses all of it: windows by layer,
 * biases, config.json. */

static tt_status made(tt_arena *a, const char *args_json, decoder *c, tt_error *err)
{
    *c = (decoder){0};
    model_options(a, args_json, options, TT_COUNT(options), c);
    return decoder_finish(c, err);
}

static decoder flavor(tt_arena *a, const char *args_json)
{
    decoder c;
    tt_error err = {0};
    if (made(a, args_json, &c, &err) != TT_OK)
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

/* Counts of qwen2_describe(): those of the published checkpoints. */
static void test_qwen2_flavors_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, width;
    } want[] = {
        {"debugmodel", 5051904,     6 * 16 * 32  },
        {"0.5B",       494032768,   24 * 14 * 128},
        {"1.5B",       1543714304,  28 * 12 * 256},
        {"3B",         3085938688,  36 * 16 * 256},
        {"7B",         7615616512,  28 * 28 * 256},
        {"14B",        14770033664, 48 * 40 * 256},
        {"32B",        32763876352, 64 * 40 * 256},
        {"72B",        72706203648, 80 * 64 * 256},
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
        assert_int_equal(decoder_attention_width(&c), want[i].width);
        assert_true(c.rope_theta == 1e6 && c.window == 0);
    }
    tt_arena_free(a);
}

static void test_qwen2_has_biases_on_q_k_and_v_only(void **state)
{
    (void)state;
    static const char *const none[] = {"o_proj.bias", "q_norm.weight"};
    tt_arena *a = tt_arena_new();
    const decoder c =
        flavor(a, "{\"dim\": 48, \"n_layers\": 2, \"n_heads\": 4, \"n_kv_heads\": 2}");
    const tt_graph *g = graph_of(a, &c);
    const tt_param_info *k = model_param(g, "model.layers.1.self_attn.k_proj.bias");
    assert_int_equal(g->params.n, 1 + 2 * 12 + 1);
    assert_true(k->type.n_dims == 1 && k->type.dims[0].size == 24);
    assert_true(k->init.kind == TT_INIT_CONSTANT && k->init.a == 0.0);
    assert_string_equal(k->tags, "bias");
    for (size_t i = 0; i < g->params.n; i++)
        for (size_t j = 0; j < TT_COUNT(none); j++)
            assert_null(strstr(g->params.items[i]->name, none[j]));
    tt_arena_free(a);
}

static void test_windows_are_in_the_layers_that_have_one(void **state)
{
    (void)state;
    static const struct {
        const char *args;
        int64_t window[4];
    } t[] = {
        {"{\"n_layers\": 4, \"sliding_window\": 9, \"max_window_layers\": 2}",        {0, 0, 0, 0}},
        {"{\"n_layers\": 4, \"use_sliding_window\": true, \"sliding_window\": null}", {0, 0, 0, 0}},
        {"{\"n_layers\": 4, \"use_sliding_window\": true, \"sliding_window\": 9, "
         "\"max_window_layers\": 2}",                                        {0, 0, 9, 9}},
        {"{\"n_layers\": 4, \"use_sliding_window\": true, \"sliding_window\": 9}",    {0, 0, 0, 0}},
        {"{\"n_layers\": 4, \"use_sliding_window\": true, \"sliding_window\": 9, "
         "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", "
         "\"sliding_attention\"]}",                                          {9, 0, 0, 9}},
    };
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(t); i++) {
        const decoder c = flavor(a, t[i].args);
        for (int64_t k = 0; k < 4; k++)
            if (decoder_window(&c, k) != t[i].window[k])
                fail_msg("%s: layer %lld has %lld", t[i].args, (long long)k,
                         (long long)decoder_window(&c, k));
    }
    tt_arena_free(a);
}

static void test_layer_types_that_do_not_fit_are_refused(void **state)
{
    (void)state;
#define TYPES(list)                                                                                \
    "{\"n_layers\": 2, \"use_sliding_window\": true, \"sliding_window\": 9, "                      \
    "\"layer_types\": " list "}"
    static const char *const bad[][2] = {
        {TYPES("\"full_attention\""),                                           "layer 0 is neither"},
        {TYPES("[]"),                                                           "layer 0 is neither"},
        {TYPES("[1, 2]"),                                                       "layer 0 is neither"},
        {TYPES("[\"full_attention\"]"),                                         "layer 1 is neither"},
        {TYPES("[\"full_attention\", \"chunked_attention\"]"),                  "layer 1 is neither"},
        {TYPES("[\"full_attention\", \"full_attention_\"]"),                    "layer 1 is neither"},
        {TYPES("[\"full_attention\", [\"full_attention\"]]"),                   "layer 1 is neither"},
        {TYPES("[\"full_attention\", \"full_attention\", \"full_attention\"]"),
         "more than the 2 layers"                                                                   },
        {"{\"n_layers\": 1, \"layer_types\": [\"sliding_attention\"]}",         "there is no window"},
    };
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        decoder c;
        tt_error err = {0};
        if (made(a, bad[i][0], &c, &err) != TT_EINVAL || !strstr(err.text, bad[i][1]))
            fail_msg("%s: \"%s\"", bad[i][0], err.text);
    }
    tt_arena_free(a);
}

static void test_config_json_has_every_setting_that_shapes_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        const char *value;
    } want[] = {
        {"model_type",              "\"qwen2\""                                           },
        {"architectures",           "[\"Qwen2ForCausalLM\"]"                              },
        {"hidden_size",             "256"                                                 },
        {"num_hidden_layers",       "2"                                                   },
        {"num_key_value_heads",     "4"                                                   },
        {"head_dim",                "16"                                                  },
        {"rms_norm_eps",            "1e-06"                                               },
        {"rope_theta",              "1000000"                                             },
        {"use_sliding_window",      "true"                                                },
        {"sliding_window",          "9"                                                   },
        {"max_window_layers",       "28"                                                  },
        {"layer_types",             "[\"full_attention\",\"sliding_attention\"]"          },
        {"tie_word_embeddings",     "true"                                                },
        {"max_position_embeddings", "32768"                                               },
        {"rope_scaling",
         "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":8192}"},
    };
    tt_arena *a = tt_arena_new();
    const decoder c = flavor(a, "{\"n_layers\": 2, \"use_sliding_window\": true, "
                                "\"sliding_window\": 9, \"layer_types\": [\"full_attention\", "
                                "\"sliding_attention\"], \"rope_scaling\": {\"type\": \"yarn\", "
                                "\"factor\": 4}}");
    char text[4096];
    tt_error err = {0};
    const tt_json *root = NULL;
    assert_int_equal(qwen2_config_json(&c, text, sizeof text, &err), TT_OK);
    assert_int_equal(tt_json_parse(a, "config.json", text, strlen(text), &root, &err), TT_OK);
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const tt_json *v = tt_json_get(root, want[i].key);
        tt_str have = {0};
        assert_non_null(v);
        tt_json_write(v, &have);
        assert_string_equal(tt_str_get(&have), want[i].value);
        tt_str_free(&have);
    }
    assert_int_equal(qwen2_config_json(&c, text, 300, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "longer than 300 bytes"));
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen2_flavors_have_the_published_sizes),
        cmocka_unit_test(test_qwen2_has_biases_on_q_k_and_v_only),
        cmocka_unit_test(test_windows_are_in_the_layers_that_have_one),
        cmocka_unit_test(test_layer_types_that_do_not_fit_are_refused),
        cmocka_unit_test(test_config_json_has_every_setting_that_shapes_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
