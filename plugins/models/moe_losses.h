/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MOE_LOSSES_H
#define TT_MODELS_MOE_LOSSES_H
#include "moe_router.h"

/* The losses of the routers of moe.h, as terms of the loss (tt_loss_term). T tokens of a micro-batch
 * over all ranks, E experts, k choices, L layers with experts. A term is averaged over the
 * micro-batches of a step, as transformers (one forward) and Megatron-LM (one micro-batch) do:
 *   load_balance     E * sum over e of (slots of e / (L T)) * (mean over L T of p_e): transformers'
 *                    load_balancing_loss_func, which multiplies sums over all layers
 *   layer_balance    sum over layers of E/(k T^2) * sum over e of (slots of e) * (sum of p_e over T)
 *   sequence_balance the same for each sequence, with its tokens as T; mean over sequences
 *   router_z         sum over layers of the mean over T of logsumexp(logits)^2
 * The last two are means over sequences or tokens, so they do not depend on the size of micro-batches.
 * p are the scores divided by their sum over e; slots count the k largest scores of a token, without
 * the bias and the groups of the choice. Sources: Fedus et al. 2021, arXiv:2101.03961; DeepSeek-AI 2024,
 * arXiv:2412.19437; Zoph et al. 2022, arXiv:2202.08906. */

/* Sums over the layers so far; NULL: nothing yet. */
typedef struct {
    tt_value *slots, *shares;       /* f32 [E]: slots and sum of p, over tokens and layers */
    tt_value *layer, *sequence, *z; /* f32 scalars */
    int64_t layers;
} moe_sums;

static inline tt_value *moe_plus(tt_builder *b, tt_value *sum, tt_value *v)
{
    return sum ? tt_add(b, sum, v) : v;
}

/* x, y [..,E] → the sum over e of x * y, without dim e */
static inline tt_value *moe_dot(tt_builder *b, tt_value *x, tt_value *y)
{
    return tt_sum(b, tt_mul(b, x, y), -1, 0);
}

static inline bool moe_has_whole_loss(const moe_config *c)
{
    return c->output_router_logits && c->router_aux_loss_coef > 0.0;
}

/* x [T,E] → [sequences, E]: sums over the tokens of each sequence */
static inline tt_value *moe_sequence_sums(tt_builder *b, tt_value *x)
{
    const tt_dim T = tt_value_type(x)->dims[0], E = tt_value_type(x)->dims[1];
    const tt_dim apart[] = {TT_DIM(T.lines, "sequences"), TT_DIM(T.size / T.lines, NULL), E};
    return tt_sum(b, tt_reshape(b, x, apart, 3), 1, 0);
}

/* Adds the losses of a layer that has routed tokens. */
static inline void moe_count_losses(tt_builder *b, const moe_config *c, const moe_routing *r,
                                    moe_sums *s)
{
    const bool balance = moe_has_whole_loss(c) || c->layer_balance_loss_coef > 0.0 ||
                         c->sequence_balance_loss_coef > 0.0;
    const tt_dim T = tt_value_type(r->logits)->dims[0];
    const double tokens = (double)T.size, length = tokens / (double)T.lines;
    const double scale = (double)c->experts / (double)c->top_k;
    s->layers++;
    if (tt_builder_mode(b) != TT_BUILD_TRAIN)
        return;
    if (c->router_z_loss_coef > 0.0) {
        tt_value *lse = tt_logsumexp(b, r->logits);
        s->z = moe_plus(b, s->z, tt_mean(b, tt_mul(b, lse, lse), 0, 0));
    }
    if (!balance)
        return;
    tt_value *p = r->scores, *assign = r->assign, *best;
    if (c->score != MOE_SOFTMAX)
        p = tt_div(b, p, tt_add(b, tt_sum(b, p, 1, 1), tt_const(b, 1e-20, TT_F32)));
    if (c->choice_bias || moe_has_groups(c))
        tt_top_k(b, tt_stop_gradient(b, r->scores), c->top_k, &best, &assign);
    tt_value *chosen = moe_chosen(b, assign, c->experts);
    if (c->sequence_balance_loss_coef > 0.0) {
        tt_value *v = moe_dot(b, moe_sequence_sums(b, chosen), moe_sequence_sums(b, p));
        v = tt_scale(b, tt_mean(b, v, 0, 0), scale / (length * length));
        s->sequence = moe_plus(b, s->sequence, v);
    }
    tt_value *slots = tt_sum(b, chosen, 0, 0), *shares = tt_sum(b, p, 0, 0); /* [E] */
    if (c->layer_balance_loss_coef > 0.0)
        s->layer = moe_plus(b, s->layer,
                            tt_scale(b, moe_dot(b, slots, shares), scale / (tokens * tokens)));
    if (moe_has_whole_loss(c)) {
        s->slots = moe_plus(b, s->slots, slots);
        s->shares = moe_plus(b, s->shares, shares);
    }
}

/* The terms of the loss, after the last layer. tokens: any value whose dim 0 is the tokens'. */
static inline void moe_add_losses(tt_builder *b, const moe_config *c, const moe_sums *s,
                                  tt_value *tokens)
{
    const double n = (double)tt_value_type(tokens)->dims[0].size * (double)s->layers;
    if (s->slots)
        tt_loss_term(b, "load_balance",
                     tt_scale(b, moe_dot(b, s->slots, s->shares), (double)c->experts / (n * n)),
                     c->router_aux_loss_coef);
    if (s->layer)
        tt_loss_term(b, "layer_balance", s->layer, c->layer_balance_loss_coef);
    if (s->sequence)
        tt_loss_term(b, "sequence_balance", s->sequence, c->sequence_balance_loss_coef);
    if (s->z)
        tt_loss_term(b, "router_z", s->z, c->router_z_loss_coef);
}

#endif
