/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MOE_ROUTER_H
#define TT_MODELS_MOE_ROUTER_H
#include "moe_args.h"
#include <float.h>

/* The router of moe.h: which experts a token goes to, by which weights, and the bias that keeps the
 * experts equally busy. T tokens, E experts, k choices, D width. Scores are f32. */

/* What the router found out about the tokens. */
typedef struct {
    tt_value *logits;  /* f32 [T,E] */
    tt_value *scores;  /* f32 [T,E]: of softmax, sigmoid or the root of softplus */
    tt_value *assign;  /* i32 [T,k] */
    tt_value *weights; /* f32 [T,k] */
} moe_routing;

/* f32 [T,E]: 1 where a token chose the expert, else 0. */
static inline tt_value *moe_chosen(tt_builder *b, tt_value *assign, int64_t experts)
{
    const tt_attrs_dims width = {.n_dims = 1, .dims = {TT_DIM(experts, NULL)}};
    const tt_type *t = tt_value_type(assign);
    tt_value *ins[] = {assign, tt_broadcast_to(b, tt_const(b, 1.0, TT_F32), t->dims, 2)};
    tt_value *out = NULL;
    tt_op(b, "top_k_bwd", ins, 2, &width, &out, 1);
    return out;
}

/* scores [T,E] → the same, but -FLT_MAX for the experts of all but the best group_limit
 * groups; debug.detect_nan would report an infinity. */
static inline tt_value *moe_limit_groups(tt_builder *b, const moe_config *c, tt_value *scores)
{
    const tt_dim T = tt_value_type(scores)->dims[0], E = tt_value_type(scores)->dims[1];
    const tt_dim G = TT_DIM(c->groups, NULL), n = TT_DIM(E.size / c->groups, NULL),
                 one = TT_DIM(1, NULL);
    const tt_dim apart[] = {T, G, n}, flags[] = {T, G, one}, joined[] = {T, E};
    tt_value *of_group, *best, *x = tt_reshape(b, scores, apart, 3), *index;
    if (c->group_score == MOE_GROUP_MAX) {
        of_group = tt_max(b, x, 2, 0);
    } else {
        tt_top_k(b, x, n.size < 2 ? n.size : 2, &best, &index);
        of_group = tt_sum(b, best, 2, 0);
    }
    tt_top_k(b, of_group, c->group_limit, &best, &index);
    tt_value *kept = tt_reshape(b, moe_chosen(b, index, c->groups), flags, 3);
    kept = tt_less(b, tt_const(b, 0.0, TT_F32), kept);
    x = tt_select(b, kept, x, tt_const(b, -(double)FLT_MAX, TT_F32));
    return tt_reshape(b, x, joined, 2);
}

static inline tt_value *moe_scores(tt_builder *b, const moe_config *c, tt_value *logits)
{
    if (c->score == MOE_SIGMOID)
        return tt_sigmoid(b, logits);
    return c->score == MOE_SQRT_SOFTPLUS ? tt_sqrt(b, tt_softplus(b, logits))
                                         : tt_softmax(b, logits);
}

/* The bias after a step: a step of `rate` up for each expert with fewer slots than the mean of all
 * experts, down for one with more, none for one with just as many. slots: of each expert in the whole
 * step, f64 whole numbers, so that E times them is compared with their sum exactly; user: the
 * moe_config. Sources: Wang et al. 2024, arXiv:2408.15664; torchtitan subtracts the mean of the steps
 * (centred), Megatron-LM does not. */
static inline tt_value *moe_next_bias(tt_builder *b, tt_value *bias, tt_value *slots, void *user)
{
    const moe_config *c = user;
    tt_value *less = tt_sub(b, tt_sum(b, slots, 0, 1), tt_scale(b, slots, (double)c->experts));
    tt_value *step = tt_cast(b, tt_sign(b, less), TT_F32);
    if (c->bias_update_centred)
        step = tt_sub(b, step, tt_mean(b, step, 0, 1));
    return tt_add(b, bias, tt_scale(b, step, c->bias_update_rate));
}

/* scores [T,E] + the buffer <scope>.<gate>.e_score_correction_bias [E] */
static inline tt_value *moe_biased(tt_builder *b, const moe_config *c, const moe_names *names,
                                   tt_value *scores, tt_value **bias)
{
    char name[96];
    const tt_dim E = TT_DIM(c->experts, NULL);
    const tt_buffer_opts zeros = {
        .init = {TT_INIT_CONSTANT, 0.0, 0.0, 0.0},
          .exported = 1
    };
    snprintf(name, sizeof name, "%s.e_score_correction_bias", names->gate);
    *bias = tt_buffer(b, name, &E, 1, &zeros);
    return tt_add(b, scores, *bias);
}

/* Routes x [T,D] by the parameter <scope>.<gate>.weight [E,D]. */
static inline moe_routing moe_route(tt_builder *b, const moe_config *c, const moe_names *names,
                                    const moe_init *init, tt_value *x)
{
    char name[64];
    moe_routing r;
    tt_value *bias = NULL;
    const tt_dim dims[] = {TT_DIM(c->experts, NULL), tt_value_type(x)->dims[1]};
    const tt_param_opts weight = {.init = init->router, .tags = "router"};
    snprintf(name, sizeof name, "%s.weight", names->gate);
    tt_value *w = tt_cast(b, tt_param(b, name, dims, 2, &weight), TT_F32);
    r.logits = tt_linear_w(b, tt_cast(b, x, TT_F32), w);
    if (c->router_bias) {
        snprintf(name, sizeof name, "%s.bias", names->gate);
        const tt_param_opts zeros = {
            .init = {TT_INIT_CONSTANT, 0.0, 0.0, 0.0},
              .tags = "router,bias"
        };
        w = tt_param(b, name, dims, 1, &zeros);
        r.logits = tt_add(b, r.logits, tt_cast(b, w, TT_F32));
    }
    r.scores = moe_scores(b, c, r.logits);
    tt_value *from = c->softmax_after_top_k ? r.logits : r.scores,
             *choice = c->choice_by_logits ? r.logits : from;
    if (c->choice_bias)
        choice = moe_biased(b, c, names, choice, &bias);
    if (moe_has_groups(c))
        choice = moe_limit_groups(b, c, choice);
    tt_choose_experts(b, from, choice == from ? NULL : choice, c->top_k, &r.assign, &r.weights);
    if (c->softmax_after_top_k)
        r.weights = tt_softmax(b, r.weights);
    else if (c->norm_topk_prob) /* 1e-20: all scores of a token may be 0 */
        r.weights =
            tt_div(b, r.weights, tt_add(b, tt_sum(b, r.weights, 1, 1), tt_const(b, 1e-20, TT_F32)));
    if (c->route_scale > 1.0 || c->route_scale < 1.0)
        r.weights = tt_scale(b, r.weights, c->route_scale);
    if (bias && c->bias_update_rate > 0.0)
        tt_buffer_update_sum(b, bias, tt_expert_counts(b, r.assign, c->experts), moe_next_bias,
                             (void *)(uintptr_t)c);
    return r;
}

#endif
