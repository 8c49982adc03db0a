/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_JOB_H
#define TT_HF_JOB_H
#include "setup/setup.h"

/* A Hugging Face folder as the job that it is made of. */

/* Sets the keys that follow from the folder model.hf; before the sections are parsed. */
tt_status tt_setup_take_hf(tt_setup *s, const tt_setup_opts *o, tt_error *err);
/* The spec whose model reads config.json's model_type; NULL: there is none. */
tt_status tt_setup_spec_of(tt_registry *r, tt_arena *a, const char *model_type, const char **spec,
                           tt_error *err);
/* The part of a config.json that is about text: of a multimodal model its text_config, else the whole. */
const tt_json *tt_hf_text_config(const tt_json *root);

#endif
