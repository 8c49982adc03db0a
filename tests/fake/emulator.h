/* SPDX-License-Identifier: Apache-2.0 */
/* The names of dialect.h for a C++ compiler, so that the same kernels run on the host: emulator.cpp, in the fake
 * libcuda.so.1, runs a block with a fiber per thread. Kernels are compiled to a shared object, an image, which defines
 * emu_image. What the hardware would leave to luck is told here: barriers that not all threads reach, accesses outside of
 * shared memory, wrong alignment; and nothing that is undefined holds the right value: shared memory is NaN at the start
 * of a block, and so is the target of a tt_copy16 until the tt_copy_wait that awaits it. */
#pragma once
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS /* C's own math.h: that of C++ is a third of a small kernel's compilation */
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <string.h>
#include <type_traits>
#include <utility>

#ifndef EMU_TYPES /* emulator.cpp has no dialect.h */
#define EMU_TYPES
struct emu_dim3 {
    unsigned x, y, z;
};
enum emu_kind { EMU_SYNC_WARP = 1, EMU_SHUFFLE, EMU_BALLOT, EMU_LDMATRIX, EMU_MMA };
/* What a lane brings to a warp function and gets from it. */
struct emu_lane {
    unsigned long long value; /* shuffle: of this lane, then the result; ballot: likewise */
    int from;                 /* shuffle: the lane to read */
    bool transposed;
    const void *row; /* ldmatrix */
    unsigned *r;     /* ldmatrix: four words */
    float *d;        /* mma: d[4], a[4], b[2] */
    const unsigned *a, *b;
};
/* The running block and thread, and what the emulator does for it. line: of the call, for messages and because all
 * threads must wait at the same one. */
struct emu_block {
    emu_dim3 thread, block, threads, grid;
    unsigned char *shared;
    void (*sync)(int line);
    void (*warp)(emu_kind kind, int line, emu_lane *lane);
    void (*copy16)(void *shared, const void *global, int line);
    void (*copy_commit)();
    void (*copy_wait)(int groups);
    void (*fault)(const char *why, int line);
};
struct emu_argument {
    unsigned bytes;
    bool is_pointer;
};
struct emu_kernel {
    const char *name;
    int threads; /* of a block at most */
    unsigned n_arguments;
    const emu_argument *arguments;
    void (*call)(void (*function)(), void **arguments);
    void (*function)();
    const emu_kernel *next;
};
#define EMU_VERSION 1
struct emu_image_table {
    unsigned version;
    const emu_kernel *const *kernels; /* the first of a list */
    emu_block **now;                  /* set before a launch */
};
#endif

#ifndef EMU_CORE
static emu_block *emu_now;
static const emu_kernel *emu_kernels;
extern "C" __attribute__((visibility("default"))) const emu_image_table emu_image;
const emu_image_table emu_image = {EMU_VERSION, &emu_kernels, &emu_now};

template <class... A, size_t... I>
static void emu_call_with(void (*f)(A...), void **arguments, std::index_sequence<I...>)
{
    (void)arguments;
    f(*static_cast<std::remove_const_t<A> *>(arguments[I])...);
}
template <class... A> static void emu_call(void (*f)(), void **arguments)
{
    emu_call_with(reinterpret_cast<void (*)(A...)>(f), arguments, std::index_sequence_for<A...>());
}
/* A static object per kernel: puts it on the image's list when the image is loaded. */
struct emu_register {
    emu_kernel kernel;
    template <class... A> emu_register(const char *name, int threads, void (*f)(A...))
    {
        static const emu_argument arguments[] = {
            {sizeof(A), std::is_pointer<A>::value}
            ..., {0,         false                    }
        };
        kernel = {name,       threads,        sizeof...(A),
                  arguments,  emu_call<A...>, reinterpret_cast<void (*)()>(f),
                  emu_kernels};
        emu_kernels = &kernel;
    }
};

#define TT_DEV inline /* also of member functions */
#define EMU_KERNEL(threads, name, ...)                                                             \
    extern "C" void name(__VA_ARGS__);                                                             \
    static emu_register emu_register_##name(#name, threads, name);                                 \
    extern "C" void name(__VA_ARGS__)
#define TT_KERNEL(threads, name, ...) EMU_KERNEL(threads, name, __VA_ARGS__)
#define threadIdx (emu_now->thread)
#define blockIdx (emu_now->block)
#define blockDim (emu_now->threads)
#define gridDim (emu_now->grid)
#define tt_shared (emu_now->shared)
#define EMU_LINE int line = __builtin_LINE()

TT_DEV u32 tt_float_bits(float x)
{
    u32 r;
    memcpy(&r, &x, 4);
    return r;
}
TT_DEV float tt_bits_float(u32 x)
{
    float r;
    memcpy(&r, &x, 4);
    return r;
}
TT_DEV float tt_f32(bf16 x)
{
    return tt_bits_float((u32)x.bits << 16);
}
TT_DEV bf16 tt_bf16(float x)
{
    const u32 u = tt_float_bits(x);
    bf16 r = {0x7fff}; /* the device's NaN */
    if ((u & 0x7fffffffu) <= 0x7f800000u)
        r.bits = (u16)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    return r;
}
TT_DEV u32 tt_bf16x2(float lo, float hi)
{
    return tt_bf16(lo).bits | (u32)tt_bf16(hi).bits << 16;
}
TT_DEV void tt_sync(EMU_LINE)
{
    emu_now->sync(line);
}
TT_DEV void tt_sync_warp(EMU_LINE)
{
    emu_lane lane = {};
    emu_now->warp(EMU_SYNC_WARP, line, &lane);
}
template <class T> static inline T emu_shuffle(T v, int from, int line)
{
    emu_lane lane = {};
    memcpy(&lane.value, &v, sizeof v);
    lane.from = from;
    emu_now->warp(EMU_SHUFFLE, line, &lane);
    memcpy(&v, &lane.value, sizeof v);
    return v;
}
TT_DEV int emu_lane_number()
{
    const emu_block *b = emu_now;
    return (int)((b->thread.x + b->threads.x * (b->thread.y + b->threads.y * b->thread.z)) % 32);
}
#define EMU_SHUFFLE_XOR(T)                                                                         \
    TT_DEV T tt_shuffle_xor(T v, int lanes, EMU_LINE)                                              \
    {                                                                                              \
        return emu_shuffle(v, (emu_lane_number() ^ lanes) & 31, line);                             \
    }
EMU_SHUFFLE_XOR(float)
EMU_SHUFFLE_XOR(int)
EMU_SHUFFLE_XOR(i64)
EMU_SHUFFLE_XOR(double)
#define EMU_SHUFFLE_FROM(T)                                                                        \
    TT_DEV T tt_shuffle(T v, int lane, EMU_LINE)                                                   \
    {                                                                                              \
        return emu_shuffle(v, lane & 31, line);                                                    \
    }
EMU_SHUFFLE_FROM(float)
EMU_SHUFFLE_FROM(int)
EMU_SHUFFLE_FROM(i64)
EMU_SHUFFLE_FROM(double)
TT_DEV float rsqrtf(float x) /* not of C */
{
    return 1.0f / sqrtf(x);
}
TT_DEV double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
TT_DEV u32 tt_ballot(int v, EMU_LINE)
{
    emu_lane lane = {};
    lane.value = v != 0;
    emu_now->warp(EMU_BALLOT, line, &lane);
    return (u32)lane.value;
}
/* One thread runs at a time, so a plain addition is atomic. */
TT_DEV int tt_atomic_add(int *p, int v)
{
    const int was = *p;
    *p = (int)((u32)was + (u32)v);
    return was;
}
TT_DEV int tt_atomic_max(int *p, int v)
{
    const int before = *p;
    *p = before > v ? before : v;
    return before;
}
TT_DEV i64 tt_atomic_min(i64 *p, i64 v)
{
    const i64 was = *p;
    if (v < was)
        *p = v;
    return was;
}
TT_DEV void tt_copy16(void *shared, const void *global, EMU_LINE)
{
    emu_now->copy16(shared, global, line);
}
TT_DEV void tt_copy_commit(void)
{
    emu_now->copy_commit();
}
template <int N> TT_DEV void tt_copy_wait(void)
{
    emu_now->copy_wait(N);
}
TT_DEV void emu_ldmatrix(u32 *r, const void *row, bool transposed, int line)
{
    emu_lane lane = {};
    lane.r = r;
    lane.row = row;
    lane.transposed = transposed;
    emu_now->warp(EMU_LDMATRIX, line, &lane);
}
TT_DEV void tt_ldmatrix4(u32 *r, const void *row, EMU_LINE)
{
    emu_ldmatrix(r, row, false, line);
}
TT_DEV void tt_ldmatrix4_transposed(u32 *r, const void *row, EMU_LINE)
{
    emu_ldmatrix(r, row, true, line);
}
TT_DEV void tt_mma_bf16(float *d, const u32 *a, const u32 *b, EMU_LINE)
{
    emu_lane lane = {};
    lane.d = d;
    lane.a = a;
    lane.b = b;
    emu_now->warp(EMU_MMA, line, &lane);
}
#endif
