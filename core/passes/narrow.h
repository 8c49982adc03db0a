/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_NARROW_H
#define TT_NARROW_H
#include "graph/graph.h"

/* ---- narrow: gathers carry what their readers round the value to, if tt_quantize() was asked to; after
 * convert, before recompute ---- */
typedef struct tt_narrow_opts {
    bool fetches; /* parameters of blocks are gathered again for the backward */
} tt_narrow_opts;
tt_status tt_pass_narrow(tt_builder *b, const tt_narrow_opts *o, tt_error *err);

/* ---- merge_max: the maxima over ranks that narrow has made are reduced by one collective per stage;
 * several: micro-batches, so that this is done once per step ---- */
tt_status tt_pass_merge_max(tt_builder *b, bool several, tt_error *err);

#endif
