/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/models/llama3.c"
#include "config/config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static decoder base(void)
{
    return (decoder){.dim = 256,
                     .n_layers = 6,
                     .n_heads = 16,
                     .n_kv_heads = INT64_MIN,
                     .head_dim = INT64_MIN,
                     .hidden_dim = INT64_MIN,
                     .multiple_of = 256,
                     .vocab_size = 2048,
                     .ffn_dim_multiplier = 1.0,
                     .norm_eps = 1e-5,
                     .rope_theta = 5e5};
}

static void test_llama3_derives_sizes(void **state)
{
    (void)state;
    decoder c = base();
    tt_error err;
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
    assert_int_equal(c.n_kv_heads, 16);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.hidden_dim, 768);
    assert_int_equal(decoder_attention_width(&c), 6 * 16 * 32);
    assert_int_equal(decoder_vocab_size(&c), 2048);
    /* The contract's counts: N = 2VD + D + L(4D² + 3DF + 2D), 6(N - VD) + 6·width·seq a token */
    const int64_t n = 2 * 2048 * 256 + 256 + 6 * (4 * 256 * 256 + 3 * 256 * c.hidden_dim + 2 * 256);
    assert_int_equal(n, 6163712);
    assert_int_equal(6 * (n - 2048 * 256) + 6 * decoder_attention_width(&c) * 2048, 71585280);
    c.hidden_dim = 100; /* given sizes stay */
    c.head_dim = 20;
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
    assert_int_equal(c.hidden_dim, 100);
    assert_int_equal(c.head_dim, 20);
}

/* Configures a flavor as a job does: option defaults, then the flavor's arguments, then
 * llama3_finish(). */
static decoder flavor(tt_arena *a, const char *args_json)
{
    static const char text[] = "{\"model\": {}}";
    decoder c = {0};
    tt_job *job = NULL;
    tt_error err = {0};
    const size_t n = TT_COUNT(options), size = sizeof options[0];
    if (tt_job_load_text(a, "job.json", text, strlen(text), NULL, 0, &job, &err) != TT_OK ||
        tt_job_section(job, "model.args", options, n, size, NULL, &c, &err) != TT_OK ||
        tt_job_overlay(job, "flavor", args_json, options, n, size, &c, &err) != TT_OK ||
        llama3_finish(&c, &err) != TT_OK)
        fail_msg("%s: %s", args_json, err.text);
    return c;
}

static void test_llama3_flavors_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t hidden, parameters;
        double factor;
    } want[] = {
        {"debugmodel", 768,   6163712,      8 },
        {"1B",         8192,  1235814400,   32},
        {"3B",         8192,  3212749824,   32},
        {"8B",         14336, 8030261248,   8 },
        {"70B",        28672, 70553706496,  8 },
        {"405B",       53248, 405853388800, 8 }
    };
    tt_arena *a = tt_arena_new();
    assert_true(TT_COUNT(flavors) > TT_COUNT(want)); /* tests/run/test_model_sizes.sh: the others */
    for (size_t i = 0; i < TT_COUNT(want); i++) {
        const decoder c = flavor(a, flavors[i].args_json);
        const int64_t D = c.dim, H = c.n_heads * c.head_dim, K = c.n_kv_heads * c.head_dim;
        const int64_t block = 2 * D * H + 2 * D * K + 3 * D * c.hidden_dim + 2 * D;
        assert_string_equal(flavors[i].name, want[i].name);
        assert_int_equal(c.hidden_dim, want[i].hidden);
        assert_int_equal((c.tie_embeddings ? 1 : 2) * c.vocab_size * D + D + c.n_layers * block,
                         want[i].parameters);
        assert_int_equal(c.rope.scaling, TT_ROPE_LLAMA3);
        assert_true(c.rope.factor == want[i].factor);
        assert_true(c.rope.original_max_position == 8192.0 && c.rope.theta == 5e5);
    }
    tt_arena_free(a);
}

static void test_llama3_reads_rope_scaling(void **state)
{
    (void)state;
    decoder c = base();
    tt_error err = {0};
    c.rope_scaling = " {\"factor\": 32.0, \"rope_type\":\"llama3\", "
                     "\"low_freq_factor\":1,\"high_freq_factor\": 4e0,\n"
                     "\"original_max_position_embeddings\": 8192} ";
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
    assert_int_equal(c.rope.scaling, TT_ROPE_LLAMA3);
    assert_true(c.rope.factor == 32.0 && c.rope.low_freq_factor == 1.0 &&
                c.rope.high_freq_factor == 4.0);
    assert_true(c.rope.original_max_position == 8192.0 && c.rope.theta == 5e5);
    c.rope_scaling = "{\"type\": \"yarn\", \"factor\": 4, \"truncate\": false, \"beta_fast\": 16}";
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
    assert_int_equal(c.rope.scaling, TT_ROPE_YARN);
    assert_int_equal(c.rope.no_truncate, 1);
    assert_true(c.rope.beta_fast == 16.0 && c.rope.low_freq_factor == 0.0);
    c.rope_scaling = "null";
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
    assert_int_equal(c.rope.scaling, TT_ROPE_NONE);
    c.rope_scaling = "{}";
    assert_int_equal(llama3_finish(&c, &err), TT_OK);
}

static void test_llama3_refuses_rope_scaling_it_cannot_do(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"[]",                                                                                     "flat object"                                        },
        {"8",                                                                                      "flat object"                                        },
        {"\"llama3\"",                                                                             "flat object"                                        },
        {"{",                                                                                      "flat object"                                        },
        {"{\"factor\"",                                                                            "flat object"                                        },
        {"{\"factor\": 8",                                                                         "flat object"                                        },
        {"{\"factor\": 8,}",                                                                       "flat object"                                        },
        {"{\"factor\": 8} 3",                                                                      "flat object"                                        },
        {"{\"factor\": {\"a\": 1}}",                                                               "flat object"                                        },
        {"{\"factor\": [8]}",                                                                      "is not a positive number"                           },
        {"{\"rope\\u0041\": 8}",                                                                   "flat object"                                        },
        {"{\"factor\": \"8\"}",                                                                    "rope_scaling.factor: \"8\" is not a positive number"},
        {"{\"factor\": -8}",                                                                       "is not a positive number"                           },
        {"{\"factor\": 8x}",                                                                       "is not a positive number"                           },
        {"{\"factor\": 1e999}",                                                                    "is not a positive number"                           },
        {"{\"factor\": true}",                                                                     "is not a positive number"                           },
        {"{\"rope_type\": \"dynamic\"}",                                                           "\"dynamic\" is not built"                           },
        {"{\"short_factor\": []}",                                                                 "short_factor: wanted a list"                        },
        {"{\"short_factor\": [1, 2}",                                                              "short_factor: wanted a list"                        },
        {"{\"long_factor\": [1, -2]}",                                                             "long_factor: wanted a list"                         },
        {"{\"long_factor\": 3}",                                                                   "long_factor: unknown key or wrong type"             },
        {"{\"rope_type\": \"longrope\"}",                                                          "longrope needs a factor"                            },
        {"{\"rope_type\": \"longrope\", \"factor\": 2}",                                           "longrope needs original_max_position"               },
        {"{\"rope_type\": 3}",                                                                     "rope_type: unknown key or wrong type"               },
        {"{\"mscale\": 1}",                                                                        "rope_scaling.mscale: unknown key"                   },
        {"{\"truncate\": maybe}",                                                                  "is not true or false"                               },
        {"{\"rope_type\": \"llama3\", \"low_freq_factor\": 5}",
         "low_freq_factor 5 is above high_freq_factor 4"                                                                                                },
        {"{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": 1}",
         "flat object"                                                                                                                                  },
    };
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        decoder c = base();
        tt_error err = {0};
        c.rope_scaling = bad[i][0];
        if (llama3_finish(&c, &err) != TT_EINVAL || !strstr(err.text, bad[i][1]))
            fail_msg("%s: \"%s\"", bad[i][0], err.text);
    }
}

static void test_llama3_refuses_sizes_that_do_not_fit(void **state)
{
    (void)state;
    tt_error err;
    decoder c = base();
    c.n_kv_heads = 5;
    assert_int_equal(llama3_finish(&c, &err), TT_EINVAL);
    assert_string_equal(err.text, "model.args.n_kv_heads: 5 does not divide n_heads 16");
    c = base();
    c.n_heads = 6;
    assert_int_equal(llama3_finish(&c, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "model.args.dim: 256 is not a multiple of n_heads 6"));
    c = base();
    c.dim = 144;
    assert_int_equal(llama3_finish(&c, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "model.args.head_dim: 9 is odd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama3_derives_sizes),
        cmocka_unit_test(test_llama3_flavors_have_the_published_sizes),
        cmocka_unit_test(test_llama3_reads_rope_scaling),
        cmocka_unit_test(test_llama3_refuses_rope_scaling_it_cannot_do),
        cmocka_unit_test(test_llama3_refuses_sizes_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
