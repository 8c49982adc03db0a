/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CONVERTER_H
#define TTRUN_CONVERTER_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A converter replaces layers of a model while the model describes itself (R19). The core calls
 * linear() for every tt_linear() whose parameter name the job's filter does not exclude. */

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_converter_vt {
    size_t struct_size;
    /* Returns other ops that replace x·wᵀ for the parameter with the full name `name`
     * ("model.layers.0.mlp.up_proj.weight"), or NULL to leave it as it is.
     * tt_param() here declares parameters below the layer: "lora_A.weight" is
     * "model.layers.0.mlp.up_proj.lora_A.weight".
     *   x [T,in]    w [out,in]    returns [T,out]; errors stick in b.   [setup] */
    tt_value *(*linear)(const void *config, tt_builder *b, const char *name, tt_value *x,
                        tt_value *w);
    /* Called once after the model has described itself, with the names of all parameters: fails by
     * tt_builder_fail() if the configuration names a layer that does not exist. NULL: nothing to
     * check.   [setup] */
    void (*described)(const void *config, tt_builder *b, const char *const *names, size_t n);
} tt_converter_vt;
#ifdef __cplusplus
}
#endif
#endif
