/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: the parts of a training job, each replaceable by name in the job file. */
#include <ttrun/train_spec.h>

static const tt_train_spec_vt vt = {
    sizeof(vt),          "llama3", "byte", "text", "cross_entropy", "adamw", "wsd",
    "jsonl,tensorboard", NULL,     0, /* sharding by the core's label table */
};
static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_TRAIN_SPEC, "@NAME@", "pre-training on text", &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
