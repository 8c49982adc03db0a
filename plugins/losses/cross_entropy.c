/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/loss.h>

/* cross_entropy: -log softmax(logits)[label] for each token, times the token's weight if there are
 * weights. Labels below 0 (such as -100) are ignored. */

typedef struct {
    const char *weights;
} cross_entropy_config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        cross_entropy_config, weights, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
        "an f32 input of the dataloader, per token or per sample, or document_weights or "
        "document_root_weights, which are 1/n and 1/sqrt(n) for a document of n counted tokens: "
        "the loss is the sum of weight times cross-entropy over the sum of weights; null: every "
        "counted token has the weight 1"),
};

static const char *cross_entropy_weights(const void *config)
{
    return ((const cross_entropy_config *)config)->weights;
}

static tt_value *cross_entropy_describe(const void *config, tt_builder *b)
{
    const char *weights = cross_entropy_weights(config);
    tt_value *nll = tt_cross_entropy(b, tt_get_output(b, "logits"), tt_input(b, "labels"));
    return weights ? tt_mul(b, nll, tt_input_per_token(b, weights)) : nll;
}

static const tt_loss_vt vt = {sizeof vt, cross_entropy_describe, cross_entropy_weights};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LOSS, "cross_entropy", "next-token cross-entropy", cross_entropy_config,
                 options, &vt),
};

TT_PLUGIN("cross_entropy", "1.0", components);
