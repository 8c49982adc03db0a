/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADAMW_H
#define ADAMW_H
#include <ttrun/optimizer.h>

/* AdamW's update, in the order of PyTorch's torch.optim.AdamW:
 *   p *= 1 - lr*wd;  m += (1-b1)*(g-m);  v = b2*v + (1-b2)*g*g;
 *   p -= (lr/(1-b1^t))*m / (sqrt(v)/sqrt(1-b2^t) + eps)
 * Scalars are computed in f64 and rounded once to f32.
 *   Source: Loshchilov & Hutter 2019, arXiv:1711.05101. */

typedef struct adamw_config {
    double beta1, beta2, eps, weight_decay;
    int dynamic8; /* states in codes of 8 bits */
} adamw_config;

static inline tt_value *adamw_f64(tt_builder *b, double x)
{
    return tt_const(b, x, TT_F64);
}

/* p times 1 - lr*weight_decay; p itself for no decay. Sources of lr: tt_update. */
static inline tt_value *adamw_decay(tt_builder *b, tt_value *p, tt_value *lr, double weight_decay)
{
    if (!(weight_decay > 0))
        return p;
    tt_value *keep = tt_sub(b, adamw_f64(b, 1.0), tt_mul(b, lr, adamw_f64(b, weight_decay)));
    return tt_mul(b, p, tt_cast(b, keep, TT_F32));
}

/* 1 - beta^step, f64 */
static inline tt_value *adamw_bias_correction(tt_builder *b, double beta, tt_value *step)
{
    return tt_sub(b, adamw_f64(b, 1.0), tt_pow(b, adamw_f64(b, beta), step));
}

/* x + w*(y-x), in the form PyTorch picks for accuracy */
static inline tt_value *adamw_lerp(tt_builder *b, tt_value *x, tt_value *y, double w)
{
    tt_value *d = tt_sub(b, y, x);
    return w < 0.5 ? tt_add(b, x, tt_scale(b, d, w)) : tt_sub(b, y, tt_scale(b, d, 1.0 - w));
}

/* g: u->grad or another gradient; lr: f64 scalar, u's own or another. */
static inline void adamw_update(tt_builder *b, const tt_update *u, tt_value *g,
                                const adamw_config *c, tt_value *lr)
{
    const tt_state_opts any = {.struct_size = sizeof any, .dynamic8 = c->dynamic8},
                        square = {
                            .struct_size = sizeof square, .dynamic8 = c->dynamic8, .positive = 1};
    tt_value *m = tt_optimizer_state_as(b, u, "exp_avg", &any);
    tt_value *v = tt_optimizer_state_as(b, u, "exp_avg_sq", &square);
    tt_value *p = adamw_decay(b, u->param, lr, c->weight_decay);
    tt_value *m1 = adamw_lerp(b, m, g, 1.0 - c->beta1);
    tt_value *v1 =
        tt_add(b, tt_scale(b, v, c->beta2), tt_mul(b, tt_scale(b, g, 1.0 - c->beta2), g));
    tt_value *rate = tt_div(b, lr, adamw_bias_correction(b, c->beta1, u->step));
    tt_value *root = tt_sqrt(b, adamw_bias_correction(b, c->beta2, u->step));
    tt_value *denom =
        tt_add(b, tt_div(b, tt_sqrt(b, v1), tt_cast(b, root, TT_F32)), tt_const(b, c->eps, TT_F32));
    tt_value *p1 = tt_sub(b, p, tt_div(b, tt_mul(b, m1, tt_cast(b, rate, TT_F32)), denom));
    tt_assign(b, m, m1);
    tt_assign(b, v, v1);
    tt_assign(b, u->param, p1);
}

#endif
