/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"

/* smollm3: the decoder of decoder.h without rotary positions in every fourth layer. Sources: Bakouch
 * et al. 2025, https://hf.co/blog/smollm3; Yang et al. 2025, arXiv:2501.18795; initial values as
 * transformers'. */

static const tt_option options[] = {
    DECODER_OPTIONS("8", "4", "null", "1e-6", "5000000.0", "true"),
    DECODER_HIDDEN_OPTION("640"),
    DECODER_NO_ROPE_OPTIONS("4"),
    DECODER_WINDOW_OPTIONS,
    DECODER_ATTENTION_BIAS_OPTION,
    DECODER_MLP_BIAS_OPTION,
};

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"vocab_size\": 2048, \"n_layers\": 8, \"n_heads\": 16, "
                   "\"n_kv_heads\": 4, \"hidden_dim\": 640}"},
    {"3B",         "{\"dim\": 2048, \"n_layers\": 36, \"n_heads\": 16, \"n_kv_heads\": 4, "
           "\"hidden_dim\": 11008, \"vocab_size\": 128256}"         },
};

/* With a window, transformers lets the layers without rotary positions slide unless layer_types says
 * otherwise; this must be said here. */
static tt_status smollm3_finish(void *cfg, tt_error *err)
{
    const decoder *c = cfg;
    TT_TRY(decoder_finish(cfg, err));
    if (c->window && !decoder_said(c->layer_types))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.sliding_window: layer_types must say which layers slide");
    return TT_OK;
}

static const decoder_kind kind = {.init = decoder_init_flat};

static void smollm3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status smollm3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[4096];
    json_text t = {more, sizeof more, 0};
    json_add(&t, "\"attention_bias\": %s,\n  \"mlp_bias\": %s,\n  ",
             c->attention_bias ? "true" : "false", c->mlp_bias ? "true" : "false");
    json_add(&t, "\"no_rope_layer_interval\": %lld,\n  \"no_rope_layers\": ",
             (long long)c->no_rope_layer_interval);
    for (int64_t i = 0; i < c->n_layers; i++)
        json_add(&t, "%s%d", i ? ", " : "[", decoder_rotates(c, i));
    json_add(&t, "],\n  ");
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json_windows(c, "SmolLM3ForCausalLM", "smollm3", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "smollm3",
    "{\"hidden_size\": 2048, \"intermediate_size\": 11008, \"num_hidden_layers\": 36, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"head_dim\": null, "
    "\"vocab_size\": 128256, \"rms_norm_eps\": 1e-6, \"rope_theta\": 2000000.0, "
    "\"use_sliding_window\": false, \"sliding_window\": null, "
    "\"tie_word_embeddings\": true}",
    "{\"hidden_act\": \"silu\", \"partial_rotary_factor\": 1.0, \"quantization_config\": null}",
    smollm3_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(1),
};

static tt_status smollm3_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    TT_TRY(decoder_check_no_windows(c, err));
    for (int64_t i = 0; i < c->n_layers; i++)
        if (decoder_rotates(c, i) != ((i + 1) % 4 != 0))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.no_rope_layers: layer %lld; in llama.cpp every fourth layer "
                           "is without rotary positions",
                           (long long)i);
    return decoder_gguf_keys(c, 0, "", json, size, err);
}

static const tt_model_gguf gguf = DECODER_GGUF("smollm3", gguf_names, smollm3_gguf_keys, NULL);

static const void *smollm3_extension(const char *id)
{
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, smollm3_finish, smollm3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "smollm3",
                     "SmolLM3: Llama with no rotary positions in every fourth layer", decoder,
                     options, &vt, smollm3_extension),
};

TT_PLUGIN("smollm3", "1.0", components);
