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
