/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_BACKEND_H
#define TTRUN_BACKEND_H
#include <ttrun/device.h>
#include <ttrun/op.h>
#include <ttrun/ops.h>
#include <ttrun/plugin.h>
#include <ttrun/random.h>

/* A backend provides kernels by op name, and perhaps a device with memory of its own (device.h).
 * The core plans every byte; a kernel never allocates. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the core's thread pool, one per rank (R12) ---- */
typedef struct tt_pool tt_pool;
typedef void (*tt_range_fn)(void *arg, int64_t begin, int64_t end, int thread);
/* Calls fn once for each piece [begin,end) of [0,n), on any thread of the pool and on the caller's,
 * and returns when all pieces are done. A piece has `grain` elements, the last one perhaps fewer;
 * the pieces depend on n and grain only, never on the number of threads. `thread` is in
 * [0, tt_pool_threads). Not reentrant: fn must not call it. [step] */
TT_EXPORT void tt_parallel_for(tt_pool *pool, int64_t n, int64_t grain, tt_range_fn fn, void *arg);
TT_EXPORT int tt_pool_threads(const tt_pool *pool); /* >= 1, with the caller's. [any-thread] */

/* What kernels say of the products of matrices that they have checked by checksums; threads add to it. */
typedef struct tt_checks {
    int64_t products,
        wrong; /* parts of products that were checked; of these, whose sums do not agree */
} tt_checks;

/* One call of a kernel. An output may have the address of an input in two cases only: the kernel's
 * in_place allows it, or both are one state that a pointwise op ("fused", "add", "maximum") updates,
 * element by element. All memory is the core's and valid during the call. */
typedef struct tt_kernel_call {
    size_t struct_size;
    const char *op;
    const tt_tensor *in;
    int n_in;
    tt_tensor *out;
    int n_out;
    const void *attrs;
    tt_pool *pool;
    void *scratch; /* scratch_bytes bytes, 64-byte aligned, not initialised */
    size_t scratch_bytes;
    int accumulate; /* 1: add to out[0] instead of storing; only with can_accumulate */
    /* For random numbers: training.seed, and the number of the step, 1 for the first. They lie in the
     * program's memory, so that a call may be repeated for another step as it is. Host kernels read
     * them with tt_call_seed() and tt_call_step(). */
    const uint64_t *seed;
    const double *step;
    /* Of a backend with a device: where to put the work; run returns without waiting for it. What
     * the call points to, attrs excepted, is valid until run returns only. NULL on the host. */
    tt_device_queue *queue;
    /* In scratch_bytes and supports: the backend's object, or what tt_backend_vt.target made before
     * `open`; NULL: neither exists. */
    void *backend;
    /* (optional) debug.check_products: a kernel that can checks its products. In scratch_bytes: not
     * NULL if run gets it. */
    tt_checks *checks;
} tt_kernel_call;
static inline uint64_t tt_call_seed(const tt_kernel_call *c)
{
    return c->seed ? *c->seed : 0;
}
static inline int64_t tt_call_step(const tt_kernel_call *c)
{
    return c->step ? (int64_t)*c->step : 0;
}

typedef tt_status (*tt_kernel_fn)(void *backend, const tt_kernel_call *c,
                                  tt_error *err); /* [step] */

typedef struct tt_kernel {
    size_t struct_size;
    const char *op;
    tt_kernel_fn run;
    /* (optional) Scratch bytes for these shapes, the largest local ones, with n_threads; the data
     * pointers of c are NULL. NULL = no scratch. [setup] */
    size_t (*scratch_bytes)(const tt_kernel_call *c, int n_threads);
    int can_accumulate; /* 1: run obeys tt_kernel_call.accumulate for out[0] */
    /* Bit i: out[0] may be the memory of in[i] if both have the same dtype and number of elements
     * and no other operand uses that memory. The plan uses this where in[i] has no later reader. */
    int in_place;
    /* (optional) Nonzero if run can do c: its dtypes, its attrs (of a fused op: the program), and
     * with c->accumulate to add to out[0]. Data pointers are NULL; shapes are the whole tensors', and
     * before step 1 once more this rank's. What it refuses is not fused, not added in place, or runs
     * as its decomposition; an op without one must be supported. NULL = all that the op infers.
     * [setup] */
    int (*supports)(const tt_kernel_call *c);
} tt_kernel;

typedef struct tt_backend_env {
    size_t struct_size;
    int n_threads; /* of this rank's pool */
    int rank, world;
    int local_rank, local_world; /* among the ranks of this machine: which device is this rank's */
} tt_backend_env;

typedef struct tt_backend_vt {
    size_t struct_size;
    /* Called once per rank; *self is the backend's own state, which close frees. [setup] */
    tt_status (*open)(const void *config, const tt_backend_env *env, void **self, tt_error *err);
    void (*close)(void *self);
    /* The kernel of an op, or NULL if there is none; it lives as long as the plugin. self is NULL
     * when a tool asks without opening the backend. [setup] */
    const tt_kernel *(*kernel)(void *self, const char *op);
    int host_memory; /* 1: kernels use host memory; 0: `device` is where they run */
    /* Flops per second of matrix products of this dtype; 0 = unknown. [setup] */
    double (*peak_flops)(void *self, tt_dtype dtype);
    /* Writes a text for people, "AVX2, OpenBLAS 0.3.21, 2 threads", cut to size. [setup] */
    void (*describe)(void *self, char *text, size_t size);
    /* (optional) Flops per second of f32 arithmetic other than matrix products; NULL = peak_flops.
     * [setup] */
    double (*peak_vector_flops)(void *self);
    /* (optional) Memory and queues of its own; NULL with host_memory 1. */
    const tt_device_vt *device;
    /* (optional) *out answers `kernel`, scratch_bytes, supports and peak_flops for a chip that is
     * not here ("h200"), without any device; close frees it. machine NULL: the chip that is here,
     * before `open`. NULL: the answers need no chip. TT_ENOTFOUND: it does not know this chip.
     * [setup] */
    tt_status (*target)(const void *config, const char *machine, void **out, tt_error *err);
    /* (optional) Called once, after all kernels that a run needs were asked for (`kernel`, supports)
     * and before the first of its programs runs: the time to compile them. NULL: nothing to do.
     * [setup] */
    tt_status (*prepare)(void *self, tt_error *err);
    /* (optional) How many devices of this machine the ranks get in turn: rank i of the machine opens
     * device i modulo this number. 0: it cannot be told. [setup] */
    int (*devices)(const void *config);
} tt_backend_vt;

/* ---- fused pointwise programs: attrs of the op "fused" (R11) ----
 * The program runs once per element. Registers hold one element each: registers 0 to n_in - 1 are
 * the inputs, and instruction i writes register n_in + i. Every result is rounded to its dtype. */
typedef struct tt_fused_instr {
    const char *op; /* a pointwise op's name */
    int16_t src[3]; /* registers that it reads */
    int16_t n_src;
    tt_dtype dtype; /* of its result */
    double imm;     /* "scale": factor; "const": value */
} tt_fused_instr;
typedef struct tt_fused {
    int n_in, n_instr, n_out;
    const tt_fused_instr *instr;
    const int16_t *out; /* register of each output */
} tt_fused;
/* attrs of "linear_fused" and "linear_dx_fused": a matrix product, then a program that reads it.
 * Register 0 is the product of in[0] and in[1]; register r > 0 is in[r + 1]. Output `into` has the
 * product's dtype, so a kernel may sum the product in that output's memory; the program may then
 * overwrite it. */
typedef struct tt_fused_product {
    tt_fused program;
    int into;
} tt_fused_product;
/* attrs of "linear_fused_rope": linear_fused with one output, which "rope" then rotates; the last
 * input is rope's pos. A program without instructions leaves the product as it is. */
typedef struct tt_fused_rope {
    tt_fused_product product;
    tt_attrs_rope rope;
} tt_fused_rope;

#ifdef __cplusplus
}
#endif
#endif
