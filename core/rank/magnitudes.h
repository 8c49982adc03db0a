/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RANK_MAGNITUDES_H
#define TT_RANK_MAGNITUDES_H
#include "rank/rank.h"

/* core/rank/magnitudes.c: DoRA's magnitudes, which start as the norms of the rows of their weights. */

typedef struct tt_magnitude { /* one of them, on this rank */
    const tt_rank *r;
    const struct tt_param_info *w; /* the weight */
    tt_tensor m;                   /* this rank's part */
    void *to;                      /* on the host, while it is filled; NULL: it is not */
} tt_magnitude;

typedef struct tt_magnitudes {
    tt_magnitude *items;
    size_t n;
} tt_magnitudes;

/* From the weights' initial values. */
tt_status tt_rank_init_magnitudes(const tt_rank *r, tt_error *err);
/* Replaces the pieces of magnitudes that the folder does not have (reader NULL: of all) by one of the
 * weight's rows, whose norms are taken while they are loaded. After the load, also one that failed: measured,
 * which returns `loaded` or its own error. */
tt_status tt_rank_measure(const tt_rank *r, tt_arena *a, const tt_ckpt_reader *reader,
                          tt_ckpt_piece **pieces, size_t *n, tt_magnitudes *out, tt_error *err);
/* Of magnitudes that a program of other converters adds to those of `old`: from the weights as they are now. Ranks
 * have parts of rows: they add up their sums of squares. [collective] */
tt_status tt_rank_add_magnitudes(const tt_rank *next, const tt_rank *old, tt_error *err);
tt_status tt_rank_measured(const tt_magnitudes *c, tt_status loaded, tt_error *err);

#endif
