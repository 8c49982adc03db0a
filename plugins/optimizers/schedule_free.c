/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"

/* schedule_free: AdamW whose mean of iterates takes the place of a decay of the rate (Defazio et al. 2024,
 * arXiv:2405.15682). z is the sequence of steps, x their weighted mean, and the gradient is taken between them,
 * at y, which is the parameter; x is evaluated:
 *   v = b2*v + (1-b2)*g*g;  d = g / (sqrt(v/(1-b2^t)) + eps) + wd*y;  z -= lr*d
 *   w = max(lr so far)^2;  c = w / sum(w so far);  x += c*(z-x);  y = z + b1*(x-z)
 * The rate should stay after its warm-up: lr_scheduler.name constant. */

typedef struct {
    double lr, beta1, beta2, eps, weight_decay;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "2.5e-3", 0, 1e38,
              "learning rate, scaled by the lr_scheduler; 1 to 10 times AdamW's"),
    TT_OPTION(config, beta1, TT_OPT_FLOAT, "0.9", 0, 0.9999999999,
              "where gradients are taken: 1 at the mean of the steps, 0 at the last step"),
    TT_OPTION(config, beta2, TT_OPT_FLOAT, "0.999", 0, 0.9999999999,
              "decay of the mean squared gradient"),
    TT_OPTION(config, eps, TT_OPT_FLOAT, "1e-8", 0, 1, "added to the denominator"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.0", 0, 1e6, "decay, at the parameter"),
};

/* The weight of this step's z in the mean, as its part of all weights so far; 0 while all rates were 0. */
static tt_value *part_of_step(tt_builder *b, const tt_update *u, tt_value *lr)
{
    tt_value *most = tt_optimizer_number(b, u, "lr_max"),
             *sum = tt_optimizer_number(b, u, "weight_sum");
    tt_value *most1 = tt_maximum(b, most, lr), *weight = tt_mul(b, most1, most1);
    tt_value *sum1 = tt_add(b, sum, weight);
    tt_assign(b, most, most1);
    tt_assign(b, sum, sum1);
    return tt_div(b, weight, tt_maximum(b, sum1, tt_const(b, 1e-37, TT_F32)));
}

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    tt_value *z = tt_optimizer_copy(b, u, "z"), *x = tt_optimizer_copy(b, u, "x");
    const tt_state_opts square = {.struct_size = sizeof square, .positive = 1};
    tt_value *v = tt_optimizer_state_as(b, u, "exp_avg_sq", &square), *y = u->param, *g = u->grad;
    tt_value *lr = tt_cast(b, u->lr, TT_F32);
    tt_value *v1 =
        tt_add(b, tt_scale(b, v, c->beta2), tt_mul(b, tt_scale(b, g, 1.0 - c->beta2), g));
    tt_value *correction = tt_cast(b, adamw_bias_correction(b, c->beta2, u->step), TT_F32);
    tt_value *denom = tt_add(b, tt_sqrt(b, tt_div(b, v1, correction)), tt_const(b, c->eps, TT_F32));
    tt_value *d = tt_div(b, g, denom);
    if (c->weight_decay > 0)
        d = tt_add(b, d, tt_scale(b, y, c->weight_decay));
    tt_value *z1 = tt_sub(b, z, tt_mul(b, d, lr));
    tt_value *x1 = tt_add(b, x, tt_mul(b, tt_sub(b, z1, x), part_of_step(b, u, lr)));
    tt_assign(b, v, v1);
    tt_assign(b, z, z1);
    tt_assign(b, x, x1);
    tt_assign(b, u->param, adamw_lerp(b, z1, x1, c->beta1));
    tt_optimizer_evaluate(b, u, x);
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "schedule_free",
                 "AdamW that averages its steps instead of lowering the rate", config, options,
                 &vt),
};

TT_PLUGIN("schedule_free", "1.0", components);
