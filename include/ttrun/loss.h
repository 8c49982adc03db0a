/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_LOSS_H
#define TTRUN_LOSS_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A loss: describe() takes the model's outputs by name (tt_get_output(b, "logits")) and inputs
 * ("labels", or any the dataloader declares) and returns the per-token loss, f32 [tokens], 0 where not counted. The core sums it
 * and divides by the number of counted tokens (label >= 0) of the global batch. */

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_loss_vt {
    size_t struct_size;
    tt_value *(*describe)(const void *config, tt_builder *b); /* [setup] */
} tt_loss_vt;
#ifdef __cplusplus
}
#endif
#endif
