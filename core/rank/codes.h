/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RANK_CODES_H
#define TT_RANK_CODES_H
#include "rank/rank.h"

/* core/rank/codes.c: parameters that are stored as codes. */

typedef struct tt_coding { /* one of them, on this rank */
    const tt_rank *r;
    const struct tt_param_info *w;
    tt_tensor codes, absmax; /* this rank's boxes */
    void *to;                /* on the host, while they are filled; NULL: they are not */
    float *scales;
} tt_coding;

typedef struct tt_codings {
    tt_coding *items;
    size_t n;
} tt_codings;

tt_status tt_rank_init_codes(const tt_rank *r, tt_error *err);
/* The tensor in a checkpoint that has the codes: "<parameter>.nf4". */
const char *tt_codes_tensor(tt_arena *a, const struct tt_param_info *w);
/* Replaces the pieces of codes that the folder does not have (reader NULL: of all codes) by one of the
 * weight's floats, which are rounded while they are loaded. may_lack: pieces of weights of which the folder has
 * neither are left out. After the load, also one that failed: taken, which returns `loaded` or its own error. */
tt_status tt_rank_take_floats(const tt_rank *r, tt_arena *a, const tt_ckpt_reader *reader,
                              bool may_lack, tt_ckpt_piece **pieces, size_t *n, tt_codings *out,
                              tt_error *err);
tt_status tt_rank_taken(const tt_codings *c, tt_status loaded, tt_error *err);

#endif
