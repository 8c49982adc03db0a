/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_GEMM_H
#define TT_CPU_GEMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/backend.h>

/* Products of f32 matrices (gemm.c), and what a kernel tells and asks of them. */

/* Called for each finished rectangle of a product, rows [r0, r1) and columns [c0, c1), once, by the
 * thread that made it, while it lies in that thread's cache. */
typedef struct cpu_done {
    void (*run)(void *arg, int64_t r0, int64_t r1, int64_t c0, int64_t c1, int thread);
    void *arg;
    int64_t unit; /* of f32 products: no rectangle cuts so many columns; 0 = 1 */
} cpu_done;

/* A matrix operand by strides: element (r, c) at p[r * rs + c * cs]; one of the strides is 1. */
typedef struct cpu_mat {
    const float *p;
    int64_t rs, cs;
} cpu_mat;

/* C = A B, or C += A B: A m×k, B k×n, C row-major. */
typedef struct cpu_gemm_call {
    int64_t m, n, k;
    cpu_mat a, b;
    float *c;
    int64_t ldc;
    bool add;
    const cpu_done *done; /* NULL = nothing */
} cpu_gemm_call;
#define CPU_FEW_ROWS 16 /* up to as many rows of A, weights that lie along k are not packed */

#define CPU_LINE 64 /* bytes of a cache line */

/* Lines of memory that will be read soon: n_rows runs of `lines`, `stride` floats apart. */
typedef struct cpu_fetch {
    const float *p;
    int64_t stride, lines, n_rows;
    int64_t line, row; /* the next one, */
    int64_t step;      /* and how many a turn */
} cpu_fetch;
/* A tile's sum over k is one of sums this short, a turn each: a large term early on would round
 * every later one to its own last place. */
#define CPU_K_SUM 64

/* A turn's share of it. */
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

#define CPU_K_BLOCK 384  /* of k at a time */
#define CPU_TILE_ROWS 32 /* of a tile at most */
/* Of cpu_tiles.block at most. */
#define CPU_BLOCK_ROWS 512
#define CPU_BLOCK_COLS 128

/* How f32 matrices are multiplied: panels of mr rows and of nr columns, all of a block's k in each,
 * and what makes a tile of C from one of each. */
typedef struct cpu_tiles {
    int mr, nr;
    int k_unit;            /* a panel's k is padded to it */
    int64_t k_cut;         /* blocks of k are multiples of it, but for the last */
    size_t size;           /* of a packed element */
    int64_t m_task, strip; /* most rows and columns packed at a time; multiples of mr and nr */
    int tasks;             /* a thread: fewer, larger ones pack less */
    /* `rows` rows (columns, by swapped strides) of a matrix into panels of mr (left) or nr. */
    void (*pack)(cpu_mat a, int64_t rows, int64_t k, bool left, void *dst);
    /* C[rows, cols] (+)= A B; next [2]. */
    void (*tile)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int64_t rows,
                 int64_t cols, bool add, cpu_fetch *next);
    /* The same of mr rows of A as they lie along k, `ld` apart; NULL = A is packed. */
    void (*tile_rows)(int64_t k, const float *a, int64_t ld, const void *b, float *c, int64_t ldc,
                      int64_t cols, bool add, cpu_fetch *next);
    /* The same of all panels of both at once, for tiles that have more to do between one and the
     * next; NULL = tile by tile. Elements it cannot make are left as they are: bit j of a row's
     * word in bad[CPU_TILE_ROWS] of each tile, a row of tiles after the other; returns whether
     * there are any. */
    bool (*block)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int64_t rows,
                  int64_t cols, bool add, uint32_t *bad);
    void (*begin)(void), (*end)(void); /* around a thread's tiles; NULL = nothing */
    double (*peak)(double seconds);    /* flops a second of one thread */
} cpu_tiles;
extern const cpu_tiles cpu_tiles_bf16x6; /* where cpu_amx_open */

struct cpu_backend;
/* scratch: cpu_gemm_scratch(…). */
void cpu_gemm(const struct cpu_backend *self, tt_pool *pool, const cpu_gemm_call *g, void *scratch);
size_t cpu_gemm_scratch(int64_t m, int64_t n, int64_t k, int n_threads);

/* A kernel call of linear or one of its derivatives; done: of its product. */
bool cpu_linear_takes(const tt_kernel_call *c); /* these dtypes as they are */
size_t cpu_linear_scratch(const tt_kernel_call *c, int n_threads);
void cpu_linear(const struct cpu_backend *self, const tt_kernel_call *c, const cpu_done *done);

/* One thread of OpenBLAS (blas.c). */
void cpu_blas_sgemm(int64_t m, int64_t n, int64_t k, cpu_mat a, cpu_mat b, float *c, int64_t ldc,
                    bool add);
bool cpu_blas_open(const char **version); /* sets it to one thread and checks that */

#endif
