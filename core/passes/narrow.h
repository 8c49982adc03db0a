/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_NARROW_H
#define TT_NARROW_H
#include "graph/graph.h"

/* ---- convert_tidy: after convert. first: the first id of a node that converters have built ---- */
tt_status tt_pass_convert_tidy(tt_builder *b, int first, tt_error *err);

/* ---- narrow: gathers carry what their readers round the value to, if tt_quantize() was asked to; after
 * convert, before recompute ---- */
typedef struct tt_narrow_opts {
    bool fetches; /* parameters of blocks are gathered again for the backward */
} tt_narrow_opts;
tt_status tt_pass_narrow(tt_builder *b, const tt_narrow_opts *o, tt_error *err);

/* ---- merge_max: maxima over ranks are reduced by one collective per stage. In the forward, after narrow:
 * those of parameters; once: a step has several micro-batches, and only the first does it. In the
 * epilogue, after buffers: those that were accumulated. ---- */
#define TT_SCOPE_MAXIMA "maxima" /* the scope of what the pass builds */
tt_status tt_pass_merge_max(tt_builder *b, tt_region region, bool once, tt_error *err);

#endif
