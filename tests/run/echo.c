/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/optimizer.h>

/* For test_states.sh, three optimizers.
 *   echo     a running mean of the parameter, which it never changes: the states' values before they
 *            are rounded are the same on every mesh, and so must be what is stored
 *   shrink   the parameter times 0.999: also the same on every mesh, whatever the gradients are
 *   nearest  adamw (plugins/optimizers/adamw.c) that rounds its states to bf16 by itself, to nearest */

typedef struct echo_config {
    double lr, weight_decay;
} echo_config;

static const tt_option echo_options[] = {
    TT_OPTION(echo_config, lr, TT_OPT_FLOAT, "1e-3", 0, 1, "not used"),
    TT_OPTION(echo_config, weight_decay, TT_OPT_FLOAT, "0", 0, 1, "not used"),
};

static void echo_update(const void *config, tt_builder *b, const tt_update *u)
{
    (void)config;
    tt_value *mean = tt_optimizer_state(b, u, "mean"), *twin = tt_optimizer_state(b, u, "twin");
    tt_assign(b, mean, tt_add(b, tt_scale(b, mean, 0.75), tt_scale(b, u->param, 0.25)));
    tt_assign(b, twin, tt_add(b, tt_scale(b, twin, 0.75), tt_scale(b, u->param, 0.25)));
}

static void shrink_update(const void *config, tt_builder *b, const tt_update *u)
{
    (void)config;
    tt_assign(b, u->param, tt_scale(b, u->param, 0.999));
}

static tt_value *nearest(tt_builder *b, tt_value *v)
{
    return tt_cast(b, tt_cast(b, v, TT_BF16), TT_F32);
}
static const tt_optimizer_vt echo_vt = {sizeof echo_vt, echo_update, "lr"};
static const tt_optimizer_vt shrink_vt = {sizeof shrink_vt, shrink_update, "lr"};

#define tt_assign(b, target, value)                                                                \
    tt_assign(b, target, (target) == u->param ? (value) : nearest(b, value))
#define components adamw_components
#undef TT_PLUGIN
#define TT_PLUGIN(name, version, list) typedef int echo_has_its_own
#include "../../plugins/optimizers/adamw.c"
#undef components
#undef TT_PLUGIN

static const tt_component both[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "echo", "a running mean of the parameter", echo_config,
                 echo_options, &echo_vt),
    TT_COMPONENT(TT_KIND_OPTIMIZER, "shrink", "the parameter times 0.999", echo_config,
                 echo_options, &shrink_vt),
    TT_COMPONENT(TT_KIND_OPTIMIZER, "nearest", "adamw with states rounded to nearest", config,
                 options, &vt),
};

TT_PLUGIN_LICENSED("echo", "1.0", "Apache-2.0", both);
