/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TRAIN_SPEC_H
#define TTRUN_TRAIN_SPEC_H
#include <ttrun/plugin.h>

/* A TrainSpec names the parts of a training job; each can be replaced by name in the job file. Data
 * only. */

#ifdef __cplusplus
extern "C" {
#endif

/* label → mesh axes (R3). policy: "error" | "pad" | "replicate" | "prefix". */
typedef struct tt_label_rule {
    const char *label;
    const char *axes; /* "dp_replicate,dp_shard,cp,tp" */
    const char *policy;
} tt_label_rule;

typedef struct tt_train_spec_vt {
    size_t struct_size;
    const char *model, *tokenizer, *dataloader, *loss, *optimizer, *lr_scheduler;
    const char *metrics;        /* list with commas; NULL: jsonl,tensorboard */
    const tt_label_rule *rules; /* NULL = the core's table */
    size_t n_rules;
} tt_train_spec_vt;

#ifdef __cplusplus
}
#endif
#endif
