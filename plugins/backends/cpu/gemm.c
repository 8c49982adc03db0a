/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* C = A B in blocks: the left operand in panels of MR rows, the right one in panels of NR columns,
 * both packed into the planned scratch, then a grid of tasks over the packed blocks. The sum over k
 * runs in blocks of K_BLOCK whatever the other extents are, so an element's bits depend on k alone:
 * not on threads, tiles, or how m and n are sharded. A left operand whose rows lie along k is read
 * in place where a row meets few columns: packing it would cost more than it saves. */
#define M_UNIT 84 /* a multiple of every MR: 14, 6 */
#define N_UNIT 64 /* and of every NR */
#define M_BLOCK 2688
#define N_BLOCK 3072
#define K_BLOCK 384
#define M_TASK M_UNIT
#define N_TASK 512
#define N_IN_PLACE 768 /* columns up to which rows are not packed */
#define SAME_SETS 1024 /* floats: rows so far apart fall into the same sets of the first cache */

typedef struct gemm {
    const cpu_isa *isa;
    const cpu_gemm_call *g;
    float *pa, *pb;
    int64_t m0, m, n0, n, k0, k; /* the block at hand */
    int64_t n_cols;              /* tasks along n */
    bool in_place;               /* whole panels of A are read where they lie */
} gemm;

/* Equal blocks of at most `most`, so that no small last one packs the other operand again for
 * little. */
static int64_t even(int64_t n, int64_t most, int64_t unit)
{
    int64_t blocks = (n + most - 1) / most;
    return blocks ? cpu_round_up((n + blocks - 1) / blocks, unit) : unit;
}

/* For any extents up to these: blocks of smaller ones may be larger. */
size_t cpu_gemm_scratch(int64_t m, int64_t n, int64_t k)
{
    int64_t kb = cpu_min(k, K_BLOCK), mb = cpu_min(cpu_round_up(m, M_UNIT), M_BLOCK),
            nb = cpu_min(cpu_round_up(n, N_UNIT), N_BLOCK);
    return cpu_align((size_t)(kb * mb) * sizeof(float)) +
           cpu_align((size_t)(kb * nb) * sizeof(float));
}

/* Pieces of A to pack, M_TASK rows each; in place, the last one alone where its panels are not all
 * whole. */
static int64_t packed_pieces(const gemm *w)
{
    return w->in_place ? w->m % w->isa->mr != 0 : (w->m + M_TASK - 1) / M_TASK;
}

/* Pieces: first those of A, then those of B (64 columns each). */
static void pack_block(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm *w = arg;
    const cpu_gemm_call *g = w->g;
    (void)thread;
    int64_t n_a = packed_pieces(w);
    for (int64_t i = begin; i < end; i++) {
        if (i < n_a) {
            int64_t r = w->in_place ? w->m / w->isa->mr * w->isa->mr : i * M_TASK;
            cpu_mat a = {g->a.p + (w->m0 + r) * g->a.rs + w->k0 * g->a.cs, g->a.rs, g->a.cs};
            w->isa->pack(a, cpu_min(M_TASK, w->m - r), w->k, w->isa->mr, w->pa + r * w->k);
        } else {
            int64_t c = (i - n_a) * 64;
            cpu_mat b = {g->b.p + w->k0 * g->b.rs + (w->n0 + c) * g->b.cs, g->b.cs, g->b.rs};
            w->isa->pack(b, cpu_min(64, w->n - c), w->k, w->isa->nr, w->pb + c * w->k);
        }
    }
}

/* One tile at row r and column c of the block, up to rows × cols of it there. */
static void multiply_tile(const gemm *w, int64_t r, int64_t c, int64_t rows, int64_t cols, bool add)
{
    const cpu_isa *isa = w->isa;
    const cpu_gemm_call *g = w->g;
    const float *b = w->pb + c * w->k;
    float *out = g->c + (w->m0 + r) * g->ldc + w->n0 + c;
    if (w->in_place && rows >= isa->mr && cols >= isa->nr)
        isa->tile_rows(w->k, g->a.p + (w->m0 + r) * g->a.rs + w->k0, g->a.rs, b, out, g->ldc, add);
    else
        isa->tile(w->k, w->pa + r * w->k, b, out, g->ldc, cpu_min(isa->mr, rows),
                  cpu_min(isa->nr, cols), add);
}

static void finished(const cpu_gemm_call *g, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                     int thread)
{
    if (g->done)
        g->done->run(g->done->arg, r0, r1, c0, c1, thread);
}

static void multiply_block(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm *w = arg;
    const cpu_isa *isa = w->isa;
    const bool add = w->g->add || w->k0 > 0, last = w->k0 + w->k == w->g->k;
    for (int64_t i = begin; i < end; i++) {
        int64_t r0 = i / w->n_cols * M_TASK, c0 = i % w->n_cols * N_TASK;
        int64_t r1 = cpu_min(r0 + M_TASK, w->m), c1 = cpu_min(c0 + N_TASK, w->n);
        for (int64_t c = c0; c < c1; c += isa->nr)
            for (int64_t r = r0; r < r1; r += isa->mr)
                multiply_tile(w, r, c, r1 - r, c1 - c, add);
        if (last)
            finished(w->g, w->m0 + r0, w->m0 + r1, w->n0 + c0, w->n0 + c1, thread);
    }
}

static void run_own(const cpu_backend *self, tt_pool *pool, const cpu_gemm_call *g, void *scratch)
{
    char *p = scratch;
    gemm w = {.isa = self->isa, .g = g};
    const int64_t kb = cpu_min(g->k, K_BLOCK), mb = even(g->m, M_BLOCK, M_UNIT),
                  nb = even(g->n, N_BLOCK, N_UNIT);
    w.in_place =
        g->a.cs == 1 && g->n <= N_IN_PLACE && g->a.rs % SAME_SETS != 0 && g->n % self->isa->nr == 0;
    w.pa = cpu_take(&p, kb * mb);
    w.pb = cpu_take(&p, kb * nb);
    for (w.n0 = 0; w.n0 < g->n; w.n0 += nb)
        for (w.m0 = 0; w.m0 < g->m; w.m0 += mb)
            for (w.k0 = 0; w.k0 < g->k; w.k0 += K_BLOCK) {
                w.m = cpu_min(mb, g->m - w.m0);
                w.n = cpu_min(nb, g->n - w.n0);
                w.k = cpu_min(K_BLOCK, g->k - w.k0);
                w.n_cols = (w.n + N_TASK - 1) / N_TASK;
                tt_parallel_for(pool, packed_pieces(&w) + (w.n + 63) / 64, 1, pack_block, &w);
                tt_parallel_for(pool, (w.m + M_TASK - 1) / M_TASK * w.n_cols, 1, multiply_block,
                                &w);
            }
}

/* ---- the same over single-threaded BLAS: a fixed grid of tiles of m and n, never k ---- */
typedef struct blas_grid {
    const cpu_gemm_call *g;
    int64_t rows, cols, n_cols; /* of a tile; tiles along n */
} blas_grid;

static void blas_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const blas_grid *w = arg;
    const cpu_gemm_call *g = w->g;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i / w->n_cols * w->rows, c = i % w->n_cols * w->cols;
        cpu_mat a = {g->a.p + r * g->a.rs, g->a.rs, g->a.cs},
                b = {g->b.p + c * g->b.cs, g->b.rs, g->b.cs};
        cpu_blas_sgemm(cpu_min(w->rows, g->m - r), cpu_min(w->cols, g->n - c), g->k, a, b,
                       g->c + r * g->ldc + c, g->ldc, g->add);
        finished(g, r, cpu_min(r + w->rows, g->m), c, cpu_min(c + w->cols, g->n), thread);
    }
}

static void run_blas(tt_pool *pool, const cpu_gemm_call *g)
{
    /* Sixteenths of the larger extent, not below 256, keep packing cheap and a few threads busy. */
    blas_grid w = {.g = g, .rows = g->m, .cols = g->n};
    if (g->m >= g->n)
        w.rows = cpu_max(256, cpu_round_up((g->m + 15) / 16, 16));
    else
        w.cols = cpu_max(256, cpu_round_up((g->n + 15) / 16, 16));
    w.n_cols = (g->n + w.cols - 1) / w.cols;
    tt_parallel_for(pool, (g->m + w.rows - 1) / w.rows * w.n_cols, 1, blas_tiles, &w);
}

/* ---- a few rows: decoding, where the weights' way from memory is the time ---- */
typedef struct few {
    const cpu_isa *isa;
    const cpu_gemm_call *g;
} few;

static void few_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const few *w = arg;
    w->isa->few(w->g, K_BLOCK, begin, end);
    finished(w->g, 0, w->g->m, begin, end, thread);
}

static void clear_rows(const cpu_gemm_call *g)
{
    for (int64_t r = 0; r < g->m; r++)
        memset(g->c + r * g->ldc, 0, (size_t)g->n * sizeof(float));
}

void cpu_gemm(const cpu_backend *self, tt_pool *pool, const cpu_gemm_call *g, void *scratch)
{
    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0) {
        if (!g->add)
            clear_rows(g);
        finished(g, 0, g->m, 0, g->n, 0);
        return;
    }
    if (g->m <= CPU_FEW_ROWS && g->a.cs == 1 && g->b.rs == 1) {
        few w = {self->isa, g};
        tt_parallel_for(pool, g->n, N_UNIT, few_columns, &w);
    } else if (self->blas)
        run_blas(pool, g);
    else
        run_own(self, pool, g, scratch);
}

/* ---- kernels ---- */
static cpu_mat plain(const tt_tensor *t, int64_t ld) /* as stored */
{
    return (cpu_mat){t->data, ld, 1};
}
static cpu_mat flipped(const tt_tensor *t, int64_t ld)
{
    return (cpu_mat){t->data, 1, ld};
}

/* The three products of a linear layer as m, n, k and operands. */
static cpu_gemm_call linear_call(const tt_kernel_call *c)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1];
    const tt_tensor *y = &c->out[0];
    cpu_gemm_call g = {.m = y->shape[0],
                       .n = y->shape[1],
                       .c = y->data,
                       .ldc = y->shape[1],
                       .add = c->accumulate != 0};
    if (strcmp(c->op, "linear") == 0) { /* x [T,i] wᵀ [i,o] */
        g.k = x->shape[1];
        g.a = plain(x, g.k);
        g.b = flipped(w, g.k);
    } else if (strcmp(c->op, "linear_dx") == 0) { /* dy [T,o] w [o,i] */
        g.k = x->shape[1];
        g.a = plain(x, g.k);
        g.b = plain(w, g.n);
    } else { /* dyᵀ [o,T] x [T,i] */
        g.k = x->shape[0];
        g.a = flipped(x, g.m);
        g.b = plain(w, g.n);
    }
    return g;
}

/* Both operands bf16. */
static bool takes_half(const tt_kernel_call *c)
{
    return c->in[0].dtype == TT_BF16 && c->in[1].dtype == TT_BF16 &&
           (c->out[0].dtype == TT_BF16 || c->out[0].dtype == TT_F32);
}

static cpu_half_call half_call(const tt_kernel_call *c, const cpu_gemm_call *g)
{
    return (cpu_half_call){.m = g->m,
                           .n = g->n,
                           .k = g->k,
                           .a = (const uint16_t *)(const void *)g->a.p,
                           .b = (const uint16_t *)(const void *)g->b.p,
                           .ars = g->a.rs,
                           .acs = g->a.cs,
                           .brs = g->b.rs,
                           .bcs = g->b.cs,
                           .c = c->out[0].data,
                           .ldc = g->ldc,
                           .wide = c->out[0].dtype == TT_F32,
                           .add = g->add};
}

bool cpu_linear_takes(const tt_kernel_call *c)
{
    return takes_half(c) || (c->in[0].dtype == TT_F32 && c->in[1].dtype == TT_F32);
}

size_t cpu_linear_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    cpu_gemm_call g = linear_call(c);
    if (takes_half(c))
        return cpu_half_scratch(g.m, g.n, g.k);
    return cpu_gemm_scratch(g.m, g.n, g.k);
}

void cpu_linear(const cpu_backend *self, const tt_kernel_call *c, const cpu_done *done)
{
    cpu_gemm_call g = linear_call(c);
    if (takes_half(c)) {
        cpu_half_call h = half_call(c, &g);
        h.done = done;
        cpu_half_gemm(self, c->pool, &h, c->scratch);
    } else {
        g.done = done;
        cpu_gemm(self, c->pool, &g, c->scratch);
    }
}

static tt_status linear(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    cpu_linear(self, c, NULL);
    return TT_OK;
}

/* One matrix of a batch, number i. */
static cpu_gemm_call matmul_call(const tt_kernel_call *c, int64_t i)
{
    const tt_attrs_matmul *at = c->attrs;
    const tt_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    int64_t m = y->shape[y->n_dims - 2], n = y->shape[y->n_dims - 1];
    int64_t k = at->trans_a ? a->shape[a->n_dims - 2] : a->shape[a->n_dims - 1];
    int64_t ia = a->n_dims == 3 && a->shape[0] > 1 ? i : 0,
            ib = b->n_dims == 3 && b->shape[0] > 1 ? i : 0;
    cpu_gemm_call g = {.m = m,
                       .n = n,
                       .k = k,
                       .c = (float *)y->data + (y->data ? i * m * n : 0),
                       .ldc = n,
                       .add = c->accumulate != 0};
    g.a = at->trans_a ? flipped(a, m) : plain(a, k);
    g.b = at->trans_b ? flipped(b, k) : plain(b, n);
    if (a->data) {
        g.a.p += ia * m * k;
        g.b.p += ib * k * n;
    }
    return g;
}

static size_t matmul_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    cpu_gemm_call g = matmul_call(c, 0);
    return cpu_gemm_scratch(g.m, g.n, g.k);
}

static tt_status matmul(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    int64_t batch = c->out[0].n_dims == 3 ? c->out[0].shape[0] : 1;
    for (int64_t i = 0; i < batch; i++) {
        cpu_gemm_call g = matmul_call(c, i);
        cpu_gemm(self, c->pool, &g, c->scratch);
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_gemm[] = {
    CPU_KERNEL_TAKES("linear", linear, cpu_linear_scratch, 1, 0, takes_half),
    CPU_KERNEL_TAKES("linear_dx", linear, cpu_linear_scratch, 1, 0, takes_half),
    CPU_KERNEL_TAKES("linear_dw", linear, cpu_linear_scratch, 1, 0, takes_half),
    CPU_KERNEL("matmul", matmul, matmul_scratch, 1, 0),
    CPU_KERNEL_END,
};
