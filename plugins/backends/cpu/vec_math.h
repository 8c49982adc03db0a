/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, tanh and erf within 2 ulp, functions made of them within 3, the tail of gelu within 6
 * (tests/backends/test_cpu_pointwise.c and test_cpu_values.c measure it). The polynomials of exp, log and tanh are those
 * of Cephes (Moshier 1989), the polynomial of the normal tail is our own fit. */

/* erf(x) / x - 1 in x², x in [-1, 1]: relative error of erf 3.3e-9; the same kind of fit. */
#define ERF_NEAR                                                                                   \
    7.847259257687256e-05f, -0.0008008189033716917f, 0.005188099108636379f,                        \
        -0.026853691786527634f, 0.1128358244895935f, -0.3761262595653534f, 0.12837916612625122f

#define LOG2E 1.44269504088896341f
#define LN2_HIGH 0.693359375f /* nine bits: n * LN2_HIGH is exact */
#define LN2_LOW -2.12194440e-4f
#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to an integer */
/* erfcx(y / sqrt 2) / 2 = t p(t), t = 1 / (1 + 0.35 y), y in [0, 14.5]: relative error 2.4e-9;
 * least squares on Chebyshev nodes, highest power first. */
#define NORMAL_TAIL_SCALE 0.35f
#define NORMAL_TAIL                                                                                \
    0.003632811449757247f, -0.04814609806732911f, 0.18676167011240474f, -0.3100109783014607f,      \
        0.2018151854655469f, -0.04452919977800743f, 0.11236615344087025f, 0.1184875875312257f,     \
        0.1400081616695638f, 0.1396146976379476f

/* 2^n for n in [-126, 127] */
INLINE vf vpow2(vi n)
{
    return (vf)((n + 127) << 23);
}

INLINE vf vexp(vf x)
{
    x = vmin(vset(89.0f), vmax(vset(-104.0f), x)); /* NaN stays */
    vf t = vfma(x, vset(LOG2E), vset(ROUNDER));
    vf f = t - vset(ROUNDER);
    vf r = vfma(f, vset(-LN2_HIGH), x);
    r = vfma(f, vset(-LN2_LOW), r);
    vf p = vset(1.9875691500e-4f);
    p = vfma(p, r, vset(1.3981999507e-3f));
    p = vfma(p, r, vset(8.3334519073e-3f));
    p = vfma(p, r, vset(4.1665795894e-2f));
    p = vfma(p, r, vset(1.6666665459e-1f));
    p = vfma(p, r, vset(5.0000001201e-1f));
    p = vfma(p, r * r, r) + 1.0f;
#if CPU_LEVEL == 5
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)f); /* rounded once, as below */
#else
    const vi n = (vi)t - (vi)vset(ROUNDER), half = n >> 1; /* in two steps: may be subnormal */
    return p * vpow2(half) * vpow2(n - half);
#endif
}

/* 2^x for x <= 127, the innermost function of attention: 1 for 0, 0 for -inf. The polynomial is our
 * own minimax fit of 2^r for r in [0, 1): relative error 2.1e-9 before rounding. Below 2^-126 a
 * level that cannot scale by an exponent gives 0. */
INLINE vf vexp2(vf x)
{
#if CPU_LEVEL == 5
    const vf r = (vf)_mm512_reduce_ps((__m512)x, 9); /* x - floor(x) */
#else
    const vi tiny = x < vset(-126.0f);
    const vf y = vmax(vset(-126.0f), x); /* NaN stays */
    const vf t = (y - 0.5f) + vset(ROUNDER), f = t - vset(ROUNDER), r = y - f;
#endif
    vf p = vset(2.1612915e-4f);
    p = vfma(p, r, vset(1.2467846e-3f));
    p = vfma(p, r, vset(9.6754516e-3f));
    p = vfma(p, r, vset(5.5485281e-2f));
    p = vfma(p, r, vset(2.4022931e-1f));
    p = vfma(p, r, vset(6.9314704e-1f));
    p = vfma(p, r, vset(1.0f));
#if CPU_LEVEL == 5
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x); /* times 2^floor(x) */
#else
    return (vf)(((vi)p + (((vi)t - (vi)vset(ROUNDER)) << 23)) & ~tiny);
#endif
}

INLINE vf vlog(vf x)
{
    vi subnormal = x < vset(1.17549435e-38f);
    vf y = vselect(subnormal, x * 8388608.0f, x);
    vi bits = (vi)y;
    vi e = ((bits >> 23) & 255) - 126 - (subnormal & 23);
    vf m = (vf)((bits & 0x007fffff) | 0x3f000000); /* [0.5, 1) */
    vi small = m < vset(0.707106781186547524f);
    e = e + small; /* true is the integer -1 */
    m = vselect(small, m + m, m) - 1.0f;
    vf f = __builtin_convertvector(e, vf), z = m * m;
    vf p = vset(7.0376836292e-2f);
    p = vfma(p, m, vset(-1.1514610310e-1f));
    p = vfma(p, m, vset(1.1676998740e-1f));
    p = vfma(p, m, vset(-1.2420140846e-1f));
    p = vfma(p, m, vset(1.4249322787e-1f));
    p = vfma(p, m, vset(-1.6668057665e-1f));
    p = vfma(p, m, vset(2.0000714765e-1f));
    p = vfma(p, m, vset(-2.4999993993e-1f));
    p = vfma(p, m, vset(3.3333331174e-1f));
    p = p * m * z;
    p = vfma(f, vset(LN2_LOW), p);
    p = vfma(z, vset(-0.5f), p);
    vf r = vfma(f, vset(LN2_HIGH), m + p);
    r = vselect(x == vset(INFINITY), x, r);
    r = vselect(x == vset(0.0f), vset(-INFINITY), r);
    return vselect(x >= vset(0.0f), r, vselect(x != x, x, vset(NAN)));
}

/* log(1 + e^x): what 1 + e has lost of a small e comes back by the quotient */
INLINE vf vsoftplus(vf x)
{
    vf e = vexp(-vabs(x)), u = 1.0f + e;
    return vmax(vset(0.0f), x) + (vlog(u) - ((u - 1.0f) - e) / u); /* NaN stays */
}

INLINE vf vsigmoid(vf x)
{
    vf e = vexp(-vabs(x));
    vf d = 1.0f + e;
    return vselect(x < vset(0.0f), e, vset(1.0f)) / d;
}

/* sigmoid(x), and sigmoid(-x) in *flipped, from one exponential */
INLINE vf vsigmoids(vf x, vf *flipped)
{
    vf e = vexp(-vabs(x));
    vf d = 1.0f + e, small = e / d, large = 1.0f / d;
    *flipped = vselect(x > vset(0.0f), small, large);
    return vselect(x < vset(0.0f), small, large);
}

INLINE vf vtanh(vf x)
{
    vf a = vabs(x), z = x * x;
    vf p = vset(-5.70498872745e-3f);
    p = vfma(p, z, vset(2.06390887954e-2f));
    p = vfma(p, z, vset(-5.37397155531e-2f));
    p = vfma(p, z, vset(1.33314422036e-1f));
    p = vfma(p, z, vset(-3.33332819422e-1f));
    vf near = vfma(p * z, x, x);
    vf far = 1.0f - 2.0f / (vexp(a + a) + 1.0f);
    far = (vf)((vi)far | ((vi)x & INT32_MIN));
    return vselect(a < vset(0.625f), near, far);
}

/* Half of the inner derivative's argument of gelu_tanh: sqrt(2/pi) (x + 0.044715 x^3) */
INLINE vf vgelu_inner(vf x)
{
    return 0.797884560802865f * (x + 0.044715f * x * x * x);
}
INLINE vf vgelu_tanh(vf x) /* 0.5 (1 + tanh u) = sigmoid(2u): no cancellation for negative x */
{
    vf u = vgelu_inner(x);
    return x * vsigmoid(u + u);
}
INLINE vf vgelu_tanh_grad(vf x)
{
    vf u = vgelu_inner(x), flipped, s = vsigmoids(u + u, &flipped);
    vf inner = 1.595769121605731f * (1.0f + 0.134145f * x * x);
    return s + x * s * flipped * inner;
}

/* The normal distribution function: exp(-x²/2) q(|x|) in the tail, 1 minus that on the other side.
 * x² is exact, in two parts. */
INLINE vf vnormal_exp(vf y) /* exp(-y²/2), y >= 0 */
{
    vf h = (vf)((vi)y & (int32_t)0xfffff000);
    return vexp(-0.5f * h * h) * vexp(-0.5f * (y - h) * (y + h));
}
INLINE vf vnormal_cdf(vf x)
{
    vf y = vmin(vset(14.5f), vabs(x)); /* from there on the tail is 0 in f32 */
    vf t = 1.0f / vfma(y, vset(NORMAL_TAIL_SCALE), vset(1.0f));
    static const float c[] = {NORMAL_TAIL};
    vf p = vset(c[0]);
    for (size_t i = 1; i < sizeof c / sizeof *c; i++)
        p = vfma(p, t, vset(c[i]));
    vf tail = vnormal_exp(y) * (p * t);
    vf r = vselect(x > vset(0.0f), 1.0f - tail, tail);
    return vselect(x != x, x, r);
}
INLINE vf vgelu_grad(vf x)
{
    return vnormal_cdf(x) + x * vnormal_exp(vabs(x)) * 0.398942280401432678f;
}

/* In the tail 1 - e^(-x²) t p(t), whose error, relative to 1 - erf, is small beside erf. */
INLINE vf verf(vf x)
{
    static const float n[] = {ERF_NEAR}, c[] = {NORMAL_TAIL};
    vf a = vabs(x), z = x * x, q = vset(n[0]);
    for (size_t i = 1; i < sizeof n / sizeof *n; i++)
        q = vfma(q, z, vset(n[i]));
    vf y = vmin(vset(14.5f), a * 1.41421356237309505f);
    vf t = 1.0f / vfma(y, vset(NORMAL_TAIL_SCALE), vset(1.0f)), p = vset(c[0]);
    for (size_t i = 1; i < sizeof c / sizeof *c; i++)
        p = vfma(p, t, vset(c[i]));
    vf far = 1.0f - 2.0f * (vexp(-z) * (p * t));
    far = (vf)((vi)far | ((vi)x & INT32_MIN));
    return vselect(a < vset(1.0f), vfma(q, x, x), vselect(x != x, x, far));
}
