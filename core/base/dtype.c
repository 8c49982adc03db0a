/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"

/* In the order of tt_dtype. */
static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    {"f32",  4},
    {"bf16", 2},
    {"f16",  2},
    {"f64",  8},
    {"i32",  4},
    {"i64",  8},
    {"u8",   1},
    {"bool", 1},
};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == TT_N_DTYPES, "a row for each tt_dtype");

/* A plugin of a newer minor may bring a dtype this core does not know. */
static bool known(tt_dtype t)
{
    return (int)t >= 0 && (int)t < TT_N_DTYPES;
}

size_t tt_dtype_size(tt_dtype t)
{
    return known(t) ? dtypes[t].size : 0;
}

const char *tt_dtype_name(tt_dtype t)
{
    return known(t) ? dtypes[t].name : "?";
}
