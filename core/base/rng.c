/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <math.h>
#include <string.h>

tt_rng_key tt_rng_key_make(uint64_t seed, const char *name, uint64_t extra)
{
    uint8_t bytes[8]; /* little-endian on any machine, so that initial values never change */
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(extra >> (8 * i));
    uint64_t named = tt_hash64(name ? name : "", name ? strlen(name) : 0, seed);
    return (tt_rng_key){tt_hash64(bytes, sizeof bytes, named)};
}

void tt_rng_u32x4(tt_rng_key key, uint64_t counter, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key.k, k1 = (uint32_t)(key.k >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* An odd multiple of 2^-53: it is exact, and it is never 0 or 1. */
double tt_rng_uniform(tt_rng_key key, uint64_t index)
{
    uint32_t x[4];
    tt_rng_u32x4(key, index / 2, x);
    const uint32_t *pair = x + 2 * (index % 2);
    uint64_t bits = (uint64_t)pair[0] << 32 | pair[1];
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

static double polynomial(const double *c, int n, double x) /* c[0] + c[1] x + … */
{
    double y = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

/* Wichura 1988, AS 241, PPND16: three rational approximations of degree 7. */
double tt_normal_quantile(double p)
{
    static const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                               1.9715909503065514427e3, 1.3731693765509461125e4,
                               4.5921953931549871457e4, 6.7265770927008700853e4,
                               3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[] = {1.0000000000000000000e0, 4.2313330701600911252e1,
                               6.8718700749205790830e2, 5.3941960214247511077e3,
                               2.1213794301586595867e4, 3.9307895800092710610e4,
                               2.8729085735721942674e4, 5.2264952788528545610e3};
    static const double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                               5.76949722146069140550e0,  3.64784832476320460504e0,
                               1.27045825245236838258e0,  2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[] = {1.0000000000000000000e0,   2.05319162663775882187e0,
                               1.67638483018380384940e0,  6.89767334985100004550e-1,
                               1.48103976427480074590e-1, 1.51986665636164571966e-2,
                               5.47593808499534494600e-4, 1.05075007164441684324e-9};
    static const double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                               1.78482653991729133580e0,  2.96560571828504891230e-1,
                               2.65321895265761230930e-2, 1.24266094738807843860e-3,
                               2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[] = {1.0000000000000000000e0,   5.99832206555887937690e-1,
                               1.36929880922735805310e-1, 1.48753612908506148525e-2,
                               7.86869131145613259100e-4, 1.84631831751005468180e-5,
                               1.42151175831644588870e-7, 2.04426310338993978564e-15};
    if (!(p > 0.0 && p < 1.0))
        return p == 0.0 ? -HUGE_VAL : p == 1.0 ? HUGE_VAL : (double)NAN;
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial(a, 8, r) / polynomial(b, 8, r);
    }
    double r = sqrt(-tt_log_exact(q < 0 ? p : 1.0 - p)), x;
    if (r <= 5.0)
        x = polynomial(c, 8, r - 1.6) / polynomial(d, 8, r - 1.6);
    else
        x = polynomial(e, 8, r - 5.0) / polynomial(f, 8, r - 5.0);
    return q < 0 ? -x : x;
}

double tt_normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* Finaliser of MurmurHash3 as improved by Stafford (variant 13). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* For 5 to 7 items the network has too few different round functions to give all orders equally often:
 * the hash is a number below n!, whose digits in the factorial base pick one of the items that are left. */
static uint64_t permute_few(tt_rng_key key, uint64_t n, uint64_t index)
{
    uint64_t left[7] = {0, 1, 2, 3, 4, 5, 6}, digits = mix(mix(key.k + n)), picked = 0;
    for (uint64_t i = 0; i <= index; i++) {
        const uint64_t at = digits % (n - i);
        digits /= n - i;
        picked = left[at];
        for (uint64_t k = at; k + 1 < n - i; k++)
            left[k] = left[k + 1];
    }
    return picked;
}

/* A Feistel network permutes [0, 4^half) for any round function. A result outside [0,n) goes
 * through the network again until it is inside, which still is a permutation (Black & Rogaway
 * 2002). As 4^half < 4n, this takes fewer than 4 passes on average. */
uint64_t tt_rng_permute(tt_rng_key key, uint64_t n, uint64_t index)
{
    TT_ASSERT(index < n);
    if (n >= 5 && n <= 7)
        return permute_few(key, n, index);
    unsigned half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1, x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 1; round <= 8; round++) {
            uint64_t next = left ^ (mix(mix(key.k + round * 0x9e3779b97f4a7c15u) ^ right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}
