/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of one instruction set. Included only by isa_*.c, which define CPU_LEVEL (0 generic,
 * 2 AVX2, 5 AVX-512). Arithmetic is GCC's vector extension; only what the extension cannot express
 * is an intrinsic. There is no contraction: a fused multiply-add is written vfma, and is one only
 * on levels that have it. A vector is at most a cache line, so one prefetch covers it. */
#include "cpu.h"
#include <math.h>
#include <string.h>
#if CPU_LEVEL > 0
#include <immintrin.h>
#endif

#if CPU_LEVEL == 5
#define VW 16
#define MR 14
#define ATTN_ROWS 12
#elif CPU_LEVEL == 2
#define VW 8
#define MR 6
#define ATTN_ROWS 6
#else
#define VW 4
#define MR 6
#define ATTN_ROWS 6
#endif
#define NR (2 * VW)

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));
typedef double vd __attribute__((vector_size(VW * 4)));
typedef int64_t vl __attribute__((vector_size(VW * 4)));
typedef float vh __attribute__((vector_size(VW * 2))); /* half as many floats */
typedef int32_t vhi __attribute__((vector_size(VW * 2)));
typedef float vf_any __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef float vh_any __attribute__((vector_size(VW * 2), aligned(4), may_alias));
typedef uint8_t vb_any __attribute__((vector_size(VW), aligned(1), may_alias));
typedef int8_t vb __attribute__((vector_size(VW)));
typedef uint16_t vs __attribute__((vector_size(VW * 2)));
typedef uint16_t vs_any __attribute__((vector_size(VW * 2), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf vload(const float *p)
{
    return *(const vf_any *)p;
}
INLINE void vstore(float *p, vf v)
{
    *(vf_any *)p = v;
}
INLINE vf vset(float x)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_set1_ps(x);
#elif CPU_LEVEL == 2
    return (vf)_mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}
INLINE vi vseti(int32_t x)
{
#if CPU_LEVEL == 5
    return (vi)_mm512_set1_epi32(x);
#elif CPU_LEVEL == 2
    return (vi)_mm256_set1_epi32(x);
#else
    return (vi){x, x, x, x};
#endif
}
INLINE vf vfma(vf a, vf b, vf c)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif CPU_LEVEL == 2
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}
INLINE vf vselect(vi mask, vf a, vf b) /* mask lanes all ones or all zeros */
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}
/* The larger of a and b, or b if either is NaN (as the hardware's max does). */
INLINE vf vmax(vf a, vf b)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif CPU_LEVEL == 2
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vselect(a > b, a, b);
#endif
}
INLINE vf vmin(vf a, vf b)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif CPU_LEVEL == 2
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vselect(a < b, a, b);
#endif
}
INLINE vf vsqrt(vf x)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif CPU_LEVEL == 2
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < VW; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}
INLINE vf vabs(vf x)
{
    return (vf)((vi)x & vseti(INT32_MAX));
}
/* v with its lanes rotated by n: lane i is v's lane i + n. */
INLINE vf vturn(vf v, int n)
{
    vi at;
#pragma GCC unroll 16
    for (int i = 0; i < VW; i++)
        at[i] = (i + n) % VW;
    return __builtin_shuffle(v, at);
}
/* Halves added pairwise, by the same tree on every level: lane i and lane i + VW/2, and so on. */
INLINE float vsum(vf v)
{
#if CPU_LEVEL == 5
    return _mm512_reduce_add_ps((__m512)v);
#elif CPU_LEVEL == 2
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return s[0] + s[1];
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}
INLINE float vmax_all(vf v)
{
#pragma GCC unroll 4
    for (int n = VW / 2; n; n /= 2)
        v = vmax(vturn(v, n), v);
    return v[0];
}
#if CPU_LEVEL == 5
/* The first n lanes: all of them if n >= VW, none if n <= 0. */
INLINE __mmask16 vmask(int64_t n)
{
    return (__mmask16)(n >= VW ? 0xffff : n > 0 ? (1u << n) - 1 : 0);
}
#endif
/* The first n < VW elements; the other lanes are filled. */
INLINE vf vload_part(const float *p, int64_t n, float fill)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_mask_loadu_ps((__m512)vset(fill), vmask(n), p);
#else
    float t[VW];
    vstore(t, vset(fill));
    memcpy(t, p, (size_t)n * sizeof(float));
    return vload(t);
#endif
}
INLINE void vstore_part(float *p, vf v, int64_t n)
{
#if CPU_LEVEL == 5
    _mm512_mask_storeu_ps(p, vmask(n), (__m512)v);
#else
    float t[VW];
    vstore(t, v);
    memcpy(p, t, (size_t)n * sizeof(float));
#endif
}
/* Two halves as doubles. */
INLINE vd vlow(vf x)
{
#if CPU_LEVEL == 5
    return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
#elif CPU_LEVEL == 2
    return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
#else
    float t[VW];
    vstore(t, x);
    return __builtin_convertvector(*(const vh_any *)t, vd);
#endif
}
INLINE vd vhigh(vf x)
{
#if CPU_LEVEL == 5
    return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif CPU_LEVEL == 2
    return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
#else
    float t[VW];
    vstore(t, x);
    return __builtin_convertvector(*(const vh_any *)(t + VW / 2), vd);
#endif
}
/* The floats of two halves, each rounded once. */
INLINE vf vjoin(vd low, vd high)
{
#if CPU_LEVEL == 5
    return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low)),
                                  _mm512_cvtpd_ps((__m512d)high), 1);
#elif CPU_LEVEL == 2
    return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)high), _mm256_cvtpd_ps((__m256d)low));
#else
    float t[VW];
    *(vh_any *)t = __builtin_convertvector(low, vh);
    *(vh_any *)(t + VW / 2) = __builtin_convertvector(high, vh);
    return vload(t);
#endif
}
INLINE bool vall(vi mask) /* lanes all ones or all zeros */
{
#if CPU_LEVEL == 5
    return _mm512_movepi32_mask((__m512i)mask) == 0xffff;
#elif CPU_LEVEL == 2
    return _mm256_movemask_ps((__m256)mask) == 0xff;
#else
    int32_t all = -1;
    for (int i = 0; i < VW; i++)
        all &= mask[i];
    return all != 0;
#endif
}
/* s + x * x for floats: the square is exact in a double, so the result has the same bits whether or
 * not the multiply-add is fused. */
INLINE vd vadd_square(vd s, vd x)
{
#if CPU_LEVEL == 5
    return (vd)_mm512_fmadd_pd((__m512d)x, (__m512d)x, (__m512d)s);
#elif CPU_LEVEL == 2
    return (vd)_mm256_fmadd_pd((__m256d)x, (__m256d)x, (__m256d)s);
#else
    return s + x * x;
#endif
}

#include "vec_transpose.h"
