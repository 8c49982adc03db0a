/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_RENAME_H
#define TT_RENAME_H
#include "config/config.h"
#include "config/pattern.h"

/* Rules that rename tensors: "PATTERN=NAME". The part of a name that the pattern matches first becomes
 * NAME, in which $1 is what the pattern's first group matched. The first rule that matches a name is the
 * only one that is applied to it, so two names can be exchanged. */

typedef struct tt_rename {
    const char *text;
    tt_pattern *pattern;
    const char *to;
    bool used; /* it has renamed something */
} tt_rename;

typedef struct tt_renames {
    tt_rename *items;
    size_t n;
} tt_renames;

/* The rules live as long as the arena. They are one thread's. An error quotes the rule. */
tt_status tt_renames_make(tt_arena *a, const tt_strings *texts, tt_renames *out, tt_error *err);
/* *out: the new name, or `name` itself if no rule matches. */
tt_status tt_renames_apply(tt_renames *r, tt_arena *a, const char *name, const char **out,
                           tt_error *err);

#endif
