/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <string.h>
#include <ttrun/narrow.h>

/* Order: the reference's enum. https://github.com/huggingface/safetensors,
 * safetensors/src/tensor.rs */
static const tt_st_dtype dtypes[] = {
    {"BOOL",        8,  TT_BOOL    },
    {"F4",          4,  TT_N_DTYPES},
    {"F6_E2M3",     6,  TT_N_DTYPES},
    {"F6_E3M2",     6,  TT_N_DTYPES},
    {"U8",          8,  TT_U8      },
    {"I8",          8,  TT_N_DTYPES},
    {"F8_E5M2",     8,  TT_F8E5M2  },
    {"F8_E4M3",     8,  TT_F8E4M3  },
    {"F8_E8M0",     8,  TT_N_DTYPES},
    {"F8_E4M3FNUZ", 8,  TT_N_DTYPES},
    {"F8_E5M2FNUZ", 8,  TT_N_DTYPES},
    {"I16",         16, TT_N_DTYPES},
    {"U16",         16, TT_N_DTYPES},
    {"F16",         16, TT_F16     },
    {"BF16",        16, TT_BF16    },
    {"I32",         32, TT_I32     },
    {"U32",         32, TT_N_DTYPES},
    {"F32",         32, TT_F32     },
    {"C64",         64, TT_N_DTYPES},
    {"F64",         64, TT_F64     },
    {"I64",         64, TT_I64     },
    {"U64",         64, TT_N_DTYPES},
};

const tt_st_dtype *tt_st_dtype_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const tt_st_dtype *tt_st_dtype_of(tt_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && dtype != TT_N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return &dtypes[i];
    return NULL;
}

bool tt_st_bytes(const tt_st_dtype *t, const int64_t *shape, int n_dims, size_t *bytes)
{
    int64_t bits = t->bits, numel = 1;
    for (int d = 0; d < n_dims; d++)
        if (shape[d] < 0 || !tt_mul_i64(numel, shape[d], &numel))
            return false;
    if (!tt_mul_i64(numel, bits, &bits) || bits % 8 != 0)
        return false;
    *bytes = (size_t)(bits / 8);
    return true;
}

bool tt_can_convert(tt_dtype to, tt_dtype from)
{
    return to < TT_N_DTYPES && from < TT_N_DTYPES &&
           (to == from || (tt_dtype_is_float(to) && tt_dtype_is_float(from)));
}

#define CHUNK 512

static void load_f32(float *to, const uint8_t *from, tt_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        if (dtype == TT_F32) {
            memcpy(&to[i], from + 4 * i, 4);
        } else if (dtype == TT_F64) {
            double d;
            memcpy(&d, from + 8 * i, 8);
            to[i] = (float)d;
        } else if (tt_dtype_size(dtype) == 1) {
            to[i] = tt_from_float8(from[i], dtype == TT_F8E5M2);
        } else {
            memcpy(&h, from + 2 * i, 2);
            to[i] = dtype == TT_BF16 ? tt_from_bf16(h) : tt_from_f16(h);
        }
    }
}

static void store_f32(uint8_t *to, tt_dtype dtype, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == TT_F32) {
            memcpy(to + 4 * i, &from[i], 4);
        } else if (dtype == TT_F64) {
            double d = (double)from[i];
            memcpy(to + 8 * i, &d, 8);
        } else if (tt_dtype_size(dtype) == 1) {
            to[i] = tt_to_float8(from[i], dtype == TT_F8E5M2);
        } else {
            uint16_t h = dtype == TT_BF16 ? tt_to_bf16(from[i]) : tt_to_f16(from[i]);
            memcpy(to + 2 * i, &h, 2);
        }
    }
}

void tt_convert(void *to, tt_dtype to_dtype, const void *from, tt_dtype from_dtype, size_t n)
{
    size_t to_size = tt_dtype_size(to_dtype), from_size = tt_dtype_size(from_dtype);
    TT_ASSERT(tt_can_convert(to_dtype, from_dtype));
    if (to_dtype == from_dtype) {
        if (n)
            memcpy(to, from, n * to_size);
        return;
    }
    /* every pair goes through f32: only f64 has more, and the other side of it does not */
    for (size_t i = 0; i < n; i += CHUNK) {
        float part[CHUNK];
        size_t k = TT_MIN(n - i, (size_t)CHUNK);
        load_f32(part, (const uint8_t *)from + i * from_size, from_dtype, k);
        store_f32((uint8_t *)to + i * to_size, to_dtype, part, k);
    }
}
