/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <math.h>
#include <string.h>

/* C = A B of bf16 matrices, summed in f32, with C in f32 or bf16. Panels hold all of k, so a tile
 * is complete when it is stored and is rounded once: no f32 copy of an operand or of C exists in
 * memory. An element's bits depend on its row, its column and k alone. Naive twins: ref_linear and
 * its derivatives in backends/reference/matmul.c. */
#define ELEMENTS (4 << 20) /* elements of an operand that are packed at a time */
#define SLACK 32           /* height of the tallest and width of the widest panel */
#define ROWS 4             /* panels per task, along m and n */
#define COLS 8
#define LEAST_PANEL 6 /* rows of a panel, or columns, at least */

typedef struct product {
    const cpu_isa *isa;
    const cpu_half_call *g;
    char *pa, *pb;
    int64_t m0, m, n0, n, kp; /* the current block; kp: k padded */
    int64_t n_cols;           /* tasks along n */
    float *sums;              /* with checks: of the panels of a task, by k, and then of squares */
    bool pack_b;
} product;

static int64_t padded(int64_t k)
{
    return cpu_max(SLACK, cpu_round_up(k, SLACK));
}

/* The rows of a packed block, a multiple of the panel width `unit`. */
static int64_t block(int64_t n, int64_t k, int64_t unit)
{
    const int64_t most = cpu_max(1, ELEMENTS / padded(k) / unit) * unit;
    return cpu_min(cpu_round_up(n, unit), most);
}

/* While planning the instruction set is unknown: enough for the widest elements and any panel. */
size_t cpu_half_scratch(int64_t m, int64_t n, int64_t k, bool checked)
{
    const int64_t rows = block(m, k, 1) + SLACK, cols = block(n, k, 1) + SLACK,
                  sums = rows / (ROWS * LEAST_PANEL) + cols / (COLS * LEAST_PANEL) + 2;
    return cpu_align((size_t)(rows * padded(k)) * sizeof(float)) +
           cpu_align((size_t)(cols * padded(k)) * sizeof(float)) +
           (checked ? cpu_align((size_t)(sums * (padded(k) + 1)) * sizeof(float)) : 0);
}

static size_t panel_bytes(const product *w, bool left)
{
    const cpu_half *h = w->isa->half;
    return (size_t)(w->kp * (left ? h->mr : h->nr)) * h->size;
}

/* The sums of the rows of A, or columns of B, of a task, which begin with panel j. Those of B come first, as they
 * serve all blocks of A. */
static float *sums_of(const product *w, int64_t j, bool left)
{
    const int64_t cols = COLS * w->isa->half->nr, n_b = (w->n + cols - 1) / cols;
    return w->sums + (left ? n_b + j / ROWS : j / COLS) * (w->g->k + 1);
}

/* Task i packs panel i; the panels of A come first, then those of B. */
static void pack_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *w = arg;
    const cpu_half *h = w->isa->half;
    const cpu_half_call *g = w->g;
    const int64_t n_a = (w->m + h->mr - 1) / h->mr;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const bool left = i < n_a;
        const int64_t j = left ? i : i - n_a, at = j * (left ? h->mr : h->nr);
        const uint16_t *p = left ? g->a + (w->m0 + at) * g->ars : g->b + (w->n0 + at) * g->bcs;
        const int64_t rs = left ? g->ars : g->bcs, cs = left ? g->acs : g->brs,
                      rows = left ? cpu_min(h->mr, w->m - at) : cpu_min(h->nr, w->n - at);
        h->pack(p, rs, cs, rows, g->k, left,
                (left ? w->pa : w->pb) + (size_t)j * panel_bytes(w, left));
        const int64_t all = left ? w->m - at : w->n - at, task = left ? ROWS * h->mr : COLS * h->nr;
        if (g->checks && j % (left ? ROWS : COLS) == 0)
            w->isa->check_half(p, rs, cs, cpu_min(all, task), g->k, sums_of(w, j, left));
    }
}

/* Stores one row of a tile in C. */
static void store_row(const product *w, int64_t r, int64_t c, float *t, int64_t n)
{
    const cpu_half_call *g = w->g;
    const int64_t at = (w->m0 + r) * g->ldc + w->n0 + c;
    float old[SLACK];
    if (g->wide) {
        float *y = (float *)g->c + at;
        for (int64_t j = 0; j < n; j++)
            y[j] = g->add ? y[j] + t[j] : t[j];
        return;
    }
    uint16_t *y = (uint16_t *)g->c + at;
    if (g->add) {
        w->isa->from_bf16(n, y, old);
        for (int64_t j = 0; j < n; j++)
            t[j] += old[j];
    }
    w->isa->to_bf16(n, t, y);
}

/* sum, squares: of the task that begins with panels a0 of A and b0 of B. */
static void check_task(const product *w, int64_t a0, int64_t b0, const double *sum, double squares)
{
    const int64_t k = w->g->k;
    const float *a = sums_of(w, a0, true), *b = sums_of(w, b0, false);
    double got = 0, want = 0, spread = 0;
    for (int i = 0; i < SLACK; i++)
        got += sum[i];
    for (int64_t p = 0; p < k; p++) {
        const double y = (double)a[p] * (double)b[p];
        want += y;
        spread += y * y;
    }
    cpu_check_sums(w->g->checks, k, got, want,
                   (isfinite(squares) ? sqrt(squares) : fabs(got)) +
                       sqrt((double)a[k] * (double)b[k] / (double)k) + sqrt(spread));
}

static void multiply(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *w = arg;
    const cpu_half *h = w->isa->half;
    float tile[SLACK * SLACK] __attribute__((aligned(64)));
    if (h->begin)
        h->begin();
    for (int64_t i = begin; i < end; i++) {
        const int64_t r0 = i / w->n_cols * ROWS * h->mr, c0 = i % w->n_cols * COLS * h->nr;
        const int64_t r1 = cpu_min(r0 + ROWS * h->mr, w->m), c1 = cpu_min(c0 + COLS * h->nr, w->n);
        double sum[SLACK] = {0}, squares = 0;
        for (int64_t c = c0; c < c1; c += h->nr)
            for (int64_t r = r0; r < r1; r += h->mr) {
                h->tile(w->g->k, w->pa + (size_t)(r / h->mr) * panel_bytes(w, true),
                        w->pb + (size_t)(c / h->nr) * panel_bytes(w, false), tile);
                if (w->g->checks)
                    w->isa->check_columns(tile, h->nr, cpu_min(h->mr, r1 - r),
                                          cpu_min(h->nr, c1 - c), sum, &squares);
                for (int64_t j = r; j < cpu_min(r + h->mr, r1); j++)
                    store_row(w, j, c, tile + (j - r) * h->nr, cpu_min(h->nr, c1 - c));
            }
        if (w->g->checks)
            check_task(w, r0 / h->mr, c0 / h->nr, sum, squares);
        if (w->g->done)
            w->g->done->run(w->g->done->arg, w->m0 + r0, w->m0 + r1, w->n0 + c0, w->n0 + c1,
                            thread);
    }
    if (h->end)
        h->end();
}

/* k is 0: the sum is empty. */
static void clear(const cpu_half_call *g)
{
    const size_t size = g->wide ? sizeof(float) : sizeof(uint16_t);
    for (int64_t r = 0; !g->add && r < g->m; r++)
        memset((char *)g->c + (size_t)(r * g->ldc) * size, 0, (size_t)g->n * size);
}

void cpu_half_gemm(const cpu_backend *self, tt_pool *pool, const cpu_half_call *g, void *scratch)
{
    const cpu_half *h = self->isa->half;
    product w = {.isa = self->isa, .g = g, .kp = cpu_round_up(g->k, h->kr)};
    if (g->m == 0 || g->n == 0 || g->k == 0) {
        clear(g);
        if (g->done)
            g->done->run(g->done->arg, 0, g->m, 0, g->n, 0);
        return;
    }
    const int64_t mb = block(g->m, g->k, h->mr), nb = block(g->n, g->k, h->nr);
    w.pa = scratch;
    w.pb = w.pa + cpu_align((size_t)(mb * w.kp) * h->size);
    w.sums = (float *)(void *)(w.pb + cpu_align((size_t)(nb * w.kp) * h->size));
    for (w.n0 = 0; w.n0 < g->n; w.n0 += nb)
        for (w.m0 = 0; w.m0 < g->m; w.m0 += mb) {
            w.m = cpu_min(mb, g->m - w.m0);
            w.n = cpu_min(nb, g->n - w.n0);
            const int64_t n_a = (w.m + h->mr - 1) / h->mr, n_b = (w.n + h->nr - 1) / h->nr;
            w.n_cols = (n_b + COLS - 1) / COLS;
            tt_parallel_for(pool, w.m0 ? n_a : n_a + n_b, 1, pack_panels, &w);
            tt_parallel_for(pool, (n_a + ROWS - 1) / ROWS * w.n_cols, 1, multiply, &w);
        }
}
