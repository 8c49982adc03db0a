/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONFIG_DIALECTS_H
#define TT_CONFIG_DIALECTS_H
#include "config/reserved.h"

/* Names of other trainers: the tables of share/dialects/NAME.json, which mk/dialects.awk makes at build time. */

typedef struct tt_dialect_value { /* another name of a key's value; taken with a notice */
    const char *key, *value, *here;
    const char *also;    /* another key that gets the value as it was written, unless it is set */
    const char *instead; /* the key that gets `here`; `key` itself is no key of ttrun */
    bool any_case;       /* the value in any mixture of cases, which torchtitan takes */
} tt_dialect_value;

typedef struct tt_dialect_optimizer { /* of a group in torchtitan's form (param_groups.c) */
    const char *name;
    const char *here; /* JSON: its name here and all its options, with PyTorch's defaults */
} tt_dialect_optimizer;

typedef struct tt_dialect_argument { /* of torch.optim; it changes nothing here */
    const char *name;
    const char *value; /* JSON, the only one that is taken; NULL: any */
} tt_dialect_argument;

typedef struct tt_dialects {
    const tt_reserved *keys; /* sorted by key */
    size_t n_keys;
    const tt_dialect_value *values;
    size_t n_values;
    const tt_dialect_optimizer *optimizers;
    size_t n_optimizers;
    const tt_dialect_argument *arguments;
    size_t n_arguments;
} tt_dialects;
extern const tt_dialects tt_dialects_known;

#endif
