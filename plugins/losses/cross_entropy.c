/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/loss.h>

/* cross_entropy: -log softmax(logits)[label] for each token. Labels below 0 (such as -100) are
 * ignored. */

static tt_value *cross_entropy_describe(const void *config, tt_builder *b)
{
    (void)config;
    return tt_cross_entropy(b, tt_get_output(b, "logits"), tt_input(b, "labels"));
}

static const tt_loss_vt vt = {sizeof vt, cross_entropy_describe};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_LOSS, "cross_entropy", "next-token cross-entropy", &vt),
};

TT_PLUGIN("cross_entropy", "1.0", components);
