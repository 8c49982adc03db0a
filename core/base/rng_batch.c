/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <math.h>
#include <string.h>

/* Many random numbers at once, for initial values, bitwise equal to those of tt_rng_uniform and
 * tt_normal_quantile. The loops have fixed lengths so that the compiler vectorises them. Because of
 * -ffp-contract=off the instruction set changes no bit. */

/* Nobody reads errno or floating-point flags of the code below, so the compiler may ignore both. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((optimize("O3", "no-math-errno", "no-trapping-math")))
#else
#define VECTORS
#endif
#define BLOCK 256 /* numbers */

/* Philox gives two numbers per counter: u[2i] and u[2i+1] come from counter first + i. */
TT_CLONES static void uniform_block(uint64_t key, uint64_t first, double *restrict u)
{
    const uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int i = 0; i < BLOCK / 2; i++) {
        const uint64_t counter = first + (uint64_t)i;
        uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
        for (uint32_t round = 0; round < 10; round++) {
            const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
            const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ (key0 + round * 0x9E3779B9u);
            const uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ (key1 + round * 0xBB67AE85u);
            c1 = (uint32_t)b;
            c3 = (uint32_t)a;
            c0 = n0;
            c2 = n2;
        }
        const uint64_t x = (uint64_t)c0 << 32 | c1, y = (uint64_t)c2 << 32 | c3;
        u[2 * i] = ((double)(int64_t)(x >> 12) + 0.5) * 0x1p-52;
        u[2 * i + 1] = ((double)(int64_t)(y >> 12) + 0.5) * 0x1p-52;
    }
}

void tt_rng_uniforms(tt_rng_key key, uint64_t index, int64_t n, double *u)
{
    double block[BLOCK];
    while (n > 0) {
        const uint64_t odd = index % 2;
        const int64_t m = TT_MIN(n, BLOCK - (int64_t)odd);
        uniform_block(key.k, index / 2, block);
        memcpy(u, block + odd, (size_t)m * sizeof *u);
        index += (uint64_t)m;
        u += m;
        n -= m;
    }
}

/* AS 241 for |p - 1/2| <= 0.425; results for other p are wrong and replaced afterwards. */
TT_CLONES static void central_block(const double *restrict p, double *restrict x)
{
    for (int i = 0; i < BLOCK; i++) {
        const double q = p[i] - 0.5, r = 0.180625 - q * q;
        const double num = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r +
                                6.7265770927008700853e4) *
                                   r +
                               4.5921953931549871457e4) *
                                  r +
                              1.3731693765509461125e4) *
                                 r +
                             1.9715909503065514427e3) *
                                r +
                            1.3314166789178437745e2) *
                               r +
                           3.3871328727963666080e0;
        const double den = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r +
                                3.9307895800092710610e4) *
                                   r +
                               2.1213794301586595867e4) *
                                  r +
                              5.3941960214247511077e3) *
                                 r +
                             6.8718700749205790830e2) *
                                r +
                            4.2313330701600911252e1) *
                               r +
                           1.0000000000000000000e0;
        x[i] = q * num / den;
    }
}

/* AS 241 for other p with r <= 5, which holds for all but a share of 3e-11. */
TT_CLONES VECTORS static void tail_block(const double *restrict p, double *restrict x, int n)
{
    for (int i = 0; i < n; i++) {
        const double near = p[i] < 0.5 ? p[i] : 1.0 - p[i];
        const double r = sqrt(-tt_log_exact(near)) - 1.6;
        const double num = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r +
                                2.41780725177450611770e-1) *
                                   r +
                               1.27045825245236838258e0) *
                                  r +
                              3.64784832476320460504e0) *
                                 r +
                             5.76949722146069140550e0) *
                                r +
                            4.63033784615654529590e0) *
                               r +
                           1.42343711074968357734e0;
        const double den = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r +
                                1.51986665636164571966e-2) *
                                   r +
                               1.48103976427480074590e-1) *
                                  r +
                              6.89767334985100004550e-1) *
                                 r +
                             1.67638483018380384940e0) *
                                r +
                            2.05319162663775882187e0) *
                               r +
                           1.0000000000000000000e0;
        x[i] = p[i] < 0.5 ? -(num / den) : num / den;
    }
}

/* Gathers the numbers of a block that are in the tails, computes them and puts them back. */
static void replace_tails(const double *p, double *x, int64_t m)
{
    double in[BLOCK], out[BLOCK];
    int64_t at[BLOCK], n = 0;
    for (int64_t i = 0; i < m; i++) {
        at[n] = i; /* stays only if i is in a tail */
        n += fabs(p[i] - 0.5) > 0.425;
    }
    for (int64_t i = 0; i < n; i++)
        in[i] = p[at[i]];
    tail_block(in, out, (int)n);
    for (int64_t i = 0; i < n; i++) {
        const double near = in[i] < 0.5 ? in[i] : 1.0 - in[i];
        x[at[i]] = near > 1.4e-11 ? out[i] : tt_normal_quantile(in[i]); /* exp(-25): r = 5 */
    }
}

void tt_normal_quantiles(int64_t n, const double *p, double *x)
{
    double in[BLOCK], out[BLOCK];
    for (int64_t lo = 0; lo < n; lo += BLOCK) {
        const int64_t m = TT_MIN(n - lo, BLOCK);
        memcpy(in, p + lo, (size_t)m * sizeof *in);
        for (int64_t i = m; i < BLOCK; i++)
            in[i] = 0.5;
        central_block(in, out);
        memcpy(x + lo, out, (size_t)m * sizeof *out);
        replace_tails(in, x + lo, m);
    }
}
