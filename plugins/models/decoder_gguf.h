/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_GGUF_H
#define TT_MODELS_DECODER_GGUF_H
#include "decoder_gguf_rope.h"

/* GGUF files of the models of decoder.h. llama.cpp rotates pairs (2 j, 2 j + 1) in its architectures
 * "llama" and "smollm3", and pairs (j, j + half) in the others; only "gemma2" and "gemma3" have
 * sliding windows there. */

/* Tensors that all of them have. */
#define DECODER_GGUF_SHARED(pairs)                                                                 \
    {"model.embed_tokens.weight", "token_embd.weight", 0, 0},                                      \
        {"model.norm.weight", "output_norm.weight", 0, 0},                                         \
        {"lm_head.weight", "output.weight", 0, 0},                                                 \
        {"model.layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight", pairs, 0},               \
        {"model.layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight", pairs, 0},               \
        {"model.layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight", 0, 0},                   \
        {"model.layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight", 0, 0},              \
        {"model.layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight", 0, 0},                    \
        {"model.layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight", 0, 0},                        \
    {                                                                                              \
        "model.layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight", 0, 0                       \
    }

/* And the norms of those that have them before attention and the feed-forward layer only. */
#define DECODER_GGUF_NAMES(pairs)                                                                  \
    DECODER_GGUF_SHARED(pairs),                                                                    \
        {"model.layers.*.input_layernorm.weight", "blk.*.attn_norm.weight", 0, 0},                 \
    {                                                                                              \
        "model.layers.*.post_attention_layernorm.weight", "blk.*.ffn_norm.weight", 0, 0            \
    }

/* The norms of Gemma 2 and 3. */
#define DECODER_GGUF_NORMS_AROUND                                                                  \
    {"model.layers.*.input_layernorm.weight", "blk.*.attn_norm.weight", 0, 0},                     \
        {"model.layers.*.pre_feedforward_layernorm.weight", "blk.*.ffn_norm.weight", 0, 0},        \
        DECODER_GGUF_NORMS_AFTER

/* Norms after attention and the feed-forward layer. */
#define DECODER_GGUF_NORMS_AFTER                                                                   \
    {"model.layers.*.post_attention_layernorm.weight", "blk.*.post_attention_norm.weight", 0, 0},  \
    {                                                                                              \
        "model.layers.*.post_feedforward_layernorm.weight", "blk.*.post_ffw_norm.weight", 0, 0     \
    }

#define DECODER_GGUF_QK_NORMS                                                                      \
    {"model.layers.*.self_attn.q_norm.weight", "blk.*.attn_q_norm.weight", 0, 0},                  \
    {                                                                                              \
        "model.layers.*.self_attn.k_norm.weight", "blk.*.attn_k_norm.weight", 0, 0                 \
    }

#define DECODER_GGUF_QKV_BIASES(pairs)                                                             \
    {"model.layers.*.self_attn.q_proj.bias", "blk.*.attn_q.bias", pairs, 0},                       \
        {"model.layers.*.self_attn.k_proj.bias", "blk.*.attn_k.bias", pairs, 0},                   \
    {                                                                                              \
        "model.layers.*.self_attn.v_proj.bias", "blk.*.attn_v.bias", 0, 0                          \
    }

/* llama.cpp divides attention scores by the root of head_dim, in its largest Gemmas by that of
 * dim/n_heads, and has no key for another number. */
static inline tt_status decoder_check_gguf_scores(const decoder *c, bool largest, tt_error *err)
{
    const int64_t there = largest ? c->dim / c->n_heads : c->head_dim;
    if (c->query_pre_attn_scalar != there)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.query_pre_attn_scalar: llama.cpp has %lld here, and GGUF has no "
                       "key for %lld",
                       (long long)there, (long long)c->query_pre_attn_scalar);
    return TT_OK;
}

/* For an architecture whose files must have the output layer. */
static inline tt_status decoder_check_gguf_head(const decoder *c, tt_error *err)
{
    if (c->tie_embeddings)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.tie_embeddings: llama.cpp wants an output layer of its own in "
                       "this architecture");
    return TT_OK;
}

/* For an architecture whose heads together are as wide as the residual stream. */
static inline tt_status decoder_check_gguf_width(const decoder *c, tt_error *err)
{
    if (c->head_dim * c->n_heads != c->dim)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "model.args.head_dim: llama.cpp has dim/n_heads = %lld in this architecture, "
            "not %lld",
            (long long)(c->dim / c->n_heads), (long long)c->head_dim);
    return TT_OK;
}

/* For an architecture that runs without windows. */
static inline tt_status decoder_check_no_windows(const decoder *c, tt_error *err)
{
    for (int64_t i = 0; i < c->n_layers; i++)
        if (decoder_window(c, i))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.sliding_window: llama.cpp runs this architecture without a "
                           "window; --model.args.sliding_window null leaves it out");
    return TT_OK;
}

/* For an architecture whose layers slide but each `pattern`-th; writes the window. */
static inline tt_status decoder_add_gguf_window(json_text *t, const decoder *c, int64_t pattern,
                                                tt_error *err)
{
    for (int64_t i = 0; i < c->n_layers; i++)
        if ((decoder_window(c, i) > 0) != ((i + 1) % pattern != 0))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.layer_types: layer %lld; in llama.cpp all layers of this "
                           "architecture slide but each %lldth",
                           (long long)i, (long long)pattern);
    json_add(t, ", \"attention.sliding_window\": %lld", (long long)c->window);
    return TT_OK;
}

/* key, value: the widths of a head; more: further keys, each with a comma before it */
static inline tt_status decoder_gguf_keys_of(const decoder *c, int64_t key, int64_t value,
                                             int factors, const char *more, char *json, size_t size,
                                             tt_error *err)
{
    json_text t = {json, size, 0};
    json_add(&t,
             "{\"block_count\": %lld, \"embedding_length\": %lld, \"feed_forward_length\": %lld, "
             "\"attention.head_count\": %lld, \"attention.head_count_kv\": %lld, ",
             (long long)c->n_layers, (long long)c->dim, (long long)c->hidden_dim,
             (long long)c->n_heads, (long long)c->n_kv_heads);
    json_add(&t,
             "\"attention.key_length\": %lld, \"attention.value_length\": %lld, "
             "\"rope.dimension_count\": %lld, \"vocab_size\": %lld, ",
             (long long)key, (long long)value, (long long)c->rope.rotary_dim,
             (long long)c->vocab_size);
    json_add_real(&t, "attention.layer_norm_rms_epsilon", c->norm_eps);
    json_add(&t, ", ");
    json_add_real(&t, "rope.freq_base", c->rope_theta);
    TT_TRY(decoder_add_gguf_scaling(&t, c, factors, err));
    json_add(&t, "%s}", more);
    if (t.n >= t.size)
        return TT_FAIL(err, TT_EINVAL, "its GGUF keys are longer than %zu bytes", t.size);
    return TT_OK;
}

static inline tt_status decoder_gguf_keys(const decoder *c, int factors, const char *more,
                                          char *json, size_t size, tt_error *err)
{
    return decoder_gguf_keys_of(c, c->head_dim, c->head_dim, factors, more, json, size, err);
}

/* The keys of llama.cpp's architecture "llama", and those of "qwen2", "qwen3" and "olmo2". */
static inline tt_status decoder_gguf_keys_llama(const void *cfg, char *json, size_t size,
                                                tt_error *err)
{
    TT_TRY(decoder_check_no_windows(cfg, err));
    return decoder_gguf_keys(cfg, DECODER_GGUF_LLAMA3 | DECODER_GGUF_LONGROPE, "", json, size, err);
}
static inline tt_status decoder_gguf_keys_qwen(const void *cfg, char *json, size_t size,
                                               tt_error *err)
{
    TT_TRY(decoder_check_no_windows(cfg, err));
    return decoder_gguf_keys(cfg, 0, "", json, size, err);
}
#define DECODER_GGUF(architecture, names, keys, factors)                                           \
    DECODER_GGUF_MORE(architecture, names, keys, factors, NULL, NULL)
#define DECODER_GGUF_MORE(architecture, names, keys, factors, from_one, vector)                    \
    {                                                                                              \
        sizeof(tt_model_gguf), (architecture), (names), TT_COUNT(names), sizeof(names)[0], (keys), \
            (factors), (from_one), (vector), NULL, 0, 0                                            \
    }
/* For an architecture some of whose tensors are parts of ours. */
#define DECODER_GGUF_PARTS(architecture, names, keys, parts)                                       \
    {                                                                                              \
        sizeof(tt_model_gguf), (architecture), (names), TT_COUNT(names), sizeof(names)[0], (keys), \
            NULL, NULL, NULL, (parts), TT_COUNT(parts), sizeof(parts)[0]                           \
    }

#endif
