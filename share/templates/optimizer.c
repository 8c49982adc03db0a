/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: SGD with momentum and decoupled weight decay, in graph ops: the core shards, fuses and
 * runs it. */
#include <ttrun/optimizer.h>

typedef struct {
    double lr, momentum, decay;
} config;

/* Every optimizer has lr and weight_decay: schedules and param_groups set them. */
static const tt_option options[] = {
    {"lr",           "peak rate",          TT_OPT_FLOAT, offsetof(config, lr),       "1e-2", 0, 1e3, NULL, 0, NULL},
    {"momentum",     "decay of the state", TT_OPT_FLOAT, offsetof(config, momentum), "0.9",  0, 1,   NULL,
     0,                                                                                                       NULL},
    {"weight_decay", "decoupled",          TT_OPT_FLOAT, offsetof(config, decay),    "0.0",  0, 1e3, NULL, 0,
     NULL                                                                                                         },
};

/* One update of a stack [n, ...] of n parameters of one shape. */
static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = (const config *)cfg;
    tt_value *m = tt_optimizer_state(b, u, "momentum"); /* zero at first; checkpoints save it */
    tt_value *next = tt_add(b, tt_scale(b, m, c->momentum), u->grad);
    tt_value *step = tt_add(b, next, tt_scale(b, u->param, c->decay));
    tt_assign(b, u->param, tt_sub(b, u->param, tt_mul(b, tt_cast(b, u->lr, TT_F32), step)));
    tt_assign(b, m, next);
}

static const tt_optimizer_vt vt = {sizeof(vt), describe_update, "lr"};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "@NAME@", "SGD with momentum", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
