/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/decode_compare.h"

/* Decoding of the models that are shipped. */

static const char *const models[][2] = {
    {"llama3",      LLAMA3_ARGS                                                                       },
    {"gpt2",        "{\"dim\":48,\"n_layers\":3,\"n_heads\":4,\"vocab_size\":263,\"n_positions\":330}"},
    {"qwen3",       "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":24,"
              "\"hidden_dim\":70,\"vocab_size\":263}"                                    },
    {"gemma3",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":24,"
     "\"hidden_dim\":70,\"vocab_size\":263,\"sliding_window\":21,\"sliding_window_pattern\":2}"       },
    {"phi3",
     "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"
     "\"vocab_size\":263,\"partial_rotary_factor\":0.75,\"sliding_window\":50,\"rope_scaling\":{"
     "\"rope_type\":\"longrope\",\"factor\":4,\"original_max_position_embeddings\":64,"
     "\"short_factor\":[1,1,1],\"long_factor\":[1.5,2.5,7]}}"                                         },
    {"olmo2",       "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"
              "\"vocab_size\":263}"                                                      },
 /* experts: choices of all, biases, groups and shared experts */
    {"mixtral",     "{\"dim\":40,\"n_layers\":2,\"n_heads\":4,\"n_kv_heads\":2,\"hidden_dim\":30,"
                "\"vocab_size\":263,\"num_local_experts\":5,\"num_experts_per_tok\":5}"},
    {"qwen3_moe",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_experts\":7,\"num_experts_per_tok\":3,"
     "\"moe_intermediate_size\":13,\"mlp_only_layers\":[1]}"                                          },
    {"qwen3_next",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":16,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"full_attention_interval\":2,\"linear_num_key_heads\":2,"
     "\"linear_num_value_heads\":6,\"linear_key_head_dim\":10,\"linear_value_head_dim\":7,"
     "\"num_experts\":7,\"num_experts_per_tok\":3,\"moe_intermediate_size\":13}"                      },
    {"gpt_oss",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_local_experts\":6,\"num_experts_per_tok\":2,\"sliding_window\":21}"    },
    {"glm4_moe",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,"
     "\"topk_group\":2,\"moe_intermediate_size\":13}"                                                 },
    {"deepseek_v3",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"hidden_dim\":31,\"vocab_size\":263,"
     "\"kv_lora_rank\":20,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":10,"
     "\"num_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2,"
     "\"moe_intermediate_size\":13,\"topk_method\":\"noaux_tc\",\"rope_scaling\":null}"               },
};

/* A delta net computes the whole context in chunks and decodes token by token: sums in another order. */
static double tolerance_of(const char *spec)
{
    return strcmp(spec, "qwen3_next") == 0 ? 1e-5 : 0.0;
}

static void test_decoding_has_the_bits_of_the_whole_context(void **state)
{
    (void)state;
    for (size_t o = 0; o < TT_COUNT(exact_overrides); o++) {
        for (size_t m = 0; m < TT_COUNT(models); m++) {
            cache = strcmp(models[m][0], "deepseek_v3") ? TT_CACHE_AUTO : TT_CACHE_HEADS;
            compare(models[m][0], models[m][1], NULL, exact_overrides[o],
                    tolerance_of(models[m][0]));
        }
        cache = TT_CACHE_AUTO;
    }
}

/* The sums of a chunk begin anew in its cache, so they are in another order than in the whole context. */
static void test_decoding_agrees_in_chunks(void **state)
{
    static const char chunks[] = "{\"dim\":40,\"n_layers\":4,\"n_heads\":4,\"n_kv_heads\":2,\"head_"
                                 "dim\":12,\"hidden_dim\":31,"
                                 "\"vocab_size\":263,\"num_experts\":6,\"moe_intermediate_size\":"
                                 "13,\"attention_chunk_size\":21}";
    (void)state;
    compare("llama4", chunks, NULL, OWN " backend.threads 1", 1e-5);
    compare("llama4", chunks, NULL, OWN " debug.poison true backend.threads 2", 1e-5);
    compare("llama4", chunks, NULL, "backend.name reference backend.threads 1", 1e-5);
}

static void test_decoding_agrees_where_sums_depend_on_rows(void **state)
{
    (void)state;
    static const char *const overrides[] = {
        "backend.name cpu backend.blas openblas backend.threads 1",
        "backend.name cpu backend.blas own backend.f32_products auto backend.threads 1", /* AMX */
    };
    for (size_t o = 0; o < TT_COUNT(overrides); o++)
        for (size_t m = 0; m < TT_COUNT(models); m++)
            compare(models[m][0], models[m][1], NULL, overrides[o], 1e-5);
}

/* Bytes that were not written are NaN: a decoding program must not read them. */
static void test_decoding_reads_only_cached_tokens(void **state)
{
    (void)state;
    compare(models[0][0], models[0][1], NULL, OWN " debug.poison true backend.threads 1", 0);
    for (size_t m = 0; m < TT_COUNT(models); m++) {
        cache = TT_CACHE_HEADS;
        if (strstr(models[m][1], "num_experts_per_tok"))
            compare(models[m][0], models[m][1], NULL, OWN " debug.poison true backend.threads 1",
                    tolerance_of(models[m][0]));
    }
    cache = TT_CACHE_AUTO;
}

/* Sums are in another order than in the whole context. */
#define WITHIN 1e-5

static void test_latent_vectors_are_enough(void **state)
{
    static const char odd_sizes[] =
        "{\"dim\":40,\"n_layers\":2,\"n_heads\":5,\"hidden_dim\":31,\"vocab_size\":263,"
        "\"q_lora_rank\":18,\"kv_lora_rank\":21,\"qk_nope_head_dim\":9,\"qk_rope_head_dim\":4,"
        "\"v_head_dim\":11,\"num_experts\":6,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":13}";
    (void)state;
    cache = TT_CACHE_LATENT;
    for (size_t o = 0; o < TT_COUNT(near_overrides); o++) {
        compare("deepseek_v3", models[TT_COUNT(models) - 1][1], NULL, near_overrides[o], WITHIN);
    }
    compare("deepseek_v3", odd_sizes, NULL, near_overrides[1], WITHIN);
    cache = TT_CACHE_AUTO;
}

static void test_what_has_fewer_bytes_is_kept(void **state)
{
    const char *deepseek = models[TT_COUNT(models) - 1][1];
    (void)state;
    kept("llama3", models[0][1], NULL, TT_CACHE_AUTO, 3 * 2 * 16 * 4, 3 * 2 * 16 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_AUTO, 3 * 26 * 4, 3 * 4 * 26 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_LATENT, 3 * 26 * 4, 3 * 4 * 26 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_HEADS, 3 * 4 * 26 * 4, 3 * 4 * 26 * 4);
    /* one head of 16 + 4 is less than the latent vector */
    kept("deepseek_v3",
         "{\"dim\":40,\"n_layers\":2,\"n_heads\":1,\"hidden_dim\":31,\"vocab_size\":263,"
         "\"kv_lora_rank\":20,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":4,"
         "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":13}",
         NULL, TT_CACHE_AUTO, 2 * 20 * 4, 2 * 20 * 4);
}

static void test_a_table_of_positions_bounds_the_context(void **state)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = 4096, .cache = cache};
    program p;
    (void)state;
    open_program(&p, models[1][0], models[1][1], NULL, "backend.threads 1", TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->length, 330);
    close_program(&p);
    open_program(&p, models[0][0], models[0][1], NULL, "backend.threads 1", TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->length, 4096);
    close_program(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_has_the_bits_of_the_whole_context),
        cmocka_unit_test(test_decoding_agrees_in_chunks),
        cmocka_unit_test(test_decoding_agrees_where_sums_depend_on_rows),
        cmocka_unit_test(test_decoding_reads_only_cached_tokens),
        cmocka_unit_test(test_latent_vectors_are_enough),
        cmocka_unit_test(test_what_has_fewer_bytes_is_kept),
        cmocka_unit_test(test_a_table_of_positions_bounds_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
