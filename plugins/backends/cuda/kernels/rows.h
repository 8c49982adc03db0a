/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels over rows share: units of V elements that a thread has, operands whose dtype is known
 * at run time, and a group of 32 threads or a block that works on one row.
 * W, wide: a unit is one access of 16 bytes, else V accesses. A thread has the same elements either
 * way, so that sums do not depend on addresses. */
#pragma once
#include "dialect.h"

/* Before a loop: at most n of its rounds side by side, where more would not fit into registers. */
#ifdef __CUDACC__
#define TT_PRAGMA(text) _Pragma(#text)
#define TT_UNROLL(n) TT_PRAGMA(unroll n)
#else
#define TT_UNROLL(n)
#endif

/* For TT_KERNEL: 256 threads, with registers for 3 blocks on a multiprocessor. Else ptxas would rather spill a
 * few than lose one more block. */
#ifdef __CUDACC__
#define TT_ROOMY 256, 3
#else
#define TT_ROOMY 256
#endif

#define TT_INFINITY tt_bits_float(0x7f800000u)

struct alignas(16) tt_wide {
    u32 w[4];
};
struct alignas(8) tt_pair {
    u32 w[2];
};
/* Elements of 16 bytes. */
template <class T> struct tt_unit {
    enum { n = 16 / sizeof(T) };
};

TT_DEV void tt_unpack(float *v, u32 two)
{
    v[0] = tt_bits_float(two << 16);
    v[1] = tt_bits_float(two & 0xffff0000u);
}

/* Reads V elements: 1, at any address, or 4 or 8, aligned to their bytes, at most 16. */
template <int V> TT_DEV void tt_load_unit(float *v, const float *p)
{
    if constexpr (V == 1) {
        v[0] = *p;
    } else {
        for (int k = 0; k < V; k += 4) {
            const tt_wide w = *(const tt_wide *)(p + k);
            for (int j = 0; j < 4; j++)
                v[k + j] = tt_bits_float(w.w[j]);
        }
    }
}
template <int V> TT_DEV void tt_load_unit(float *v, const bf16 *p)
{
    if constexpr (V == 1) {
        v[0] = tt_f32(*p);
    } else if constexpr (V == 4) {
        const tt_pair w = *(const tt_pair *)p;
        for (int j = 0; j < 2; j++)
            tt_unpack(v + 2 * j, w.w[j]);
    } else {
        const tt_wide w = *(const tt_wide *)p;
        for (int j = 0; j < 4; j++)
            tt_unpack(v + 2 * j, w.w[j]);
    }
}
template <int V> TT_DEV void tt_store_unit(float *p, const float *v)
{
    if constexpr (V == 1) {
        *p = v[0];
    } else {
        for (int k = 0; k < V; k += 4) {
            tt_wide w;
            for (int j = 0; j < 4; j++)
                w.w[j] = tt_float_bits(v[k + j]);
            *(tt_wide *)(p + k) = w;
        }
    }
}
template <int V> TT_DEV void tt_store_unit(bf16 *p, const float *v)
{
    if constexpr (V == 1) {
        *p = tt_bf16(v[0]);
    } else {
        tt_wide w;
        for (int j = 0; j < 4; j++)
            w.w[j] = tt_bf16x2(v[2 * j], v[2 * j + 1]);
        *(tt_wide *)p = w;
    }
}

/* An operand that is bf16 if half, else f32. */
TT_DEV float tt_load_any(const void *p, i64 i, int half)
{
    return half ? tt_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}
TT_DEV void tt_store_any(void *p, i64 i, int half, float v)
{
    if (half)
        ((bf16 *)p)[i] = tt_bf16(v);
    else
        ((float *)p)[i] = v;
}
/* ---- a row per group of G threads: G is 32 or the block's ---- */
template <int G> TT_DEV float tt_group_sum(float v, float *room)
{
    return G == 32 ? tt_warp_sum(v) : tt_block_sum(v, room);
}
template <int G> TT_DEV float tt_group_max(float v, float *room)
{
    return G == 32 ? tt_warp_max(v) : tt_block_max(v, room);
}

/* The row of this thread's group, or a negative number: there is none. */
template <int G> TT_DEV i64 tt_group_row(i64 rows)
{
    const i64 row = (i64)blockIdx.x * (blockDim.x / G) + threadIdx.x / G;
    return row < rows ? row : -1;
}

/* Shared memory: 32 floats of room for sums of a block, then this group's cache of n elements of
 * each of `count` rows. */
TT_DEV float *tt_room(void)
{
    return (float *)(void *)tt_shared;
}
template <class T, int G> TT_DEV T *tt_row_cache(int n, int count)
{
    return (T *)(void *)(tt_shared + 128) + (int)(threadIdx.x / G) * count * n;
}

/* The elements of the unit at i of a row of n: only a unit that is not wide may be cut short. */
template <int V, bool W> TT_DEV int tt_left(int i, int n)
{
    return W || n - i > V ? V : n - i;
}
template <int V, bool W, class T> TT_DEV void tt_load_part(float *v, const T *p, int left)
{
    if constexpr (W)
        tt_load_unit<V>(v, p);
    else
        for (int k = 0; k < V; k++)
            v[k] = k < left ? tt_load(p + k) : 0.0f;
}
template <int V, bool W, class T> TT_DEV void tt_store_part(T *p, const float *v, int left)
{
    if constexpr (W)
        tt_store_unit<V>(p, v);
    else
        for (int k = 0; k < V; k++)
            if (k < left)
                tt_store(p + k, v[k]);
}
template <int V, bool W>
TT_DEV void tt_load_part_any(float *v, const void *p, i64 i, int half, int left)
{
    if (half)
        tt_load_part<V, W>(v, (const bf16 *)p + i, left);
    else
        tt_load_part<V, W>(v, (const float *)p + i, left);
}

/* A row that is read several times: each thread reads its own units, the first time from memory, and
 * then from the cache if there is one. */
template <class T, int V, bool W> struct tt_row {
    const T *x;
    T *cache; /* or NULL */
    TT_DEV void first(float *v, int at, int left)
    {
        tt_load_part<V, W>(v, x + at, left);
        if (cache)
            tt_store_part<V, W>(cache + at, v, left);
    }
    TT_DEV void again(float *v, int at, int left)
    {
        if (cache)
            tt_load_part<V, W>(v, cache + at, left);
        else
            tt_load_part<V, W>(v, x + at, left);
    }
};
