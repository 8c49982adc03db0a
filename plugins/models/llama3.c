/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"
#include "decoder_gguf.h"
#include "decoder_meta.h"
#include "decoder_titan.h"

/* llama3: the decoder of decoder.h with Llama's rule for hidden_dim, for all of Llama and for models
 * that are Llamas with other sizes or with biases, such as SmolLM. Sources: Touvron et al. 2023,
 * arXiv:2307.09288; Grattafiori et al. 2024, arXiv:2407.21783; sizes of Llama 3 and initial values
 * as torchtitan's. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "null", "null", "1e-5", "500000.0", "false"),
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, "null", 1, DECODER_MAX_DIM, NULL,
                   TT_OPT_NULLABLE, "intermediate_size",
                   "width of the feed-forward layer; null: 8/3 dim times ffn_dim_multiplier, "
                   "rounded up to multiple_of"),
    TT_OPTION(decoder, multiple_of, TT_OPT_INT, "256", 1, DECODER_MAX_DIM,
              "when hidden_dim is null, it is rounded up to a multiple of this"),
    TT_OPTION(decoder, ffn_dim_multiplier, TT_OPT_FLOAT, "1.0", 1e-3, 1e3,
              "when hidden_dim is null, it is multiplied by this"),
    DECODER_ATTENTION_BIAS_OPTION,
    DECODER_MLP_BIAS_OPTION,
};

/* The released sizes share a vocabulary, 8 key/value heads and llama3 scaling; hidden_dim follows
 * from the rule. */
#define FLAVOR(name, dim, layers, heads, multiplier, multiple, tied, factor)                       \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": 8, \"ffn_dim_multiplier\": " #multiplier                          \
              ", \"multiple_of\": " #multiple                                                      \
              ", \"vocab_size\": 128256, \"tie_embeddings\": " #tied ", " SCALING(#factor) "}"     \
    }
#define SCALING(factor)                                                                            \
    "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": " factor                            \
    ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                                      \
    "\"original_max_position_embeddings\": 8192}"
/* Llama 1 and 2, SmolLM 2 */
#define OLDER(name, dim, layers, heads, kv_heads, hidden, vocab, eps, theta, tied)                 \
    {                                                                                              \
        name, "{\"dim\": " #dim ", \"n_layers\": " #layers ", \"n_heads\": " #heads                \
              ", \"n_kv_heads\": " #kv_heads ", \"hidden_dim\": " #hidden                          \
              ", \"vocab_size\": " #vocab ", \"norm_eps\": " #eps ", \"rope_theta\": " #theta      \
              ", \"tie_embeddings\": " #tied "}"                                                   \
    }
#define DEBUG "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"vocab_size\": 2048, "

static const tt_flavor flavors[] = {
    {"debugmodel", DEBUG SCALING("8.0") "}"},
    FLAVOR("1B", 2048, 16, 32, 1.5, 256, true, 32.0),
    FLAVOR("3B", 3072, 28, 24, 1.0, 256, true, 32.0),
    FLAVOR("8B", 4096, 32, 32, 1.3, 1024, false, 8.0),
    FLAVOR("70B", 8192, 80, 64, 1.3, 4096, false, 8.0),
    FLAVOR("405B", 16384, 126, 128, 1.2, 4096, false, 8.0),
    OLDER("llama1-7B", 4096, 32, 32, 32, 11008, 32000, 1e-6, 1e4, false),
    OLDER("llama1-13B", 5120, 40, 40, 40, 13824, 32000, 1e-6, 1e4, false),
    OLDER("llama1-33B", 6656, 60, 52, 52, 17920, 32000, 1e-6, 1e4, false),
    OLDER("llama1-65B", 8192, 80, 64, 64, 22016, 32000, 1e-5, 1e4, false),
    OLDER("llama2-7B", 4096, 32, 32, 32, 11008, 32000, 1e-5, 1e4, false),
    OLDER("llama2-13B", 5120, 40, 40, 40, 13824, 32000, 1e-5, 1e4, false),
    OLDER("llama2-70B", 8192, 80, 64, 8, 28672, 32000, 1e-5, 1e4, false),
    OLDER("smollm2-135M", 576, 30, 9, 3, 1536, 49152, 1e-5, 1e5, true),
    OLDER("smollm2-360M", 960, 32, 15, 5, 2560, 49152, 1e-5, 1e5, true),
    OLDER("smollm2-1.7B", 2048, 24, 32, 32, 8192, 49152, 1e-5, 130000, true),
};

static tt_status llama3_finish(void *cfg, tt_error *err)
{
    decoder *c = cfg;
    if (c->hidden_dim == INT64_MIN) {
        const int64_t wanted = (int64_t)(c->ffn_dim_multiplier * (double)(8 * c->dim / 3));
        c->hidden_dim = (wanted + c->multiple_of - 1) / c->multiple_of * c->multiple_of;
        if (c->hidden_dim < 1)
            c->hidden_dim = c->multiple_of;
    }
    return decoder_finish(c, err);
}

/* Weights that write to the residual stream, and up_proj, are smaller in deeper layers. */
static decoder_init init(const decoder *c, int64_t layer)
{
    const double std = 1.0 / sqrt((double)c->dim);
    const tt_init head = {TT_INIT_TRUNC_NORMAL, std, -3.0 * std, 3.0 * std};
    const tt_init deep = {TT_INIT_TRUNC_NORMAL, 0.02 / sqrt(2.0 * (double)(layer + 1)), 0.0, 0.0};
    return (decoder_init){
        .embedding = c->tie_embeddings ? head : (tt_init){TT_INIT_NORMAL,       1.0,  0.0, 0.0},
        .head = head,
        .plain = {TT_INIT_TRUNC_NORMAL, 0.02, 0.0, 0.0},
        .up = deep,
        .out = deep
    };
}

static const decoder_kind kind = {.init = init};

static void llama3_describe(const void *cfg, tt_builder *b)
{
    decoder_describe(&kind, cfg, b);
}

static tt_status llama3_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder *c = cfg;
    char more[128];
    snprintf(more, sizeof more, DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"mlp_bias\": %s",
             c->attention_bias ? "true" : "false", c->mlp_bias ? "true" : "false");
    return decoder_config_json(c, "LlamaForCausalLM", "llama", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "llama",
    "{\"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": null, \"head_dim\": null, "
    "\"vocab_size\": 32000, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", "
    "\"partial_rotary_factor\": 1.0, \"quantization_config\": null}",
    llama3_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(1),
    DECODER_GGUF_QKV_BIASES(1),
    {"model.layers.*.self_attn.o_proj.bias", "blk.*.attn_output.bias", 0, 0},
    {"model.layers.*.mlp.gate_proj.bias",    "blk.*.ffn_gate.bias",    0, 0},
    {"model.layers.*.mlp.up_proj.bias",      "blk.*.ffn_up.bias",      0, 0},
    {"model.layers.*.mlp.down_proj.bias",    "blk.*.ffn_down.bias",    0, 0},
};

static const tt_model_gguf gguf =
    DECODER_GGUF_MORE("llama", gguf_names, decoder_gguf_keys_llama, decoder_rope_factors, NULL,
                      decoder_gguf_longrope);

static const tt_titan_name titan_names[] = {
    TITAN_COMMON,
    TITAN_MLP,
    TITAN_QKV("q", "weight", 1),
    TITAN_QKV("k", "weight", 1),
    TITAN_QKV("v", "weight", 0),
};

static const tt_model_titan titan = {TITAN_TABLE(titan_names), NULL, NULL};

static const void *llama3_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_TITAN))
        return &titan;
    return decoder_extension(id, &hf, &gguf, &meta);
}

static const tt_model_vt vt = DECODER_VT(flavors, llama3_finish, llama3_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "llama3",
                     "Llama 3: grouped-query attention, SwiGLU, rotary positions", decoder, options,
                     &vt, llama3_extension),
};

TT_PLUGIN("llama3", "1.0", components);
