/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BACKEND_CUDA_H
#define TT_BACKEND_CUDA_H
#include <stdbool.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* The backend "cuda": NVIDIA GPUs of compute capability 8.0 and newer. The host side is C and links no
 * library of NVIDIA: the driver, cuBLASLt, cuDNN and NVRTC are opened at run time (lib.h). Kernels are
 * written in the language of kernels/dialect.h.
 *
 *   cuda.c       the component, its options, its table of kernels
 *   chip.c       what is known of a chip: of the one here, or by name
 *   lib.c        finds and opens libraries; driver.c the driver's functions
 *   device.c     memory, queues, events, copies, capture: tt_device_vt
 *   files.c      kernels/ as machine code: a fatbin, or what NVRTC makes of the files that a run needs
 *   module.c     texts that rtc.c, NVRTC, compiles in parallel, and cache.c, a folder of what it compiled
 *   launch.c     one launch
 *   the others   one file per family of ops: what a call asks, as launches */

typedef struct cuda_chip {
    char name[64];
    int sm; /* compute capability × 10: 90 */
    int n_sms;
    int64_t memory_bytes, l2_bytes;
    int shared_bytes;                         /* that a block may have at most */
    double bf16_flops, f32_flops, tf32_flops; /* peaks, per second; 0: not known */
    double bandwidth;                         /* bytes per second; 0: not known */
} cuda_chip;

typedef struct cuda_config {
    const char *libraries;    /* a folder to search first, or NULL */
    const char *cache;        /* folder of compiled kernels, or NULL: the user's cache folder */
    int64_t device;           /* -1: by local rank */
    const char *kernel_code;  /* auto | embedded | nvrtc */
    const char *gemm;         /* auto | cublaslt | own */
    const char *attention;    /* auto | cudnn | own */
    const char *f32_products; /* f32 | tf32 */
    bool deterministic;       /* bits repeat from run to run */
} cuda_config;

/* One per rank; or what answers for a chip without a device. */
typedef struct cuda_backend {
    cuda_config config;
    cuda_chip chip;
    bool is_target; /* there is no device: only scratch_bytes, supports and peaks */
    int rank, world, n_threads;
    int device;               /* ordinal */
    void *context;            /* CUcontext, the device's primary one */
    struct cuda_blas *blas;   /* gemm.c; NULL: own products */
    struct cuda_dnn *dnn;     /* attention_dnn.c; NULL: own attention */
    struct cuda_fused *fused; /* fused.c: programs that are compiled */
} cuda_backend;

/* A tt_device_queue of this backend is the CUstream itself, a tt_device_event the CUevent and a
 * tt_device_graph the CUgraphExec. plugins/comms/nccl relies on the first. */
extern const tt_device_vt cuda_device_vt; /* device.c */

/* ---- chip.c ---- */
/* Facts of the device with this number, without a context; the driver is open. TT_EUNSUPPORTED: it is
 * older than compute capability 8.0, or may not be used. [setup] */
tt_status cuda_chip_here(int device, cuda_chip *out, tt_error *err);
tt_status cuda_chip_named(const char *name, cuda_chip *out, tt_error *err); /* "h200" */

/* ---- files.c: kernels/ as machine code; of the process ---- */
/* Chooses embedded or NVRTC, by config.kernel_code. The device is entered. [setup] */
tt_status cuda_files_open(cuda_backend *b, tt_error *err);
/* "embedded", "by NVRTC 13.0" */
void cuda_files_describe(const cuda_backend *b, char *text, size_t size);
/* The run will launch kernels of these files ("index sort"); cuda_files_prepare compiles those that it was
 * told of, in parallel, or takes them from the cache. b may be NULL or a target: nothing. [setup] */
void cuda_files_need(const cuda_backend *b, const char *names);
tt_status cuda_files_prepare(cuda_backend *b, tt_error *err);
/* A CUkernel of kernels/<file>.cu, which is compiled if it was not yet. [any-thread] */
tt_status cuda_files_kernel(cuda_backend *b, const char *file, const char *name, void **kernel,
                            tt_error *err);

/* ---- module.c: texts as machine code; of the process ---- */
/* Compiles texts in the dialect, which may include "dialect.h" and the other headers of kernels/, for
 * this chip, in parallel, or takes them from the cache; libraries[i]: a CUlibrary that lives as long as
 * the process. Equal texts have one library. TT_EUNSUPPORTED: there is no NVRTC. [any-thread] */
typedef struct cuda_source {
    const char *name; /* for messages */
    const char *text;
} cuda_source;
tt_status cuda_module_sources(cuda_backend *b, const cuda_source *sources, int n, void **libraries,
                              tt_error *err);
/* One of them. */
tt_status cuda_module_source(cuda_backend *b, const char *name, const char *text, void **library,
                             tt_error *err);
int cuda_module_compiled(void); /* how many texts NVRTC has compiled, and not the cache had */
/* A kernel of such a library; goes to the handle of a cuda_kernel. [any-thread] */
tt_status cuda_module_get(cuda_backend *b, void *library, const char *name, void **kernel,
                          tt_error *err);

/* ---- libraries that are there or not: gemm's and attention's files ---- */
/* They set b->blas and b->dnn, or leave NULL where config.gemm or config.attention is "auto" and the
 * library is absent. The device is entered; of a target there is none. describe: "cuBLASLt 13.1",
 * "own products". */
tt_status cuda_blas_open(cuda_backend *b, tt_error *err);
void cuda_blas_close(cuda_backend *b);
void cuda_blas_describe(const cuda_backend *b, char *text, size_t size);
tt_status cuda_dnn_open(cuda_backend *b, tt_error *err);
void cuda_dnn_close(cuda_backend *b);
void cuda_dnn_describe(const cuda_backend *b, char *text, size_t size);
/* fused.c: frees b->fused. */
void cuda_fused_close(cuda_backend *b);

/* ---- launch.c ---- */
/* A kernel of kernels/<file>.cu, found at its first launch. Static objects of the launchers. */
typedef struct cuda_kernel {
    const char *file, *name;
    void *handle;  /* CUkernel */
    uint64_t wide; /* devices on which more than 48 KiB of shared memory was asked for */
} cuda_kernel;
#define CUDA_KERNEL(file_, name_)                                                                  \
    {                                                                                              \
        .file = file_, .name = name_                                                               \
    }
typedef struct cuda_grid {
    int64_t x, y, z; /* blocks; a launch with 0 of them does nothing; x < 2^31, y and z < 2^16 */
    int threads, shared; /* per block; bytes of shared memory */
} cuda_grid;
/* params: the address of each argument, copied before it returns. [any-thread] */
tt_status cuda_launch(cuda_backend *b, tt_device_queue *q, cuda_kernel *k, cuda_grid g,
                      void *const *params, tt_error *err);
/* CUDA_LAUNCH(backend, call, &kernel, grid, err, &argument, …) */
#define CUDA_LAUNCH(b, c, k, grid, err, ...)                                                       \
    cuda_launch(b, (c)->queue, k, grid, (void *const[]){__VA_ARGS__}, err)
/* Puts n zeros on the queue, at any address; and a copy within the device. n may be 0. */
tt_status cuda_zero(cuda_backend *b, tt_device_queue *q, void *p, size_t n, tt_error *err);
tt_status cuda_copy(cuda_backend *b, tt_device_queue *q, void *to, const void *from, size_t n,
                    tt_error *err);

/* Blocks of `threads` threads for n elements, `each` of them per thread, at most `most`: for loops
 * `for (i = first; i < n; i += gridDim.x * blockDim.x)`. */
static inline int64_t cuda_blocks(int64_t n, int64_t per_block, int64_t most)
{
    const int64_t blocks = n / per_block + (n % per_block != 0);
    return blocks < most ? blocks : most;
}
/* The largest power of two up to `most` that divides the address, for the choice of wide accesses. */
static inline size_t cuda_alignment_of(const void *p, size_t most)
{
    while (most > 1 && (uintptr_t)p % most)
        most /= 2;
    return most;
}

/* Of the arrays [2] of kernels for f32 and bf16: 0, 1; -1 for other dtypes, which supports refuses. */
static inline int cuda_float_index(tt_dtype t)
{
    return t == TT_F32 ? 0 : t == TT_BF16 ? 1 : -1;
}

/* ---- the families: rows of kernels, the last without op ---- */
extern const tt_kernel cuda_kernels_extra[];     /* extra.c: copy_box, reduce_members, find_bad */
extern const tt_kernel cuda_kernels_pointwise[]; /* pointwise.c: all pointwise ops, cast */
extern const tt_kernel cuda_kernels_fused[];     /* fused.c: "fused" */
extern const tt_kernel cuda_kernels_shape[];  /* shape.c: reshape, transpose, slice, concat, … */
extern const tt_kernel cuda_kernels_random[]; /* random.c: random, const, iota */
extern const tt_kernel cuda_kernels_norm[];   /* norm.c */
extern const tt_kernel
    cuda_kernels_softmax[]; /* softmax.c: softmax, and the loss over a vocabulary */
extern const tt_kernel
    cuda_kernels_reduce[];                  /* reduce.c: reduce_*, line_sum, sum_squares, argmax */
extern const tt_kernel cuda_kernels_rope[]; /* rope.c */
extern const tt_kernel cuda_kernels_index[]; /* index.c: embedding, gather, scatter_add, top_k, … */
extern const tt_kernel cuda_kernels_scan[]; /* scan.c: cumsum, scan, conv1d, and with state */
extern const tt_kernel cuda_kernels_delta_rule[];
extern const tt_kernel cuda_kernels_attention[]; /* attention.c */
extern const tt_kernel cuda_kernels_gemm[];      /* gemm.c: linear*, matmul */
extern const tt_kernel cuda_kernels_experts[];   /* experts.c: expert_sort, _count */
extern const tt_kernel cuda_kernels_grouped[];   /* grouped.c: grouped_linear* */
extern const tt_kernel cuda_kernels_dispatch[];  /* dispatch.c: dispatch_* */
extern const tt_kernel cuda_kernels_eigenbasis[];
extern const tt_kernel cuda_kernels_codes[]; /* codes.c: decode_codes */

#endif
