/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <ttrun/optimizer.h>

/* sgd: stochastic gradient descent with momentum, in the order of PyTorch's torch.optim.SGD:
 *   g += wd*p;  buf = momentum*buf + g;  g = nesterov ? g + momentum*buf : buf;  p -= lr*g
 * buf starts at 0, so the first step's buf is g, as there. */

typedef struct {
    double lr, momentum, weight_decay;
    bool nesterov;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "1e-3", 0, 1e38,
              "learning rate, scaled by the lr_scheduler"),
    TT_OPTION(config, momentum, TT_OPT_FLOAT, "0.0", 0, 1,
              "decay of the velocity; 0: no velocity is kept"),
    TT_OPTION(config, nesterov, TT_OPT_BOOL, "false", 0, 0,
              "look ahead along the velocity; needs momentum"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.0", 0, 1e6,
              "added to the gradient times the parameter"),
};

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    tt_value *g = u->grad;
    if (c->nesterov && c->momentum == 0.0) {
        tt_builder_fail(b, TT_EINVAL, "optimizer.nesterov needs optimizer.momentum above 0");
        return;
    }
    if (c->weight_decay != 0.0)
        g = tt_add(b, g, tt_scale(b, u->param, c->weight_decay));
    if (c->momentum != 0.0) {
        tt_value *buf = tt_optimizer_state(b, u, "momentum_buffer");
        tt_value *buf1 = tt_add(b, tt_scale(b, buf, c->momentum), g);
        tt_assign(b, buf, buf1);
        g = c->nesterov ? tt_add(b, g, tt_scale(b, buf1, c->momentum)) : buf1;
    }
    tt_assign(b, u->param, tt_sub(b, u->param, tt_mul(b, g, tt_cast(b, u->lr, TT_F32))));
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "sgd", "stochastic gradient descent with momentum", config,
                 options, &vt),
};

TT_PLUGIN("sgd", "1.0", components);
