/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of floats that are computed in double and rounded once: sin, cos, floor_div and mod. What is
 * too large for that goes to functions of single doubles (tests/backends/test_cpu_values.c). */

/* pi/2 in three parts: the first two have 25 bits, so that products with whole numbers below 2^28 are
 * exact (Cody and Waite 1980). */
#define HALF_PI_HIGH 0x1.921fb5p+0
#define HALF_PI_MIDDLE 0x1.110b46p-26
#define HALF_PI_LOW 0x1.1a62633145c07p-54
#define ROUNDER_DOUBLE 6755399441055744.0 /* 1.5 * 2^52 */

/* sin(x + turns pi/2) for |x| <= 2^28, in double: x less the nearest multiple of pi/2, then the Taylor
 * series of sine or cosine up to the power 9 or 10, whose rest is below 2^-28. */
INLINE vd vsine_half(vd x, const int64_t turns)
{
    const vd t = x * 0.63661977236758134308 + ROUNDER_DOUBLE, n = t - ROUNDER_DOUBLE;
    const vl q = (vl)t + turns;
    const vd r = ((x - n * HALF_PI_HIGH) - n * HALF_PI_MIDDLE) - n * HALF_PI_LOW, z = r * r;
    const vd s =
        r * (1.0 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880)))));
    const vd c = 1.0 - 0.5 * z +
                 z * z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800))));
    const vl odd = -(q & 1);
    return (vd)(((odd & (vl)c) | (~odd & (vl)s)) ^ ((q & 2) << 62));
}
/* Larger ones are libm's: element by element, reduced by as many bits of pi as it takes. */
static __attribute__((noinline)) vf vsine_far(vf x, vf y, bool cosine)
{
    for (int i = 0; i < VW; i++)
        if (!(fabsf(x[i]) <= 0x1p28f))
            y[i] = (float)(cosine ? cos((double)x[i]) : sin((double)x[i]));
    return y;
}
INLINE vf vsine(vf x, const int64_t turns)
{
    const vf y = vjoin(vsine_half(vlow(x), turns), vsine_half(vhigh(x), turns));
    return __builtin_expect(vall(vabs(x) <= vset(0x1p28f)), 1) ? y : vsine_far(x, y, turns == 1);
}
INLINE vf vsin(vf x)
{
    return vsine(x, 0);
}
INLINE vf vcos(vf x)
{
    return vsine(x, 1);
}

/* floor(u / v) in double, exact if the quotient is below 2^28: the quotient of two floats is then a whole
 * number or further from one than its rounding error. */
INLINE vd vfloor_half(vd u, vd v)
{
    const vd q = u / v, near = (q + ROUNDER_DOUBLE) - ROUNDER_DOUBLE, one = (vd){0} + 1.0;
    return near - (vd)((vl)(near > q) & (vl)one);
}
static __attribute__((noinline)) vf vfloor_far(vf u, vf v, vf y, vi near, bool rest)
{
    for (int i = 0; i < VW; i++)
        if (!near[i])
            y[i] = (float)(rest ? cpu_mod((double)u[i], (double)v[i])
                                : cpu_floor_div((double)u[i], (double)v[i]));
    return y;
}
INLINE vi vfloor_near(vf u, vf v)
{
    return (vabs(u / v) <= vset(0x1p28f)) & (vabs(v) < vset(INFINITY));
}
INLINE vf vfloor_div(vf u, vf v)
{
    const vi near = vfloor_near(u, v), sign = ((vi)u ^ (vi)v) & INT32_MIN;
    vf y = vjoin(vfloor_half(vlow(u), vlow(v)), vfloor_half(vhigh(u), vhigh(v)));
    y = vselect(y == vset(0.0f), (vf)sign, y);
    return __builtin_expect(vall(near), 1) ? y : vfloor_far(u, v, y, near, false);
}
INLINE vf vmod(vf u, vf v)
{
    const vi near = vfloor_near(u, v);
    const vd a = vlow(u), b = vhigh(u), c = vlow(v), d = vhigh(v);
    vf y = vjoin(a - vfloor_half(a, c) * c, b - vfloor_half(b, d) * d);
    y = vselect(y == vset(0.0f), (vf)((vi)u & INT32_MIN), y);
    return __builtin_expect(vall(near), 1) ? y : vfloor_far(u, v, y, near, true);
}
