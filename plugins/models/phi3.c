/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"

/* phi3: the decoder of decoder.h, with q, k and v, and gate and up, in one tensor each in the files,
 * LongRoPE, and optionally heads that are rotated in part. Sources: Abdin et al. 2024,
 * arXiv:2404.14219; Ding et al. 2024, arXiv:2402.13753; initial values as transformers'. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "null", "1e-5", "10000.0", "false"),
    DECODER_HIDDEN_OPTION("768"),
    DECODER_PARTIAL_OPTION,
    TT_OPTION_MORE(decoder, sliding_window, TT_OPT_INT, "null", 1, 2147483647.0, NULL,
                   TT_OPT_NULLABLE, NULL,
                   "a token sees this many, itself among them; null: all before it"),
};

/* The factors of LongRoPE are in the folders of the models that have them: flavor "hf". */
#define FLAVOR(name, dim, layers, heads, kv_heads, hidden, vocab, theta, part, window, tied)       \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                          \
              ", \"vocab_size\": " #vocab ", \"rope_theta\": " #theta                              \
              ", \"partial_rotary_factor\": " #part ", \"sliding_window\": " #window               \
              ", \"tie_embeddings\": " #tied "}"                                                   \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 6, \"n_heads\": 16, "
                   "\"n_kv_heads\": 4, \"hidden_dim\": 768, \"partial_rotary_factor\": 0.75}"},
    FLAVOR("mini-4k", 3072, 32, 32, 32, 8192, 32064, 1e4, 1.0, 2047, false),
    FLAVOR("medium-4k", 5120, 40, 40, 10, 17920, 32064, 1e4, 1.0, 2047, false),
    FLAVOR("phi-4", 5120, 40, 40, 10, 17920, 100352, 250000, 1.0, null, false),
    FLAVOR("phi-4-mini", 3072, 32, 24, 8, 8192, 200064, 1e4, 0.75, null, true),
};

static tt_status phi3_finish(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    c->use_sliding_window = true; /* max_window_layers stays 0: every layer slides */
    return decoder_finish(c, err);
}

static const decoder_kind kind = {.fused = true, .init = decoder_init_flat};

static void phi3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status phi3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[512];
    json_text t = {more, sizeof more, 0};
    if (c->head_dim != c->dim / c->n_heads)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.head_dim: transformers' Phi3 has dim/n_heads = %lld, not %lld",
                       (long long)(c->dim / c->n_heads), (long long)c->head_dim);
    json_add(&t, DECODER_SILU ",\n  \"resid_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0,\n  ");
    json_add_real(&t, "partial_rotary_factor",
                  (double)c->rope.rotary_dim / (double)c->rope.head_dim);
    json_add(&t, c->window ? ",\n  \"sliding_window\": %lld" : ",\n  \"sliding_window\": null",
             (long long)c->window);
    if (c->rope.scaling == TT_ROPE_LONGROPE) /* transformers prefers this place */
        json_add(&t, ",\n  \"original_max_position_embeddings\": %.0f", rope_original(&c->rope));
    return decoder_config_json(c, "Phi3ForCausalLM", "phi3", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "phi3",
    "{\"hidden_size\": 3072, \"intermediate_size\": 8192, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": null, \"head_dim\": null, "
    "\"vocab_size\": 32064, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"sliding_window\": null, \"partial_rotary_factor\": 1.0, "
    "\"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false, "
    "\"lm_head_bias\": false, \"quantization_config\": null}",
    phi3_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
    {"model.layers.*.self_attn.qkv_proj.weight", "blk.*.attn_qkv.weight", 0, 0},
    {"model.layers.*.mlp.gate_up_proj.weight",   "blk.*.ffn_up.weight",   0, 0},
};

static tt_status phi3_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    TT_TRY(decoder_check_no_windows(cfg, err));
    TT_TRY(decoder_check_gguf_width(cfg, err));
    return decoder_gguf_keys(cfg, DECODER_GGUF_LONGROPE, ", \"attention.sliding_window\": 0", json,
                             size, err);
}

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("phi3", gguf_names, phi3_gguf_keys, NULL, NULL, decoder_gguf_longrope);

static const void *phi3_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, phi3_finish, phi3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "phi3",
                     "Phi-3 and Phi-4: fused projections in the files, LongRoPE", decoder, options,
                     &vt, phi3_extension),
};

TT_PLUGIN("phi3", "1.0", components);
