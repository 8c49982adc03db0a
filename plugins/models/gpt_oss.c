/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe_gguf.h"
#include "decoder_titan.h"
#include <ttrun/log.h>

/* gpt_oss: heads with sinks, windows in every second layer, YaRN without truncation, and a mixture of
 * experts (moe.h) in every layer: softmax over the chosen logits, a clamped SwiGLU, biases. Files hold
 * the experts' weights as [in, out] in one tensor, gate and up in turns; they are parameters as they
 * stand there. T tokens, R rows of the experts, E experts, D width, F hidden width of an expert.
 * Source: OpenAI 2025, arXiv:2508.10925. */

static const tt_option options[] = {
    DECODER_OPTIONS("6", "4", "64", "1e-5", "150000.0", "false"),
    TT_OPTION_MORE(decoder, hidden_dim, TT_OPT_INT, "256", 1, DECODER_MAX_DIM, NULL, 0,
                   "intermediate_size|moe_intermediate_size", "hidden width of an expert"),
    DECODER_PATTERN_OPTIONS("128", "2"),
    TT_OPTION(decoder, attention_bias, TT_OPT_BOOL, "true", 0, 0,
              "q_proj, k_proj, v_proj and o_proj have biases"),
    MOE_COUNT_OPTIONS(decoder_moe, moe, "8", "4"),
    MOE_NORM_OPTION(decoder_moe, moe, "false"),
    MOE_ROUTER_OPTIONS(decoder_moe, moe, "true"),
    MOE_LOSS_OPTIONS(decoder_moe, moe),
};

#define YARN                                                                                       \
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, "              \
    "\"beta_slow\": 1, \"truncate\": false, \"original_max_position_embeddings\": 4096}"
#define RELEASED(name, layers, experts)                                                            \
    {                                                                                              \
        name, "{\"dim\": 2880, \"n_layers\": " #layers ", \"n_heads\": 64, \"n_kv_heads\": 8, "    \
              "\"head_dim\": 64, \"hidden_dim\": 2880, \"vocab_size\": 201088, "                   \
              "\"num_experts\": " #experts ", " YARN "}"                                           \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 4, \"n_heads\": 16, \"n_kv_heads\": 4, "
                   "\"head_dim\": 16, \"hidden_dim\": 128, \"vocab_size\": 2048, "
                   "\"num_experts\": 8, " YARN "}"},
    RELEASED("20b", 24, 32),
    RELEASED("120b", 36, 128),
};

static const moe_names names = {"mlp", "router", NULL, NULL, NULL, NULL};

/* ---- the feed-forward layer ---- */

typedef struct {
    const moe_config *c;
    const decoder_init *init;
    tt_dim embed;
} expert_layer;

/* The parameter experts.<name> [E,in,out] and experts.<name>_bias [E,out]; x [R,in] → [R,out]. */
static tt_value *expert_linear(tt_builder *b, const expert_layer *l, const tt_expert_rows *rows,
                               tt_value *x, const char *name, tt_dim in, tt_dim out,
                               const tt_init *init)
{
    static const int in_last[] = {0, 2, 1};
    char text[64];
    const tt_dim E = TT_DIM(l->c->experts, "experts"), dims[] = {E, in, out}, bias[] = {E, out};
    const tt_param_opts weight = {.init = *init, .tags = "experts"};
    const tt_param_opts zeros = {
        .init = {TT_INIT_CONSTANT, 0.0, 0.0, 0.0},
          .tags = "experts,bias"
    };
    snprintf(text, sizeof text, "experts.%s", name);
    tt_value *w = tt_transpose(b, tt_param(b, text, dims, 3, &weight), in_last);
    x = tt_grouped_linear(b, x, w, rows->counts);
    snprintf(text, sizeof text, "experts.%s_bias", name);
    return tt_add(b, x, tt_gather(b, tt_param(b, text, bias, 2, &zeros), rows->expert));
}

/* tt_expert_fn */
static tt_value *expert_rows(tt_builder *b, const tt_expert_rows *rows, const void *user)
{
    const expert_layer *l = user;
    const int64_t n = l->c->hidden_dim;
    const tt_dim F = TT_DIM(n, "ffn"), both = TT_DIM_UNIT(2 * n, "ffn", 2);
    tt_value *h = expert_linear(b, l, rows, rows->x, "gate_up_proj", l->embed, both,
                                &l->init->plain); /* [R,2F] */
    const tt_dim R = tt_value_type(h)->dims[0];
    const tt_dim pairs[] = {R, F, TT_DIM(2, NULL)}, joined[] = {R, F};
    h = tt_reshape(b, h, pairs, 3);
    tt_value *gate = tt_reshape(b, tt_slice(b, h, 2, 0, 1), joined, 2);
    tt_value *up = tt_reshape(b, tt_slice(b, h, 2, 1, 2), joined, 2);
    h = moe_swiglu(b, l->c, gate, up);
    return expert_linear(b, l, rows, h, "down_proj", F, l->embed, &l->init->out);
}

/* decoder_kind.feed_forward */
static tt_value *feed_forward(tt_builder *b, const decoder_kind *kind, const decoder *c,
                              const decoder_init *init, int64_t layer, tt_value *x, void *state)
{
    decoder_moe_state *s = state;
    const moe_init inits = {init->plain, init->plain, init->plain, init->out};
    const expert_layer l = {&s->c->moe, init, tt_value_type(x)->dims[1]};
    (void)kind, (void)c, (void)layer;
    tt_scope(b, "%s", names.scope);
    const moe_routing r = moe_route(b, l.c, &names, &inits, x);
    moe_count_losses(b, l.c, &r, &s->sums);
    x = tt_experts(b, x, r.assign, r.weights, l.c->experts, expert_rows, &l);
    tt_scope_end(b);
    return x;
}

static const decoder_kind kind = {
    .sinks = true, .init = decoder_init_normal, .feed_forward = feed_forward};

static tt_status gpt_oss_finish(void *cfg, tt_error *err)
{
    decoder_moe *c = cfg;
    c->moe.hidden_dim = c->d.hidden_dim;
    c->moe.router_bias = c->moe.clamped = c->moe.expert_bias = true;
    c->d.use_sliding_window = true;
    TT_TRY(moe_finish(&c->moe, err));
    return decoder_finish(&c->d, err);
}

static void gpt_oss_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &names, b);
}

static tt_status gpt_oss_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder_moe *c = cfg;
    const moe_config theirs = {.softmax_after_top_k = true,
                               .norm_topk_prob = c->moe.norm_topk_prob}; /* without effect */
    char more[8192];
    TT_TRY(moe_hf_router(&c->moe, &theirs, "GptOss", err));
    json_text t = {more, sizeof more, 0};
    json_add(&t,
             DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"sliding_window\": %lld,\n  "
                          "\"num_local_experts\": %lld,\n  \"experts_per_token\": %lld,\n  "
                          "\"swiglu_limit\": 7.0",
             c->d.attention_bias ? "true" : "false", (long long)c->d.window,
             (long long)c->moe.experts, (long long)c->moe.top_k);
    decoder_add_layer_types(&t, &c->d);
    decoder_moe_json(&t, &c->moe);
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(&c->d, "GptOssForCausalLM", "gpt_oss", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "gpt_oss",
    "{\"hidden_size\": 2880, \"intermediate_size\": 2880, \"num_hidden_layers\": 36, "
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 64, "
    "\"vocab_size\": 201088, \"rms_norm_eps\": 1e-5, \"rope_theta\": 150000.0, "
    "\"sliding_window\": 128, \"attention_bias\": true, \"tie_word_embeddings\": false, "
    "\"num_local_experts\": 128, \"num_experts_per_tok\": 4}",
    "{\"hidden_act\": \"silu\", \"partial_rotary_factor\": 1.0, \"swiglu_limit\": 7.0, "
    "\"swiglu_alpha\": 1.702, \"quantization_config\": null}",
    gpt_oss_config_json,
    "model."};

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_SHARED(0),
    DECODER_GGUF_QKV_BIASES(0),
    {"model.layers.*.self_attn.o_proj.bias",           "blk.*.attn_output.bias",           0, 0},
    {"model.layers.*.self_attn.sinks",                 "blk.*.attn_sinks.weight",          0, 0},
    {"model.layers.*.input_layernorm.weight",          "blk.*.attn_norm.weight",           0, 0},
    {"model.layers.*.post_attention_layernorm.weight", "blk.*.post_attention_norm.weight", 0, 0},
    {"model.layers.*.mlp.router.weight",               "blk.*.ffn_gate_inp.weight",        0, 1},
    {"model.layers.*.mlp.router.bias",                 "blk.*.ffn_gate_inp.bias",          0, 0},
    {"model.layers.*.mlp.experts.down_proj_bias",      "blk.*.ffn_down_exps.bias",         0, 1},
};

/* There all weights are [out, in], and gate and up are apart. */
#define PART(ours, theirs, in_f32, step, first, swapped)                                           \
    {                                                                                              \
        {"model.layers.*.mlp.experts." ours, "blk.*." theirs, 0, in_f32}, (step), (first),         \
            (swapped), NULL                                                                        \
    }
static const tt_gguf_part gguf_parts[] = {
    PART("gate_up_proj", "ffn_gate_exps.weight", 0, 2, 0, 1),
    PART("gate_up_proj", "ffn_up_exps.weight", 0, 2, 1, 1),
    PART("gate_up_proj_bias", "ffn_gate_exps.bias", 1, 2, 0, 0),
    PART("gate_up_proj_bias", "ffn_up_exps.bias", 1, 2, 1, 0),
    PART("down_proj", "ffn_down_exps.weight", 0, 1, 0, 1),
};

static tt_status gpt_oss_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const decoder_moe *c = cfg;
    const moe_config theirs = {.softmax_after_top_k = true,
                               .norm_topk_prob = c->moe.norm_topk_prob, /* without effect */
                               .route_scale = 1.0};
    decoder d = c->d;
    char more[256];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_moe_gguf_router(&c->moe, &theirs, err));
    TT_TRY(decoder_check_gguf_head(&d, err));
    if (!d.attention_bias)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "model.args.attention_bias: llama.cpp's gpt-oss has biases of q, k, v and o");
    if (d.rope.no_truncate)
        tt_log(TT_WARN, "checkpoint",
               "llama.cpp rounds the bounds of YaRN's ramp, which rope_scaling.truncate false "
               "leaves as they are: its logits differ");
    d.rope.no_truncate = false;
    decoder_moe_add_gguf(&t, &c->moe);
    TT_TRY(decoder_add_gguf_window(&t, &d, 2, err));
    return decoder_gguf_keys(&d, 0, more, json, size, err);
}

static const tt_model_gguf gguf =
    DECODER_GGUF_PARTS("gpt-oss", gguf_names, gpt_oss_gguf_keys, gguf_parts);

/* torchtitan has the experts' weights as [out, in], gate and up in turns as here. */
#define EXPERTS(ours, theirs, dims, swapped)                                                       \
    TITAN_PLACED("model.layers.*.mlp.experts." ours,                                               \
                 "layers.*.moe.routed_experts.inner_experts." theirs "_" dims, 0, swapped, 0),     \
        TITAN_PLACED("model.layers.*.mlp.experts." ours, "layers.*.moe.experts." theirs "_" dims,  \
                     0, swapped, 0),                                                               \
        TITAN_PLACED("model.layers.*.mlp.experts." ours, "layers.*.moe.experts." theirs, 0,        \
                     swapped, 0)

static const tt_titan_name titan_names[] = {
    TITAN_COMMON,
    TITAN_ROUTER("mlp.router"),
    TITAN_LAYER("mlp.router.bias", "moe.router.gate.bias"),
    EXPERTS("gate_up_proj", "mlp1_weight", "EGD", 1),
    EXPERTS("gate_up_proj_bias", "mlp1_bias", "EG", 0),
    EXPERTS("down_proj", "mlp2_weight", "EDF", 1),
    EXPERTS("down_proj_bias", "mlp2_bias", "ED", 0),
    TITAN_QKV("q", "weight", 0),
    TITAN_QKV("k", "weight", 0),
    TITAN_QKV("v", "weight", 0),
    TITAN_QKV("q", "bias", 0),
    TITAN_QKV("k", "bias", 0),
    TITAN_QKV("v", "bias", 0),
    TITAN_LAYER("self_attn.o_proj.bias", "attention.wo.bias"),
    TITAN_LAYER("self_attn.sinks", "attention.sinks"),
};

static tt_status titan_check(const void *cfg, tt_error *err)
{
    const decoder_moe *c = cfg;
    if (!c->d.attention_bias)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.attention_bias: torchtitan's gpt_oss has biases of q, k, v and "
                       "o; use dcp instead of torchtitan");
    return TT_OK;
}

static const tt_model_titan titan = {TITAN_TABLE(titan_names), NULL, titan_check};

static const void *gpt_oss_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_TITAN))
        return &titan;
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = DECODER_VT(flavors, gpt_oss_finish, gpt_oss_describe);

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "gpt_oss",
                     "gpt-oss: attention sinks, alternating windows, routed clamped SwiGLU",
                     decoder_moe, options, &vt, gpt_oss_extension),
};

TT_PLUGIN("gpt_oss", "1.0", components);
