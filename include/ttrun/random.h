/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_RANDOM_H
#define TTRUN_RANDOM_H
#include <stdint.h>
#include <ttrun/status.h>

/* Counter-based random numbers (R20): a number is a function of a key and of a counter, so every part of a
 * tensor can be drawn anew, in any order, on any device. Backends' kernels are inlined from here. */

#ifdef __cplusplus
extern "C" {
#endif

/* The key of a stream, for tt_random_words. [any-thread] */
TT_EXPORT uint64_t tt_random_key(uint64_t seed, int64_t step, const char *stream);
/* The stream's number in tt_attrs_attention. [any-thread] */
TT_EXPORT uint64_t tt_random_stream(const char *stream);

/* Element `index` of the random stream (seed, step, stream): uniform [0,1) or, if `normal`,
 * standard normal. [any-thread] */
TT_EXPORT double tt_random_at(uint64_t seed, int64_t step, const char *stream, uint64_t index,
                              int normal);
/* What the ops random_keys, keyed_uniform and stochastic_round compute; index: of the element in the
 * dims after dim 0. Every backend has these bits. [any-thread] */
TT_EXPORT float tt_random_key_at(uint64_t seed, int64_t step, uint64_t stream, uint64_t index);
TT_EXPORT float tt_keyed_uniform(float a, float b);
TT_EXPORT float tt_stochastic_rounded(float x, float u);

/* Philox 4x32-10: 128 random bits. c: the counter, overwritten. Salmon et al. 2011, "Parallel random
 * numbers: as easy as 1, 2, 3". */
static inline void tt_random_words(uint64_t key, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* Uniform in (0,1), an odd multiple of 2^-53: element `index` of the stream with this key, as
 * tt_random_at(). */
static inline double tt_random_uniform(uint64_t key, uint64_t index)
{
    uint32_t c[4] = {(uint32_t)(index / 2), (uint32_t)(index / 2 >> 32), 0, 0};
    tt_random_words(key, c);
    const uint32_t *pair = c + 2 * (index % 2);
    const uint64_t bits = (uint64_t)pair[0] << 32 | pair[1];
    return ((double)(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0); /* 2^-52 */
}

/* ---- attention's dropout (tt_attrs_attention) ----
 * The probability of query row r (its token_index), query head h and a key at position s is dropped iff
 * word s % 4 of tt_random_words(key, {r, h, s / 4, 1}) is below tt_dropout_limit(p). The last counter
 * keeps these numbers apart from those of tt_random_uniform. Heads are counted over all ranks. */
static inline uint64_t tt_dropout_key(uint64_t seed, int64_t step, uint64_t stream)
{
    uint32_t c[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)step,
                     (uint32_t)((uint64_t)step >> 32)};
    tt_random_words(stream, c);
    return (uint64_t)c[1] << 32 | c[0];
}
static inline uint32_t tt_dropout_limit(double p) /* 0 <= p < 1 */
{
    return (uint32_t)(p * 4294967296.0);
}
static inline int tt_dropout_keeps(uint64_t key, uint32_t limit, uint32_t row, uint32_t head,
                                   uint32_t position)
{
    uint32_t c[4] = {row, head, position / 4, 1};
    tt_random_words(key, c);
    return c[position % 4] >= limit;
}

#ifdef __cplusplus
}
#endif
#endif
