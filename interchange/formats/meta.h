/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_META_H
#define TT_FORMATS_META_H
#include "checkpoint/checkpoint.h"

/* A folder of Meta's: consolidated*.safetensors, in their order the parts of a tensor along one dim; shapes: name → the
 * whole tt_ckpt_tensor. */
tt_status tt_meta_open(const char *folder, const tt_map *shapes, tt_ckpt_reader **out,
                       tt_error *err);

#endif
