/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECKPOINT_MATCH_H
#define TT_CHECKPOINT_MATCH_H
#include "checkpoint/checkpoint.h"
#include "config/rename.h"

/* How the tensors of a folder match those of a model that starts from it (checkpoint.initial_load_rename,
 * checkpoint.initial_load_strict). */

typedef struct tt_ckpt_matching {
    const tt_strings *rename; /* rules, tt_renames; NULL: none */
    bool partial; /* what does not match keeps its initial values; else it is an error */
    bool report;  /* log what does not match */
    bool whole;   /* tensors that the model has not are an error; else they are named in the log */
    size_t *n_left; /* of report or whole: how many those are; may be NULL */
} tt_ckpt_matching;

/* Gives the tensors of a folder their new names. A rule that matches none is an error, and so are two tensors
 * of one name. */
tt_status tt_ckpt_rename(tt_ckpt_reader *r, const tt_strings *rules, tt_error *err);
/* Compares names and shapes of the wanted tensors with the folder's. *out: by name, those that the folder
 * lacks or has in another shape, all named in the log; not partial: they are an error, and *out is the first. */
tt_status tt_ckpt_match(const tt_ckpt_reader *r, const tt_ckpt_tensor *wanted, size_t n,
                        const tt_ckpt_matching *how, tt_arena *a, tt_map **out, tt_error *err);
/* Names in one text, all of them: "layers.{0-3}.weight, norm.weight". */
const char *tt_names_fold(tt_arena *a, const char *const *names, size_t n);

#endif
