/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: cross-entropy of the logits divided by a temperature. */
#include <ttrun/loss.h>

typedef struct {
    double temperature;
} config;

static const tt_option options[] = {
    {"temperature", "divides the logits", TT_OPT_FLOAT, offsetof(config, temperature), "1.0", 1e-3,
     1e3, NULL, 0, NULL},
};

/* The loss of each token, f32 [T], 0 where the label is negative. The core sums it and divides by
 * the number of counted tokens of the global batch. */
static tt_value *describe(const void *cfg, tt_builder *b)
{
    const config *c = (const config *)cfg;
    tt_value *logits = tt_get_output(b, "logits"); /* [T,V] */
    tt_value *labels = tt_input(b, "labels");      /* i32 [T] */
    return tt_cross_entropy(b, tt_scale(b, logits, 1.0 / c->temperature), labels);
}

static const tt_loss_vt vt = {sizeof(vt), describe, NULL, NULL};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LOSS, "@NAME@", "cross-entropy at a temperature", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
