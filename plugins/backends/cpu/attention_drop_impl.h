/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's dropout: what the weights of a vector of queries are multiplied by, by the numbers that
 * ttrun/random.h defines. One Philox cipher of a vector of counters gives the words of four positions of
 * keys. Included after attention_tile_impl.h. Naive twin: factor() in backends/reference/attention.c. */
typedef uint32_t vu __attribute__((vector_size(VW * 4)));
typedef uint64_t vw __attribute__((vector_size(VW * 4)));

/* The 64-bit products of the lower halves of 64-bit lanes. */
INLINE vw drop_product(vw x, vw y)
{
#if CPU_LEVEL == 5
    return (vw)_mm512_mul_epu32((__m512i)x, (__m512i)y);
#elif CPU_LEVEL == 2
    return (vw)_mm256_mul_epu32((__m256i)x, (__m256i)y);
#else
    return (x & UINT32_MAX) * (y & UINT32_MAX);
#endif
}

/* Lane by lane, factor * x: returns the lower 32 bits, and the upper ones in *high. */
INLINE vu drop_multiply(vu x, uint32_t factor, vu *high)
{
    const vw f = (vw)vseti((int32_t)factor), even = drop_product((vw)x, f),
             odd = drop_product((vw)x >> 32, f);
    *high = (vu)(even >> 32 | (odd & ~(vw){0} << 32));
    return (vu)((even & UINT32_MAX) | odd << 32);
}

/* tt_random_words of the counters {row, head, group, 1}. */
INLINE void drop_words(const cpu_attn *a, vi rows, uint32_t group, vu c[4])
{
    uint32_t k0 = (uint32_t)a->drop_key, k1 = (uint32_t)(a->drop_key >> 32);
    c[0] = (vu)rows;
    c[1] = (vu)vseti((int32_t)a->head);
    c[2] = (vu)vseti((int32_t)group);
    c[3] = (vu)vseti(1);
    for (int round = 0; round < 10; round++) {
        vu high_a, high_b;
        const vu low_a = drop_multiply(c[0], 0xd2511f53u, &high_a),
                 low_b = drop_multiply(c[2], 0xcd9e8d57u, &high_b);
        c[0] = high_b ^ c[1] ^ k0;
        c[2] = high_a ^ c[3] ^ k1;
        c[1] = low_b;
        c[3] = low_a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* What the weights of the queries `rows` (their token_index) and CPU_SPAN keys from `key` on are multiplied
 * by: 0 or 1 / (1 - p). */
static void drop_factors(const cpu_attn *a, int64_t key, const int32_t *token_index, vf *factors)
{
    const vi rows = *(const vi_any *)token_index;
    vu words[4];
    for (int64_t j = 0; j < CPU_SPAN; j++) {
        const uint32_t at = (uint32_t)a->pos_k[key + j];
        if (j == 0 || at / 4 != (uint32_t)a->pos_k[key + j - 1] / 4)
            drop_words(a, rows, at / 4, words);
        factors[j] = (vf)((vi)vset(a->kept) & (words[at % 4] >= a->drop_limit));
    }
}
