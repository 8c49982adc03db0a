/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_CONFIG_H
#define TT_HF_CONFIG_H
#include "setup/setup.h"

/* A config.json of Hugging Face as the arguments of a model. */

/* Returns the model's arguments from hf_assets_path/config.json, and the path of that file. */
tt_status tt_setup_hf_args(const tt_setup *s, const tt_component *c, const char **path,
                           const char **args, tt_error *err);
/* The model's config for the sizes in a config.json, whatever the job says. Owner: the setup's arena. */
tt_status tt_setup_hf_config(const tt_setup *s, const char *path, void **config, tt_error *err);
/* Adds the keys of a config.json that the model does not read, and that may say something of it. */
tt_status tt_setup_hf_unread(const tt_setup *s, const char *path, tt_str *out, tt_error *err);

#endif
