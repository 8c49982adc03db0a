/* SPDX-License-Identifier: Apache-2.0 */
/* What attention in AMX tiles multiplies: three bf16 an f32, as gemm_amx.c has them, in the order
 * in which tiles want them. Queries, keys and dims come in panels of 32, each two tiles. */
#define SIX_QUERIES 32
#define SIX_TILE 512 /* elements: 16 rows × 32 k, pairs of k side by side */
#define SIX_PART (2 * SIX_TILE)
#define SIX_PARTS 3

/* The parts of x in the upper halves; gemm_amx.c's split says what they are. */
INLINE void six_parts(vf x, vi p[SIX_PARTS])
{
    const vi unit = vseti(0x8000), high = vseti((int32_t)0xffff0000u);
    p[0] = (vi)x + unit;
    x -= (vf)(p[0] & high);
    p[1] = (vi)x + unit;
    x -= (vf)(p[1] & high);
    p[2] = (vi)x;
}

INLINE void six_pair(vi even, vi odd, uint16_t *dst)
{
    const __m512i low = _mm512_srli_epi32((__m512i)even, 16);
    _mm512_store_si512(dst, _mm512_mask_mov_epi16(low, 0xaaaaaaaau, (__m512i)odd));
}

/* x as the even and y as the odd k of a row; `part` elements between parts. */
INLINE void six_split(vf x, vf y, uint16_t *dst, int64_t part)
{
    vi a[SIX_PARTS], b[SIX_PARTS];
    six_parts(x, a);
    six_parts(y, b);
#pragma GCC unroll 3
    for (int i = 0; i < SIX_PARTS; i++)
        six_pair(a[i], b[i], dst + i * part);
}

/* A step of 16 k at most has room for two parts side by side: left 1 3, 1 2 against right 3 1, 2 1,
 * 1 2 are the six products in three. */
INLINE void six_split_left(vf x, uint16_t *dst)
{
    vi a[SIX_PARTS];
    six_parts(x, a);
    six_pair(a[0], a[2], dst);
    six_pair(a[0], a[1], dst + SIX_PART);
}
INLINE void six_split_right(vf x, uint16_t *dst)
{
    vi a[SIX_PARTS];
    six_parts(x, a);
    six_pair(a[2], a[0], dst);
    six_pair(a[1], a[0], dst + SIX_PART);
    six_pair(a[0], a[1], dst + 2 * SIX_PART);
}

/* The first n of a vector's elements; none if n <= 0. */
INLINE __mmask16 six_mask(int64_t n)
{
    return (__mmask16)(n >= VW ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
INLINE vf six_load(const float *p, __mmask16 keep)
{
    return (vf)_mm512_maskz_loadu_ps(keep, p);
}

/* v[i] = element i of `rows` rows of n elements, ld apart; the rest is zero. */
INLINE void six_load_transposed(const float *p, int64_t ld, int64_t rows, int64_t n, vf *v)
{
    if (rows >= VW && n >= VW) {
        load_transposed(p, ld, VW, v);
        return;
    }
    for (int64_t r = 0; r < VW; r++)
        v[r] = r < rows && n > 0 ? six_load(p + r * ld, six_mask(n)) : vset(0.0f);
    transpose(v);
}

/* A panel's keys: `rows` rows, ld apart; steps of 32 dims, each its parts, each two tiles. */
static void six_pack_keys(const float *k, int64_t ld, int64_t rows, int64_t hd, void *to)
{
    uint16_t *dst = to;
    if (rows < CPU_PANEL)
        memset(to, 0, (size_t)cpu_attn_six_keys(hd) * sizeof *dst);
    for (int64_t d = 0; d < hd; d += 32) {
        const int64_t n = hd - d;
        const __mmask16 first = six_mask(n), second = six_mask(n - 16);
        const float *from = k + d;
        for (int64_t r = 0; r < rows; r++, from += ld)
            if (n <= 16)
                six_split_left(six_load(from, first), dst + r * 32);
            else
                six_split(six_load(from, first), six_load(from + 16, second), dst + r * 32,
                          SIX_PART);
        dst += n <= 16 ? 2 * SIX_PART : SIX_PARTS * SIX_PART;
    }
}

/* Its values, transposed: panels of 32 dims, each its parts, each two tiles, the last one if 16
 * dims are left; keys j and j + 16 are pairs, as rows of weights are. */
static void six_pack_values(const float *v, int64_t ld, int64_t rows, int64_t dv, void *to)
{
    for (int64_t d = 0; d < dv; d += 16) {
        const int64_t tiles = dv - d / 32 * 32 > 16 ? 2 : 1;
        uint16_t *dst = (uint16_t *)to + d / 32 * SIX_PARTS * SIX_PART + d % 32 / 16 * SIX_TILE;
        vf x[16], y[16];
        six_load_transposed(v + d, ld, rows, dv - d, x);
        six_load_transposed(v + 16 * ld + d, ld, rows - 16, dv - d, y);
        for (int i = 0; i < 16; i++)
            six_split(x[i], y[i], dst + i * 32, tiles * SIX_TILE);
    }
}
