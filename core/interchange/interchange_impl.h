/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_IMPL_H
#define TT_INTERCHANGE_IMPL_H
#include "interchange/interchange.h"

/* Shared by the files of core/interchange. */

/* hf_configs.c: writes config.json and generation_config.json. params: what was written; model: the folder of the
 * configs that the model came with, or NULL. */
tt_status tt_hf_write_configs(const tt_setup *su, const tt_hf_export *o, const tt_hf_param *params,
                              size_t n_params, const char *model, tt_dtype dtype, tt_arena *a,
                              tt_error *err);
/* hf_low.c: says for each of the parameters whether its matrices are written as `low`, and logs those that the
 * files cannot hold so. Fails if there are none. The other writes the quantization_config of such files. */
tt_status tt_hf_choose_low(const tt_setup *s, tt_hf_low low, tt_arena *a, tt_hf_param *params,
                           size_t n, tt_error *err);
tt_status tt_hf_put_quantization(tt_str *out, tt_hf_low low, const tt_hf_param *params,
                                 size_t n_params, tt_arena *a, tt_error *err);
/* The dtype that the config.json in `model` names; f32 if model is NULL or it names none. */
tt_status tt_hf_source_dtype(tt_arena *a, const char *model, tt_dtype *out, tt_error *err);
/* names.c: looks a name up in a table. Returns the other program's name and its row, or NULL if no
 * row matches. */
const char *tt_name_there(tt_arena *a, const tt_tensor_name *names, size_t n, size_t stride,
                          const char *name, const tt_tensor_name **row);
/* Returns how many rows a head of a parameter has. Fails if its rows are not cut into heads, or
 * their number is odd. */
tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err);

#endif
