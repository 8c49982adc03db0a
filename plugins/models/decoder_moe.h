/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_MOE_H
#define TT_MODELS_DECODER_MOE_H
#include "decoder.h"
#include "moe.h"

/* Decoders of decoder.h whose feed-forward layers are mixtures of experts. */

/* The arguments; decoder is first, so that the functions of decoder.h take this struct, too. */
typedef struct {
    decoder d;
    moe_config moe;
    int64_t
        first_k_dense_replace; /* deepseek_v3, glm4_moe: so many layers from the first have none */
    int64_t
        decoder_sparse_step; /* qwen3_moe: of this many layers the last has experts; 0: all have */
    const char
        *mlp_only_layers; /* qwen3_moe: a list of numbers of layers without experts, or NULL */
} decoder_moe;

/* Rows of the option table of a config whose field `member` is a decoder_moe, and whose first layers are
 * dense: deepseek_v3 and glm4_moe. */
#define DECODER_MOE_ROW(config_, member, field, key, type_, default_, min_, max_, flags_,          \
                        aliases_, doc_)                                                            \
    {                                                                                              \
        key, (doc_), (type_), offsetof(config_, member.field), (default_), (min_), (max_), NULL,   \
            (flags_), (aliases_)                                                                   \
    }
#define DECODER_MOE_DENSE_FIRST_OPTIONS(config_, member, shared)                                   \
    DECODER_MOE_ROW(config_, member, first_k_dense_replace, "first_k_dense_replace", TT_OPT_INT,   \
                    "1", 0, 65536, 0, "n_dense_layers",                                            \
                    "this many blocks from the first have a dense feed-forward layer"),            \
        DECODER_MOE_ROW(config_, member, moe.shared_experts, "n_shared_experts", TT_OPT_INT,       \
                        shared, 0, 65536, TT_OPT_NULLABLE, "num_shared_experts",                   \
                        "experts that all tokens go through; null: none"),                         \
        DECODER_MOE_ROW(config_, member, moe.groups, "n_group", TT_OPT_INT, "1", 1, 65536,         \
                        TT_OPT_NULLABLE, NULL, "experts are cut into this many groups; null: 1"),  \
        DECODER_MOE_ROW(config_, member, moe.group_limit, "topk_group", TT_OPT_INT, "1", 1, 65536, \
                        TT_OPT_NULLABLE, NULL,                                                     \
                        "a token's experts come from this many groups; null: 1"),                  \
        DECODER_MOE_ROW(config_, member, moe.route_scale, "routed_scaling_factor", TT_OPT_FLOAT,   \
                        "1.0", 1e-6, 1e6, 0, "route_scale",                                        \
                        "the weights of a token's experts are multiplied by this"),                \
        DECODER_MOE_ROW(                                                                           \
            config_, member, d.mtp_blocks, "num_nextn_predict_layers", TT_OPT_INT, "0", 0,         \
            MTP_MOST, TT_OPT_NULLABLE, "num_mtp_layers",                                           \
            "blocks of multi-token prediction, which are trained by loss.mtp_weight; null: none")

/* Puts numbers in place of the nulls of these options, and checks them. The form of the router is set. */
static inline tt_status decoder_moe_finish_dense_first(decoder_moe *c, tt_error *err)
{
    moe_config *e = &c->moe;
    e->shared_experts = decoder_or(e->shared_experts, 0);
    e->groups = decoder_or(e->groups, 1);
    e->group_limit = decoder_or(e->group_limit, 1);
    c->d.mtp_blocks = decoder_or(c->d.mtp_blocks, 0);
    return c->first_k_dense_replace < c->d.n_layers + c->d.mtp_blocks ? moe_finish(e, err) : TT_OK;
}

/* What a model's describe() hands on from layer to layer. */
typedef struct {
    const decoder_moe *c;
    const moe_names *names;
    moe_sums sums;
} decoder_moe_state;

/* Is `layer` in the JSON list of numbers? NULL or null: no. */
static inline bool decoder_moe_listed(const char *list, int64_t layer)
{
    if (!list)
        return false;
    for (const char *p = strpbrk(list, "0123456789"); p; p = strpbrk(p, "0123456789")) {
        char *end;
        if (strtoll(p, &end, 10) == layer)
            return true;
        p = end;
    }
    return false;
}

/* mlp_only_layers: null, which becomes NULL, or a list of numbers of layers from 0 to n_layers - 1. */
static inline tt_status decoder_moe_finish_list(decoder_moe *c, tt_error *err)
{
    if (!decoder_said(c->mlp_only_layers)) {
        c->mlp_only_layers = NULL;
        return TT_OK;
    }
    const char *list = c->mlp_only_layers, *p = list + strspn(list, " \t\r\n");
    bool ok = *p++ == '[';
    p += strspn(p, " \t\r\n");
    for (bool first = true; ok && (*p != ']' || !first); first = false) {
        char *end;
        if (first && *p == ']')
            break;
        const long long n = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : -1;
        ok = n >= 0 && n < c->d.n_layers;
        if (!ok)
            break;
        p = end + strspn(end, " \t\r\n");
        if (*p == ']')
            break;
        ok = *p++ == ',';
        p += strspn(p, " \t\r\n");
    }
    if (!ok)
        return TT_FAIL(
            err, TT_EINVAL,
            "model.args.mlp_only_layers: wanted null or a list of numbers of layers, from "
            "0 to %lld, not %.60s",
            (long long)c->d.n_layers - 1, list);
    return TT_OK;
}

static inline bool decoder_moe_has_experts(const decoder_moe *c, int64_t layer)
{
    const int64_t step = c->decoder_sparse_step > 0 ? c->decoder_sparse_step : 1;
    return layer >= c->first_k_dense_replace && (layer + 1) % step == 0 &&
           !decoder_moe_listed(c->mlp_only_layers, layer);
}

/* decoder_kind.feed_forward */
static inline tt_value *decoder_moe_feed_forward(tt_builder *b, const decoder_kind *kind,
                                                 const decoder *c, const decoder_init *init,
                                                 int64_t layer, tt_value *x, void *state)
{
    decoder_moe_state *s = state;
    const moe_init experts = {init->plain, init->plain, init->up, init->out};
    return decoder_moe_has_experts(s->c, layer)
               ? moe_layer(b, &s->c->moe, s->names, &experts, layer, x, &s->sums)
               : decoder_mlp(b, kind, c, init, layer, x);
}

static inline void decoder_moe_describe(const decoder_kind *kind, const decoder_moe *c,
                                        const moe_names *names, tt_builder *b)
{
    decoder_moe_state state = {.c = c, .names = names};
    decoder_describe_with(kind, &c->d, b, &state);
    moe_add_losses(b, &c->moe, &state.sums, tt_input(b, "ids"));
}

/* The members of config.json that both models have, with a comma before each. */
static inline void decoder_moe_json(json_text *t, const moe_config *c)
{
    json_add(t, ",\n  \"num_experts_per_tok\": %lld,\n  \"output_router_logits\": %s,\n  ",
             (long long)c->top_k, c->output_router_logits ? "true" : "false");
    json_add_real(t, "router_aux_loss_coef", c->router_aux_loss_coef);
}

/* The members of config.json for DECODER_MOE_DENSE_FIRST_OPTIONS and the experts, with a comma before each. */
static inline void decoder_moe_json_dense_first(json_text *t, const decoder_moe *c)
{
    const moe_config *e = &c->moe;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"first_k_dense_replace",    c->first_k_dense_replace},
        {"n_routed_experts",         e->experts              },
        {"n_shared_experts",         e->shared_experts       },
        {"num_experts_per_tok",      e->top_k                },
        {"moe_intermediate_size",    e->hidden_dim           },
        {"n_group",                  e->groups               },
        {"topk_group",               e->group_limit          },
        {"num_nextn_predict_layers", c->d.mtp_blocks         },
    };
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        json_add(t, ",\n  \"%s\": %lld", sizes[i].key, (long long)sizes[i].value);
    json_add(t, ",\n  \"norm_topk_prob\": %s,\n  ", e->norm_topk_prob ? "true" : "false");
    json_add_real(t, "routed_scaling_factor", e->route_scale);
}

/* Transformers drops the blocks of multi-token prediction when it saves, but writes their number. */
static const tt_model_hf_if decoder_moe_mtp_if = {sizeof decoder_moe_mtp_if,
                                                  "num_nextn_predict_layers",
                                                  "model.layers.{num_hidden_layers}.enorm.weight"};

#endif
