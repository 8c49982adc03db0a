/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"
#include <math.h>
#include <string.h>

/* Many random numbers at once, for initial values: to the bit what tt_rng_uniform and
 * tt_normal_quantile give one by one, in loops of fixed length that a compiler turns into vectors.
 * No contraction (-ffp-contract=off): the instruction set changes no bit. */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CLONES
#endif
#define BLOCK 256 /* numbers */

/* Philox gives two numbers a counter: u[2i], u[2i+1] from counter first + i. */
CLONES static void uniform_block(uint64_t key, uint64_t first, double *restrict u)
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

/* AS 241 where |p - 1/2| <= 0.425; elsewhere what comes out is replaced. */
CLONES static void central_block(const double *restrict p, double *restrict x)
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

void tt_normal_quantiles(int64_t n, const double *p, double *x)
{
    double in[BLOCK], out[BLOCK];
    for (int64_t lo = 0; lo < n; lo += BLOCK) {
        const int64_t m = TT_MIN(n - lo, BLOCK);
        memcpy(in, p + lo, (size_t)m * sizeof *in);
        for (int64_t i = m; i < BLOCK; i++)
            in[i] = 0.5;
        central_block(in, out);
        for (int64_t i = 0; i < m; i++)
            x[lo + i] = fabs(in[i] - 0.5) <= 0.425 ? out[i] : tt_normal_quantile(in[i]);
    }
}
