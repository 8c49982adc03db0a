/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_LOSS_H
#define TTRUN_LOSS_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A loss: describe() reads the model's outputs by name (tt_get_output(b, "logits")) and inputs
 * ("labels", or any that the dataloader declares) and returns the loss per token, f32 [tokens],
 * which is 0 for tokens that do not count, or per sample, f32 [samples] (tt_line_sum), which is 0 for
 * samples without a counted token. The core sums it and divides by the number of counted tokens
 * (label >= 0) of the global batch, or by the sum of their weights. */

/* The input that `reference` of a loss fills. */
#define TT_INPUT_REFERENCE "reference"

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_loss_vt {
    size_t struct_size;
    tt_value *(*describe)(const void *config, tt_builder *b); /* errors stick in b. [setup] */
    /* (optional) The f32 input whose values describe() multiplies the tokens' loss by: the core divides
     * by its sum over the counted tokens of the global batch. One of the dataloader's, or
     * "document_weights" or "document_root_weights": 1/n and 1/sqrt(n), n the counted labels of the
     * token's document. NULL = each counts 1. The text lives as long as config. [setup] */
    const char *(*weights)(const void *config);
    /* (optional) A number per token, f32 [tokens], such as the log-probability of its label. The core
     * computes it once for every sample, with the weights that the run begins with, keeps it in the run's
     * folder, and gives it to describe() as the input TT_INPUT_REFERENCE. So a loss can compare with the
     * model as it was, and memory holds one model. [setup] */
    tt_value *(*reference)(const void *config, tt_builder *b);
} tt_loss_vt;
#ifdef __cplusplus
}
#endif
#endif
