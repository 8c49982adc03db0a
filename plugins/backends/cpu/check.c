/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* debug.check_products: checksums of products (ABFT; Huang and Abraham 1984). All elements of a rectangle of C = A B
 * add up to the product of the sums of A's rows and of B's columns there, which costs a look at
 * each element instead of k multiplications. The two differ by what the product and the sums have rounded:
 * that grows as the root of the number of roundings, for errors of both signs are equally likely.
 *
 * For rows and columns without a common direction it is bounded by u (|C| + |A| |B| / sqrt(k)), Frobenius norms
 * of the rectangle's parts; where sums of A and of B are large together, by u |sums of A * sums of B|. */
#define BOUND                                                                                      \
    32.0 /* times that: 7 standard deviations where one term is above all others, else 20 */
#define UNIT 0x1p-24    /* u of f32 */
#define LEAST_STRIP 256 /* columns of a rectangle, at least */
#define BLAS_TERMS 64   /* BLAS adds up all of k, we so many terms at a time (CPU_K_SUM) */

static double sum_rows(const cpu_isa *isa, const cpu_gemm_call *g, const cpu_rectangle *x,
                       double *squares)
{
    const int64_t n = x->c1 - x->c0;
    double more = 0;
    const double sum =
        isa->check_total(g->c + x->r0 * g->ldc + x->c0, g->ldc, x->r1 - x->r0, n, &more);
    if (!isfinite(more)) { /* too large for squares in f32 */
        more = 0;
        for (int64_t r = x->r0; r < x->r1; r++)
            for (int64_t j = x->c0; j < x->c1; j++) {
                const double y = (double)g->c[r * g->ldc + j];
                more += y * y;
            }
    }
    *squares += more;
    return sum;
}

void cpu_check_open(cpu_check *k, const cpu_isa *isa, const cpu_gemm_call *g,
                    const cpu_rectangle *x)
{
    const int64_t n = x->c1 - x->c0;
    memset(k, 0, sizeof *k);
    k->isa = isa;
    k->g = g;
    k->x = *x;
    k->width = cpu_max(LEAST_STRIP, (n + CPU_CHECK_STRIPS - 1) / CPU_CHECK_STRIPS);
}

void cpu_check_rows(cpu_check *k, int64_t k0, int64_t n)
{
    const cpu_mat a = k->g->a;
    memset(k->a, 0, sizeof k->a);
    k->k0 = k0;
    k->n = n;
    k->isa->check_sums((cpu_mat){a.p + k->x.r0 * a.rs + k0 * a.cs, a.rs, a.cs}, k->x.r1 - k->x.r0,
                       n, k->a, &k->squares_a);
}

static cpu_strip *strip_of(cpu_check *k, int64_t c)
{
    return &k->strips[(c - k->x.c0) / k->width];
}

void cpu_check_before(cpu_check *k, int64_t c0, int64_t c1)
{
    const cpu_rectangle x = {k->x.r0, k->x.r1, c0, c1};
    cpu_strip *s = strip_of(k, c0);
    if (k->g->add && !k->k0)
        s->want += sum_rows(k->isa, k->g, &x, &s->squares_before);
}

void cpu_check_columns(cpu_check *k, int64_t c0, int64_t c1)
{
    const cpu_mat b = k->g->b;
    const cpu_rectangle x = {k->x.r0, k->x.r1, c0, c1};
    cpu_strip *s = strip_of(k, c0);
    double sum[CPU_K_BLOCK] = {0};
    k->isa->check_sums((cpu_mat){b.p + k->k0 * b.rs + c0 * b.cs, b.cs, b.rs}, c1 - c0, k->n, sum,
                       &s->squares_b);
    for (int64_t j = 0; j < k->n; j++) {
        const double y = k->a[j] * sum[j];
        s->want += y;
        s->spread += y * y;
    }
    if (k->k0 + k->n == k->g->k)
        s->got += sum_rows(k->isa, k->g, &x, &s->squares);
}

/* As if all of k were added up at once. */
void cpu_check_sums(tt_checks *checks, int64_t k, double got, double want, double size)
{
    const double terms = (double)cpu_max(k, BLAS_TERMS) / BLAS_TERMS,
                 bound = BOUND * UNIT * sqrt(terms) * size + (double)FLT_MIN;
    __atomic_fetch_add(&checks->products, 1, __ATOMIC_RELAXED);
    if (isfinite(want) && !(isfinite(got) && fabs(got - want) <= bound))
        __atomic_fetch_add(&checks->wrong, 1, __ATOMIC_RELAXED);
}

void cpu_check_close(const cpu_check *k)
{
    const cpu_gemm_call *g = k->g;
    for (int64_t c = k->x.c0, i = 0; c < k->x.c1; c += k->width, i++) {
        const cpu_strip *s = &k->strips[i];
        cpu_check_sums(g->checks, g->blas ? g->k : 0, s->got, s->want,
                       sqrt(s->squares) + sqrt(s->squares_before) +
                           sqrt(k->squares_a * s->squares_b / (double)g->k) + sqrt(s->spread));
    }
}

void cpu_check_whole(cpu_check *k)
{
    const int64_t k_all = k->g->k;
    for (int64_t k0 = 0; k0 < k_all; k0 += CPU_K_BLOCK) {
        cpu_check_rows(k, k0, cpu_min(CPU_K_BLOCK, k_all - k0));
        for (int64_t c = k->x.c0; c < k->x.c1; c += k->width)
            cpu_check_columns(k, c, cpu_min(c + k->width, k->x.c1));
    }
    cpu_check_close(k);
}

void cpu_check_whole_before(cpu_check *k)
{
    for (int64_t c = k->x.c0; c < k->x.c1; c += k->width)
        cpu_check_before(k, c, cpu_min(c + k->width, k->x.c1));
}
