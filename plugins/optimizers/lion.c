/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

/* lion: the sign of a mean gradient, with decoupled weight decay (Chen et al. 2023, arXiv:2302.06675):
 *   p *= 1 - lr*wd;  p -= lr * sign(b1*m + (1-b1)*g);  m = b2*m + (1-b2)*g */

typedef struct {
    double lr, beta1, beta2, weight_decay;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "1e-4", 0, 1e38,
              "learning rate, scaled by the lr_scheduler; 3 to 10 times smaller than AdamW's"),
    TT_OPTION(config, beta1, TT_OPT_FLOAT, "0.9", 0, 0.9999999999,
              "part of the mean gradient in the direction of a step"),
    TT_OPTION(config, beta2, TT_OPT_FLOAT, "0.99", 0, 0.9999999999, "decay of the mean gradient"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.1", 0, 1e6, "decoupled weight decay"),
};

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    tt_value *m = tt_optimizer_state(b, u, "exp_avg"), *g = u->grad;
    tt_value *p = adamw_decay(b, u->param, u->lr, c->weight_decay);
    tt_value *direction =
        tt_sign(b, tt_add(b, tt_scale(b, m, c->beta1), tt_scale(b, g, 1.0 - c->beta1)));
    tt_assign(b, m, adamw_lerp(b, m, g, 1.0 - c->beta2));
    tt_assign(b, u->param, tt_sub(b, p, tt_mul(b, direction, tt_cast(b, u->lr, TT_F32))));
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "lion", "the sign of a mean gradient", config, options, &vt),
};

TT_PLUGIN("lion", "1.0", components);
