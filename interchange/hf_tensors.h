/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_TENSORS_H
#define TT_HF_TENSORS_H
#include "setup/setup.h"

/* Whether a key of config.json counts (tt_model_hf_if); the other logs a line if one does not. */
bool tt_setup_hf_counts(tt_arena *a, const tt_component *c, const char *config_path,
                        const tt_json *root, const char *key);
void tt_setup_hf_say_counts(tt_arena *a, const tt_component *c, const char *config_path,
                            const tt_json *root);

#endif
