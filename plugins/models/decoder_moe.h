/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_DECODER_MOE_H
#define TT_MODELS_DECODER_MOE_H
#include "decoder.h"
#include "moe.h"

/* Decoders of decoder.h whose feed-forward layers are mixtures of experts: mixtral and qwen3_moe. */

/* The arguments; decoder is first, so that the functions of decoder.h take this struct, too. */
typedef struct {
    decoder d;
    moe_config moe;
    int64_t
        decoder_sparse_step; /* qwen3_moe: of this many layers the last has experts; 0: all have */
    const char
        *mlp_only_layers; /* qwen3_moe: a list of numbers of layers without experts, or NULL */
} decoder_moe;

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

static inline bool decoder_moe_has_experts(const decoder_moe *c, int64_t layer)
{
    const int64_t step = c->decoder_sparse_step > 0 ? c->decoder_sparse_step : 1;
    return (layer + 1) % step == 0 && !decoder_moe_listed(c->mlp_only_layers, layer);
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

#endif
