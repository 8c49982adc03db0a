/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder_moe_gguf.h"
#include "decoder_titan.h"
#include "mla.h"
#include <ttrun/log.h>

/* deepseek_v3: DeepSeek-V2 and V3: multi-head latent attention (mla.h), dense feed-forward layers in
 * the first blocks and mixtures of experts (moe.h) with shared experts in the others. V2's routers
 * have softmax and groups by their best expert, V3's sigmoid, groups by their best two, and a bias for
 * the choice; Kimi-K2's are V3's in one group, with positions scaled without a ramp. Sources: DeepSeek-AI
 * 2024, arXiv:2405.04434 and arXiv:2412.19437; Kimi Team 2025, arXiv:2507.20534. */

typedef struct {
    decoder_moe m; /* first: the functions of decoder.h take this struct */
    mla_config mla;
    int topk_method;
    int scoring_func,
        group_score; /* 0: what topk_method says; else one more than the moe_config's */
} deepseek;

enum { NOAUX_TC, GREEDY, GROUP_LIMITED_GREEDY }; /* the values of topk_method */

#define ROW(field, key, type, default_, min, max, choices, flags, aliases, doc)                    \
    {                                                                                              \
        key, (doc), (type), offsetof(deepseek, field), (default_), (min), (max), (choices),        \
            (flags), (aliases)                                                                     \
    }

static const tt_option options[] = {
    DECODER_OPTIONS("6", "null", "null", "1e-6", "10000.0", "false"),
    DECODER_HIDDEN_OPTION("1024"),
    TT_OPTION(decoder, attention_bias, TT_OPT_BOOL, "false", 0, 0,
              "q_a_proj, kv_a_proj_with_mqa and o_proj have biases"),
    MLA_OPTIONS(deepseek, mla, "null", "512", "128", "64", "128"),
    MOE_OPTIONS(deepseek, m.moe, "8", "3", "256"),
    DECODER_MOE_DENSE_FIRST_OPTIONS(deepseek, m, "2"),
    ROW(topk_method, "topk_method", TT_OPT_CHOICE, "\"noaux_tc\"", 0, 0,
        "noaux_tc|greedy|group_limited_greedy", 0, NULL,
        "how experts are chosen: noaux_tc: sigmoid, groups by their best two, a bias for the "
        "choice "
        "(V3); greedy: softmax; group_limited_greedy: softmax, groups by their best (V2)"),
    ROW(scoring_func, "scoring_func", TT_OPT_CHOICE, "\"auto\"", 0, 0, "auto|" MOE_SCORES, 0, NULL,
        "what makes scores of the router's logits; sqrtsoftplus: the root of softplus, as in "
        "DeepSeek-V4; auto: as topk_method says"),
    ROW(group_score, "group_score", TT_OPT_CHOICE, "\"auto\"", 0, 0, "auto|" MOE_GROUP_SCORES, 0,
        NULL,
        "a group's score: the sum of its best two experts' or the best one's; auto: as "
        "topk_method says"),
    MOE_NORM_OPTION(deepseek, m.moe, "false"),
    MOE_BIAS_OPTIONS(deepseek, m.moe),
    MOE_BALANCE_OPTIONS(deepseek, m.moe),
};

/* V2's releases, V3's and Kimi-K2's. All have kv_lora_rank 512 and heads of 128 + 64 and 128. */
#define SCALED(factor, fast, mscale)                                                               \
    "{\"rope_type\": \"yarn\", \"factor\": " factor ", \"beta_fast\": " fast                       \
    ", \"beta_slow\": 1, \"mscale\": " mscale ", \"mscale_all_dim\": " mscale                      \
    ", \"original_max_position_embeddings\": 4096}"
#define YARN(mscale) SCALED("40", "32", mscale)
/* Kimi-K2-Base, -Instruct: https://huggingface.co/moonshotai/Kimi-K2-Base/blob/main/config.json; -0905 has
 * factor 64 */
#define KIMI_K2(name, factor)                                                                      \
    {                                                                                              \
        name, "{\"dim\": 7168, \"n_layers\": 61, \"n_heads\": 64, \"hidden_dim\": 18432, "         \
              "\"vocab_size\": 163840, \"q_lora_rank\": 1536, \"first_k_dense_replace\": 1, "      \
              "\"num_experts\": 384, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, "        \
              "\"moe_intermediate_size\": 2048, \"norm_topk_prob\": true, "                        \
              "\"routed_scaling_factor\": 2.827, \"rope_theta\": 50000.0, "                        \
              "\"rope_scaling\": " SCALED(factor, "1", "1.0") "}"                                  \
    }

static const tt_flavor flavors[] = {
    {"debugmodel", "{\"dim\": 256, \"n_layers\": 6, \"n_heads\": 16, \"hidden_dim\": 1024, "
                   "\"vocab_size\": 2048, \"num_experts\": 8, \"num_experts_per_tok\": 3, "
                   "\"n_shared_experts\": 2, \"moe_intermediate_size\": 256, "
                   "\"rope_scaling\": " YARN("0.707") "}"               },
    {"16B",        "{\"dim\": 2048, \"n_layers\": 27, \"n_heads\": 16, \"hidden_dim\": 10944, "
            "\"vocab_size\": 102400, \"num_experts\": 64, \"num_experts_per_tok\": 6, "
            "\"n_shared_experts\": 2, \"moe_intermediate_size\": 1408, "
            "\"topk_method\": \"greedy\", \"rope_scaling\": " YARN("0.707") "}"},
    {"236B",       "{\"dim\": 5120, \"n_layers\": 60, \"n_heads\": 128, \"hidden_dim\": 12288, "
             "\"vocab_size\": 102400, \"q_lora_rank\": 1536, \"num_experts\": 160, "
             "\"num_experts_per_tok\": 6, \"n_shared_experts\": 2, "
             "\"moe_intermediate_size\": 1536, \"topk_method\": \"group_limited_greedy\", "
             "\"n_group\": 8, \"topk_group\": 3, \"routed_scaling_factor\": 16.0, "
             "\"rope_scaling\": " YARN("1.0") "}"                             },
    {"671B",       "{\"dim\": 7168, \"n_layers\": 61, \"n_heads\": 128, \"hidden_dim\": 18432, "
             "\"vocab_size\": 129280, \"q_lora_rank\": 1536, \"first_k_dense_replace\": 3, "
             "\"num_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, "
             "\"moe_intermediate_size\": 2048, \"n_group\": 8, \"topk_group\": 4, "
             "\"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, "
             "\"rope_scaling\": " YARN("1.0") "}"                             },
    KIMI_K2("kimi-k2", "32"),
    KIMI_K2("kimi-k2-0905", "64"),
};

static tt_value *attention(tt_builder *b, const decoder_kind *kind, const decoder *c,
                           const decoder_init *init, int64_t layer, tt_value *x)
{
    (void)kind;
    return mla_attention(b, &((const deepseek *)c)->mla, c, init, layer, x);
}

static const decoder_kind kind = {
    .init = decoder_init_normal, .attention = attention, .feed_forward = decoder_moe_feed_forward};

static tt_status deepseek_finish(void *cfg, tt_error *err)
{
    deepseek *c = cfg;
    moe_config *e = &c->m.moe;
    const bool old = c->topk_method != NOAUX_TC;
    if (c->topk_method == GREEDY)
        e->groups = 1;
    e->score = c->scoring_func ? c->scoring_func - 1 : old ? MOE_SOFTMAX : MOE_SIGMOID;
    e->group_score = c->group_score ? c->group_score - 1 : old ? MOE_GROUP_MAX : MOE_GROUP_TOP2;
    e->choice_bias = !old;
    TT_TRY(decoder_moe_finish_dense_first(&c->m, err));
    TT_TRY(mla_finish(&c->mla, &c->m.d, err));
    return decoder_finish(&c->m.d, err);
}

static void deepseek_describe(const void *cfg, tt_builder *b)
{
    decoder_moe_describe(&kind, cfg, &moe_names_qwen, b);
}

static int64_t deepseek_attention_width(const void *cfg)
{
    const deepseek *c = cfg;
    return mla_attention_width(&c->mla, &c->m.d);
}

/* ---- Hugging Face ---- */

static void add_sizes(json_text *t, const mla_config *m)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"kv_lora_rank",     m->kv_lora_rank    },
        {"qk_nope_head_dim", m->qk_nope_head_dim},
        {"qk_rope_head_dim", m->qk_rope_head_dim},
        {"v_head_dim",       m->v_head_dim      },
    };
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        json_add(t, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
    json_add(t, m->q_lora_rank ? ",\n  \"q_lora_rank\": %lld" : ",\n  \"q_lora_rank\": null",
             (long long)m->q_lora_rank);
}

static tt_status deepseek_config_json(const void *cfg, char *json, size_t size, tt_error *err)
{
    static const char *const methods[] = {"noaux_tc", "greedy", "group_limited_greedy"};
    const deepseek *c = cfg;
    const moe_config *e = &c->m.moe;
    const bool v3 = c->topk_method == NOAUX_TC;
    char more[2048];
    json_text t = {more, sizeof more, 0};
    if (e->score != (v3 ? MOE_SIGMOID : MOE_SOFTMAX) ||
        (moe_has_groups(e) && e->group_score != (v3 ? MOE_GROUP_TOP2 : MOE_GROUP_MAX)))
        return TT_FAIL(
            err, TT_EUNSUPPORTED, "model.args.%s: transformers' DeepseekV%d has no such router",
            e->score != (v3 ? MOE_SIGMOID : MOE_SOFTMAX) ? "scoring_func" : "group_score",
            v3 ? 3 : 2);
    if (!v3 && !c->mla.rope_interleave)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_interleave: transformers' DeepseekV2 rotates pairs of "
                       "neighbours only");
    json_add(&t, DECODER_SILU ",\n  \"attention_bias\": %s,\n  \"rope_interleave\": %s",
             c->m.d.attention_bias ? "true" : "false", c->mla.rope_interleave ? "true" : "false");
    add_sizes(&t, &c->mla);
    decoder_moe_json_dense_first(&t, &c->m);
    json_add(&t, ",\n  \"topk_method\": \"%s\",\n  \"scoring_func\": \"%s\"",
             methods[c->topk_method], v3 ? "sigmoid" : "softmax");
    json_add(&t, ",\n  \"moe_layer_freq\": 1");
    TT_TRY(decoder_text_fits(&t, err));
    return decoder_config_json(&c->m.d, v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM",
                               v3 ? "deepseek_v3" : "deepseek_v2", more, json, size, err);
}

static const tt_model_hf hf = {
    sizeof hf,
    "deepseek_v3,deepseek_v2,kimi_k2",
    "{\"hidden_size\": 7168, \"intermediate_size\": 18432, \"moe_intermediate_size\": 2048, "
    "\"num_hidden_layers\": 61, \"num_attention_heads\": 128, \"num_key_value_heads\": null, "
    "\"n_shared_experts\": 1, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, "
    "\"routed_scaling_factor\": 2.5, \"kv_lora_rank\": 512, \"q_lora_rank\": 1536, "
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"qk_nope_head_dim\": 128, \"n_group\": 8, "
    "\"topk_group\": 4, \"first_k_dense_replace\": 3, \"norm_topk_prob\": true, "
    "\"topk_method\": \"noaux_tc\", \"vocab_size\": 129280, \"rms_norm_eps\": 1e-6, "
    "\"rope_theta\": 10000.0, \"tie_word_embeddings\": false}",
    "{\"hidden_act\": \"silu\", \"partial_rotary_factor\": 1.0, \"moe_layer_freq\": 1, "
    "\"mlp_bias\": false, "
    "\"quantization_config\": null}",
    deepseek_config_json,
    "model."};

/* ---- torchtitan ---- */

static const tt_titan_name titan_names[] = {
    TITAN_COMMON,
    TITAN_MLP,
    TITAN_MOE,
    TITAN_LAYER("self_attn.q_proj.weight", "attention.wq.weight"),
    TITAN_LAYER("self_attn.q_a_proj.weight", "attention.wq_a.weight"),
    TITAN_LAYER("self_attn.q_a_layernorm.weight", "attention.q_norm.weight"),
    TITAN_LAYER("self_attn.q_b_proj.weight", "attention.wq_b.weight"),
    TITAN_LAYER("self_attn.kv_a_proj_with_mqa.weight", "attention.wkv_a.weight"),
    TITAN_LAYER("self_attn.kv_a_layernorm.weight", "attention.kv_norm.weight"),
    TITAN_LAYER("self_attn.kv_b_proj.weight", "attention.wkv_b.weight"),
    TITAN_LAYER("enorm.weight", "enorm.weight"),
    TITAN_LAYER("hnorm.weight", "hnorm.weight"),
    TITAN_LAYER("eh_proj.weight", "eh_proj.weight"),
    TITAN_LAYER("shared_head.norm.weight", "mtp_norm.weight"),
};

static tt_status titan_check(const void *cfg, tt_error *err)
{
    const deepseek *c = cfg;
    if (!c->mla.rope_interleave)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_interleave: torchtitan's deepseek_v3 rotates pairs of "
                       "neighbours only; use dcp instead of torchtitan");
    return TT_OK;
}

static const tt_model_titan titan = {TITAN_TABLE(titan_names), "mtp_layers.", titan_check};

/* ---- llama.cpp ---- */

static const tt_tensor_name gguf_names[] = {
    DECODER_GGUF_NAMES(0),
    DECODER_GGUF_EXPERTS("mlp", "gate", "gate_proj", "up_proj", "down_proj"),
    DECODER_GGUF_SHARED_EXPERTS,
    {"model.layers.*.self_attn.q_a_proj.weight",           "blk.*.attn_q_a.weight",       0, 0},
    {"model.layers.*.self_attn.q_a_layernorm.weight",      "blk.*.attn_q_a_norm.weight",  0, 0},
    {"model.layers.*.self_attn.q_b_proj.weight",           "blk.*.attn_q_b.weight",       0, 0},
    {"model.layers.*.self_attn.kv_a_proj_with_mqa.weight", "blk.*.attn_kv_a_mqa.weight",  0, 0},
    {"model.layers.*.self_attn.kv_a_layernorm.weight",     "blk.*.attn_kv_a_norm.weight", 0, 0},
};

static void keys_of_head(const void *cfg, int64_t *begin, int64_t *size)
{
    *begin = 0;
    *size = ((const deepseek *)cfg)->mla.qk_nope_head_dim;
}

static void values_of_head(const void *cfg, int64_t *begin, int64_t *size)
{
    const mla_config *m = &((const deepseek *)cfg)->mla;
    *begin = m->qk_nope_head_dim;
    *size = m->v_head_dim;
}

/* What makes keys and values of the latent vector are two tensors there. */
static const tt_gguf_part gguf_parts[] = {
    {{"model.layers.*.self_attn.kv_b_proj.weight", "blk.*.attn_k_b.weight", 0, 0},
     0, 0,
     1, keys_of_head  },
    {{"model.layers.*.self_attn.kv_b_proj.weight", "blk.*.attn_v_b.weight", 0, 0},
     0, 0,
     0, values_of_head},
};

/* What llama.cpp's architecture has no key for. */
static tt_status gguf_check(const deepseek *c, tt_error *err)
{
    const moe_config *e = &c->m.moe;
    const rope_factors *f = &c->m.d.factors;
    const moe_config theirs = {.score = e->score == MOE_SOFTMAX ? MOE_SOFTMAX : MOE_SIGMOID,
                               .norm_topk_prob = e->norm_topk_prob,
                               .route_scale = e->route_scale,
                               .groups = e->groups,
                               .group_score = MOE_GROUP_TOP2,
                               .choice_bias = e->choice_bias};
    TT_TRY(decoder_moe_gguf_router(e, &theirs, err));
    if (!c->mla.rope_interleave)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_interleave: llama.cpp rotates pairs of neighbours in this "
                       "architecture");
    if (!c->mla.q_lora_rank && c->m.d.n_layers != 26 && c->m.d.n_layers != 27)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.q_lora_rank: llama.cpp takes queries without a latent vector "
                       "from models of 26 or 27 layers alone");
    if (c->m.d.rope.scaling == TT_ROPE_YARN &&
        (!(f->mscale > 0.0) || f->mscale < f->mscale_all_dim || f->mscale > f->mscale_all_dim))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "model.args.rope_scaling: llama.cpp has yarn with mscale equal to "
                       "mscale_all_dim in this architecture");
    if (c->m.d.norm_eps < MLA_EPS || c->m.d.norm_eps > MLA_EPS)
        tt_log(TT_INFO, "checkpoint",
               "llama.cpp has norm_eps %g in the norms of latent vectors, too, which have %g here: "
               "its logits differ a little",
               c->m.d.norm_eps, MLA_EPS);
    return TT_OK;
}

/* llama.cpp takes all heads' keys and values for one, the latent vector. */
static tt_status deepseek_gguf_keys(const void *cfg, char *json, size_t size, tt_error *err)
{
    const deepseek *c = cfg;
    const mla_config *m = &c->mla;
    const int64_t rank = m->kv_lora_rank, r = m->qk_rope_head_dim;
    decoder d = c->m.d;
    char more[1024];
    json_text t = {more, sizeof more, 0};
    TT_TRY(gguf_check(c, err));
    d.n_kv_heads = 1;
    decoder_moe_add_gguf_dense_first(&t, &c->m);
    json_add(&t,
             ", \"attention.kv_lora_rank\": %lld, \"attention.key_length_mla\": %lld, "
             "\"attention.value_length_mla\": %lld",
             (long long)rank, (long long)(m->qk_nope_head_dim + r), (long long)m->v_head_dim);
    if (m->q_lora_rank)
        json_add(&t, ", \"attention.q_lora_rank\": %lld", (long long)m->q_lora_rank);
    if (d.rope.scaling == TT_ROPE_YARN) {
        json_add(&t, ", ");
        json_add_real(&t, "rope.scaling.yarn_log_multiplier", 0.1 * d.factors.mscale_all_dim);
    }
    return decoder_gguf_keys_of(&d, rank + r, rank, 0, more, json, size, err);
}

static const tt_model_gguf gguf =
    DECODER_GGUF_PARTS("deepseek2", gguf_names, deepseek_gguf_keys, gguf_parts);

static const void *deepseek_extension(const char *id)
{
    if (!strcmp(id, TT_MODEL_TITAN))
        return &titan;
    if (!strcmp(id, TT_MODEL_HF_IF))
        return &decoder_moe_mtp_if;
    return decoder_extension(id, &hf, &gguf, NULL);
}

static const tt_model_vt vt = {sizeof vt,
                               flavors,
                               TT_COUNT(flavors),
                               deepseek_finish,
                               deepseek_describe,
                               decoder_vocab_size,
                               deepseek_attention_width,
                               "n_layers"};

static const tt_component components[] = {
    TT_COMPONENT_EXT(TT_KIND_MODEL, "deepseek_v3",
                     "DeepSeek-V2 and V3, Kimi-K2: latent attention, routed and shared experts",
                     deepseek, options, &vt, deepseek_extension),
};

TT_PLUGIN("deepseek_v3", "1.0", components);
