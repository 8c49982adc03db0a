/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_NEW_H
#define TT_PLUGIN_NEW_H
#include "base/base.h"
#include <ttrun/plugin.h>

/* A template: the plugin's source, and how a job file uses it. */
typedef struct tt_template {
    tt_kind kind;
    const char *source, *use;
} tt_template;

/* NULL = there is no template for this kind. */
const tt_template *tt_plugin_template(tt_kind kind);
const char *tt_plugin_template_makefile(void);
const char *tt_plugin_template_readme(void);

/* ttrun plugins new KIND NAME: writes the folder ./NAME with NAME.c, Makefile and README.md. */
tt_status tt_plugin_new(const char *kind, const char *name, tt_error *err);

#endif
