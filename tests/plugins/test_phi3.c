/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/phi3.c"
#include "plugins/model_test.h"
#include <math.h>

#define SIZES "{\"dim\": 32, \"n_heads\": 4, \"n_kv_heads\": 2, \"partial_rotary_factor\": 0.75"
#define LONGROPE(more)                                                                             \
    SIZES ", \"rope_scaling\": {\"rope_type\": \"longrope\", "                                     \
          "\"original_max_position_embeddings\": 16, \"short_factor\": [1.0, 1.1, 1.2], "          \
          "\"long_factor\": [1.5, 2.5, 5.0], " more "}}"

/* What a GGUF file says of the positions: LongRoPE's keys and its two vectors with it, and none of them without it. */
static void test_phi3_gguf_keys_of_longrope(void **state)
{
    (void)state;
    static const struct {
        const char *args, *attn_factor; /* NULL: no LongRoPE; the root of 1 + log(256) / log(16) */
    } cases[] = {
        {SIZES "}",                                                                 NULL       },
        {SIZES ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}", NULL       },
        {LONGROPE("\"factor\": 256.0"),                                             "1.7320508"},
        {LONGROPE("\"factor\": 256.0, \"attention_factor\": 1.25"),                 "1.25"     },
        {LONGROPE("\"factor\": 1.0"),                                               "1"        },
    };
    static const float factors[2][3] = {
        {1.5f, 2.5f, 5.0f},
        {1.0f, 1.1f, 1.2f}
    };
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        decoder c = {0};
        tt_error err = {0};
        char text[4096];
        model_options(a, cases[i].args, options, TT_COUNT(options), &c);
        if (phi3_finish(&c, &err) != TT_OK || phi3_gguf_keys(&c, text, sizeof text, &err) != TT_OK)
            fail_msg("%s: %s", cases[i].args, err.text);
        const char *original = strstr(text, "\"rope.scaling.original_context_length\": 16, "),
                   *factor = strstr(text, "\"rope.scaling.attn_factor\": ");
        assert_int_equal(original != NULL, cases[i].attn_factor != NULL);
        assert_int_equal(factor != NULL, cases[i].attn_factor != NULL);
        assert_non_null(strstr(text, "\"attention.sliding_window\": 0"));
        if (factor)
            assert_true(fabs(atof(strchr(factor, ':') + 1) - atof(cases[i].attn_factor)) < 1e-7);
        for (size_t k = 0; k < 3; k++) {
            static const char *const names[] = {"rope_factors_long.weight",
                                                "rope_factors_short.weight"};
            const char *name = NULL;
            float out[3];
            const int64_t n = decoder_gguf_longrope(&c, k, &name, out, 3);
            assert_int_equal(n, factor && k < 2 ? 3 : 0);
            if (!n)
                continue;
            assert_string_equal(name, names[k]);
            assert_memory_equal(out, factors[k], sizeof out);
        }
    }
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phi3_gguf_keys_of_longrope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
