/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/train_spec.h>

/* qwen2: the parts of a Qwen 2 pre-training job. Each can be replaced in the job file. */

static const tt_train_spec_vt vt = {
    .struct_size = sizeof vt,
    .model = "qwen2",
    .tokenizer = "byte",
    .dataloader = "text",
    .loss = "cross_entropy",
    .optimizer = "adamw",
    .lr_scheduler = "wsd",
    .metrics = "jsonl,tensorboard",
};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_TRAIN_SPEC, "qwen2", "Qwen 2 pre-training on text", &vt),
};

TT_PLUGIN("qwen2_spec", "1.0", components);
