/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the steps of a chain over CHAIN_VECTORS vectors at a time, the last elements one by one. */
#define CHAIN_VECTORS (CPU_LEVEL == 5 ? 8 : 4) /* as many as leave enough registers for operands */

/* sqrt(x) by multiply-adds, on levels where that is faster than the divider, with the same bits: x
 * is 0 or in [2^-100, 2^128), each step scales with a power of four, and
 * tests/backends/test_cpu_chain.c tries all fractions of two binades. Any other x uses the
 * divider. */
INLINE void vsqrt_group(vf *v, const int V)
{
#if CPU_LEVEL == 5
    vi most = vseti(0), least = vseti(-1);
#pragma GCC unroll 8
    for (int u = 0; u < V; u++) {
        most = (vi)_mm512_max_epu32((__m512i)most, (__m512i)v[u]);
        least = (vi)_mm512_min_epu32(
            (__m512i)least,
            _mm512_sub_epi32((__m512i)v[u], _mm512_set1_epi32(1))); /* 0: the largest */
    }
    const __mmask16 out = _mm512_cmpge_epu32_mask((__m512i)most, _mm512_set1_epi32(0x7f800000)) |
                          _mm512_cmplt_epu32_mask((__m512i)least, _mm512_set1_epi32(0x0d7fffff));
    if (__builtin_expect(!out, 1)) {
        const __m512 half = _mm512_set1_ps(0.5f), zero = _mm512_setzero_ps();
#pragma GCC unroll 8
        for (int u = 0; u < V; u++) {
            const __m512 x = (__m512)v[u];
            const __m512 y = _mm512_maskz_rsqrt14_ps(_mm512_cmp_ps_mask(x, zero, _CMP_NEQ_UQ), x);
            __m512 g = _mm512_mul_ps(x, y), h = _mm512_mul_ps(y, half);
            const __m512 r = _mm512_fnmadd_ps(g, h, half);
            g = _mm512_fmadd_ps(g, r, g);
            h = _mm512_fmadd_ps(h, r, h);
            v[u] = (vf)_mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, x), h, g);
        }
        return;
    }
#endif
#pragma GCC unroll 8
    for (int u = 0; u < V; u++)
        v[u] = vsqrt(v[u]);
}

/* v / b. From b's correctly rounded reciprocal follow a quotient within one unit in the last place
 * and its exact remainder by a multiply-add; their sum rounds as the true quotient (Markstein 1990,
 * IBM J. Res. Dev. 34, theorem 8). It needs that no step leaves the normal numbers: b in [2^-60,
 * 2^60], v = 0 or |v| in [2^-60, 2^60]. Anything else uses the divider. */
INLINE void vdiv_one(vf *v, float b, const int V)
{
#if CPU_LEVEL == 5
    vi most = vseti(0), least = vseti(-1);
#pragma GCC unroll 8
    for (int u = 0; u < V; u++) {
        const __m512i t = _mm512_add_epi32((__m512i)v[u], (__m512i)v[u]); /* without the sign */
        most = (vi)_mm512_max_epu32((__m512i)most, t);
        least = (vi)_mm512_min_epu32(
            (__m512i)least, _mm512_sub_epi32(t, _mm512_set1_epi32(1))); /* 0: the largest */
    }
    const __mmask16 out =
        _mm512_cmpgt_epu32_mask((__m512i)most, _mm512_set1_epi32((int)(2u * 0x5d800000u))) |
        _mm512_cmplt_epu32_mask((__m512i)least, _mm512_set1_epi32(2 * 0x21800000 - 1));
    if (__builtin_expect(b >= 0x1p-60f && b <= 0x1p60f && !out, 1)) {
        const __m512 d = _mm512_set1_ps(b), y = _mm512_set1_ps(1.0f / b);
#pragma GCC unroll 8
        for (int u = 0; u < V; u++) {
            const __m512 x = (__m512)v[u], q = _mm512_mul_ps(x, y);
            v[u] = (vf)_mm512_fnmadd_ps(_mm512_fmsub_ps(d, q, x), y, q); /* keeps the sign of 0 */
        }
        return;
    }
#endif
    const vf d = vset(b);
#pragma GCC unroll 8
    for (int u = 0; u < V; u++)
        v[u] = v[u] / d;
}

/* All steps for V vectors from element i on; for m elements if V is 1. */
#define STEP_LOOP(expr)                                                                            \
    do {                                                                                           \
        if (!s->step) {                                                                            \
            const vf b = vset(*x);                                                                 \
            _Pragma("GCC unroll 8") for (int u = 0; u < V; u++) v[u] = (expr);                     \
        } else {                                                                                   \
            _Pragma("GCC unroll 8") for (int u = 0; u < V; u++)                                    \
            {                                                                                      \
                const vf b = V > 1 ? vload(x + u * VW) : operand(x, 0, m, false, 1.0f);            \
                v[u] = (expr);                                                                     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

INLINE void chain_steps(const cpu_step *s, const cpu_step *end, int64_t i, const int V, int64_t m)
{
    vf v[CHAIN_VECTORS];
#pragma GCC unroll 8
    for (int u = 0; u < V; u++)
        v[u] = vset(0.0f);
    for (; s < end; s++) {
        const float *x = s->x + i * s->step;
        if (V > 1 && s->fetch)
#pragma GCC unroll 8
            for (int u = 0; u < V * VW * 4 / CPU_LINE; u++)
                __builtin_prefetch((const char *)x + CPU_CHAIN_AHEAD + u * CPU_LINE);
        switch (s->op) {
        case CPU_STEP_LOAD:
            STEP_LOOP(b);
            break;
        case CPU_STEP_ADD:
            STEP_LOOP(v[u] + b);
            break;
        case CPU_STEP_SUB:
            STEP_LOOP(v[u] - b);
            break;
        case CPU_STEP_FROM:
            STEP_LOOP(b - v[u]);
            break;
        case CPU_STEP_MUL:
            STEP_LOOP(v[u] * b);
            break;
        case CPU_STEP_DIV:
            if (!s->step)
                vdiv_one(v, *x, V);
            else
                STEP_LOOP(v[u] / b);
            break;
        case CPU_STEP_INTO:
            STEP_LOOP(b / v[u]);
            break;
        case CPU_STEP_MAX:
            STEP_LOOP(vlarger(v[u], b));
            break;
        case CPU_STEP_MAX_OF:
            STEP_LOOP(vlarger(b, v[u]));
            break;
        case CPU_STEP_MIN:
            STEP_LOOP(vsmaller(v[u], b));
            break;
        case CPU_STEP_MIN_OF:
            STEP_LOOP(vsmaller(b, v[u]));
            break;
        case CPU_STEP_RELU:
#pragma GCC unroll 8
            for (int u = 0; u < V; u++)
                v[u] = vmax(vset(0.0f), v[u]);
            break;
        case CPU_STEP_SQRT:
            vsqrt_group(v, V);
            break;
        case CPU_STEP_NEG:
#pragma GCC unroll 8
            for (int u = 0; u < V; u++)
                v[u] = -v[u];
            break;
        default: /* CPU_STEP_ABS */
#pragma GCC unroll 8
            for (int u = 0; u < V; u++)
                v[u] = vabs(v[u]);
            break;
        }
        if (!s->y)
            continue;
        if (V == 1 && m < VW)
            vstore_part(s->y + i, v[0], m);
        else
#pragma GCC unroll 8
            for (int u = 0; u < V; u++)
                vstore(s->y + i + u * VW, v[u]);
    }
}
#undef STEP_LOOP

static void chain(const cpu_step *s, int n_steps, int64_t n)
{
    int64_t i = 0;
    for (; i + CHAIN_VECTORS * VW <= n; i += CHAIN_VECTORS * VW)
        chain_steps(s, s + n_steps, i, CHAIN_VECTORS, 0);
    for (; i < n; i += VW)
        chain_steps(s, s + n_steps, i, 1, n - i < VW ? n - i : VW);
}
