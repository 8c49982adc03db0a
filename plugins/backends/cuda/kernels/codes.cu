/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect.h"

/* Weights that are stored as codes (ttrun/codes.h): the numbers that they stand for. */

struct codes_levels {
    float level[16];
};

TT_DEV void codes_store(float *y, i64 i, float v)
{
    y[i] = v;
}
TT_DEV void codes_store(bf16 *y, i64 i, float v)
{
    y[i] = tt_bf16(v);
}

/* n bytes of two codes each, the first in the high half; 32 bytes share a scale */
template <class T>
TT_DEV void decode_nf4(const u8 *codes, const float *absmax, T *y, i64 n, const codes_levels &nf4)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n)
        return;
    const float scale = absmax[i / 32];
    codes_store(y, 2 * i, nf4.level[codes[i] >> 4] * scale);
    codes_store(y, 2 * i + 1, nf4.level[codes[i] & 15] * scale);
}

/* n codes in two's complement; rows of `width` share a scale */
template <class T>
TT_DEV void decode_int8(const u8 *codes, const float *absmax, T *y, i64 n, i64 width, float step)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        codes_store(y, i, (float)((int)(codes[i] ^ 0x80u) - 0x80) * absmax[i / width] * step);
}

TT_KERNEL(256, decode_nf4_f32, const u8 *codes, const float *absmax, float *y, i64 n,
          codes_levels nf4)
{
    decode_nf4(codes, absmax, y, n, nf4);
}
TT_KERNEL(256, decode_nf4_bf16, const u8 *codes, const float *absmax, bf16 *y, i64 n,
          codes_levels nf4)
{
    decode_nf4(codes, absmax, y, n, nf4);
}
TT_KERNEL(256, decode_int8_f32, const u8 *codes, const float *absmax, float *y, i64 n, i64 width,
          float step)
{
    decode_int8(codes, absmax, y, n, width, step);
}
TT_KERNEL(256, decode_int8_bf16, const u8 *codes, const float *absmax, bf16 *y, i64 n, i64 width,
          float step)
{
    decode_int8(codes, absmax, y, n, width, step);
}
