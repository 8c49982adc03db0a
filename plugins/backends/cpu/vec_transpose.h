/* SPDX-License-Identifier: Apache-2.0 */
/* Square blocks transposed in registers; part of vec.h. */

/* Transposes VW rows of VW elements in registers: log2(VW) rounds that interleave row i with row i
 * + VW/2. */
INLINE void transpose(vf *v)
{
    vi low, high;
    for (int i = 0; i < VW; i++) {
        low[i] = i / 2 + (i & 1) * VW;
        high[i] = low[i] + VW / 2;
    }
    for (int round = 1; round < VW; round *= 2) {
        vf t[VW];
#pragma GCC unroll 8
        for (int i = 0; i < VW / 2; i++) {
            t[2 * i] = __builtin_shuffle(v[i], v[i + VW / 2], low);
            t[2 * i + 1] = __builtin_shuffle(v[i], v[i + VW / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VW; i++)
            v[i] = t[i];
    }
}

/* v[i] = element i of each of `count` rows of VW at p, ld apart; the other rows are zero. */
INLINE void load_transposed(const float *p, int64_t ld, int count, vf *v)
{
#if CPU_LEVEL == 5
    /* Quarters of rows r, r + 4, r + 8, r + 12 in one vector, then blocks of 4 × 4: the loads do
     * half of the shuffling. */
    if (count == VW) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            __m512 t[4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                const float *at = p + r * ld + 4 * q;
                __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(at));
                x = _mm512_insertf32x4(x, _mm_loadu_ps(at + 4 * ld), 1);
                x = _mm512_insertf32x4(x, _mm_loadu_ps(at + 8 * ld), 2);
                t[r] = _mm512_insertf32x4(x, _mm_loadu_ps(at + 12 * ld), 3);
            }
            const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(t[0], t[1])),
                          b = _mm512_castps_pd(_mm512_unpackhi_ps(t[0], t[1])),
                          c = _mm512_castps_pd(_mm512_unpacklo_ps(t[2], t[3])),
                          d = _mm512_castps_pd(_mm512_unpackhi_ps(t[2], t[3]));
            v[4 * q] = (vf)_mm512_unpacklo_pd(a, c);
            v[4 * q + 1] = (vf)_mm512_unpackhi_pd(a, c);
            v[4 * q + 2] = (vf)_mm512_unpacklo_pd(b, d);
            v[4 * q + 3] = (vf)_mm512_unpackhi_pd(b, d);
        }
        return;
    }
#endif
    for (int r = 0; r < VW; r++)
        v[r] = r < count ? vload(p + r * ld) : vset(0.0f);
    transpose(v);
}
