/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_gemma.h"

/* gemma2: Gemma with norms on both sides, soft caps of attention scores and logits, a scale of its
 * own, and every other layer with a sliding window. Source: Gemma Team 2024, arXiv:2408.00118;
 * initial values as transformers'. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "32", "1e-6", "10000.0", "true"),
    DECODER_HIDDEN_OPTION("896"),
    DECODER_PATTERN_OPTIONS("4096", "2"),
    DECODER_SCORE_OPTION("256"),
    DECODER_ATTENTION_CAP_OPTION("50.0"),
    DECODER_LOGIT_CAP_OPTION("30.0"),
};

#define FLAVOR(name, dim, layers, heads, kv_heads, head_dim, hidden, scalar)                       \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"head_dim\": " #head_dim                          \
              ", \"hidden_dim\": " #hidden ", \"query_pre_attn_scalar\": " #scalar                 \
              ", \"vocab_size\": 256000}"                                                          \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 6, \"n_heads\": 8, "
                   "\"n_kv_heads\": 4, \"head_dim\": 32, \"hidden_dim\": 896, \"sliding_window\": "
                   "128, \"query_pre_attn_scalar\": 32}"},
    FLAVOR("2B", 2304, 26, 8, 4, 256, 9216, 256),
    FLAVOR("9B", 3584, 42, 16, 8, 256, 14336, 256),
    FLAVOR("27B", 4608, 46, 32, 16, 128, 36864, 144),
};

static const decoder_kind kind = {.norms = &gemma_norms_around,
                                  .norms_from_one = true,
                                  .scaled_embedding = true,
                                  .activation = tt_gelu_tanh,
                                  .init = decoder_init_flat};

static void gemma2_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status gemma2_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[8192];
    json_text t = {more, sizeof more, 0};
    json_add(&t, GEMMA_ACTIVATION ",\n  \"attention_bias\": false");
    json_add(&t, ",\n  \"query_pre_attn_scalar\": %lld", (long long)c->query_pre_attn_scalar);
    gemma_add_cap(&t, "attn_logit_softcapping", c->attn_logit_softcapping);
    gemma_add_cap(&t, "final_logit_softcapping", c->final_logit_softcapping);
    gemma_add_windows(&t, c);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(c, "Gemma2ForCausalLM", "gemma2", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "gemma2",
    "{\"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_hidden_layers\": 26, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 256, "
    "\"vocab_size\": 256000, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"sliding_window\": 4096, \"query_pre_attn_scalar\": 256, "
    "\"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30.0, "
    "\"tie_word_embeddings\": true}",
    "{" GEMMA_ACTIVATION ", " GEMMA_FIXED "}",
    gemma2_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_SHARED(0),
    DECODER_GGUF_NORMS_AROUND,
};

static tt_status gemma2_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[256];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_check_gguf_scores(c, c->n_layers == 46, err)); /* the 27B has 46 layers */
    TT_TRY(decoder_add_gguf_window(&t, c, 2, err));
    if (!(c->attn_logit_softcapping > 0.0) || !(c->final_logit_softcapping > 0.0))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.attn_logit_softcapping: llama.cpp runs this architecture with "
                       "both soft caps only");
    json_add(&t, ", ");
    json_add_real(&t, "attn_logit_softcapping", c->attn_logit_softcapping);
    json_add(&t, ", ");
    json_add_real(&t, "final_logit_softcapping", c->final_logit_softcapping);
    return decoder_gguf_keys(c, 0, more, json, size, err);
}

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("gemma2", gguf_names, gemma2_gguf_keys, NULL, "norm.weight", NULL);

static const void *gemma2_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, gemma_finish_windows, gemma2_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "gemma2",
                     "Gemma 2: norms on both sides, soft caps, every other layer slides", decoder,
                     options, &vt, gemma2_extension),
};

TT_PLUGIN("gemma2", "1.0", components);
