/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_H
#define TT_CPU_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

#include "attention_piece.h"
#include "chain.h"
#include "gemm.h"
#include "half.h"
#include "rope.h"

/* The CPU backend. Everything that depends on the instruction set is behind one table, cpu_isa,
 * which is compiled once per level from the same sources (isa_*.c include the *_impl.h). Work is
 * cut by shape only, and each output element is computed by one task in one order, so results do
 * not depend on the number of threads. The kernels' naive twins, which tests compare them with, are
 * in backends/reference under the same op names. */

#define CPU_MAX_HEAD_DIM 512
#define CPU_LANES 32 /* independent sums of a task of cumsum */

/* Pointwise operations: OP_ADD … of pointwise.def. */
enum cpu_op {
#define CPU_UNARY(id, name, in_place, scalar, vector) OP_##id,
#define CPU_BINARY(id, name, in_place, scalar, vector) OP_##id,
#define CPU_COMPARE(id, name, scalar, vector) OP_##id,
#define CPU_OTHER(id, name, in_place) OP_##id,
#include "pointwise.def"
    N_CPU_OPS
};
int cpu_op_find(const char *name); /* -1 = none */
/* The floor of x / y and the remainder with y's sign, of any doubles. */
double cpu_floor_div(double x, double y);
double cpu_mod(double x, double y);
double cpu_floor_pow2(double x);
double cpu_encode8(float x, int positive); /* codes8.c */
double cpu_decode8(float x, int positive);

typedef struct cpu_isa {
    const char *name;
    int lanes;
    /* pointwise; bit i of splat: operand i is one element for all */
    void (*unary)(int op, int64_t n, const float *x, float *y, float factor);
    void (*binary)(int op, int64_t n, const float *a, const float *b, float *y, unsigned splat);
    void (*ternary)(int op, int64_t n, const float *a, const float *b, const float *c, float *y,
                    unsigned splat);
    void (*compare)(int op, int64_t n, const float *a, const float *b, uint8_t *y, unsigned splat);
    void (*select)(int64_t n, const uint8_t *c, const float *a, const float *b, float *y,
                   unsigned splat);
    void (*chain)(const cpu_step *steps, int n_steps, int64_t n);
    void (*to_bf16)(int64_t n, const float *x, uint16_t *y);
    void (*from_bf16)(int64_t n, const uint16_t *x, float *y);
    void (*to_f16)(int64_t n, const float *x, uint16_t *y);
    void (*from_f16)(int64_t n, const uint16_t *x, float *y);
    void (*to_float8)(int64_t n, const float *x, uint8_t *y, bool e5m2);
    void (*from_float8)(int64_t n, const uint8_t *x, float *y, bool e5m2);
    void (*stochastic_bf16)(int64_t n, const float *x, const float *u, uint16_t *y, unsigned splat);
    const cpu_half *half;
    /* matrix product */
    const cpu_tiles *tiles;  /* multiply-adds */
    const cpu_tiles *bf16x6; /* with AMX; NULL: not available */
    /* Columns [begin, end) of a product whose A has few rows; k is summed in blocks of k_block. */
    void (*few)(const cpu_gemm_call *g, int64_t k_block, int64_t begin, int64_t end);
    /* check_impl.h */
    void (*check_sums)(cpu_mat a, int64_t rows, int64_t n, double *sum, double *squares);
    void (*check_columns)(const float *p, int64_t ld, int64_t rows, int64_t n, double *sum,
                          double *squares);
    void (*check_half)(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t n,
                       float *sum); /* sum[n]: of the squares */
    double (*check_total)(const float *p, int64_t ld, int64_t rows, int64_t n, double *squares);
    /* one row of n elements; for bwd, dw and db are added to */
    float (*rms_norm)(int64_t n, const float *x, const float *w, float *y, float eps);
    void (*rms_norm_bwd)(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                         float *dw, float eps);
    void (*layer_norm)(int64_t n, const float *x, const float *w, const float *b, float *y,
                       float eps);
    void (*layer_norm_bwd)(int64_t n, const float *x, const float *w, const float *dy, float *dx,
                           float *dw, float *db, float eps);
    float (*max)(int64_t n, const float *x); /* -inf if n is 0 */
    float (*sum)(int64_t n, const float *x);
    double (*sum_squares)(int64_t n, const float *x);
    float (*sum_exp)(int64_t n, const float *x, float m); /* sum of exp(x - m) */
    void (*exp_sub)(int64_t n, const float *x, float m, float factor,
                    float *y); /* exp(x - m) * factor */
    float (*dot)(int64_t n, const float *a, const float *b);
    void (*softmax_bwd)(int64_t n, const float *y, const float *dy, float *dx);
    void (*column_sum)(int64_t rows, int64_t n, int64_t ld, const float *x, float *y, bool add);
    void (*column_max)(int64_t rows, int64_t n, int64_t ld, const float *x, float *y);
    /* Rotates `heads` heads of each token; rows of x [tokens, ld] and y are ld apart; y may be
     * x. */
    void (*rope)(const cpu_rope *r, const int32_t *pos, int64_t tokens, const float *x, float *y,
                 int64_t ld, int64_t heads);
    /* attention (attention_piece.h) */
    float (*attn_top)(const cpu_attn *a, const float *k, const float *q, int64_t begin,
                      int64_t end);
    void (*attn_fwd)(const cpu_attn *a, const float *k, const float *v, const float *q, float *out,
                     float *lse, int64_t ld_lse, const float *sink, int64_t begin, int64_t end);
    const cpu_attn_tiles *attn_tiles; /* the same with AMX; NULL: not available */
    int attn_queries;                 /* queries per block */
    void (*attn_bwd)(const cpu_attn_bwd *b, int64_t k0, int64_t q0, int64_t q1);
    void (*attn_rows)(const float *x, int64_t ldx, int64_t rows, int64_t n, float factor, float *y,
                      int64_t ldy, int64_t n_pad);
    void (*attn_columns)(const float *x, int64_t ld, int64_t rows, int64_t n, float factor,
                         float *dst);
    void (*attn_give)(const float *const *x, int64_t n_x, float factor, int64_t rows, int64_t n,
                      float *y, int64_t ldy);
    /* one token of scan; cumsum of CPU_LANES columns (scan_impl.h) */
    void (*scan)(int64_t rows, int64_t m, const float *a, const float *prev, const float *x,
                 float *h);
    void (*scan_bwd)(int64_t rows, int64_t m, const float *a, const float *next, const float *prev,
                     const float *dh, float *dx, float *da);
    void (*columns)(int64_t n, int64_t step, const float *x, float *y, bool exclusive);
    /* one token of one head of the delta rule, which changes its state */
    void (*delta_token)(int64_t rows, int64_t cols, const float *q, const float *k, const float *v,
                        float decay, float beta, float *state, float *out);
    /* rows [begin, end) */
    void (*attn_cached)(const cpu_attn_cached *c, int64_t begin, int64_t end);
} cpu_isa;

extern const cpu_isa cpu_isa_generic, cpu_isa_avx2, cpu_isa_avx512, cpu_isa_amx;

typedef struct cpu_backend {
    const cpu_isa *isa;
    const cpu_tiles *tiles;           /* for products of f32 matrices */
    const cpu_attn_tiles *attn_tiles; /* for attention's products; NULL: multiply-adds */
    bool blas;                        /* cblas_sgemm computes the tiles of products */
    int n_threads;
    /* flops per second of all threads; 0: not measured yet */
    double peak_vector, peak_tiles, peak_half;
} cpu_backend;

/* A kernel as the core sees it (pub), and the function it wraps (run). Kernels are written for f32;
 * mixed.c converts other float operands before and after them. If run is NULL, pub takes any dtype
 * itself. */
typedef struct cpu_kernel {
    tt_kernel pub;
    tt_kernel_fn run;
    size_t (*scratch_bytes)(const tt_kernel_call *c, int n_threads);
    /* does run take these dtypes without conversion? NULL: f32 only */
    bool (*takes)(const tt_kernel_call *c);
} cpu_kernel;
const cpu_kernel *cpu_kernel_find(const char *op); /* NULL: no such kernel */
tt_status cpu_mixed_run(void *self, const tt_kernel_call *c, tt_error *err);
size_t cpu_mixed_scratch(const tt_kernel_call *c, int n_threads);

/* The kernel tables of the files; each ends with a NULL op. */
extern const cpu_kernel cpu_kernels_pointwise[], cpu_kernels_gemm[], cpu_kernels_norm[],
    cpu_kernels_softmax[], cpu_kernels_rope[], cpu_kernels_attention[], cpu_kernels_attention_max[],
    cpu_kernels_attention_merge[], cpu_kernels_attention_bwd[], cpu_kernels_attention_cached[],
    cpu_kernels_index[], cpu_kernels_shape[], cpu_kernels_reduce[], cpu_kernels_random[],
    cpu_kernels_experts[], cpu_kernels_dispatch[], cpu_kernels_conv[], cpu_kernels_linear_fused[],
    cpu_kernels_scan[], cpu_kernels_codes[], cpu_kernels_linear_heads[], cpu_kernels_eigenbasis[],
    cpu_kernels_delta_rule[];
/* For an op with the inputs slot, pos, state from at_slot on and the state as its second output: refuses
 * tokens whose sequence has no room, and copies the state if the result has other memory. */
tt_status cpu_begin_cached(const tt_kernel_call *c, int at_slot, tt_error *err);

/* ---- small helpers ---- */
static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cpu_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t cpu_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}
static inline size_t cpu_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}
/* Takes n floats from a scratch area, 64-byte aligned. */
static inline float *cpu_take(char **p, int64_t n)
{
    float *r = (float *)(void *)*p;
    *p += cpu_align((size_t)n * sizeof(float));
    return r;
}
static inline const float *cpu_f32(const tt_tensor *t)
{
    return (const float *)t->data;
}
static inline const int32_t *cpu_i32(const tt_tensor *t)
{
    return (const int32_t *)t->data;
}
/* Columns (the last dim) and rows (the product of all other dims). */
static inline int64_t cpu_width(const tt_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}
static inline int64_t cpu_rows(const tt_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}
/* How many rows a task should have at least, so that handing it to a thread pays; depends on the
 * shape only. */
static inline int64_t cpu_row_grain(int64_t rows, int64_t width)
{
    int64_t grain = 16384 / cpu_max(width, 1);
    return cpu_max(1, cpu_min(grain, cpu_max(1, rows / 16)));
}
#define CPU_KERNEL(op_, run_, scratch_, accumulate_, in_place_)                                    \
    {                                                                                              \
        {sizeof(tt_kernel), (op_),       cpu_mixed_run, cpu_mixed_scratch,                         \
         (accumulate_),     (in_place_), NULL},                                                    \
            (run_), (scratch_), NULL                                                               \
    }
#define CPU_KERNEL_TAKES(op_, run_, scratch_, accumulate_, in_place_, takes_)                      \
    {                                                                                              \
        {sizeof(tt_kernel), (op_),       cpu_mixed_run, cpu_mixed_scratch,                         \
         (accumulate_),     (in_place_), NULL},                                                    \
            (run_), (scratch_), (takes_)                                                           \
    }
#define CPU_KERNEL_ANY(op_, run_, scratch_, in_place_)                                             \
    {                                                                                              \
        {sizeof(tt_kernel), (op_), (run_), (scratch_), 0, (in_place_), NULL}, NULL, NULL, NULL     \
    }
#define CPU_KERNEL_END                                                                             \
    {                                                                                              \
        {sizeof(tt_kernel), NULL, NULL, NULL, 0, 0, NULL}, NULL, NULL, NULL                        \
    }

#endif
