/* SPDX-License-Identifier: Apache-2.0 */
#include "point_memory.h"
#include "random_call.h"
#include "random_words.h"

/* random, initial and iota: an element's value depends on its index in the global tensor. The bits of random are those of
 * tt_random_at (core/graph/ops/leaf.c): a key is the hash XXH3 of the stream's name, the seed and the step, a number the
 * cipher Philox 4x32-10 of key and index. */

/* ---- XXH3, 64 bits, with a seed, of up to 240 bytes (the format's description, xxhash_spec.md) ---- */
#ifdef __CUDACC__
#define RANDOM_TABLE static __device__ const
#else
#define RANDOM_TABLE static const
#endif
RANDOM_TABLE u64 xxh_secret[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};
TT_DEV u64 xxh_load(const unsigned char *p, int n) /* n bytes, the first is the lowest */
{
    u64 v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}
TT_DEV u64 xxh_key(int at) /* 8 bytes of the secret from byte `at` on */
{
    const int shift = at % 8 * 8;
    return shift ? xxh_secret[at / 8] >> shift | xxh_secret[at / 8 + 1] << (64 - shift)
                 : xxh_secret[at / 8];
}
TT_DEV u64 xxh_rotate(u64 x, int n)
{
    return x << n | x >> (64 - n);
}
TT_DEV u32 xxh_swap32(u32 x)
{
    return x << 24 | (x & 0xff00u) << 8 | (x >> 8 & 0xff00u) | x >> 24;
}
TT_DEV u64 xxh_swap64(u64 x)
{
    return (u64)xxh_swap32((u32)x) << 32 | xxh_swap32((u32)(x >> 32));
}
/* The upper half of the product, xor the lower one. */
TT_DEV u64 xxh_fold(u64 a, u64 b)
{
    const u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
    const u64 middle = ah * bl + (al * bl >> 32), other = al * bh + (u32)middle;
    return (ah * bh + (middle >> 32) + (other >> 32)) ^ a * b;
}
TT_DEV u64 xxh_avalanche(u64 h)
{
    h = (h ^ h >> 37) * 0x165667919e3779f9ull;
    return h ^ h >> 32;
}
TT_DEV u64 xxh_avalanche64(u64 h)
{
    h = (h ^ h >> 33) * 0xc2b2ae3d27d4eb4full;
    h = (h ^ h >> 29) * 0x165667b19e3779f9ull;
    return h ^ h >> 32;
}
TT_DEV u64 xxh_mix16(const unsigned char *p, int secret, u64 seed)
{
    return xxh_fold(xxh_load(p, 8) ^ (xxh_key(secret) + seed),
                    xxh_load(p + 8, 8) ^ (xxh_key(secret + 8) - seed));
}
TT_DEV u64 xxh_short(const unsigned char *p, int n, u64 seed) /* up to 16 bytes */
{
    if (n > 8) {
        const u64 lo = xxh_load(p, 8) ^ ((xxh_key(24) ^ xxh_key(32)) + seed);
        const u64 hi = xxh_load(p + n - 8, 8) ^ ((xxh_key(40) ^ xxh_key(48)) - seed);
        return xxh_avalanche((u64)n + xxh_swap64(lo) + hi + xxh_fold(lo, hi));
    }
    if (n >= 4) {
        seed ^= (u64)xxh_swap32((u32)seed) << 32;
        u64 h =
            (xxh_load(p + n - 4, 4) + (xxh_load(p, 4) << 32)) ^ ((xxh_key(8) ^ xxh_key(16)) - seed);
        h = (h ^ xxh_rotate(h, 49) ^ xxh_rotate(h, 24)) * 0x9fb21c651e98df25ull;
        h = (h ^ ((h >> 35) + (u64)n)) * 0x9fb21c651e98df25ull;
        return h ^ h >> 28;
    }
    if (n == 0)
        return xxh_avalanche64(seed ^ (xxh_key(56) ^ xxh_key(64)));
    const u32 word = (u32)p[0] << 16 | (u32)p[n >> 1] << 24 | p[n - 1] | (u32)n << 8;
    return xxh_avalanche64(word ^ (((u32)xxh_key(0) ^ (u32)xxh_key(4)) + seed));
}
TT_DEV u64 xxh_hash(const unsigned char *p, int n, u64 seed)
{
    if (n <= 16)
        return xxh_short(p, n, seed);
    u64 h = (u64)n * 0x9e3779b185ebca87ull;
    if (n <= 128) {
        for (int i = (n - 1) / 32; i >= 0; i--)
            h += xxh_mix16(p + 16 * i, 32 * i, seed) +
                 xxh_mix16(p + n - 16 * (i + 1), 32 * i + 16, seed);
        return xxh_avalanche(h);
    }
    for (int i = 0; i < 8; i++)
        h += xxh_mix16(p + 16 * i, 16 * i, seed);
    h = xxh_avalanche(h);
    for (int i = 8; i < n / 16; i++)
        h += xxh_mix16(p + 16 * i, 16 * (i - 8) + 3, seed);
    return xxh_avalanche(h + xxh_mix16(p + n - 16, 136 - 17, seed));
}

/* ---- uniform and normal numbers: include/ttrun/random.h, core/base/rng.c ---- */
TT_DEV double random_uniform(u64 key, u64 index)
{
    u32 c[4] = {(u32)(index / 2), (u32)(index / 2 >> 32), 0, 0};
    random_words(key, c);
    const u64 bits = index % 2 ? (u64)c[2] << 32 | c[3] : (u64)c[0] << 32 | c[1];
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}
/* log of a normal x > 0: tt_log_exact. */
TT_DEV double random_log(double x)
{
    const u64 bits = point_bits(x), shifted = bits - 0x3fe6a09e667f3bcdull;
    const i64 e = (i64)shifted >> 52;
    const double m = point_number(bits - ((u64)e << 52)), s = (m - 1.0) / (m + 1.0), z = s * s;
    double y = 1.0 / 21.0;
    y = y * z + 1.0 / 19.0;
    y = y * z + 1.0 / 17.0;
    y = y * z + 1.0 / 15.0;
    y = y * z + 1.0 / 13.0;
    y = y * z + 1.0 / 11.0;
    y = y * z + 1.0 / 9.0;
    y = y * z + 1.0 / 7.0;
    y = y * z + 1.0 / 5.0;
    y = y * z + 1.0 / 3.0;
    const double k = (double)e, tail = 2.0 * s * (y * z) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-1 + (2.0 * s + tail);
}
TT_DEV double random_middle(double q, double x)
{
    double p = 2.5090809287301226727e3;
    p = p * x + 3.3430575583588128105e4;
    p = p * x + 6.7265770927008700853e4;
    p = p * x + 4.5921953931549871457e4;
    p = p * x + 1.3731693765509461125e4;
    p = p * x + 1.9715909503065514427e3;
    p = p * x + 1.3314166789178437745e2;
    p = p * x + 3.3871328727963666080e0;
    double y = 5.2264952788528545610e3;
    y = y * x + 2.8729085735721942674e4;
    y = y * x + 3.9307895800092710610e4;
    y = y * x + 2.1213794301586595867e4;
    y = y * x + 5.3941960214247511077e3;
    y = y * x + 6.8718700749205790830e2;
    y = y * x + 4.2313330701600911252e1;
    y = y * x + 1.0000000000000000000e0;
    return q * p / y;
}
TT_DEV double random_tail(double x)
{
    double p = 7.74545014278341407640e-4;
    p = p * x + 2.27238449892691845833e-2;
    p = p * x + 2.41780725177450611770e-1;
    p = p * x + 1.27045825245236838258e0;
    p = p * x + 3.64784832476320460504e0;
    p = p * x + 5.76949722146069140550e0;
    p = p * x + 4.63033784615654529590e0;
    p = p * x + 1.42343711074968357734e0;
    double y = 1.05075007164441684324e-9;
    y = y * x + 5.47593808499534494600e-4;
    y = y * x + 1.51986665636164571966e-2;
    y = y * x + 1.48103976427480074590e-1;
    y = y * x + 6.89767334985100004550e-1;
    y = y * x + 1.67638483018380384940e0;
    y = y * x + 2.05319162663775882187e0;
    y = y * x + 1.0000000000000000000e0;
    return p / y;
}
TT_DEV double random_far(double x)
{
    double p = 2.01033439929228813265e-7;
    p = p * x + 2.71155556874348757815e-5;
    p = p * x + 1.24266094738807843860e-3;
    p = p * x + 2.65321895265761230930e-2;
    p = p * x + 2.96560571828504891230e-1;
    p = p * x + 1.78482653991729133580e0;
    p = p * x + 5.46378491116411436990e0;
    p = p * x + 6.65790464350110377720e0;
    double y = 2.04426310338993978564e-15;
    y = y * x + 1.42151175831644588870e-7;
    y = y * x + 1.84631831751005468180e-5;
    y = y * x + 7.86869131145613259100e-4;
    y = y * x + 1.48753612908506148525e-2;
    y = y * x + 1.36929880922735805310e-1;
    y = y * x + 5.99832206555887937690e-1;
    y = y * x + 1.0000000000000000000e0;
    return p / y;
}
/* Wichura 1988, AS 241: tt_normal_quantile, of 0 < p < 1. */
TT_DEV double random_normal(double p)
{
    const double q = p - 0.5;
    if (fabs(q) <= 0.425)
        return random_middle(q, 0.180625 - q * q);
    const double r = sqrt(-random_log(q < 0 ? p : 1.0 - p));
    const double x = r <= 5.0 ? random_tail(r - 1.6) : random_far(r - 5.0);
    return q < 0 ? -x : x;
}

TT_DEV void random_store(int dtype, void *p, i64 i, double v)
{
    if (point_is_f64(dtype))
        point_write(dtype, p, i, point_round_f64(dtype, v));
    else
        point_write(dtype, p, i, point_round_f32(dtype, v));
}

/* The index in the whole tensor of element i of a part of it. rows: the index of each row; 0: its own. */
template <class C> TT_DEV u64 random_index(const C &c, i64 i, const int *rows)
{
    u64 index = 0, unit = 1;
    for (int d = c.n_dims - 1; d >= 0; d--) {
        index +=
            (d == 0 && rows ? (u64)(u32)rows[i % c.shape[0]] : (u64)(i % c.shape[d] + c.begin[d])) *
            unit;
        unit *= (u64)c.global[d];
        i /= c.shape[d];
    }
    return index;
}

TT_KERNEL(POINT_THREADS, tt_random, const random_call c)
{
    const i64 number = (i64) * (const double *)c.step;
    unsigned char step[8];
    for (int i = 0; i < 8; i++)
        step[i] = (unsigned char)((u64)number >> 8 * i);
    const u64 key = xxh_hash(step, 8, xxh_hash(c.stream, c.stream_bytes, *(const u64 *)c.seed));
    for (i64 i = point_first(); i < c.n; i += point_all()) {
        const double u = random_uniform(key, random_index(c, i, c.rows));
        random_store(c.dtype, c.out, i, c.is_normal ? random_normal(u) : u);
    }
}

/* Two numbers as the 16 bytes that the host hashes (core/graph/ops/stochastic.c). */
TT_DEV u64 random_hash_numbers(u64 x, u64 y, int n, u64 seed)
{
    unsigned char bytes[16];
    for (int i = 0; i < 16; i++)
        bytes[i] = (unsigned char)((i < 8 ? x : y) >> 8 * (i % 8));
    return xxh_hash(bytes, 8 * n, seed);
}

TT_KERNEL(POINT_THREADS, tt_random_keys, const random_keys_call c)
{
    const i64 step = (i64) * (const double *)c.step;
    for (i64 i = point_first(); i < c.n * c.n_streams; i += point_all()) {
        const u64 key = random_hash_numbers((u64)step, c.streams[i / c.n], 2, *(const u64 *)c.seed);
        const u64 h = random_hash_numbers(random_index(c, i % c.n, 0), 0, 1, key);
        c.out[i] = tt_bits_float((u32)(h & 0x807fffffull) | (64u + (u32)(h >> 32 & 127u)) << 23);
    }
}

/* ---- initial values of parameters: core/rank/initial.c ---- */
enum { INIT_TRUNC_NORMAL, INIT_NORMAL, INIT_CONSTANT, INIT_UNIFORM };
TT_DEV double initial_value(const initial_call &c, u64 index)
{
    double u = random_uniform(c.key, index);
    if (c.kind == INIT_UNIFORM || c.kind == INIT_TRUNC_NORMAL)
        u = c.from + c.width * u;
    if (c.kind == INIT_UNIFORM)
        return u;
    if (u > 0.0 && u < 1.0)
        u = random_normal(u);
    else
        u = point_number(u == 0.0   ? 0xfff0000000000000ull
                         : u == 1.0 ? 0x7ff0000000000000ull
                                    : 0x7ff8000000000000ull);
    u = c.a * u;
    if (c.kind == INIT_TRUNC_NORMAL)
        u = u < c.lo ? c.lo : u > c.hi ? c.hi : u;
    return u;
}

TT_KERNEL(POINT_THREADS, tt_initial, const initial_call c)
{
    for (i64 i = point_first(); i < c.n; i += point_all())
        random_store(c.dtype, c.out, i,
                     c.kind == INIT_CONSTANT ? c.a : initial_value(c, random_index(c, i, 0)));
}

TT_KERNEL(POINT_THREADS, tt_iota, void *out, int dtype, i64 begin, i64 n)
{
    for (i64 i = point_first(); i < n; i += point_all())
        random_store(dtype, out, i, (double)(begin + i));
}
