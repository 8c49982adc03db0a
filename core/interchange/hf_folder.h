/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_FOLDER_H
#define TT_HF_FOLDER_H
#include "plugin/registry.h"

/* Reads from a Hugging Face folder what a program without a job needs besides the weights. */

bool tt_hf_is_folder(const char *folder); /* whether it has a config.json */
/* The job that opens the folder (model.hf). Load it under the name tt_hf_job_name(), so that relative
 * paths start in the folder. */
#define TT_HF_JOB "{\"model\": {\"hf\": \".\"}}"
const char *tt_hf_job_name(tt_arena *a, const char *folder);

typedef struct tt_hf_text { /* how texts begin and end for this model */
    int32_t *stop_ids;      /* eos_token_id of generation_config.json, else config.json */
    size_t n_stop_ids;
    bool adds_bos; /* the tokenizer puts bos before a text */
} tt_hf_text;
tt_status tt_hf_text_of(const char *folder, tt_arena *a, tt_hf_text *out, tt_error *err);

#endif
