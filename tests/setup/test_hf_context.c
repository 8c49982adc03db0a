/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/hf_context.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* How many tokens a text of a Hugging Face model may have: the numbers of models on the hub. */

static void test_hf_context_is_what_config_json_says(void **state)
{
    static const struct {
        const char *config;
        int64_t want;
    } all[] = {
        {"{\"max_position_embeddings\":4096}",                                                                4096  },
        {"{\"n_positions\":1024,\"model_type\":\"gpt2\"}",                                                    1024  },
        {"{\"max_seq_len\":2048}",                                                                            2048  },
        {"{\"hidden_size\":64}",                                                                              0     },
        {"{\"max_position_embeddings\":131072,\"rope_scaling\":{\"rope_type\":\"llama3\","
         "\"factor\":8,"
         "\"original_max_position_embeddings\":8192}}",                                              131072},
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}",
         16384                                                                                                      },
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}"
         "}",                                                                                        8192  },
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":"
         "4.0}}",                                                                                    4096  },
        {"{\"model_type\":\"gemma3_text\",\"max_position_embeddings\":131072,\"rope_scaling\":{"
         "\"rope_type\":\"linear\","
         "\"factor\":8}}",                                                                           131072},
        {"{\"model_type\":\"gemma3_text\",\"max_position_embeddings\":131072,\"rope_parameters\":{"
         "\"sliding_attention\":"
         "{\"rope_type\":\"default\"},\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8}}}", 131072},
        {"{\"model_type\":\"qwen2\",\"max_position_embeddings\":32768,\"rope_scaling\":{\"type\":"
         "\"yarn\",\"factor\":4.0,"
         "\"original_max_position_embeddings\":32768}}",                                             131072},
        {"{\"model_type\":\"qwen3\",\"max_position_embeddings\":40960,\"rope_scaling\":{\"rope_"
         "type\":\"yarn\",\"factor\":4.0,"
         "\"original_max_position_embeddings\":32768}}",                                             131072},
        {"{\"model_type\":\"deepseek_v3\",\"max_position_embeddings\":163840,\"rope_scaling\":{"
         "\"type\":\"yarn\",\"factor\":40,"
         "\"original_max_position_embeddings\":4096}}",                                              163840},
        {"{\"max_position_embeddings\":32768,\"rope_parameters\":{\"rope_type\":\"yarn\","
         "\"factor\":4.0}}",                                                                         131072},
        {"{\"model_type\":\"phi3\",\"max_position_embeddings\":131072,\"original_max_position_"
         "embeddings\":4096,"
         "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2]}}",       4096  },
        {"{\"max_position_embeddings\":131072,\"rope_parameters\":{\"rope_type\":\"longrope\","
         "\"original_max_position_embeddings\":4096}}",                                              4096  },
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":null}",                                          4096  },
        {"{\"max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e300}"
         "}",                                                                                        4096  },
        {"{\"max_position_embeddings\":-1}",                                                                  0     },
    };
    (void)state;
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(all); i++) {
        const tt_json *config = NULL;
        tt_error err = {0};
        if (tt_json_parse(a, "config.json", all[i].config, strlen(all[i].config), &config, &err) !=
            TT_OK)
            fail_msg("%s", err.text);
        if (tt_hf_context(config) != all[i].want)
            fail_msg("%s: %lld", all[i].config, (long long)tt_hf_context(config));
    }
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_context_is_what_config_json_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
