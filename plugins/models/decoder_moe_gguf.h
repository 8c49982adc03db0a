/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_MOE_GGUF_H
#define TT_MODELS_DECODER_MOE_GGUF_H
#include "decoder_gguf.h"
#include "decoder_moe.h"

/* GGUF files of the models of decoder_moe.h. llama.cpp has in its code, for some architectures, what others
 * have keys for; a model of another form is refused. */

/* scope: "mlp"; gate: "gate"; the others: names of an expert's matrices */
#define DECODER_GGUF_EXPERTS(scope, router, gate, up, down)                                        \
    {"model.layers.*." scope "." router ".weight", "blk.*.ffn_gate_inp.weight", 0, 1},             \
        {"model.layers.*." scope ".experts." gate ".weight", "blk.*.ffn_gate_exps.weight", 0, 0},  \
        {"model.layers.*." scope ".experts." up ".weight", "blk.*.ffn_up_exps.weight", 0, 0},      \
    {                                                                                              \
        "model.layers.*." scope ".experts." down ".weight", "blk.*.ffn_down_exps.weight", 0, 0     \
    }

/* Shared experts, and the bias for the choice. */
#define DECODER_GGUF_SHARED_EXPERTS                                                                \
    {"model.layers.*.mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},           \
        {"model.layers.*.mlp.shared_experts.gate_proj.weight", "blk.*.ffn_gate_shexp.weight", 0,   \
         0},                                                                                       \
        {"model.layers.*.mlp.shared_experts.up_proj.weight", "blk.*.ffn_up_shexp.weight", 0, 0},   \
    {                                                                                              \
        "model.layers.*.mlp.shared_experts.down_proj.weight", "blk.*.ffn_down_shexp.weight", 0, 0  \
    }

/* Fails if the router's form is not llama.cpp's for this architecture: `theirs`, which has what is fixed there. */
static inline tt_status decoder_moe_gguf_router(const moe_config *c, const moe_config *theirs,
                                                tt_error *err)
{
    const struct {
        const char *key;
        bool other;
    } forms[] = {
        {"scoring_func",          c->score != theirs->score                                 },
        {"softmax_after_top_k",   c->softmax_after_top_k != theirs->softmax_after_top_k     },
        {"norm_topk_prob",        c->norm_topk_prob != theirs->norm_topk_prob               },
        {"routed_scaling_factor",
         c->route_scale < theirs->route_scale || c->route_scale > theirs->route_scale       },
        {"n_group",               moe_has_groups(c) != moe_has_groups(theirs)               },
        {"group_score",           moe_has_groups(c) && c->group_score != theirs->group_score},
        {"choice_bias",           c->choice_bias != theirs->choice_bias                     },
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].other)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.%s: llama.cpp has no such router in this architecture",
                           forms[i].key);
    return TT_OK;
}

/* Adds the number of experts, of choices, and the width of an expert, with a comma before each. */
static inline void decoder_moe_add_gguf(json_text *t, const moe_config *c)
{
    json_add(t,
             ", \"expert_count\": %lld, \"expert_used_count\": %lld, "
             "\"expert_feed_forward_length\": %lld",
             (long long)c->experts, (long long)c->top_k, (long long)c->hidden_dim);
}

/* The keys of models whose router is Mixtral's: a softmax, whose choices are normalized. factors: as decoder_gguf_keys has
 * them. */
static inline tt_status decoder_moe_softmax_gguf_keys(const decoder_moe *c, int factors, char *json,
                                                      size_t size, tt_error *err)
{
    const moe_config theirs = {.norm_topk_prob = true, .route_scale = 1.0};
    char more[192];
    json_text t = {more, sizeof more, 0};
    TT_TRY(decoder_check_no_windows(&c->d, err));
    TT_TRY(decoder_moe_gguf_router(&c->moe, &theirs, err));
    decoder_moe_add_gguf(&t, &c->moe);
    return decoder_gguf_keys(&c->d, factors, more, json, size, err);
}

/* Adds the keys of models with shared experts whose first layers are dense. */
static inline void decoder_moe_add_gguf_dense_first(json_text *t, const decoder_moe *c)
{
    const moe_config *e = &c->moe;
    const bool has = c->first_k_dense_replace < c->d.n_layers; /* has any layer experts? */
    decoder_moe_add_gguf(t, e);
    json_add(t,
             ", \"expert_shared_count\": %lld, \"leading_dense_block_count\": %lld, "
             "\"expert_gating_func\": %d, \"expert_weights_norm\": %s, ",
             (long long)e->shared_experts,
             (long long)(has ? c->first_k_dense_replace : c->d.n_layers),
             e->score == MOE_SIGMOID ? 2 : 1, e->norm_topk_prob ? "true" : "false");
    json_add_real(t, "expert_weights_scale", e->route_scale);
    if (moe_has_groups(e))
        json_add(t, ", \"expert_group_count\": %lld, \"expert_group_used_count\": %lld",
                 (long long)e->groups, (long long)e->group_limit);
}

#endif
