/* SPDX-License-Identifier: Apache-2.0 */
#include "codes8.h"

/* Pointwise loops over whole vectors; the tail is padded in a register, so an element's value does
 * not depend on where it lies. */

#define UNARY_LOOP(expr)                                                                           \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VW <= n; i += VW) {                                                             \
            vf v = vload(x + i);                                                                   \
            vstore(y + i, (expr));                                                                 \
        }                                                                                          \
        if (i < n) {                                                                               \
            vf v = vload_part(x + i, n - i, 1.0f);                                                 \
            vstore_part(y + i, (expr), n - i);                                                     \
        }                                                                                          \
    } while (0)

/* A subnormal is scaled to a normal first, so that its leading bit becomes the exponent. */
INLINE vf vfloor_pow2(vf x)
{
    const vf a = vabs(x), up = a * vset(0x1p24f);
    const vf small = (vf)((vi)up & 0x7f800000) * vset(0x1p-24f);
    const vf large = vselect(a == a, (vf)((vi)a & 0x7f800000), a);
    return vselect(a < vset(0x1p-126f), small, large);
}

/* Dynamic codes, an element at a time from tables in the first-level cache. */
INLINE vf vencode8(vf x, int positive)
{
    const cpu_codes8 *t = cpu_codes8_tables(positive);
    vf y;
    for (int i = 0; i < VW; i++)
        y[i] = (float)cpu_codes8_byte(t, x[i]);
    return y;
}
INLINE vf vdecode8(vf x, int positive)
{
    const cpu_codes8 *t = cpu_codes8_tables(positive);
    vf y;
    for (int i = 0; i < VW; i++)
        y[i] = t->value[cpu_codes8_index(x[i])];
    return y;
}

static void unary(int op, int64_t n, const float *x, float *y, float imm)
{
    const vf one = vset(1.0f), zero = vset(0.0f), factor = vset(imm);
    switch (op) {
#define CPU_UNARY(id, name, in_place, scalar, vector)                                              \
    case OP_##id:                                                                                  \
        UNARY_LOOP(vector);                                                                        \
        break;
#include "pointwise.def"
    default:
        memmove(y, x, (size_t)n * sizeof(float));
        break;
    }
}

/* An operand that is one element for all lanes, or a vector of its own. */
INLINE vf operand(const float *p, int64_t i, int64_t n, bool splat, float fill)
{
    if (splat)
        return vset(p[0]);
    return n >= VW ? vload(p + i) : vload_part(p + i, n, fill);
}

#define BINARY_LOOP(expr)                                                                          \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VW <= n; i += VW) {                                                             \
            vf u = operand(a, i, VW, sa, 1.0f), v = operand(b, i, VW, sb, 1.0f);                   \
            vstore(y + i, (expr));                                                                 \
        }                                                                                          \
        if (i < n) {                                                                               \
            vf u = operand(a, i, n - i, sa, 1.0f), v = operand(b, i, n - i, sb, 1.0f);             \
            vstore_part(y + i, (expr), n - i);                                                     \
        }                                                                                          \
    } while (0)

INLINE vf vlarger(vf u, vf v) /* NaN wins */
{
    return vselect(u != u, u, vmax(u, v));
}
INLINE vf vsmaller(vf u, vf v)
{
    return vselect(u != u, u, vmin(u, v));
}
INLINE vf vsilu_bwd(vf x, vf dy)
{
    vf flipped, s = vsigmoids(x, &flipped);
    return dy * (s + x * s * flipped);
}

/* tt_keyed_uniform and tt_stochastic_rounded (core/graph/ops/stochastic.c). */
INLINE vf vkeyed_uniform(vf a, vf b)
{
    vu x = (vu)a + (vu)b;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0xd35a2d97u;
    return __builtin_convertvector((vi)((x ^ x >> 15) >> 16), vf) * vset(0x1p-16f);
}
INLINE vf vstochastic_round(vf x, vf u)
{
    const vi size = (vi)x & INT32_MAX, stays = size >= 0x7f800000;
    const vi up = (size + __builtin_convertvector(u * vset(0x1p16f), vi)) & (int32_t)0xffff0000;
    const vf most = vselect(up >= 0x7f800000, (vf)vseti(0x7f7f0000), (vf)up);
    const vi same = (size | ((size > 0x7f800000) & 0x400000)) & (int32_t)0xffff0000;
    return (vf)((vi)vselect(stays, (vf)same, most) | ((vi)x & INT32_MIN));
}

/* y bf16: what stochastic_round gives, without a copy in f32. */
static void stochastic_bf16(int64_t n, const float *x, const float *u, uint16_t *y, unsigned splat)
{
    for (int64_t i = 0; i < n; i += VW) {
        const int64_t m = n - i < VW ? n - i : VW;
        const vf v = vstochastic_round(operand(x, i, m, splat & 1u, 0.0f),
                                       operand(u, i, m, splat & 2u, 0.0f));
        const vs half = __builtin_convertvector((vu)v >> 16, vs);
        if (m == VW)
            memcpy(y + i, &half, sizeof half);
        else
            memcpy(y + i, &half, (size_t)m * sizeof *y);
    }
}

INLINE void binary_loops(int op, int64_t n, const float *a, const float *b, float *y, const bool sa,
                         const bool sb)
{
    const vf zero = vset(0.0f), one = vset(1.0f);
    switch (op) {
#define CPU_BINARY(id, name, in_place, scalar, vector)                                             \
    case OP_##id:                                                                                  \
        BINARY_LOOP(vector);                                                                       \
        break;
#include "pointwise.def"
    default: /* OP_POW: rare, libm's */
        for (int64_t i = 0; i < n; i++)
            y[i] = powf(a[sa ? 0 : i], b[sb ? 0 : i]);
        break;
    }
}

static void binary(int op, int64_t n, const float *a, const float *b, float *y, unsigned splat)
{
    switch (splat & 3u) {
    case 0:
        binary_loops(op, n, a, b, y, false, false);
        break;
    case 1:
        binary_loops(op, n, a, b, y, true, false);
        break;
    case 2:
        binary_loops(op, n, a, b, y, false, true);
        break;
    default:
        binary_loops(op, n, a, b, y, true, true);
        break;
    }
}

/* max_bwd(x, y, dy) */
static void ternary(int op, int64_t n, const float *a, const float *b, const float *c, float *y,
                    unsigned splat)
{
    (void)op;
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vf u = operand(a, i, m, splat & 1u, 0.0f), v = operand(b, i, m, splat & 2u, 0.0f);
        vf w = operand(c, i, m, splat & 4u, 0.0f), r = vselect(u >= v, w, vset(0.0f));
        if (m == VW)
            vstore(y + i, r);
        else
            vstore_part(y + i, r, m);
    }
}

INLINE void store_mask(uint8_t *y, vi mask, int64_t n)
{
    vb bytes = __builtin_convertvector(mask & 1, vb);
    memcpy(y, &bytes, (size_t)n);
}

static void pointwise_compare(int op, int64_t n, const float *a, const float *b, uint8_t *y,
                              unsigned splat)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vf u = operand(a, i, m, splat & 1u, 0.0f);
        vf v = op == OP_IS_FINITE ? vset(INFINITY) : operand(b, i, m, splat & 2u, 0.0f);
        vi r;
        switch (op) {
#define CPU_COMPARE(id, name, scalar, vector)                                                      \
    case OP_##id:                                                                                  \
        r = vector;                                                                                \
        break;
#include "pointwise.def"
        default:
            r = u == v;
            break;
        }
        store_mask(y + i, r, m);
    }
}

static void select_f32(int64_t n, const uint8_t *c, const float *a, const float *b, float *y,
                       unsigned splat)
{
    for (int64_t i = 0; i < n; i += VW) {
        int64_t m = n - i < VW ? n - i : VW;
        vb bytes = {0};
        if (splat & 1u)
            bytes = bytes + (int8_t)c[0];
        else
            memcpy(&bytes, c + i, (size_t)m);
        vi mask = __builtin_convertvector(bytes, vi) != 0;
        vf r =
            vselect(mask, operand(a, i, m, splat & 2u, 0.0f), operand(b, i, m, splat & 4u, 0.0f));
        if (m == VW)
            vstore(y + i, r);
        else
            vstore_part(y + i, r, m);
    }
}
