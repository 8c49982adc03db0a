/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_FOLDER_H
#define TT_HF_FOLDER_H
#include "plugin/registry.h"

/* What a Hugging Face folder says besides its weights, for who opens one without a job. */

bool tt_hf_is_folder(const char *folder); /* has a config.json */
/* The job that opens it: model by config.json's model_type, a spec that has this model, the
 * tokenizer where there is one. Name it tt_hf_job_name, so that relative paths start there. */
tt_status tt_hf_job(tt_registry *r, tt_arena *a, const char *folder, const char **json,
                    tt_error *err);
const char *tt_hf_job_name(tt_arena *a, const char *folder);

typedef struct tt_hf_text { /* how its texts begin and end */
    int32_t *stop_ids;      /* eos_token_id of generation_config.json, else config.json */
    size_t n_stop_ids;
    bool adds_bos; /* its tokenizer puts bos before a text */
} tt_hf_text;
tt_status tt_hf_text_of(const char *folder, tt_arena *a, tt_hf_text *out, tt_error *err);

#endif
