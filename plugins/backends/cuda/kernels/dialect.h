/* SPDX-License-Identifier: Apache-2.0 */
/* The language of the kernels: C with templates, threadIdx, blockIdx, blockDim, gridDim (.x, .y, .z), the math functions
 * of f32 and f64 (expf, log1pf, fmaf, …) and the names below; nothing else of CUDA and no NVIDIA header. nvcc and NVRTC
 * compile it for devices; a C++ compiler compiles it with tests/fake/emulator.h, where the names below mean the same.
 *
 * Rules: no atomic adds of floats; a sum is cut by shapes, never by the device; every kernel has the attribute of its
 * threads; shared memory is tt_shared, its size is the launch's; a thread does not leave before a barrier of its block;
 * warp functions are called by all 32 lanes. */
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

/* bf16 is a struct, so that no arithmetic happens by accident: tt_f32(x) reads it, tt_bf16(f) rounds to it. */
typedef struct bf16 {
    u16 bits;
} bf16;

#ifdef __CUDACC__
#define TT_DEV __device__ __forceinline__
/* A kernel of `threads` threads per block. */
#define TT_KERNEL(threads, name, ...)                                                              \
    extern "C" __global__ __launch_bounds__(threads) void name(__VA_ARGS__)
extern __shared__ __align__(1024) unsigned char tt_shared[];

TT_DEV u32 tt_float_bits(float x)
{
    return __float_as_uint(x);
}
TT_DEV float tt_bits_float(u32 x)
{
    return __uint_as_float(x);
}
TT_DEV float tt_f32(bf16 x)
{
    return __uint_as_float((u32)x.bits << 16);
}
/* To nearest, ties to even; NaN stays NaN. */
TT_DEV bf16 tt_bf16(float x)
{
    bf16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
    return r;
}
/* Two halves in one word, lo in the lower bits. */
TT_DEV u32 tt_bf16x2(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
TT_DEV void tt_sync(void) /* all threads of the block */
{
    __syncthreads();
}
TT_DEV void tt_sync_warp(void)
{
    __syncwarp();
}
TT_DEV float tt_shuffle_xor(float v, int lanes)
{
    return __shfl_xor_sync(0xffffffffu, v, lanes);
}
TT_DEV int tt_shuffle_xor(int v, int lanes)
{
    return __shfl_xor_sync(0xffffffffu, v, lanes);
}
TT_DEV i64 tt_shuffle_xor(i64 v, int lanes)
{
    return __shfl_xor_sync(0xffffffffu, v, lanes);
}
TT_DEV double tt_shuffle_xor(double v, int lanes)
{
    return __shfl_xor_sync(0xffffffffu, v, lanes);
}
TT_DEV float tt_shuffle(float v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
TT_DEV int tt_shuffle(int v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}
TT_DEV u32 tt_ballot(int v)
{
    return __ballot_sync(0xffffffffu, v);
}
TT_DEV int tt_atomic_add(int *p, int v) /* integers only: counts */
{
    return atomicAdd(p, v);
}
TT_DEV int tt_atomic_max(int *p, int v)
{
    return atomicMax(p, v);
}
TT_DEV i64 tt_atomic_min(i64 *p, i64 v)
{
    return atomicMin(p, v);
}
/* 16 bytes from global to shared memory, both aligned to 16, done when tt_copy_wait says so. */
TT_DEV void tt_copy16(void *shared, const void *global)
{
    const u32 to = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
TT_DEV void tt_copy_commit(void) /* closes a group of this thread's copies */
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most N of this thread's groups are pending. Others' copies: tt_sync after it. */
template <int N> TT_DEV void tt_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* Four 8×8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8 in shared memory, aligned to 16;
 * r[m] are elements 2(i%4), 2(i%4)+1 of row i/4 of matrix m; transposed: of column i/4. */
TT_DEV void tt_ldmatrix4(u32 *r, const void *row)
{
    const u32 a = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(a)
                 : "memory");
}
TT_DEV void tt_ldmatrix4_transposed(u32 *r, const void *row)
{
    const u32 a = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(a)
                 : "memory");
}
/* d[16,8] += a[16,16] b[8,16]ᵀ, bf16 with f32 sums. Lane i holds: a[0] (row i/4, columns 2(i%4), +1), a[1] row + 8,
 * a[2] column + 8, a[3] both; b[0] (row i/4, columns 2(i%4), +1), b[1] column + 8; d[0], d[1] (row i/4,
 * columns 2(i%4), +1), d[2], d[3] row + 8. */
TT_DEV void tt_mma_bf16(float *d, const u32 *a, const u32 *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
#include "emulator.h"
#endif

/* ---- the same everywhere ---- */
TT_DEV float tt_load(const float *p)
{
    return *p;
}
TT_DEV float tt_load(const bf16 *p)
{
    return tt_f32(*p);
}
TT_DEV void tt_store(float *p, float v)
{
    *p = v;
}
TT_DEV void tt_store(bf16 *p, float v)
{
    *p = tt_bf16(v);
}
TT_DEV float tt_max(float a, float b) /* NaN wins */
{
    return a > b || a != a ? a : b;
}
/* Over the 32 lanes, equal bits in every lane. */
TT_DEV float tt_warp_sum(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v += tt_shuffle_xor(v, o);
    return v;
}
TT_DEV double tt_warp_sum(double v)
{
    for (int o = 16; o > 0; o >>= 1)
        v += tt_shuffle_xor(v, o);
    return v;
}
TT_DEV float tt_warp_max(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v = tt_max(v, tt_shuffle_xor(v, o));
    return v;
}
/* Over the block, equal bits in every thread; room: 32 values of shared memory that nothing else uses; threads: a multiple
 * of 32, at most 1024. */
TT_DEV float tt_block_sum(float v, float *room)
{
    v = tt_warp_sum(v);
    tt_sync();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    tt_sync();
    v = threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0.0f;
    return tt_warp_sum(v);
}
TT_DEV float tt_block_max(float v, float *room)
{
    v = tt_warp_max(v);
    tt_sync();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    tt_sync();
    v = room[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0];
    return tt_warp_max(v);
}
