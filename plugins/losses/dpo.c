/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <ttrun/loss.h>

/* dpo: direct preference optimization (Rafailov 2023, arXiv:2305.18290). A sample has pairs, one or several: an
 * answer that was chosen and one that was rejected, to the same prompt. With r = log p(answer) -
 * log p_reference(answer), where p_reference is the model as the run began, the loss compares r of the two. The inputs
 * are the dataloader's, such as chat's with pairs: pair_sign, 1 for tokens of the chosen answer and -1 for those of
 * the rejected one; pair_index, from 0 on, the pair of each token within its sample; pair_weight, 1 at one counted token
 * of each pair. The sums over a pair's answers stand at all of its tokens, and that one is taken. The formulas are those
 * of TRL's DPOTrainer. */

typedef struct {
    const char *loss_type;
    double beta, label_smoothing;
} dpo_config;

static const tt_option options[] = {
    TT_OPTION_MORE(dpo_config, loss_type, TT_OPT_ENUM, "\"sigmoid\"", 0, 0,
                   "sigmoid|sigmoid_norm|hinge|ipo|robust", 0, NULL,
                   "of d = r(chosen) - r(rejected), r = log p(answer) - log p_reference(answer): "
                   "sigmoid: -log sigmoid(beta d); sigmoid_norm: r is the mean over the answer's "
                   "tokens; hinge: max(0, 1 - beta d); ipo: (d - 1 / (2 beta))^2 of such means; "
                   "robust: sigmoid without the bias of labels of which the share label_smoothing "
                   "is wrong"),
    TT_OPTION(dpo_config, beta, TT_OPT_FLOAT, "0.1", 1e-6, 1e6,
              "how strongly the model is held to the reference"),
    TT_OPTION(dpo_config, label_smoothing, TT_OPT_FLOAT, "0", 0, 0.499,
              "of sigmoid, sigmoid_norm and robust: the share of pairs whose answers are expected "
              "to be the wrong way round"),
};

static const char *dpo_weights(const void *config)
{
    (void)config;
    return "pair_weight";
}

/* Of each token's label: [tokens]; 0 where no label counts. */
static tt_value *log_probability(const void *config, tt_builder *b)
{
    (void)config;
    return tt_neg(b, tt_cross_entropy(b, tt_get_output(b, "logits"), tt_input(b, "labels")));
}

/* 1 where a label counts: [tokens]. */
static tt_value *counted(tt_builder *b)
{
    return tt_cast(b, tt_less_equal(b, tt_const(b, 0, TT_I32), tt_input(b, "labels")), TT_F32);
}

/* For each token the sum over the tokens of its pair: [tokens]. */
static tt_value *pair_sum(tt_builder *b, tt_value *x)
{
    return tt_segment_sum(b, x, tt_cast(b, tt_input(b, "pair_index"), TT_I32));
}

/* A sum over the tokens of a side as the mean over those of them that count: [tokens]. */
static tt_value *mean_of(tt_builder *b, tt_value *sum, tt_value *side)
{
    tt_value *n = pair_sum(b, tt_mul(b, counted(b), side));
    return tt_div(b, sum, tt_maximum(b, n, tt_const(b, 1, TT_F32)));
}

/* The loss of each pair. z: beta d. */
static tt_value *loss_of(const dpo_config *c, tt_builder *b, tt_value *d, tt_value *z)
{
    const double wrong = c->label_smoothing, right = 1 - wrong;
    if (!strcmp(c->loss_type, "hinge"))
        return tt_relu(b, tt_sub(b, tt_const(b, 1, TT_F32), z));
    if (!strcmp(c->loss_type, "ipo")) {
        tt_value *off = tt_sub(b, d, tt_const(b, 1 / (2 * c->beta), TT_F32));
        return tt_mul(b, off, off);
    }
    tt_value *as_labelled = tt_scale(b, tt_softplus(b, tt_neg(b, z)), right);
    if (!(wrong > 0))
        return as_labelled;
    tt_value *other_way = tt_scale(b, tt_softplus(b, z), wrong);
    return strcmp(c->loss_type, "robust")
               ? tt_add(b, as_labelled, other_way)
               : tt_scale(b, tt_sub(b, as_labelled, other_way), 1 / (1 - 2 * wrong));
}

/* beta times the sums over the answers' tokens, whatever the loss takes. */
static void log_rewards(const dpo_config *c, tt_builder *b, tt_value *chosen, tt_value *rejected,
                        tt_value *pairs)
{
    tt_value *hit = tt_cast(b, tt_less(b, rejected, chosen), TT_F32),
             *margin = tt_sub(b, chosen, rejected);
    tt_log_metric(b, "rewards/chosen", tt_mul(b, tt_scale(b, chosen, c->beta), pairs));
    tt_log_metric(b, "rewards/rejected", tt_mul(b, tt_scale(b, rejected, c->beta), pairs));
    tt_log_metric(b, "rewards/accuracy", tt_mul(b, hit, pairs));
    tt_log_metric(b, "rewards/margin", tt_mul(b, tt_scale(b, margin, c->beta), pairs));
}

static tt_value *dpo_describe(const void *config, tt_builder *b)
{
    const dpo_config *c = config;
    tt_value *sign = tt_input(b, "pair_sign");
    tt_value *good = tt_relu(b, sign), *bad = tt_relu(b, tt_neg(b, sign));
    tt_value *ratio = tt_sub(b, log_probability(config, b), tt_input(b, TT_INPUT_REFERENCE));
    tt_value *chosen = pair_sum(b, tt_mul(b, ratio, good)),
             *rejected = pair_sum(b, tt_mul(b, ratio, bad));
    tt_value *pairs = tt_input(b, "pair_weight");
    log_rewards(c, b, chosen, rejected, pairs);
    if (!strcmp(c->loss_type, "ipo") || !strcmp(c->loss_type, "sigmoid_norm")) {
        chosen = mean_of(b, chosen, good);
        rejected = mean_of(b, rejected, bad);
    }
    tt_value *d = tt_sub(b, chosen, rejected);
    return tt_mul(b, loss_of(c, b, d, tt_scale(b, d, c->beta)), pairs);
}

static const tt_loss_vt vt = {sizeof vt, dpo_describe, dpo_weights, log_probability};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LOSS, "dpo",
                 "direct preference optimization, over pairs of a chosen and a rejected answer",
                 dpo_config, options, &vt),
};

TT_PLUGIN("dpo", "1.0", components);
