/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_gemma.h"

/* gemma3 (text): Gemma with norms on both sides and of each query and key head; five layers in six
 * have a sliding window and rotary positions of a base of their own. Source: Gemma Team 2025,
 * arXiv:2503.19786; initial values as transformers'. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "32", "1e-6", "1000000.0", "true"),
    DECODER_HIDDEN_OPTION("896"),
    DECODER_PATTERN_OPTIONS("4096", "6"),
    DECODER_LOCAL_ROPE_OPTION("10000.0"),
    DECODER_SCORE_OPTION("256"),
    DECODER_LOGIT_CAP_OPTION("null"),
};

#define FLAVOR(name, dim, layers, heads, kv_heads, head_dim, hidden, vocab, window, scalar, rope)  \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"head_dim\": " #head_dim                          \
              ", \"hidden_dim\": " #hidden ", \"vocab_size\": " #vocab                             \
              ", \"sliding_window\": " #window ", \"query_pre_attn_scalar\": " #scalar             \
              ", \"rope_scaling\": " rope "}"                                                      \
    }
#define LONG "{\"rope_type\": \"linear\", \"factor\": 8.0}"

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 6, \"n_heads\": 8, "
                   "\"n_kv_heads\": 4, \"head_dim\": 32, \"hidden_dim\": 896, \"sliding_window\": "
                   "128, \"query_pre_attn_scalar\": 32}"},
    FLAVOR("270M", 640, 18, 4, 1, 256, 2048, 262144, 512, 256, "null"),
    FLAVOR("1B", 1152, 26, 4, 1, 256, 6912, 262144, 512, 256, "null"),
    FLAVOR("4B", 2560, 34, 8, 4, 256, 10240, 262208, 1024, 256, LONG),
    FLAVOR("12B", 3840, 48, 16, 8, 256, 15360, 262208, 1024, 256, LONG),
    FLAVOR("27B", 5376, 62, 32, 16, 128, 21504, 262208, 1024, 168, LONG),
};

static const decoder_kind kind = {.qk_norm = DECODER_QK_HEADS,
                                  .norms = &gemma_norms_around,
                                  .norms_from_one = true,
                                  .scaled_embedding = true,
                                  .activation = tt_gelu_tanh,
                                  .init = decoder_init_flat};

static void gemma3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status gemma3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[8192];
    json_text t = {more, sizeof more, 0};
    json_add(&t, GEMMA_ACTIVATION ",\n  \"attention_bias\": false,\n  ");
    json_add_real(&t, "rope_local_base_freq", c->rope_local_base_freq);
    json_add(&t, ",\n  \"query_pre_attn_scalar\": %lld", (long long)c->query_pre_attn_scalar);
    gemma_add_cap(&t, "final_logit_softcapping", c->final_logit_softcapping);
    json_add(&t, ",\n  \"sliding_window_pattern\": %lld", (long long)c->sliding_window_pattern);
    gemma_add_windows(&t, c);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(c, "Gemma3ForCausalLM", "gemma3_text", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "gemma3_text",
    "{\"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_hidden_layers\": 26, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, "
    "\"vocab_size\": 262208, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, "
    "\"rope_local_base_freq\": 10000.0, \"sliding_window\": 4096, "
    "\"query_pre_attn_scalar\": 256, "
    "\"tie_word_embeddings\": true}",
    "{" GEMMA_ACTIVATION ", \"attn_logit_softcapping\": null, " GEMMA_FIXED "}",
    gemma3_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_SHARED(0),
    DECODER_GGUF_NORMS_AROUND,
    DECODER_GGUF_QK_NORMS,
};

/* llama.cpp has 10000 for the layers that slide, and no key for it. */
static tt_status gemma3_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[128];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_check_gguf_scores(c, c->n_layers == 62, err)); /* the 27B has 62 layers */
    TT_TRY(decoder_add_gguf_window(&t, c, 6, err));
    if (c->rope_local_base_freq != 10000.0 || c->final_logit_softcapping > 0.0)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_local_base_freq: llama.cpp runs this architecture with "
                       "10000 and without a cap of logits only");
    return decoder_gguf_keys(c, 0, more, json, size, err);
}

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("gemma3", gguf_names, gemma3_gguf_keys, NULL, "norm.weight", NULL);

static const void *gemma3_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, gemma_finish_windows, gemma3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "gemma3",
                     "Gemma 3 (text): five layers in six slide, with rotary positions of their own",
                     decoder, options, &vt, gemma3_extension),
};

TT_PLUGIN("gemma3", "1.0", components);
