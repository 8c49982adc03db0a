/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* C = A B, cut into tasks; each task computes some rows and columns of C over all of k. Tasks share
 * only what they read, so no thread waits for another. A task goes through k in blocks of
 * CPU_K_BLOCK and through its columns in strips. It packs the strip of B into panels of NR columns.
 * It reads rows of A in place if they lie along k and the tile function can do so; otherwise it
 * packs them into panels of MR rows once per block. Both packed parts fit the second-level cache,
 * and the panel of A in use fits the first-level cache. While a strip is multiplied, the data read
 * next is prefetched. The sum over k runs in blocks of CPU_K_BLOCK whatever the other extents are,
 * so an element's bits depend on k alone, not on threads, tasks, or how m and n are sharded. Naive
 * twins: ref_linear, ref_linear_dx, ref_linear_dw and ref_matmul in backends/reference/matmul.c. */
#define M_TASK 532    /* most rows per task */
#define STRIP 256     /* most columns per strip */
#define MOST_SIZE 6   /* bytes of a packed element, at most */
#define LEAST_ROWS 84 /* fewest rows of a task and */
#define LEAST_COLS 64 /* fewest columns, so that packing pays */

typedef struct gemm {
    const cpu_tiles *tiles;
    const cpu_isa *isa;
    const cpu_gemm_call *g;
    char *scratch; /* n_threads areas of per_thread bytes */
    size_t per_thread;
    int64_t rows, cols; /* number of tasks along m and n */
    int64_t unit;       /* the columns of a task are a multiple of it */
    int n_threads;
    bool in_place; /* rows of A lie along k and are not packed */
} gemm;

typedef struct task { /* rows [m0, m1) and columns [n0, n1) of C; rows [k0, k0 + k) of B at a time
                       */
    int64_t m0, m1, n0, n1, k0, k;
    char *pa, *pb;
    int64_t unit; /* bytes of a panel's row */
} task;

static int64_t parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* The bytes of `rows` packed rows, for the widest panels and elements, because the plan is made
 * before the instruction set is chosen; and 16 floats, which pack may write past the end. */
static size_t packed(int64_t rows, int64_t k)
{
    const int64_t unit = cpu_round_up(cpu_min(k, CPU_K_BLOCK), 32) * MOST_SIZE;
    return cpu_align((size_t)(cpu_round_up(rows, LEAST_COLS) * unit) + 16 * sizeof(float));
}

static size_t thread_scratch(int64_t m, int64_t n, int64_t k)
{
    return packed(cpu_min(m, M_TASK), k) + packed(cpu_min(n, STRIP), k);
}

/* Enough for any extents up to these. */
size_t cpu_gemm_scratch(int64_t m, int64_t n, int64_t k, int n_threads)
{
    return thread_scratch(m, n, k) * (size_t)n_threads;
}

/* The size of the block of k that begins at k0. The last two blocks are about equal, rather than
 * one whole block and a short rest. */
static int64_t block_of(const gemm *w, int64_t k0)
{
    const int64_t rest = w->g->k - k0, cut = w->tiles->k_cut;
    if (rest <= CPU_K_BLOCK || rest >= 2 * CPU_K_BLOCK)
        return cpu_min(rest, CPU_K_BLOCK);
    return cpu_round_up(parts(rest, 2), cut);
}

static task task_at(const gemm *w, int64_t i)
{
    const int64_t mr = w->tiles->mr, unit = w->unit, panels = parts(w->g->m, mr),
                  slivers = parts(w->g->n, unit), r = i / w->cols, c = i % w->cols;
    return (task){.m0 = panels * r / w->rows * mr,
                  .m1 = cpu_min(w->g->m, panels * (r + 1) / w->rows * mr),
                  .n0 = slivers * c / w->cols * unit,
                  .n1 = cpu_min(w->g->n, slivers * (c + 1) / w->cols * unit),
                  .k = block_of(w, 0)};
}

static cpu_mat part_of(cpu_mat a, int64_t r, int64_t c)
{
    return (cpu_mat){a.p + r * a.rs + c * a.cs, a.rs, a.cs};
}

/* Prefetches `rows` × `cols` of a matrix in `turns` equal shares. */
static cpu_fetch fetch(cpu_mat a, int64_t rows, int64_t cols, int64_t turns)
{
    const bool along = a.cs == 1;
    cpu_fetch f = {.p = a.p,
                   .stride = along ? a.rs : a.cs,
                   .lines = parts(along ? cols : rows, CPU_LINE / (int64_t)sizeof(float)),
                   .n_rows = along ? rows : cols};
    f.step = parts(f.lines * f.n_rows, turns);
    return f;
}

/* What is probably read after columns [c, c + n): the other panels of A if this is the first strip,
 * and the strip of B that is packed next. */
static void fetch_next(const gemm *w, int64_t i, const task *t, int64_t c, int64_t n,
                       cpu_fetch next[2])
{
    const cpu_gemm_call *g = w->g;
    const int mr = w->tiles->mr;
    const int64_t m = t->m1 - t->m0,
                  turns = parts(m, mr) * parts(n, w->tiles->nr) * parts(t->k, CPU_K_SUM);
    task then = *t;
    next[0] = next[1] = (cpu_fetch){0};
    if (c == t->n0 && w->in_place && m > mr)
        next[0] = fetch(part_of(g->a, t->m0 + mr, t->k0), m - mr, t->k, turns);
    then.n0 = c + n;
    if (then.n0 == t->n1 && t->k0 + t->k < g->k) {
        then.n0 = t->n0;
        then.k0 = t->k0 + t->k;
        then.k = block_of(w, then.k0);
    } else if (then.n0 == t->n1) {
        then = task_at(w, cpu_min(i + w->n_threads, w->rows * w->cols - 1));
    }
    next[1] = fetch(part_of(g->b, then.k0, then.n0), then.k,
                    cpu_min(w->tiles->strip, then.n1 - then.n0), turns);
}

/* Computes by multiply-adds, from the unpacked operands, the elements of a tile of C that the tile
 * function left out (see cpu_tiles.block). */
static void remake(const gemm *w, const task *t, int64_t r0, int64_t c0, int64_t rows, int64_t cols,
                   const uint32_t *bad)
{
    const cpu_gemm_call *g = w->g;
    const cpu_tiles *fma = w->isa->tiles;
    const cpu_mat b = part_of(g->b, t->k0, c0);
    const bool add = g->add || t->k0 > 0;
    float pa[CPU_K_BLOCK * CPU_TILE_ROWS], pb[CPU_K_BLOCK * CPU_TILE_ROWS],
        y[CPU_TILE_ROWS * CPU_TILE_ROWS];
    cpu_fetch none[2] = {0};
    for (int64_t r = 0; r < rows; r += fma->mr)
        for (int64_t c = 0; c < cols; c += fma->nr) {
            const int64_t m = cpu_min(fma->mr, rows - r), n = cpu_min(fma->nr, cols - c);
            fma->pack(part_of(g->a, r0 + r, t->k0), m, t->k, true, pa);
            fma->pack((cpu_mat){b.p + c * b.cs, b.cs, b.rs}, n, t->k, false, pb);
            fma->tile(t->k, pa, pb, y + r * CPU_TILE_ROWS + c, CPU_TILE_ROWS, m, n, false, none);
        }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (bad[r] >> c & 1) {
                float *to = g->c + (r0 + r) * g->ldc + c0 + c;
                *to = add ? *to + y[r * CPU_TILE_ROWS + c] : y[r * CPU_TILE_ROWS + c];
            }
}

/* The product for columns [c, c + n) of C, by tiles->block. */
static void multiply_block(const gemm *w, const task *t, int64_t c, int64_t n)
{
    const cpu_tiles *tiles = w->tiles;
    const cpu_gemm_call *g = w->g;
    uint32_t bad[CPU_BLOCK_ROWS * CPU_BLOCK_COLS / CPU_TILE_ROWS], *b = bad;
    if (!tiles->block(t->k, t->pa, t->pb, g->c + t->m0 * g->ldc + c, g->ldc, t->m1 - t->m0, n,
                      g->add || t->k0 > 0, bad))
        return;
    for (int64_t r = t->m0; r < t->m1; r += tiles->mr)
        for (int64_t j = 0; j < n; j += tiles->nr, b += CPU_TILE_ROWS)
            remake(w, t, r, c + j, cpu_min(tiles->mr, t->m1 - r), cpu_min(tiles->nr, n - j), b);
}

/* The product for columns [c, c + n) of C, tile by tile. */
static void multiply(const gemm *w, int64_t i, const task *t, int64_t c, int64_t n)
{
    const cpu_tiles *tiles = w->tiles;
    const cpu_gemm_call *g = w->g;
    const bool add = g->add || t->k0 > 0;
    cpu_fetch next[2];
    fetch_next(w, i, t, c, n, next);
    for (int64_t r = t->m0; r < t->m1; r += tiles->mr)
        for (int64_t j = 0; j < n; j += tiles->nr) {
            const int64_t rows = cpu_min(tiles->mr, t->m1 - r), cols = cpu_min(tiles->nr, n - j);
            const char *b = t->pb + j * t->unit;
            float *out = g->c + r * g->ldc + c + j;
            if (w->in_place && rows == tiles->mr)
                tiles->tile_rows(t->k, g->a.p + r * g->a.rs + t->k0, g->a.rs, b, out, g->ldc, cols,
                                 add, next);
            else
                tiles->tile(t->k, t->pa + (r - t->m0) * t->unit, b, out, g->ldc, rows, cols, add,
                            next);
        }
}

static void finished(const cpu_gemm_call *g, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                     int thread)
{
    if (g->done)
        g->done->run(g->done->arg, r0, r1, c0, c1, thread);
}

static void run_task(const gemm *w, int64_t i, int thread)
{
    const cpu_gemm_call *g = w->g;
    const cpu_tiles *tiles = w->tiles;
    task t = task_at(w, i);
    t.pa = w->scratch + (size_t)thread * w->per_thread;
    t.pb = t.pa + packed(cpu_min(g->m, M_TASK), g->k);
    const cpu_rectangle all = {t.m0, t.m1, t.n0, t.n1};
    cpu_check check;
    if (g->checks)
        cpu_check_open(&check, w->isa, g, &all);
    const int64_t m = t.m1 - t.m0, whole = w->in_place ? m / tiles->mr * tiles->mr : 0;
    for (; t.k0 < g->k; t.k0 += t.k) {
        t.k = block_of(w, t.k0);
        t.unit = cpu_round_up(t.k, tiles->k_unit) * (int64_t)tiles->size;
        tiles->pack(part_of(g->a, t.m0 + whole, t.k0), m - whole, t.k, true, t.pa + whole * t.unit);
        if (g->checks)
            cpu_check_rows(&check, t.k0, t.k);
        for (int64_t c = t.n0; c < t.n1; c += tiles->strip) {
            const int64_t n = cpu_min(tiles->strip, t.n1 - c);
            const cpu_mat b = part_of(g->b, t.k0, c);
            if (g->checks)
                cpu_check_before(&check, c, c + n);
            tiles->pack((cpu_mat){b.p, b.cs, b.rs}, n, t.k, false, t.pb);
            if (tiles->block)
                multiply_block(w, &t, c, n);
            else
                multiply(w, i, &t, c, n);
            if (g->checks)
                cpu_check_columns(&check, c, c + n);
        }
    }
    if (g->checks)
        cpu_check_close(&check);
    /* running the epilogue strip by strip over long rows measured slower */
    finished(g, t.m0, t.m1, t.n0, t.n1, thread);
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm *w = arg;
    if (w->tiles->begin)
        w->tiles->begin();
    for (int64_t i = begin; i < end; i++)
        run_task(w, i, thread);
    if (w->tiles->end)
        w->tiles->end();
}

/* The columns of the smallest rectangle that `done` accepts. */
static int64_t unit_of(const cpu_gemm_call *g)
{
    return g->done && g->done->unit ? g->done->unit : 1;
}

/* First cuts along m so that every thread gets equally many tasks, then halves the larger side
 * until there are enough tasks. */
static void gemm_cut(gemm *w)
{
    const int64_t m = w->g->m, n = w->g->n, least = cpu_max(LEAST_COLS, w->unit);
    w->rows = parts(m, w->tiles->m_task);
    w->cols = 1;
    if (w->rows > 1)
        w->rows = cpu_min(cpu_round_up(w->rows, w->n_threads), parts(m, LEAST_ROWS));
    while (w->rows * w->cols < w->tiles->tasks * w->n_threads) {
        const int64_t rows = m / w->rows, cols = n / w->cols;
        if (cols >= 2 * least && (cols >= rows || rows < 2 * LEAST_ROWS))
            w->cols *= 2;
        else if (rows >= 2 * LEAST_ROWS)
            w->rows *= 2;
        else
            break;
    }
}

static void run_own(const cpu_backend *self, tt_pool *pool, const cpu_gemm_call *g, void *scratch)
{
    gemm w = {.tiles = self->tiles,
              .isa = self->isa,
              .g = g,
              .scratch = scratch,
              .per_thread = thread_scratch(g->m, g->n, g->k),
              .unit = self->tiles->nr,
              .n_threads = pool ? tt_pool_threads(pool) : 1,
              .in_place = g->a.cs == 1 && self->tiles->tile_rows};
    while (w.unit % unit_of(g))
        w.unit += self->tiles->nr;
    gemm_cut(&w);
    tt_parallel_for(pool, w.rows * w.cols, 1, run_tasks, &w);
}

/* ---- the same product with single-threaded BLAS: a fixed grid of tiles over m and n, never k
 * ---- */
typedef struct blas_grid {
    const cpu_isa *isa;
    const cpu_gemm_call *g;
    int64_t rows, cols, n_cols; /* rows and columns of a tile; tiles along n */
    bool whole_units;           /* the tiles' edges are also edges of the epilogue's units */
} blas_grid;

static void blas_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const blas_grid *w = arg;
    const cpu_gemm_call *g = w->g;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = i / w->n_cols * w->rows, c = i % w->n_cols * w->cols;
        cpu_mat a = {g->a.p + r * g->a.rs, g->a.rs, g->a.cs},
                b = {g->b.p + c * g->b.cs, g->b.rs, g->b.cs};
        const cpu_rectangle x = {r, cpu_min(r + w->rows, g->m), c, cpu_min(c + w->cols, g->n)};
        cpu_check check;
        if (g->checks) {
            cpu_check_open(&check, w->isa, g, &x);
            cpu_check_whole_before(&check);
        }
        cpu_blas_sgemm(cpu_min(w->rows, g->m - r), cpu_min(w->cols, g->n - c), g->k, a, b,
                       g->c + r * g->ldc + c, g->ldc, g->add);
        if (g->checks)
            cpu_check_whole(&check);
        if (w->whole_units)
            finished(g, x.r0, x.r1, x.c0, x.c1, thread);
    }
}

static void finish_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const blas_grid *w = arg;
    finished(w->g, begin, end, 0, w->g->n, thread);
}

/* The grid depends on the shape alone. On some processors OpenBLAS's sums depend on the width of a
 * tile, so a product with an epilogue must use the same tiles as one without. If the epilogue's
 * units (heads) do not end where tiles end, the epilogue runs after the whole product. */
static void run_blas(const cpu_isa *isa, tt_pool *pool, const cpu_gemm_call *g)
{
    /* Sixteenths of the larger extent, not below 256, keep packing cheap and a few threads busy. */
    blas_grid w = {.isa = isa, .g = g, .rows = g->m, .cols = g->n};
    if (g->m >= g->n)
        w.rows = cpu_max(256, cpu_round_up((g->m + 15) / 16, 16));
    else
        w.cols = cpu_max(256, cpu_round_up((g->n + 15) / 16, 16));
    w.n_cols = (g->n + w.cols - 1) / w.cols;
    w.whole_units = w.n_cols == 1 || w.cols % unit_of(g) == 0;
    tt_parallel_for(pool, (g->m + w.rows - 1) / w.rows * w.n_cols, 1, blas_tiles, &w);
    if (!w.whole_units)
        tt_parallel_for(pool, g->m, cpu_row_grain(g->m, g->n), finish_rows, &w);
}

/* ---- products with a few rows: in decoding, reading the weights is what takes the time ---- */
typedef struct few {
    const cpu_isa *isa;
    const cpu_gemm_call *g;
} few;

static void few_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const few *w = arg;
    const int64_t unit = unit_of(w->g), c0 = begin * unit, c1 = cpu_min(end * unit, w->g->n);
    const cpu_rectangle x = {0, w->g->m, c0, c1};
    cpu_check check;
    if (w->g->checks) {
        cpu_check_open(&check, w->isa, w->g, &x);
        cpu_check_whole_before(&check);
    }
    w->isa->few(w->g, CPU_K_BLOCK, c0, c1);
    if (w->g->checks)
        cpu_check_whole(&check);
    finished(w->g, 0, w->g->m, c0, c1, thread);
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
        tt_parallel_for(pool, parts(g->n, unit_of(g)), parts(LEAST_COLS, unit_of(g)), few_columns,
                        &w);
    } else if (self->blas) {
        cpu_gemm_call blas = *g;
        blas.blas = true;
        run_blas(self->isa, pool, &blas);
    } else
        run_own(self, pool, g, scratch);
}

/* ---- kernels ---- */
static cpu_mat plain(const tt_tensor *t, int64_t ld) /* as it is stored */
{
    return (cpu_mat){t->data, ld, 1};
}
static cpu_mat flipped(const tt_tensor *t, int64_t ld)
{
    return (cpu_mat){t->data, 1, ld};
}

/* The three products of a linear layer as m, n, k and operands. T tokens, i and o: input and output
 * width. */
static cpu_gemm_call linear_call(const tt_kernel_call *c)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1];
    const tt_tensor *y = &c->out[0];
    cpu_gemm_call g = {.m = y->shape[0],
                       .n = y->shape[1],
                       .c = y->data,
                       .ldc = y->shape[1],
                       .add = c->accumulate != 0,
                       .checks = c->checks};
    if (strcmp(c->op, "linear") == 0) { /* x [T,i] times wᵀ [i,o] -> y [T,o] */
        g.k = x->shape[1];
        g.a = plain(x, g.k);
        g.b = flipped(w, g.k);
    } else if (strcmp(c->op, "linear_dx") == 0) { /* dy [T,o] times w [o,i] -> dx [T,i] */
        g.k = x->shape[1];
        g.a = plain(x, g.k);
        g.b = plain(w, g.n);
    } else { /* dyᵀ [o,T] times x [T,i] -> dw [o,i] */
        g.k = x->shape[0];
        g.a = flipped(x, g.m);
        g.b = plain(w, g.n);
    }
    return g;
}

/* Are both operands bf16? */
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
                           .add = g->add,
                           .checks = g->checks};
}

bool cpu_linear_takes(const tt_kernel_call *c)
{
    return takes_half(c) || (c->in[0].dtype == TT_F32 && c->in[1].dtype == TT_F32);
}

size_t cpu_linear_scratch(const tt_kernel_call *c, int n_threads)
{
    cpu_gemm_call g = linear_call(c);
    if (takes_half(c))
        return cpu_half_scratch(g.m, g.n, g.k, c->checks != NULL);
    return cpu_gemm_scratch(g.m, g.n, g.k, n_threads);
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

/* The product of matrix i of a batch: a [..,m,k], b [..,k,n] with the same leading dims or none,
 * either transposed in memory -> y [..,m,n]. */
static cpu_gemm_call matmul_call(const tt_kernel_call *c, int64_t i)
{
    const tt_attrs_matmul *at = c->attrs;
    const tt_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    int64_t m = y->shape[y->n_dims - 2], n = y->shape[y->n_dims - 1];
    int64_t k = at->trans_a ? a->shape[a->n_dims - 2] : a->shape[a->n_dims - 1];
    cpu_gemm_call g = {.m = m,
                       .n = n,
                       .k = k,
                       .c = (float *)y->data + (y->data ? i * m * n : 0),
                       .ldc = n,
                       .add = c->accumulate != 0,
                       .checks = c->checks};
    g.a = at->trans_a ? flipped(a, m) : plain(a, k);
    g.b = at->trans_b ? flipped(b, k) : plain(b, n);
    if (a->data) {
        g.a.p += i * m * k;
        g.b.p += i * k * n;
    }
    return g;
}

static size_t matmul_scratch(const tt_kernel_call *c, int n_threads)
{
    cpu_gemm_call g = matmul_call(c, 0);
    return cpu_gemm_scratch(g.m, g.n, g.k, n_threads);
}

static tt_status matmul(void *self, const tt_kernel_call *c, tt_error *err)
{
    (void)err;
    int64_t batch = 1;
    for (int d = 0; d < c->out[0].n_dims - 2; d++)
        batch *= c->out[0].shape[d];
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
