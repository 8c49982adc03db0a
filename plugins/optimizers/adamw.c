/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

/* adamw: Adam with decoupled weight decay, torch.optim.AdamW. adam: weight decay is added to the gradient,
 * torch.optim.Adam. adamw8bit: adamw with both states in dynamic codes of 8 bits, torchao's AdamW8bit. */

typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "8e-4", 0, 1e38,
              "learning rate, scaled by the lr_scheduler"),
    TT_OPTION(config, beta1, TT_OPT_FLOAT, "0.9", 0, 0.9999999999, "decay of the mean gradient"),
    TT_OPTION(config, beta2, TT_OPT_FLOAT, "0.95", 0, 0.9999999999,
              "decay of the mean squared gradient"),
    TT_OPTION(config, eps, TT_OPT_FLOAT, "1e-8", 0, 1, "added to the denominator"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.1", 0, 1e6, "decoupled weight decay"),
};
static const tt_option adam_options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "1e-3", 0, 1e38,
              "learning rate, scaled by the lr_scheduler"),
    TT_OPTION(config, beta1, TT_OPT_FLOAT, "0.9", 0, 0.9999999999, "decay of the mean gradient"),
    TT_OPTION(config, beta2, TT_OPT_FLOAT, "0.999", 0, 0.9999999999,
              "decay of the mean squared gradient"),
    TT_OPTION(config, eps, TT_OPT_FLOAT, "1e-8", 0, 1, "added to the denominator"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.0", 0, 1e6,
              "added to the gradient times the parameter"),
};

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    adamw_update(b, u, u->grad, &(adamw_config){c->beta1, c->beta2, c->eps, c->weight_decay, 0},
                 u->lr);
}

static void describe_adamw8bit(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    adamw_update(b, u, u->grad, &(adamw_config){c->beta1, c->beta2, c->eps, c->weight_decay, 1},
                 u->lr);
}

static void describe_adam(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    tt_value *g = u->grad;
    if (c->weight_decay > 0)
        g = tt_add(b, g, tt_scale(b, u->param, c->weight_decay));
    adamw_update(b, u, g, &(adamw_config){c->beta1, c->beta2, c->eps, 0, 0}, u->lr);
}

static const tt_optimizer_vt adamw8bit_vt = {sizeof adamw8bit_vt, describe_adamw8bit, "lr"};
static const tt_optimizer_vt adam_vt = {sizeof adam_vt, describe_adam, "lr"};
static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "adamw", "Adam with decoupled weight decay", config, options,
                 &vt),
    TT_COMPONENT(TT_KIND_OPTIMIZER, "adamw8bit", "adamw with states in codes of 8 bits", config,
                 options, &adamw8bit_vt),
    TT_COMPONENT(TT_KIND_OPTIMIZER, "adam", "Adam with weight decay in the gradient", config,
                 adam_options, &adam_vt),
};

TT_PLUGIN("adamw", "1.0", components);
