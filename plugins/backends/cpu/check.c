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
#define BOUND 16.0      /* times that: about 7 standard deviations of a product of random numbers */
#define UNIT 0x1p-24    /* u of f32 */
#define LEAST_STRIP 256 /* columns of a rectangle, at least */
#define BLAS_TERMS 64   /* BLAS adds up all of k, we so many terms at a time (CPU_K_SUM) */

typedef struct strip { /* of a rectangle's columns */
    double want, spread, squares_b;
} strip;

static int64_t strip_columns(int64_t n)
{
    return cpu_max(LEAST_STRIP, (n + CPU_CHECK_STRIPS - 1) / CPU_CHECK_STRIPS);
}

static double sum_rows(const cpu_isa *isa, const cpu_gemm_call *g, const cpu_rectangle *x,
                       int64_t c, int64_t n, double *squares)
{
    double sum = 0;
    for (int64_t r = x->r0; r < x->r1; r++)
        sum += isa->check_row(g->c + r * g->ldc + c, n, squares);
    if (isfinite(*squares))
        return sum;
    *squares = 0; /* too large for squares in f32 */
    for (int64_t r = x->r0; r < x->r1; r++)
        for (int64_t j = c; j < c + n; j++) {
            const double y = (double)g->c[r * g->ldc + j];
            *squares += y * y;
        }
    return sum;
}

void cpu_check_begin(const cpu_isa *isa, const cpu_gemm_call *g, const cpu_rectangle *x,
                     cpu_check *k)
{
    const int64_t width = strip_columns(x->c1 - x->c0);
    memset(k, 0, sizeof *k);
    for (int64_t c = x->c0, i = 0; g->add && c < x->c1; c += width, i++)
        k->before[i] = sum_rows(isa, g, x, c, cpu_min(width, x->c1 - c), &k->squares_before[i]);
}

/* What the sums of A's rows and B's columns say, block by block of k. */
static double multiply_sums(const cpu_isa *isa, const cpu_gemm_call *g, const cpu_rectangle *x,
                            int64_t width, strip *s)
{
    double squares_a = 0, a[CPU_K_BLOCK], b[CPU_K_BLOCK];
    for (int64_t k0 = 0; k0 < g->k; k0 += CPU_K_BLOCK) {
        const int64_t k = cpu_min(CPU_K_BLOCK, g->k - k0);
        memset(a, 0, sizeof a);
        isa->check_sums((cpu_mat){g->a.p + x->r0 * g->a.rs + k0 * g->a.cs, g->a.rs, g->a.cs},
                        x->r1 - x->r0, k, a, &squares_a);
        for (int64_t c = x->c0, i = 0; c < x->c1; c += width, i++) {
            memset(b, 0, sizeof b);
            isa->check_sums((cpu_mat){g->b.p + k0 * g->b.rs + c * g->b.cs, g->b.cs, g->b.rs},
                            cpu_min(width, x->c1 - c), k, b, &s[i].squares_b);
            for (int64_t j = 0; j < k; j++) {
                const double y = a[j] * b[j];
                s[i].want += y;
                s[i].spread += y * y;
            }
        }
    }
    return squares_a;
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

void cpu_check_end(const cpu_isa *isa, const cpu_gemm_call *g, const cpu_rectangle *x,
                   const cpu_check *k)
{
    const int64_t width = strip_columns(x->c1 - x->c0);
    strip s[CPU_CHECK_STRIPS] = {
        {0, 0, 0}
    };
    const double squares_a = multiply_sums(isa, g, x, width, s),
                 unit =
                     g->blas && g->k > BLAS_TERMS ? UNIT * sqrt((double)g->k / BLAS_TERMS) : UNIT;
    int64_t wrong = 0, n = 0;
    for (int64_t c = x->c0; c < x->c1; c += width, n++) {
        double squares = 0;
        const double sum = sum_rows(isa, g, x, c, cpu_min(width, x->c1 - c), &squares),
                     want = k->before[n] + s[n].want,
                     size = sqrt(squares) + sqrt(k->squares_before[n]) +
                            sqrt(squares_a * s[n].squares_b / (double)g->k) + sqrt(s[n].spread),
                     bound =
                         BOUND * unit * size + (double)FLT_MIN * (double)((x->r1 - x->r0) * width);
        /* operands that are not finite say nothing; then the step's numbers are not finite either */
        wrong += isfinite(want) && !(fabs(sum - want) <= bound);
    }
    __atomic_fetch_add(&g->checks->products, n, __ATOMIC_RELAXED);
    if (wrong)
        __atomic_fetch_add(&g->checks->wrong, wrong, __ATOMIC_RELAXED);
}
