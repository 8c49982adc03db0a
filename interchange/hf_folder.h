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

typedef struct tt_hf_stops { /* the ids that end a text of this model: eos_token_id */
    int32_t *ids;            /* of generation_config.json, else config.json */
    size_t n;
} tt_hf_stops;
tt_status tt_hf_stops_of(const char *folder, tt_arena *a, tt_hf_stops *out, tt_error *err);

#endif
