/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CONVERTER_H
#define TTRUN_CONVERTER_H
#include <ttrun/builder.h>
#include <ttrun/plugin.h>

/* A converter rewrites layers of a model while it is described (R19): linear() is asked for every
 * tt_linear() whose parameter name the job's filter does not exclude. */

#ifdef __cplusplus
extern "C" {
#endif
typedef struct tt_converter_vt {
    size_t struct_size;
    /* The replacement of x·wᵀ for the parameter `name`, in full ("model.layers.0.mlp.up_proj.weight"),
     * in other ops; NULL = leave it as it is. [setup] */
    tt_value *(*linear)(const void *config, tt_builder *b, const char *name, tt_value *x,
                        tt_value *w);
} tt_converter_vt;
#ifdef __cplusplus
}
#endif
#endif
