/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe.h"
#include "delta_net.h"

/* qwen3_next: gated delta nets (delta_net.h) in most layers and attention with an output gate in the others, and
 * mixtures of experts (moe.h) with one more expert for all tokens, which a gate multiplies. Norms multiply by 1 + weight.
 * The weights of multi-token prediction in released files (mtp.*) are not read, as in transformers. Source:
 * Qwen team 2025, Qwen3-Next; computed as transformers' Qwen3NextForCausalLM. */

typedef struct {
    decoder_moe m; /* first: the functions of decoder.h take this struct */
    delta_net net;
    const char *layer_types;
    int64_t full_attention_interval, shared_hidden_dim;
} qwen3_next;

#define ROW(field, key, default_, max, doc)                                                        \
    {                                                                                              \
        key, (doc), TT_OPT_INT, offsetof(qwen3_next, field), (default_), 1, (max), NULL, 0, NULL   \
    }

static const tt_option options[] = {
    DECODER_OPTIONS("8", "2", "32", "1e-6", "10000000.0", "false"),
    DECODER_HIDDEN_OPTION("768"),
    DECODER_ATTENTION_BIAS_OPTION,
    TT_OPTION(decoder, partial_rotary_factor, TT_OPT_FLOAT, "0.25", 1e-3, 1,
              "the part of each head that is rotated"),
    ROW(net.key_heads, "linear_num_key_heads", "8", 65536, "query and key heads of a delta net"),
    ROW(net.value_heads, "linear_num_value_heads", "16", 65536,
        "value heads of a delta net, a multiple of linear_num_key_heads"),
    ROW(net.key_head_dim, "linear_key_head_dim", "16", 65536,
        "width of a query and a key of a delta net"),
    ROW(net.value_head_dim, "linear_value_head_dim", "16", 65536,
        "width of a value of a delta net"),
    ROW(net.taps, "linear_conv_kernel_dim", "4", 65536,
        "tokens that the convolution of a delta net sees"),
    ROW(full_attention_interval, "full_attention_interval", "4", 65536,
        "of this many layers the last has attention, the others delta nets"),
    TT_OPTION_MORE(qwen3_next, layer_types, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "for each layer \"full_attention\" or \"linear_attention\"; null: by "
                   "full_attention_interval"),
    MOE_OPTIONS(qwen3_next, m.moe, "16", "4", "128"),
    MOE_NORM_OPTION(qwen3_next, m.moe, "true"),
    ROW(shared_hidden_dim, "shared_expert_intermediate_size", "128", 16777216.0,
        "hidden width of the expert that all tokens go through"),
    TT_OPTION(decoder_moe, decoder_sparse_step, TT_OPT_INT, "1", 1, 65536,
              "of this many layers the last has experts, the others one feed-forward layer"),
    TT_OPTION_MORE(decoder_moe, mlp_only_layers, TT_OPT_JSON, "null", 0, 0, NULL, TT_OPT_NULLABLE,
                   NULL, "a list of the numbers of layers that have no experts in any case"),
    MOE_LOSS_OPTIONS(qwen3_next, m.moe),
};

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 4, \"n_heads\": 8, \"n_kv_heads\": 2, "
                   "\"head_dim\": 32, \"hidden_dim\": 768, \"vocab_size\": 2048}"},
    {"80B-A3B",
     "{\"dim\": 2048, \"n_layers\": 48, \"n_heads\": 16, \"n_kv_heads\": 2, \"head_dim\": 256, "
     "\"hidden_dim\": 5120, \"vocab_size\": 151936, \"linear_num_key_heads\": 16, "
     "\"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, "
     "\"linear_value_head_dim\": 128, \"num_experts\": 512, \"num_experts_per_tok\": 10, "
     "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512}"                   },
};

static bool has_attention(const qwen3_next *c, int64_t layer)
{
    if (!decoder_said(c->layer_types))
        return (layer + 1) % c->full_attention_interval == 0;
    const char *type = decoder_item(c->layer_types, layer);
    return type && *type == 'f';
}

/* Head by head x [T,H*2*hd] has hd elements of one kind and then hd of the other: kind `i` [T,H*hd] */
static tt_value *half_heads(tt_builder *b, const decoder *c, tt_value *x, int i)
{
    const tt_dim T = tt_value_type(x)->dims[0], H = TT_DIM(c->n_heads, "heads"),
                 apart[] = {T, H, TT_DIM(2 * c->head_dim, NULL)},
                 joined[] = {T, TT_DIM_UNIT(c->n_heads * c->head_dim, "heads", c->head_dim)};
    x = tt_slice(b, tt_reshape(b, x, apart, 3), 2, i * c->head_dim, (i + 1) * c->head_dim);
    return tt_reshape(b, x, joined, 2);
}

static tt_value *gated_attention(tt_builder *b, const decoder_kind *kind, const decoder *c,
                                 const decoder_init *init, int64_t layer, tt_value *x) /* [T,D] */
{
    const int64_t hd = c->head_dim;
    const tt_dim Q = TT_DIM_UNIT(2 * c->n_heads * hd, "heads", 2 * hd),
                 K = TT_DIM_UNIT(c->n_kv_heads * hd, "kv_heads", hd);
    const tt_linear_opts in = {.bias = c->attention_bias, .init = init->plain},
                         out = {.bias = c->attention_bias, .init = init->out};
    const tt_attention_opts opts = {.dropout = c->attention_dropout};
    tt_scope(b, "self_attn");
    (void)tt_input(b, "pos"); /* [T] */
    tt_value *q = tt_linear(b, x, "q_proj", Q, &in), *gate = half_heads(b, c, q, 1);
    q = decoder_turn(b, kind, c, layer, half_heads(b, c, q, 0), "q_norm");
    tt_value *k = decoder_turn(b, kind, c, layer, tt_linear(b, x, "k_proj", K, &in), "k_norm");
    tt_value *v = tt_linear(b, x, "v_proj", K, &in);
    tt_value *y = tt_mul(b, tt_attention(b, q, k, v, hd, &opts), tt_sigmoid(b, gate));
    y = tt_linear(b, y, "o_proj", TT_DIM(c->dim, "embed"), &out);
    tt_scope_end(b);
    return y;
}

static tt_value *mix_tokens(tt_builder *b, const decoder_kind *kind, const decoder *c,
                            const decoder_init *init, int64_t layer, tt_value *x)
{
    const qwen3_next *n = (const qwen3_next *)c;
    return has_attention(n, layer) ? gated_attention(b, kind, c, init, layer, x)
                                   : delta_net_layer(b, &n->net, c, init, layer, x);
}

/* The expert that all tokens go through, times a sigmoid of its own for each token. */
static tt_value *shared_expert(tt_builder *b, const qwen3_next *c, const decoder_init *init,
                               tt_value *x)
{
    const tt_dim F = TT_DIM(c->shared_hidden_dim, "ffn");
    const tt_linear_opts plain = {.init = init->plain}, up = {.init = init->up},
                         down = {.init = init->out};
    tt_scope(b, "mlp");
    tt_value *gate = tt_sigmoid(b, tt_linear(b, x, "shared_expert_gate", TT_DIM(1, NULL), &plain));
    tt_scope(b, "shared_expert");
    tt_value *h = tt_silu(b, tt_linear(b, x, "gate_proj", F, &plain));
    h = tt_mul(b, h, tt_linear(b, x, "up_proj", F, &up));
    h = tt_linear(b, h, "down_proj", tt_value_type(x)->dims[1], &down);
    tt_scope_end(b);
    tt_scope_end(b);
    return tt_mul(b, h, gate);
}

static tt_value *feed_forward(tt_builder *b, const decoder_kind *kind, const decoder *c,
                              const decoder_init *init, int64_t layer, tt_value *x, void *state)
{
    const qwen3_next *n = (const qwen3_next *)c;
    tt_value *y = decoder_moe_feed_forward(b, kind, c, init, layer, x, state);
    return decoder_moe_has_experts(&n->m, layer) ? tt_add(b, y, shared_expert(b, n, init, x)) : y;
}

static const decoder_kind kind = {.qk_norm = DECODER_QK_HEADS,
                                  .norms_from_one = true,
                                  .init = decoder_init_normal,
                                  .attention = mix_tokens,
                                  .feed_forward = feed_forward};

static tt_status check_layer_types(const qwen3_next *c, tt_error *err)
{
    const long long layers = (long long)c->m.d.n_layers;
    for (int64_t i = 0; i < c->m.d.n_layers; i++) {
        const char *type = decoder_item(c->layer_types, i);
        if (!type || (strncmp(type, "linear_attention\"", 17) != 0 &&
                      strncmp(type, "full_attention\"", 15) != 0))
            return TT_FAIL(err, TT_EINVAL,
                           "model.args.layer_types: layer %lld is neither \"full_attention\" nor "
                           "\"linear_attention\"; wanted a list of these, one for each of %lld "
                           "layers",
                           (long long)i, layers);
    }
    if (decoder_item(c->layer_types, c->m.d.n_layers))
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.layer_types: more than the %lld layers there are", layers);
    return TT_OK;
}

static tt_status qwen3_next_finish(void *cfg, tt_error *err)
{
    qwen3_next *c = cfg;
    if (decoder_said(c->layer_types))
        TT_TRY(check_layer_types(c, err));
    TT_TRY(delta_net_finish(&c->net, err));
    TT_TRY(decoder_moe_finish_list(&c->m, err));
    TT_TRY(moe_finish(&c->m.moe, err));
    return decoder_finish(&c->m.d, err);
}

static void qwen3_next_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &moe_names_qwen, b);
}

static int64_t qwen3_next_attention_width(const void *cfg)
{
    const qwen3_next *c = cfg;
    int64_t layers = 0;
    for (int64_t i = 0; i < c->m.d.n_layers; i++)
        layers += has_attention(c, i);
    return layers * c->m.d.n_heads * 2 * c->m.d.head_dim;
}

/* ---- Hugging Face ---- */

static void add_sizes(json_text *t, const qwen3_next *c)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"linear_num_key_heads",            c->net.key_heads        },
        {"linear_num_value_heads",          c->net.value_heads      },
        {"linear_key_head_dim",             c->net.key_head_dim     },
        {"linear_value_head_dim",           c->net.value_head_dim   },
        {"linear_conv_kernel_dim",          c->net.taps             },
        {"num_experts",                     c->m.moe.experts        },
        {"moe_intermediate_size",           c->m.moe.hidden_dim     },
        {"shared_expert_intermediate_size", c->shared_hidden_dim    },
        {"decoder_sparse_step",             c->m.decoder_sparse_step},
    };
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        json_add(t, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
}

static tt_status qwen3_next_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const qwen3_next *c = cfg;
    const moe_config theirs = {.norm_topk_prob = c->m.moe.norm_topk_prob};
    char more[8192];
    TT_TRY(moe_hf_router(&c->m.moe, &theirs, "Qwen3Next", err));
    json_text t = {more, sizeof more, 0};
    json_add(&t, DECODER_SILU ",\n  \"attention_bias\": %s,\n  ",
             c->m.d.attention_bias ? "true" : "false");
    json_add_real(&t, "partial_rotary_factor",
                  (double)c->m.d.rope.rotary_dim / (double)c->m.d.rope.head_dim);
    add_sizes(&t, c);
    json_add(&t, ",\n  \"norm_topk_prob\": %s,\n  \"mlp_only_layers\": %s",
             c->m.moe.norm_topk_prob ? "true" : "false",
             c->m.mlp_only_layers ? c->m.mlp_only_layers : "[]");
    json_add(&t, ",\n  \"layer_types\": ");
    for (int64_t i = 0; i < c->m.d.n_layers; i++)
        json_add(&t, "%s\"%s_attention\"", i ? ", " : "[", has_attention(c, i) ? "full" : "linear");
    json_add(&t, "]");
    decoder_moe_json(&t, &c->m.moe);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(&c->m.d, "Qwen3NextForCausalLM", "qwen3_next", more, json, size,
                               err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "qwen3_next",
    "{\"hidden_size\": 2048, \"intermediate_size\": 5632, \"num_hidden_layers\": 48, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"head_dim\": 256, "
    "\"vocab_size\": 151936, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"partial_rotary_factor\": 0.25, \"tie_word_embeddings\": false, "
    "\"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, "
    "\"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, "
    "\"linear_conv_kernel_dim\": 4, \"num_experts\": 512, \"num_experts_per_tok\": 10, "
    "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512, "
    "\"norm_topk_prob\": true}",
    "{\"hidden_act\": \"silu\", \"quantization_config\": null}",
    qwen3_next_config_json,
    "model."};

static const void *qwen3_next_extension(const char *id)
{
    return decoder_extension(id, &hf, NULL, NULL);
}

static const tt_model_vt vt = {sizeof vt,
                               flavors,
                               TT_COUNT(flavors),
                               qwen3_next_finish,
                               qwen3_next_describe,
                               decoder_vocab_size,
                               qwen3_next_attention_width,
                               "n_layers"};

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "qwen3_next",
                     "Qwen3-Next: gated delta nets, gated attention, routed and shared experts",
                     qwen3_next, options, &vt, qwen3_next_extension),
};

TT_PLUGIN("qwen3_next", "1.0", components);
