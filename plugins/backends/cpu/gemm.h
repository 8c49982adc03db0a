/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_GEMM_H
#define TT_CPU_GEMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/backend.h>

/* Products of f32 matrices (gemm.c), and the epilogue that a kernel may attach to one. */

/* Called once for each finished rectangle of a product, rows [r0, r1) and columns [c0, c1), by the
 * thread that computed it, while the rectangle is in that thread's cache. */
typedef struct cpu_done {
    void (*run)(void *arg, int64_t r0, int64_t r1, int64_t c0, int64_t c1, int thread);
    void *arg;
    /* in f32 products, rectangles begin and end at multiples of so many columns; 0 = 1 */
    int64_t unit;
} cpu_done;

/* A matrix operand with strides: element (r, c) is at p[r * rs + c * cs]; one of the strides is
 * 1. */
typedef struct cpu_mat {
    const float *p;
    int64_t rs, cs;
} cpu_mat;

/* C = A B, or C += A B. A [m,k], B [k,n], C [m,n] row-major. */
typedef struct cpu_gemm_call {
    int64_t m, n, k;
    cpu_mat a, b;
    float *c;
    int64_t ldc;
    bool add;
    const cpu_done *done; /* NULL: no epilogue */
    tt_checks *checks;    /* NULL: the product is not checked */
    bool blas;            /* cpu_gemm sets it */
} cpu_gemm_call;

/* with at most so many rows of A, weights that lie along k are not packed */
#define CPU_FEW_ROWS 16

#define CPU_LINE 64 /* bytes of a cache line */

/* Memory that will be read soon: n_rows rows of `lines` cache lines, `stride` floats apart. */
typedef struct cpu_fetch {
    const float *p;
    int64_t stride, lines, n_rows;
    int64_t line, row; /* the line to prefetch next */
    int64_t step;      /* how many lines to prefetch per call of cpu_fetch_turn */
} cpu_fetch;
/* A tile's sum over k is a sum of short sums of so many terms: otherwise a large early term would
 * round every later one to the large term's last place. Each short sum prefetches once. */
#define CPU_K_SUM 64

/* Prefetches the next `step` lines. */
static inline void cpu_fetch_turn(cpu_fetch *f)
{
    for (int64_t i = 0; i < f->step && f->row < f->n_rows; i++) {
        __builtin_prefetch((const char *)f->p + f->line * CPU_LINE, 0, 2);
        if (++f->line == f->lines) {
            f->line = 0;
            f->row++;
            f->p += f->stride;
        }
    }
}

#define CPU_K_BLOCK 384  /* terms of k per block */
#define CPU_TILE_ROWS 32 /* most rows of a tile */
/* The most rows and columns per call of cpu_tiles.block. */
#define CPU_BLOCK_ROWS 512
#define CPU_BLOCK_COLS 128

/* check.c: checks a rectangle of a product. */
#define CPU_CHECK_STRIPS 128
typedef struct cpu_rectangle {
    int64_t r0, r1, c0, c1;
} cpu_rectangle;
typedef struct cpu_strip { /* `width` columns of a rectangle */
    double got, want, spread, squares, squares_before, squares_b;
} cpu_strip;
typedef struct cpu_check {
    const struct cpu_isa *isa;
    const cpu_gemm_call *g;
    cpu_rectangle x;
    int64_t width, k0, n; /* k0, n: the block of k */
    double squares_a, a[CPU_K_BLOCK];
    cpu_strip strips[CPU_CHECK_STRIPS];
} cpu_check;
struct cpu_isa;
void cpu_check_open(cpu_check *k, const struct cpu_isa *isa, const cpu_gemm_call *g,
                    const cpu_rectangle *x);
/* For each block of k, ascending: its rows; then for each part of the columns, within a strip: before that part
 * of the product is computed, and after it. */
void cpu_check_rows(cpu_check *k, int64_t k0, int64_t n);
void cpu_check_before(cpu_check *k, int64_t c0, int64_t c1);
void cpu_check_columns(cpu_check *k, int64_t c0, int64_t c1);
void cpu_check_close(const cpu_check *k);
/* All of this at once, before and after the product. */
void cpu_check_whole_before(cpu_check *k);
void cpu_check_whole(cpu_check *k);
/* A part of a product of k terms: its sum, and what its operands say. size: of the numbers (check.c). */
void cpu_check_sums(tt_checks *checks, int64_t k, double got, double want, double size);

/* How f32 matrices are multiplied: panels of mr rows of A and nr columns of B, each with all of a
 * block's k, and the functions that compute a tile of C from one panel of each. */
typedef struct cpu_tiles {
    int mr, nr;
    int k_unit;    /* the k of a panel is padded to a multiple of it */
    int64_t k_cut; /* every block of k but the last is a multiple of it */
    size_t size;   /* bytes of a packed element */
    /* most rows (m_task) and columns (strip) packed at a time; multiples of mr and nr */
    int64_t m_task, strip;
    int tasks; /* tasks per thread; fewer and larger tasks pack less */
    /* Packs `rows` rows of a matrix into panels of mr (left); or, with swapped strides, columns
     * into panels of nr. */
    void (*pack)(cpu_mat a, int64_t rows, int64_t k, bool left, void *dst);
    /* C[rows, cols] (+)= A B for one panel each. next [2]: what to prefetch meanwhile. */
    void (*tile)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int64_t rows,
                 int64_t cols, bool add, cpu_fetch *next);
    /* The same with mr rows of A read in place along k, `ld` apart. NULL: A is always packed. */
    void (*tile_rows)(int64_t k, const float *a, int64_t ld, const void *b, float *c, int64_t ldc,
                      int64_t cols, bool add, cpu_fetch *next);
    /* The same for all panels of both operands at once, for instruction sets that overlap the work
     * of consecutive tiles. NULL: tile by tile. It leaves the elements it cannot compute as they
     * are and marks each: one word per row in bad[CPU_TILE_ROWS] of each tile, one bit per column,
     * tiles in row-major order. It returns whether any bit is set. */
    bool (*block)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int64_t rows,
                  int64_t cols, bool add, uint32_t *bad);
    void (*begin)(void), (*end)(void); /* called around each thread's tiles; NULL: nothing to do */
    double (*peak)(double seconds);    /* flops per second of one thread */
} cpu_tiles;
extern const cpu_tiles cpu_tiles_bf16x6; /* may be used only if cpu_amx_open() is true */

struct cpu_backend;
/* scratch has cpu_gemm_scratch(…) bytes. */
void cpu_gemm(const struct cpu_backend *self, tt_pool *pool, const cpu_gemm_call *g, void *scratch);
size_t cpu_gemm_scratch(int64_t m, int64_t n, int64_t k, int n_threads);

/* A kernel call of linear, linear_dx or linear_dw; done: the epilogue of its product. */
bool cpu_linear_takes(const tt_kernel_call *c); /* without conversion of its dtypes? */
size_t cpu_linear_scratch(const tt_kernel_call *c, int n_threads);
void cpu_linear(const struct cpu_backend *self, const tt_kernel_call *c, const cpu_done *done);

/* OpenBLAS, on one thread (blas.c). */
void cpu_blas_sgemm(int64_t m, int64_t n, int64_t k, cpu_mat a, cpu_mat b, float *c, int64_t ldc,
                    bool add);
bool cpu_blas_open(const char **version); /* sets OpenBLAS to one thread and verifies it */

#endif
