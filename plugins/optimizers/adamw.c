/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/optimizer.h>

/* adamw: Adam with decoupled weight decay, in the order of PyTorch's torch.optim.AdamW:
 *   p *= 1 - lr*wd;  m += (1-b1)*(g-m);  v = b2*v + (1-b2)*g*g;
 *   p -= (lr/(1-b1^t))*m / (sqrt(v)/sqrt(1-b2^t) + eps)
 * Scalars are computed in f64 and rounded once to f32.
 *   Source: Loshchilov & Hutter 2019, arXiv:1711.05101. */

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

static tt_value *f64(tt_builder *b, double x)
{
    return tt_const(b, x, TT_F64);
}

/* 1 - beta^step, f64 */
static tt_value *bias_correction(tt_builder *b, double beta, tt_value *step)
{
    return tt_sub(b, f64(b, 1.0), tt_pow(b, f64(b, beta), step));
}

/* x + w*(y-x), in the form PyTorch picks for accuracy */
static tt_value *lerp(tt_builder *b, tt_value *x, tt_value *y, double w)
{
    tt_value *d = tt_sub(b, y, x);
    return w < 0.5 ? tt_add(b, x, tt_scale(b, d, w)) : tt_sub(b, y, tt_scale(b, d, 1.0 - w));
}

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    tt_value *m = tt_optimizer_state(b, u, "exp_avg"), *v = tt_optimizer_state(b, u, "exp_avg_sq");
    tt_value *p = u->param, *g = u->grad;
    if (c->weight_decay != 0.0) {
        tt_value *keep = tt_sub(b, f64(b, 1.0), tt_mul(b, u->lr, f64(b, c->weight_decay)));
        p = tt_mul(b, p, tt_cast(b, keep, TT_F32));
    }
    tt_value *m1 = lerp(b, m, g, 1.0 - c->beta1);
    tt_value *v1 =
        tt_add(b, tt_scale(b, v, c->beta2), tt_mul(b, tt_scale(b, g, 1.0 - c->beta2), g));
    tt_value *rate = tt_div(b, u->lr, bias_correction(b, c->beta1, u->step));
    tt_value *root = tt_sqrt(b, bias_correction(b, c->beta2, u->step));
    tt_value *denom =
        tt_add(b, tt_div(b, tt_sqrt(b, v1), tt_cast(b, root, TT_F32)), tt_const(b, c->eps, TT_F32));
    tt_value *p1 = tt_sub(b, p, tt_div(b, tt_mul(b, m1, tt_cast(b, rate, TT_F32)), denom));
    tt_assign(b, m, m1);
    tt_assign(b, v, v1);
    tt_assign(b, u->param, p1);
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "adamw", "Adam with decoupled weight decay", config, options,
                 &vt),
};

TT_PLUGIN("adamw", "1.0", components);
