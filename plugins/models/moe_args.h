/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_MOE_ARGS_H
#define TT_MODELS_MOE_ARGS_H
#include <stdio.h>
#include <stdlib.h>
#include <ttrun/model.h>

/* The arguments of mixtures of experts (moe.h), their checks and the rows of the option tables. A
 * model's config struct holds a moe_config; MOE_OPTION gives the row of one field. */

typedef enum { MOE_SOFTMAX, MOE_SIGMOID, MOE_SQRT_SOFTPLUS } moe_score;
typedef enum { MOE_GROUP_TOP2, MOE_GROUP_MAX } moe_group_score;
#define MOE_SCORES "softmax|sigmoid|sqrtsoftplus"
#define MOE_GROUP_SCORES "top2|max"

/* Zero of a field that a model has no option for means: without it; route_scale: see moe_finish(). */
typedef struct {
    int64_t experts, top_k; /* E, and the choices k of each token */
    int64_t hidden_dim;     /* F, hidden width of an expert */
    int64_t shared_experts; /* S: one more feed-forward layer of width S*F for all tokens */
    int score;              /* a moe_score */
    bool choice_by_logits;  /* llama4: experts are chosen by logits, as large scores may be equal */
    bool softmax_after_top_k; /* the softmax is over the k logits that were chosen */
    bool norm_topk_prob;      /* the weights of a token are divided by their sum */
    double route_scale;       /* and multiplied by this; 0: 1 */
    int64_t groups,
        group_limit;          /* choices come from the best group_limit of `groups`; 0 or 1: any */
    int group_score;          /* a moe_group_score: of what a group's score is made */
    bool router_bias;         /* the router's linear has a bias */
    bool choice_bias;         /* e_score_correction_bias is added to scores for the choice alone */
    double bias_update_rate;  /* its change per step; 0: it stays */
    bool bias_update_centred; /* less the mean of all experts' changes */
    bool clamped;             /* gpt_oss's SwiGLU, see moe_swiglu(), instead of silu(gate) * up */
    bool expert_bias;         /* the experts' linears have biases */
    /* weights of the losses; 0: without it */
    bool output_router_logits;         /* transformers' switch for router_aux_loss_coef */
    double router_aux_loss_coef;       /* Switch's, over all layers together, as transformers */
    double layer_balance_loss_coef;    /* Switch's in each layer, as Megatron-LM */
    double sequence_balance_loss_coef; /* DeepSeek-V3's, in each sequence */
    double router_z_loss_coef;         /* mean of the squared logsumexp of the logits */
} moe_config;

/* How files name the parts of a layer. */
typedef struct {
    const char *scope; /* "mlp" */
    const char *gate;  /* "gate": the router */
    const char *gate_proj, *up_proj, *down_proj;
    const char *shared; /* "shared_experts" */
} moe_names;

static const moe_names moe_names_qwen = {"mlp",     "gate",      "gate_proj",
                                         "up_proj", "down_proj", "shared_experts"};

/* Initial values of the router and of the experts' weights. */
typedef struct {
    tt_init router, gate, up, down;
} moe_init;

static inline bool moe_has_groups(const moe_config *c)
{
    return c->groups > 1;
}

/* Checks what depends on several arguments; for a model's finish(). Names in messages are config.json's. */
static inline tt_status moe_finish(moe_config *c, tt_error *err)
{
    if (!(c->route_scale > 0.0))
        c->route_scale = 1.0;
    if (c->softmax_after_top_k && c->score != MOE_SOFTMAX)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.softmax_after_top_k: the scores are not softmax's: leave this "
                       "out, or scoring_func");
    if (c->top_k > c->experts)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.num_experts_per_tok: %lld choices of only %lld experts",
                       (long long)c->top_k, (long long)c->experts);
    if (!moe_has_groups(c))
        return TT_OK;
    if (c->experts % c->groups != 0)
        return TT_FAIL(err, TT_EINVAL, "model.args.n_group: %lld groups do not divide %lld experts",
                       (long long)c->groups, (long long)c->experts);
    if (c->group_limit < 1 || c->group_limit > c->groups)
        return TT_FAIL(err, TT_EINVAL, "model.args.topk_group: %lld is not from 1 to n_group %lld",
                       (long long)c->group_limit, (long long)c->groups);
    if (c->top_k > c->experts / c->groups * c->group_limit)
        return TT_FAIL(err, TT_EINVAL,
                       "model.args.num_experts_per_tok: %lld choices, but topk_group %lld leaves "
                       "only %lld experts",
                       (long long)c->top_k, (long long)c->group_limit,
                       (long long)(c->experts / c->groups * c->group_limit));
    return TT_OK;
}

/* A class of transformers computes one form of the router: `theirs`. For a model's config_json(). */
static inline tt_status moe_hf_router(const moe_config *c, const moe_config *theirs,
                                      const char *class_, tt_error *err)
{
    const bool scaled = c->route_scale < 1.0 || c->route_scale > 1.0;
    const struct {
        const char *key;
        bool other;
    } forms[] = {
        {"scoring_func",          c->score != theirs->score                            },
        {"softmax_after_top_k",   c->softmax_after_top_k != theirs->softmax_after_top_k},
        {"norm_topk_prob",        c->norm_topk_prob != theirs->norm_topk_prob          },
        {"routed_scaling_factor", scaled                                               },
        {"n_group",               moe_has_groups(c)                                    },
        {"choice_bias",           c->choice_bias                                       },
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].other)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "model.args.%s: transformers' %s has no such router", forms[i].key,
                           class_);
    return TT_OK;
}

/* ---- options ---- */

/* A row whose key is `key`, of the field `field` of the moe_config `member` of config_. */
#define MOE_OPTION(config_, member, field, key, type_, default_, min_, max_, choices_, aliases_,   \
                   doc_)                                                                           \
    {                                                                                              \
        key, (doc_), (type_), offsetof(config_, member.field), (default_), (min_), (max_),         \
            (choices_), 0, (aliases_)                                                              \
    }

/* What all these models have; names as in transformers' config.json where it has one. */
#define MOE_COUNT_OPTIONS(config_, member, count, choices)                                         \
    MOE_OPTION(config_, member, experts, "num_experts", TT_OPT_INT, count, 1, 65536, NULL,         \
               "num_local_experts|n_routed_experts", "experts of a layer"),                        \
        MOE_OPTION(config_, member, top_k, "num_experts_per_tok", TT_OPT_INT, choices, 1, 65536,   \
                   NULL, "top_k", "experts that each token goes to")

#define MOE_OPTIONS(config_, member, count, choices, hidden)                                       \
    MOE_COUNT_OPTIONS(config_, member, count, choices),                                            \
        MOE_OPTION(config_, member, hidden_dim, "moe_intermediate_size", TT_OPT_INT, hidden, 1,    \
                   16777216.0, NULL, "moe_hidden_dim", "hidden width of an expert")

#define MOE_NORM_OPTION(config_, member, norm)                                                     \
    MOE_OPTION(config_, member, norm_topk_prob, "norm_topk_prob", TT_OPT_BOOL, norm, 0, 0, NULL,   \
               NULL, "the weights of a token's experts are divided by their sum")

/* Transformers' loss for balance is on if output_router_logits is. */
#define MOE_LOSS_OPTIONS(config_, member)                                                          \
    MOE_OPTION(config_, member, output_router_logits, "output_router_logits", TT_OPT_BOOL,         \
               "false", 0, 0, NULL, NULL,                                                          \
               "train with the loss of router_aux_loss_coef, as in transformers"),                 \
        MOE_OPTION(config_, member, router_aux_loss_coef, "router_aux_loss_coef", TT_OPT_FLOAT,    \
                   "0.001", 0, 1e6, NULL, NULL,                                                    \
                   "weight of Switch's load balancing loss over all layers together"),             \
        MOE_BALANCE_OPTIONS(config_, member)

#define MOE_BALANCE_OPTIONS(config_, member)                                                       \
    MOE_OPTION(config_, member, layer_balance_loss_coef, "layer_balance_loss_coef", TT_OPT_FLOAT,  \
               "0", 0, 1e6, NULL, NULL,                                                            \
               "weight of Switch's load balancing loss of each layer, as in Megatron-LM"),         \
        MOE_OPTION(                                                                                \
            config_, member, sequence_balance_loss_coef, "sequence_balance_loss_coef",             \
            TT_OPT_FLOAT, "0", 0, 1e6, NULL, NULL,                                                 \
            "weight of the load balancing loss of each sequence and layer, as DeepSeek-V3"),       \
        MOE_OPTION(config_, member, router_z_loss_coef, "router_z_loss_coef", TT_OPT_FLOAT, "0",   \
                   0, 1e6, NULL, NULL,                                                             \
                   "weight of the mean squared logsumexp of each router's logits")

/* Forms of the router, for a model whose release has one of them; MOE_NORM_OPTION belongs to them. */
#define MOE_ROUTER_OPTIONS(config_, member, after)                                                 \
    MOE_OPTION(config_, member, score, "scoring_func", TT_OPT_CHOICE, "\"softmax\"", 0, 0,         \
               MOE_SCORES, NULL,                                                                   \
               "what makes scores of the router's logits; sqrtsoftplus: the root of softplus"),    \
        MOE_OPTION(config_, member, softmax_after_top_k, "softmax_after_top_k", TT_OPT_BOOL,       \
                   after, 0, 0, NULL, NULL,                                                        \
                   "the experts are chosen first, and the softmax is over their logits"),          \
        MOE_OPTION(config_, member, route_scale, "routed_scaling_factor", TT_OPT_FLOAT, "1.0",     \
                   1e-6, 1e6, NULL, "route_scale",                                                 \
                   "the weights of a token's experts are multiplied by this"),                     \
        MOE_GROUP_OPTIONS(config_, member, "1", "1", "\"top2\""),                                  \
        MOE_OPTION(config_, member, choice_bias, "choice_bias", TT_OPT_BOOL, "false", 0, 0, NULL,  \
                   NULL, "e_score_correction_bias is added to the scores for the choice alone"),   \
        MOE_BIAS_OPTIONS(config_, member)

/* Of models with a bias for the choice. */
#define MOE_BIAS_OPTIONS(config_, member)                                                          \
    MOE_OPTION(config_, member, bias_update_rate, "bias_update_rate", TT_OPT_FLOAT, "0.001", 0,    \
               1e3, NULL, "load_balance_coeff",                                                    \
               "step of e_score_correction_bias towards equally busy experts; 0: it stays"),       \
        MOE_OPTION(config_, member, bias_update_centred, "bias_update_centred", TT_OPT_BOOL,       \
                   "true", 0, 0, NULL, NULL,                                                       \
                   "the mean of all experts' steps is subtracted, as in torchtitan")

#define MOE_GROUP_OPTIONS(config_, member, n, limit, score_)                                       \
    MOE_OPTION(config_, member, groups, "n_group", TT_OPT_INT, n, 1, 65536, NULL, NULL,            \
               "experts are cut into this many groups"),                                           \
        MOE_OPTION(config_, member, group_limit, "topk_group", TT_OPT_INT, limit, 1, 65536, NULL,  \
                   NULL, "a token's experts come from this many groups"),                          \
        MOE_OPTION(config_, member, group_score, "group_score", TT_OPT_CHOICE, score_, 0, 0,       \
                   MOE_GROUP_SCORES, NULL,                                                         \
                   "a group's score: the sum of its best two experts' or the best one's")

#endif
