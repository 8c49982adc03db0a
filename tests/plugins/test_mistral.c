/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/mistral.c"
#include "plugins/model_test.h"

static decoder flavor(tt_arena *a, const char *args_json)
{
    decoder c = {0};
    tt_error err = {0};
    model_options(a, args_json, options, TT_COUNT(options), &c);
    if (mistral_finish(&c, &err) != TT_OK)
        fail_msg("%s: %s", args_json, err.text);
    return c;
}

/* Counts of mistral_describe(): those of the published checkpoints. */
static void test_mistral_flavors_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, window;
    } want[] = {
        {"debugmodel", 5573888,     0   },
        {"7B-v0.1",    7241732096,  4096},
        {"7B-v0.2",    7241732096,  0   },
        {"7B-v0.3",    7248023552,  0   },
        {"Nemo",       12247782400, 0   },
        {"Small-24B",  23572403200, 0   },
    };
    tt_arena *a = tt_arena_new();
    assert_int_equal(TT_COUNT(flavors), TT_COUNT(want));
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const decoder c = flavor(a, flavors[i].args_json);
        tt_model_size size;
        tt_error err = {0};
        tt_graph *g = model_graph(a, &vt, &c, 64, &err);
        assert_non_null(g);
        assert_string_equal(flavors[i].name, want[i].name);
        assert_int_equal(tt_model_measure(g, decoder_attention_width(&c), 64, &size), TT_OK);
        assert_int_equal(size.parameters, want[i].parameters);
        for (int64_t k = 0; k < c.n_layers; k++)
            assert_int_equal(decoder_window(&c, k), want[i].window);
    }
    tt_arena_free(a);
}

static void test_mistral_config_json_has_the_window(void **state)
{
    (void)state;
    static const char *const t[][2] = {
        {"{\"sliding_window\": 7}", "\"sliding_window\": 7,"   },
        {"{}",                      "\"sliding_window\": null,"}
    };
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(t); i++) {
        const decoder c = flavor(a, t[i][0]);
        char text[4096];
        tt_error err = {0};
        assert_int_equal(mistral_config_json(&c, text, sizeof text, &err), TT_OK);
        assert_non_null(strstr(text, t[i][1]));
        assert_non_null(strstr(text, "\"architectures\": [\"MistralForCausalLM\"]"));
    }
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistral_flavors_have_the_published_sizes),
        cmocka_unit_test(test_mistral_config_json_has_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
