/* SPDX-License-Identifier: Apache-2.0 */
/* signum: the sign of a mean gradient. Bernstein et al. 2018, arXiv:1802.04434. */
#include <ttrun/optimizer.h>

typedef struct {
    double lr, momentum, decay;
} config;

static const tt_option options[] = {
    {"lr",           "peak rate",            TT_OPT_FLOAT, offsetof(config, lr),       "1e-4", 0, 1e3, NULL, 0, NULL},
    {"momentum",     "of the mean gradient", TT_OPT_FLOAT, offsetof(config, momentum), "0.9",  0, 1,
     NULL,                                                                                                   0, NULL},
    {"weight_decay", "decay",                TT_OPT_FLOAT, offsetof(config, decay),    "0.1",  0, 1e3, NULL, 0, NULL},
};

/* a * x + (1 - a) * y */
static tt_value *mix(tt_builder *b, double a, tt_value *x, tt_value *y)
{
    return tt_add(b, tt_scale(b, x, a), tt_scale(b, y, 1.0 - a));
}

static void describe_update(const void *cfg, tt_builder *b,
                            const tt_update *u) /* [n, …], n parameters at once */
{
    const config *c = (const config *)cfg;
    tt_value *zero = tt_const(b, 0.0, TT_F32), *one = tt_const(b, 1.0, TT_F32);
    tt_value *m = tt_optimizer_state(b, u, "exp_avg");
    tt_value *d = mix(b, c->momentum, m, u->grad);
    tt_value *sign = tt_select(b, tt_less(b, d, zero), tt_neg(b, one),
                               tt_select(b, tt_equal(b, d, zero), zero, one));
    tt_value *step = tt_add(b, sign, tt_scale(b, u->param, c->decay));
    tt_assign(b, u->param, tt_sub(b, u->param, tt_mul(b, tt_cast(b, u->lr, TT_F32), step)));
    tt_assign(b, m, d);
}

static const tt_optimizer_vt vt = {sizeof(vt), describe_update, "lr"};
static const tt_component parts[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "signum", "Signum", config, options, &vt)};
TT_PLUGIN("signum", "1.0", parts);
