/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"

/* In the order of tt_dtype. */
static const struct {
    const char *name;
    size_t size;
    bool is_float;
    tt_dtype accumulate;
} dtypes[] = {
    {"f32",    4, true,  TT_F32 },
    {"bf16",   2, true,  TT_F32 },
    {"f16",    2, true,  TT_F32 },
    {"f64",    8, true,  TT_F64 },
    {"i32",    4, false, TT_I32 },
    {"i64",    8, false, TT_I64 },
    {"u8",     1, false, TT_U8  },
    {"bool",   1, false, TT_BOOL},
    {"f8e4m3", 1, true,  TT_F32 },
    {"f8e5m2", 1, true,  TT_F32 },
};
_Static_assert(sizeof dtypes / sizeof dtypes[0] == TT_N_DTYPES, "a row for each tt_dtype");

/* A plugin of a newer minor version may use a dtype that this core does not know. */
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

int tt_dtype_is_float(tt_dtype t)
{
    return known(t) && dtypes[t].is_float;
}

tt_dtype tt_dtype_accumulate(tt_dtype t)
{
    return known(t) ? dtypes[t].accumulate : t;
}
