/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <math.h>
#include <string.h>
#include <ttrun/narrow.h>

/* Pointwise operations on a run of elements. f32 has vector loops (cpu_isa); every other dtype goes
 * through double in blocks: exact for i32, bf16 and f16, and rounded once to the result's dtype.
 * Naive twins: backends/reference/pointwise.c. */

static const struct {
    const char *name;
    int op;
} names[] = {
#define CPU_UNARY(id, name, in_place, scalar, vector) {name, OP_##id},
#define CPU_BINARY(id, name, in_place, scalar, vector) {name, OP_##id},
#define CPU_COMPARE(id, name, scalar, vector) {name, OP_##id},
#define CPU_OTHER(id, name, in_place) {name, OP_##id},
#define CPU_ALIAS(id, name, in_place) {name, OP_##id},
#include "pointwise.def"
};

int cpu_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].op;
    return -1;
}

#define BLOCK 256
typedef double block[BLOCK];

static void to_double(const cpu_reg *r, int64_t at, int64_t n, double *y)
{
    const int64_t step = r->splat ? 0 : 1, i0 = r->splat ? 0 : at;
#define LOAD(type, expr)                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type v = ((const type *)r->p)[i0 + i * step];                                              \
        y[i] = (double)(expr);                                                                     \
    }                                                                                              \
    break
    switch (r->dtype) {
    case TT_F32:
        LOAD(float, v);
    case TT_F64:
        LOAD(double, v);
    case TT_I32:
        LOAD(int32_t, v);
    case TT_I64:
        LOAD(int64_t, v);
    case TT_BF16:
        LOAD(uint16_t, tt_from_bf16(v));
    case TT_F16:
        LOAD(uint16_t, tt_from_f16(v));
    case TT_F8E4M3:
        LOAD(uint8_t, tt_from_float8(v, false));
    case TT_F8E5M2:
        LOAD(uint8_t, tt_from_float8(v, true));
    default:
        LOAD(uint8_t, v);
    }
#undef LOAD
}

/* Whole numbers truncate and saturate; NaN becomes 0. */
static int64_t to_whole(double v, double lo, double hi)
{
    return v != v    ? 0
           : v <= lo ? (int64_t)lo
           : v >= hi ? (hi >= 0x1p63 ? INT64_MAX : (int64_t)hi)
                     : (int64_t)v;
}

static void from_double(const double *x, int64_t n, cpu_reg *r, int64_t at)
{
#define STORE(type, expr)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
        double v = x[i];                                                                           \
        ((type *)r->p)[at + i] = (type)(expr);                                                     \
    }                                                                                              \
    break
    switch (r->dtype) {
    case TT_F32:
        STORE(float, v);
    case TT_F64:
        STORE(double, v);
    case TT_I32:
        STORE(int32_t, to_whole(v, INT32_MIN, INT32_MAX));
    case TT_I64:
        STORE(int64_t, to_whole(v, -0x1p63, 0x1p63));
    case TT_BF16:
        STORE(uint16_t, tt_to_bf16(tt_f32_towards_odd(v)));
    case TT_F16:
        STORE(uint16_t, tt_to_f16(tt_f32_towards_odd(v)));
    case TT_F8E4M3:
        STORE(uint8_t, tt_to_float8(tt_f32_towards_odd(v), false));
    case TT_F8E5M2:
        STORE(uint8_t, tt_to_float8(tt_f32_towards_odd(v), true));
    case TT_BOOL:
        STORE(uint8_t, v != 0);
    default:
        STORE(uint8_t, to_whole(v, 0, 255));
    }
#undef STORE
}

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}
static double gelu_inner(double x) /* twice the argument of tanh */
{
    return 1.59576912160573071176 * (x + 0.044715 * x * x * x);
}

static double gelu_tanh_slope(double x)
{
    const double s = sigmoid(gelu_inner(x));
    return s + x * s * (1 - s) * 1.59576912160573071176 * (1 + 0.134145 * x * x);
}

/* As PyTorch computes them (c10/util/generic_math.h): the quotient is that of x without its
 * remainder. */
double cpu_mod(double x, double y)
{
    const double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
double cpu_floor_pow2(double x)
{
    int e;
    if (x == 0 || !isfinite(x))
        return fabs(x);
    frexp(x, &e);
    return ldexp(0.5, e);
}
double cpu_floor_div(double x, double y)
{
    const double r = fmod(x, y), q = (x - r) / y - (r != 0 && (r < 0) != (y < 0) ? 1 : 0);
    if (y == 0)
        return x / y;
    return q != 0 ? nearbyint(q) : copysign(0.0, x / y);
}

static double unary_double(int op, double x, double imm)
{
    switch (op) {
#define CPU_UNARY(id, name, in_place, scalar, vector)                                              \
    case OP_##id:                                                                                  \
        return scalar;
#include "pointwise.def"
    case OP_IS_FINITE:
        return isfinite(x);
    default:
        return x;
    }
}

static double binary_double(int op, double x, double y)
{
    switch (op) {
#define CPU_BINARY(id, name, in_place, scalar, vector)                                             \
    case OP_##id:                                                                                  \
        return scalar;
#define CPU_COMPARE(id, name, scalar, vector)                                                      \
    case OP_##id:                                                                                  \
        return scalar;
#include "pointwise.def"
    default:
        return pow(x, y);
    }
}

static void run_double(int op, int64_t n, const cpu_reg *src, int n_src, cpu_reg *dst, double imm)
{
    block x[3];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = cpu_min(BLOCK, n - at);
        for (int i = 0; i < n_src; i++)
            to_double(&src[i], at, m, x[i]);
        if (op == OP_CONST)
            for (int64_t i = 0; i < m; i++)
                x[0][i] = imm;
        else if (n_src == 1)
            for (int64_t i = 0; i < m; i++)
                x[0][i] = unary_double(op, x[0][i], imm);
        else if (n_src == 2)
            for (int64_t i = 0; i < m; i++)
                x[0][i] = binary_double(op, x[0][i], x[1][i]);
        else if (op == OP_SELECT)
            for (int64_t i = 0; i < m; i++)
                x[0][i] = x[0][i] != 0 ? x[1][i] : x[2][i];
        else
            for (int64_t i = 0; i < m; i++)
                x[0][i] = x[0][i] >= x[1][i] ? x[2][i] : 0;
        from_double(x[0], m, dst, at);
    }
}

static bool all_f32(const cpu_reg *src, int n)
{
    for (int i = 0; i < n; i++)
        if (src[i].dtype != TT_F32)
            return false;
    return true;
}

static bool is_half(tt_dtype dtype)
{
    return dtype == TT_BF16 || dtype == TT_F16;
}

static void to_half(const cpu_isa *isa, tt_dtype dtype, int64_t n, const float *x, uint16_t *y)
{
    (dtype == TT_BF16 ? isa->to_bf16 : isa->to_f16)(n, x, y);
}

static void from_half(const cpu_isa *isa, tt_dtype dtype, int64_t n, const uint16_t *x, float *y)
{
    (dtype == TT_BF16 ? isa->from_bf16 : isa->from_f16)(n, x, y);
}

static bool run_cast(const cpu_isa *isa, int64_t n, const cpu_reg *x, cpu_reg *y)
{
    if (x->splat)
        return false;
    if (x->dtype == y->dtype)
        memmove(y->p, x->p, (size_t)n * tt_dtype_size(x->dtype));
    else if (x->dtype == TT_F32 && is_half(y->dtype))
        to_half(isa, y->dtype, n, x->p, y->p);
    else if (is_half(x->dtype) && y->dtype == TT_F32)
        from_half(isa, x->dtype, n, x->p, y->p);
    else if (x->dtype == TT_F32 && (y->dtype == TT_F8E4M3 || y->dtype == TT_F8E5M2))
        isa->to_float8(n, x->p, y->p, y->dtype == TT_F8E5M2);
    else if ((x->dtype == TT_F8E4M3 || x->dtype == TT_F8E5M2) && y->dtype == TT_F32)
        isa->from_float8(n, x->p, y->p, x->dtype == TT_F8E5M2);
    else
        return false;
    return true;
}

/* Can the f32 loops do it, with conversions before and after? So for bf16 and f16 mixed with f32,
 * and for select's condition. */
static bool halves(int op, const cpu_reg *src, int n_src, const cpu_reg *dst)
{
    bool any = is_half(dst->dtype);
    if (!n_src || (!any && dst->dtype != TT_F32 && dst->dtype != TT_BOOL))
        return false;
    for (int i = 0; i < n_src; i++) {
        const bool condition = op == OP_SELECT && i == 0;
        if (src[i].dtype != TT_F32 && !is_half(src[i].dtype) && !condition)
            return false;
        any = any || is_half(src[i].dtype);
    }
    return any;
}

/* Block by block in cache: widens bf16 and f16, runs the op in f32, rounds the result once. */
static void run_halves(const cpu_isa *isa, int op, int64_t n, const cpu_reg *src, int n_src,
                       cpu_reg *dst, double imm)
{
    float x[3][BLOCK], y[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = cpu_min(BLOCK, n - at);
        const int64_t size = (int64_t)tt_dtype_size(dst->dtype);
        cpu_reg in[3], out = {y, TT_F32, dst->splat};
        for (int i = 0; i < n_src; i++) {
            in[i] = src[i];
            if (!src[i].splat)
                in[i].p = (char *)src[i].p + at * (int64_t)tt_dtype_size(src[i].dtype);
            if (!is_half(src[i].dtype))
                continue;
            from_half(isa, src[i].dtype, src[i].splat ? 1 : m, in[i].p, x[i]);
            in[i].p = x[i];
            in[i].dtype = TT_F32;
        }
        if (!is_half(dst->dtype))
            out = (cpu_reg){(char *)dst->p + at * size, dst->dtype, dst->splat};
        cpu_pointwise_run(isa, op, m, in, n_src, &out, imm);
        if (is_half(dst->dtype))
            to_half(isa, dst->dtype, m, y, (uint16_t *)dst->p + at);
    }
}

void cpu_pointwise_run(const cpu_isa *isa, int op, int64_t n, const cpu_reg *src, int n_src,
                       cpu_reg *dst, double imm)
{
    unsigned splat = 0;
    for (int i = 0; i < n_src; i++)
        splat |= src[i].splat ? 1u << i : 0;
    if ((op == OP_CAST || op == OP_COPY) && run_cast(isa, n, &src[0], dst))
        return;
    if (op == OP_SELECT && (src[0].dtype == TT_BOOL || src[0].dtype == TT_U8) &&
        all_f32(src + 1, 2) && dst->dtype == TT_F32) {
        isa->select(n, src[0].p, src[1].p, src[2].p, dst->p, splat);
        return;
    }
    if (op == OP_STOCHASTIC_ROUND && all_f32(src, 2) && dst->dtype == TT_BF16) {
        isa->stochastic_bf16(dst->splat ? 1 : n, src[0].p, src[1].p, dst->p, splat);
        return;
    }
    if (halves(op, src, n_src, dst)) {
        run_halves(isa, op, n, src, n_src, dst, imm);
        return;
    }
    if (!n_src || !all_f32(src, n_src) || op == OP_SELECT) {
        run_double(op, n, src, n_src, dst, imm);
        return;
    }
    if (dst->dtype == TT_BOOL && op != OP_CAST)
        isa->compare(op, n, src[0].p, n_src > 1 ? src[1].p : NULL, dst->p, splat);
    else if (dst->dtype != TT_F32 || (n_src == 1 && splat))
        run_double(op, n, src, n_src, dst, imm);
    else if (n_src == 1)
        isa->unary(op, n, src[0].p, dst->p, (float)imm);
    else if (n_src == 2)
        isa->binary(op, n, src[0].p, src[1].p, dst->p, splat);
    else
        isa->ternary(op, n, src[0].p, src[1].p, src[2].p, dst->p, splat);
}
