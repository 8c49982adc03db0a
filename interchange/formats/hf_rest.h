/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_HF_REST_H
#define TT_FORMATS_HF_REST_H
#include "checkpoint/match.h"

/* What a Hugging Face folder has besides the tensors of the model. */
typedef struct tt_hf_rest {
    tt_ckpt_reader *reader;
    const tt_map *used; /* the folder's names of the model's tensors */
    bool text_part;     /* the model is the text model of a larger one */
    /* the folder's name of the embedding, if the model's head is tied to it; else NULL */
    const char *embeds;
} tt_hf_rest;
/* Says what it is, by how->report; how->whole: what other programs do not leave out as well is an error. */
tt_status tt_hf_check_rest(const tt_hf_rest *x, const tt_ckpt_matching *how, tt_error *err);

#endif
