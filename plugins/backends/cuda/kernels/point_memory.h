/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of any dtype in memory, to and from the registers of point.h, and indices. */
#pragma once
#include "point.h"

/* ---- memory, element by element ---- */
TT_DEV float point_read_f32(int dtype, const void *p, i64 i)
{
    switch (dtype) {
    case POINT_F32:
        return ((const float *)p)[i];
    case POINT_BF16:
        return tt_f32(((const bf16 *)p)[i]);
    case POINT_F16:
        return point_from_f16(((const u16 *)p)[i]);
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        return point_from_f8(dtype, ((const u8 *)p)[i]);
    default:
        return (float)((const u8 *)p)[i];
    }
}
TT_DEV double point_read_f64(int dtype, const void *p, i64 i)
{
    switch (dtype) {
    case POINT_F64:
        return ((const double *)p)[i];
    case POINT_I32:
        return (double)((const int *)p)[i];
    default:
        return (double)((const i64 *)p)[i];
    }
}
TT_DEV i64 point_to_i64(double v) /* of a register of i64: 2^63 is the largest number */
{
    return v >= 9223372036854775808.0 ? 0x7fffffffffffffffll : (i64)v;
}
TT_DEV void point_write(int dtype, void *p, i64 i, float v)
{
    switch (dtype) {
    case POINT_F32:
        ((float *)p)[i] = v;
        break;
    case POINT_BF16:
        ((bf16 *)p)[i] = tt_bf16(v);
        break;
    case POINT_F16:
        ((u16 *)p)[i] = point_to_f16((double)v);
        break;
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        ((u8 *)p)[i] = (u8)point_to_f8(dtype, (double)v);
        break;
    default:
        ((u8 *)p)[i] = (u8)v;
        break;
    }
}
TT_DEV void point_write(int dtype, void *p, i64 i, double v)
{
    switch (dtype) {
    case POINT_F64:
        ((double *)p)[i] = v;
        break;
    case POINT_I32:
        ((int *)p)[i] = (int)v;
        break;
    default:
        ((i64 *)p)[i] = point_to_i64(v);
        break;
    }
}

/* ---- memory, in words of 4 bytes: 2, or a multiple of 4 of them, aligned to 8 or 16 bytes ---- */
struct alignas(8) point_words2 {
    u32 x, y;
};
struct alignas(16) point_words4 {
    u32 x, y, z, w;
};
template <int N> TT_DEV void point_fetch(u32 *to, const void *p, i64 byte)
{
    const char *from = (const char *)p + byte;
    if (N == 2) {
        const point_words2 v = *(const point_words2 *)from;
        to[0] = v.x;
        to[1] = v.y;
    }
    for (int i = 0; i + 4 <= N; i += 4) {
        const point_words4 v = ((const point_words4 *)from)[i / 4];
        to[i] = v.x;
        to[i + 1] = v.y;
        to[i + 2] = v.z;
        to[i + 3] = v.w;
    }
}
template <int N> TT_DEV void point_put(const u32 *v, void *p, i64 byte)
{
    char *to = (char *)p + byte;
    if (N == 2)
        *(point_words2 *)to = {v[0], v[1]};
    for (int i = 0; i + 4 <= N; i += 4)
        ((point_words4 *)to)[i / 4] = {v[i], v[i + 1], v[i + 2], v[i + 3]};
}
/* Element k of them. */
TT_DEV float point_word_f32(int dtype, const u32 *w, int k)
{
    switch (dtype) {
    case POINT_F32:
        return tt_bits_float(w[k]);
    case POINT_BF16:
        return tt_bits_float(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
    case POINT_F16:
        return point_from_f16((u16)(w[k / 2] >> 16 * (k % 2)));
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        return point_from_f8(dtype, w[k / 4] >> 8 * (k % 4) & 255u);
    default:
        return (float)(w[k / 4] >> 8 * (k % 4) & 255u);
    }
}
TT_DEV double point_word_f64(int dtype, const u32 *w, int k)
{
    if (dtype == POINT_I32)
        return (double)(int)w[k];
    const u64 bits = (u64)w[2 * k + 1] << 32 | w[2 * k];
    return dtype == POINT_F64 ? point_number(bits) : (double)(i64)bits;
}
/* The words are zero before the first element is set. */
TT_DEV void point_set_word(int dtype, u32 *w, int k, float v)
{
    switch (dtype) {
    case POINT_F32:
        w[k] = tt_float_bits(v);
        break;
    case POINT_BF16:
        w[k / 2] |= (u32)tt_bf16(v).bits << 16 * (k % 2);
        break;
    case POINT_F16:
        w[k / 2] |= (u32)point_to_f16((double)v) << 16 * (k % 2);
        break;
    case POINT_F8E4M3:
    case POINT_F8E5M2:
        w[k / 4] |= point_to_f8(dtype, (double)v) << 8 * (k % 4);
        break;
    default:
        w[k / 4] |= (u32)v << 8 * (k % 4);
        break;
    }
}
TT_DEV void point_set_word(int dtype, u32 *w, int k, double v)
{
    if (dtype == POINT_I32) {
        w[k] = (u32)(int)v;
        return;
    }
    const u64 bits = dtype == POINT_F64 ? point_bits(v) : (u64)point_to_i64(v);
    w[2 * k] = (u32)bits;
    w[2 * k + 1] = (u32)(bits >> 32);
}

/* ---- indices ---- */
TT_DEV i64 point_first(void)
{
    return (i64)blockIdx.x * blockDim.x + threadIdx.x;
}
TT_DEV i64 point_all(void)
{
    return (i64)gridDim.x * blockDim.x;
}
#ifdef __CUDACC__
#define POINT_UNROLL _Pragma("unroll")
#define POINT_ROLLED _Pragma("unroll 1")
#else
#define POINT_UNROLL
#define POINT_ROLLED
#endif
