/* SPDX-License-Identifier: Apache-2.0 */
/* An f32 as the exact sum of three bf16: x = x1 + x2 + x3, each the nearest bf16 to the rest,
 * halves away from zero; |x2| <= 2^-8 |x|, |x3| <= 2^-17 |x|. If x rounds to infinity, is infinite
 * or is NaN, then part 2 or 3 is NaN. The operands of AMX tiles have 16 rows × 32 k, with pairs of
 * k next to each other. */
#define SPLIT_PARTS 3
#define SPLIT_TILE 512 /* elements */

/* The parts of x, each in the upper half of a lane. */
INLINE void split_parts(vf x, vi p[SPLIT_PARTS])
{
    const vi unit = vseti(0x8000), high = vseti((int32_t)0xffff0000u);
    p[0] = (vi)x + unit;
    x -= (vf)(p[0] & high);
    p[1] = (vi)x + unit;
    x -= (vf)(p[1] & high);
    p[2] = (vi)x; /* the rest has at most 8 bits */
}

/* One part of a row of a tile, from the parts of its even and odd k. */
INLINE void split_pair(vi even, vi odd, uint16_t *dst)
{
    const __m512i low = _mm512_srli_epi32((__m512i)even, 16);
    _mm512_store_si512(dst, _mm512_mask_mov_epi16(low, 0xaaaaaaaau, (__m512i)odd));
}

/* x has the even and y the odd k of a row; the parts are stored `part` elements apart. */
INLINE void split_row(vf x, vf y, uint16_t *dst, int64_t part)
{
    vi a[SPLIT_PARTS], b[SPLIT_PARTS];
    split_parts(x, a);
    split_parts(y, b);
#pragma GCC unroll 3
    for (int i = 0; i < SPLIT_PARTS; i++)
        split_pair(a[i], b[i], dst + i * part);
}
