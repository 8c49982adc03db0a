/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <ttrun/loss.h>

/* cross_entropy: -log softmax(logits)[label] for each token, times the token's weight if there are
 * weights. Labels below 0 (such as -100) are ignored. */

typedef struct {
    const char *weights;
    double mtp_weight, z_loss;
} cross_entropy_config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        cross_entropy_config, weights, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
        "an f32 input of the dataloader, per token or per sample, or document_weights or "
        "document_root_weights, which are 1/n and 1/sqrt(n) for a document of n counted tokens: "
        "the loss is the sum of weight times cross-entropy over the sum of weights; null: every "
        "counted token has the weight 1"),
    TT_OPTION(
        cross_entropy_config, mtp_weight, TT_OPT_FLOAT, "0.3", 0, 1e6,
        "of a model with blocks of multi-token prediction: weight of the mean of their losses, "
        "each divided as the loss is"),
    TT_OPTION(cross_entropy_config, z_loss, TT_OPT_FLOAT, "0", 0, 1e6,
              "weight of the z-loss, which keeps logits small: the square of the log of the sum of "
              "e^logits of each counted token, divided as the loss is (PaLM: 1e-4); logged as "
              "losses/z_loss; 0 = none"),
};

static const char *cross_entropy_weights(const void *config)
{
    return ((const cross_entropy_config *)config)->weights;
}

/* Of the tokens whose labels count, times their weights. lse: of the logits. */
static void add_z_loss(const cross_entropy_config *c, tt_builder *b, tt_value *lse)
{
    tt_value *labels = tt_input(b, "labels");
    tt_value *counts = tt_less_equal(b, tt_const(b, 0, TT_I32), labels);
    tt_value *z = tt_select(b, counts, tt_mul(b, lse, lse), tt_const(b, 0, TT_F32));
    tt_loss_term(b, "z_loss", c->weights ? tt_mul(b, z, tt_input(b, c->weights)) : z, c->z_loss);
}

/* Of the logits "logits+k", which are of the token k further ahead; k 0: of "logits". */
static tt_value *loss_ahead(const cross_entropy_config *c, tt_builder *b, const char *logits, int k)
{
    tt_value *lse, *nll = tt_cross_entropy_lse(b, tt_get_output(b, logits),
                                               tt_input_shifted(b, "labels", k), &lse);
    if (k == 0 && c->z_loss > 0)
        add_z_loss(c, b, lse);
    return c->weights ? tt_mul(b, nll, tt_input_shifted(b, c->weights, k)) : nll;
}

static tt_value *cross_entropy_describe(const void *config, tt_builder *b)
{
    const cross_entropy_config *c = config;
    char name[32];
    int blocks = 0;
    do
        snprintf(name, sizeof name, "logits+%d", ++blocks);
    while (tt_has_output(b, name));
    for (int k = 1; k < blocks; k++) {
        char term[32];
        snprintf(name, sizeof name, "logits+%d", k);
        snprintf(term, sizeof term, "mtp_%d", k);
        tt_loss_term(b, term, loss_ahead(c, b, name, k), c->mtp_weight / (blocks - 1));
    }
    return loss_ahead(c, b, "logits", 0);
}

static const tt_loss_vt vt = {
    .struct_size = sizeof vt, .describe = cross_entropy_describe, .weights = cross_entropy_weights};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LOSS, "cross_entropy", "next-token cross-entropy", cross_entropy_config,
                 options, &vt),
};

TT_PLUGIN("cross_entropy", "1.0", components);
