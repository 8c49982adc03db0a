/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TRAIN_SPEC_H
#define TTRUN_TRAIN_SPEC_H
#include <ttrun/plugin.h>

/* A train spec names the components of a training job; the job file can replace each by name. It is
 * only data. */

#ifdef __cplusplus
extern "C" {
#endif

/* Which mesh axes cut the dims with a label (R3), and what happens if the dim's units do not divide
 * evenly over these ranks. */
typedef struct tt_label_rule {
    const char *label;
    const char *axes;   /* "dp_replicate,dp_shard,cp,tp" */
    const char *policy; /* "error" | "pad" | "replicate" | "prefix": cut by the axes' first atoms */
} tt_label_rule;

typedef struct tt_train_spec_vt {
    size_t struct_size;
    const char *model, *tokenizer, *dataloader, *loss, *optimizer, *lr_scheduler;
    const char *metrics;        /* comma-separated; NULL = "jsonl,tensorboard" */
    const tt_label_rule *rules; /* (optional) NULL = the core's table */
    size_t n_rules;
} tt_train_spec_vt;

#ifdef __cplusplus
}
#endif
#endif
