/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_BACKEND_H
#define TTRUN_BACKEND_H
#include <ttrun/op.h>
#include <ttrun/ops.h>
#include <ttrun/plugin.h>

/* A backend: kernels by op name, and memory. The core plans every byte; a kernel never
 * allocates. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the core's thread pool, one a rank (R12) ---- */
typedef struct tt_pool tt_pool;
typedef void (*tt_range_fn)(void *arg, int64_t begin, int64_t end, int thread);
/* Run fn over [0,n) in pieces of `grain` (the last may be shorter), each exactly once, on any
 * thread of the pool, the caller included; returns when all are done. The cutting into pieces
 * depends on n and grain only, never on the number of threads. thread in [0, tt_pool_threads). Not
 * reentrant. [step] */
TT_EXPORT void tt_parallel_for(tt_pool *pool, int64_t n, int64_t grain, tt_range_fn fn, void *arg);
TT_EXPORT int tt_pool_threads(const tt_pool *pool);

/* One call of a kernel. Outputs never alias inputs unless the kernel's in_place says so. */
typedef struct tt_kernel_call {
    size_t struct_size;
    const char *op;
    const tt_tensor *in;
    int n_in;
    tt_tensor *out;
    int n_out;
    const void *attrs;
    tt_pool *pool;
    void *scratch; /* scratch_bytes() bytes, 64-byte aligned, from the plan */
    size_t scratch_bytes;
    int accumulate; /* 1: add to out[0], do not store; only kernels with can_accumulate see it */
    uint64_t seed;  /* training.seed, step: for tt_random */
    int64_t step;
} tt_kernel_call;

typedef tt_status (*tt_kernel_fn)(void *backend, const tt_kernel_call *c,
                                  tt_error *err); /* [step] */

typedef struct tt_kernel {
    size_t struct_size;
    const char *op;
    tt_kernel_fn run;
    /* Scratch bytes for these (maximal local) shapes with n_threads; NULL = none. data pointers are
     * NULL. (optional) */
    size_t (*scratch_bytes)(const tt_kernel_call *c, int n_threads);
    int can_accumulate; /* honours tt_kernel_call.accumulate on out[0] */
    /* Bit i: out[0] may be in[i]'s memory, if they have one dtype and as many elements and no other
     * operand lies there. The plan makes use of it where nobody reads in[i] any more. */
    int in_place;
    /* Does it take these dtypes? Shapes are the whole tensors', data pointers NULL. Where it does
     * not, the op runs as its decomposition; an op that has none must be supported. NULL = every
     * dtype combination the op infers. (optional) */
    int (*supports)(const tt_kernel_call *c);
} tt_kernel;

typedef struct tt_backend_env {
    size_t struct_size;
    int n_threads; /* of this rank's pool */
    int rank, world;
} tt_backend_env;

typedef struct tt_backend_vt {
    size_t struct_size;
    tt_status (*open)(const void *config, const tt_backend_env *env, void **self,
                      tt_error *err); /* one a rank */
    void (*close)(void *self);
    const tt_kernel *(*kernel)(
        void *self, const char *op); /* NULL = none; self may be NULL for a static question */
    int host_memory;                 /* 1: the core allocates and reads memory itself */
    double (*peak_flops)(void *self, tt_dtype dtype); /* of products of such matrices, measured or
                                                         known, per second; 0 = unknown */
    void (*describe)(void *self, char *text, size_t size); /* "AVX2, OpenBLAS 0.3.21, 2 threads" */
    /* Of f32 arithmetic that is no product of matrices, where that differs; NULL = peak_flops.
     * (optional) */
    double (*peak_vector_flops)(void *self);
} tt_backend_vt;

/* ---- fused pointwise programs: attrs of the op "fused" (R11) ----
 * Registers hold one element each; instruction i writes register n_in + i. Every result is rounded
 * to its dtype. */
typedef struct tt_fused_instr {
    const char *op; /* a pointwise op's name */
    int16_t src[3]; /* registers */
    int16_t n_src;
    tt_dtype dtype; /* of the result */
    double imm;     /* "scale": factor; "const": value */
} tt_fused_instr;
typedef struct tt_fused {
    int n_in, n_instr, n_out;
    const tt_fused_instr *instr;
    const int16_t *out; /* register of each output */
} tt_fused;
/* attrs of "linear_fused" and "linear_dx_fused": a matrix product and the program that reads it.
 * Register 0 is the product of in[0] and in[1], register r > 0 is in[r + 1]. Output `into` has the
 * product's dtype, so the product may be summed in its memory; the program may overwrite it. */
typedef struct tt_fused_product {
    tt_fused program;
    int into;
} tt_fused_product;
/* attrs of "linear_fused_rope": linear_fused of one output, which "rope" then turns; the last input
 * is its pos. A program without instructions leaves the product as it is. */
typedef struct tt_fused_rope {
    tt_fused_product product;
    tt_attrs_rope rope;
} tt_fused_rope;

#ifdef __cplusplus
}
#endif
#endif
