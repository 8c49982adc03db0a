/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/train_spec.h>

/* spec.so: a spec of data that is tokens already: no tokenizer, and no metrics of its own. Built by
 * test_lists.sh against the public headers alone. */

static const tt_train_spec_vt vt = {
    .struct_size = sizeof(tt_train_spec_vt),
    .model = "llama3",
    .dataloader = "bin",
    .loss = "cross_entropy",
    .optimizer = "adamw",
    .lr_scheduler = "constant",
};
static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_TRAIN_SPEC, "tokens_only", "no tokenizer", &vt),
};
TT_PLUGIN("spec", "1.0", components);
