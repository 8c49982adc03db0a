/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <ttrun/codes.h>

/* Pointwise ops. Each is one scalar function in f64 that the single op and fused programs share;
 * the result is rounded once to its dtype. */

typedef double scalar_fn(double a, double b, double c);

#define FN(name, expression)                                                                       \
    static double name(double a, double b, double c)                                               \
    {                                                                                              \
        (void)a, (void)b, (void)c;                                                                 \
        return expression;                                                                         \
    }

#define ROOT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double gelu_tanh_inner(double x)
{
    return tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x));
}

static double gelu_tanh_slope(double x)
{
    double t = gelu_tanh_inner(x);
    return 0.5 * (1.0 + t) +
           0.5 * x * (1.0 - t * t) * ROOT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x);
}

/* PyTorch's formulas (c10/util/generic_math.h): the quotient is that of x without its remainder. */
static double mod(double x, double y)
{
    const double r = fmod(x, y);
    return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}

static double floor_pow2(double x)
{
    int e = 0;
    if (x == 0.0 || !isfinite(x))
        return fabs(x);
    frexp(x, &e);
    return ldexp(0.5, e);
}

static double floor_div(double x, double y)
{
    const double r = fmod(x, y);
    if (y == 0.0)
        return x / y;
    double q = (x - r) / y;
    if (r != 0.0 && (r < 0.0) != (y < 0.0))
        q -= 1.0;
    return q != 0.0 ? nearbyint(q) : copysign(0.0, x / y);
}

/* clang-format off */
/* Every pointwise op of this backend: its name, the function, and its kernel where that is not the
 * function element by element. */
#define SCALARS(ROW, ROW_OF)                                                                       \
    ROW(add, a + b)                                                                                \
    ROW(sub, a - b)                                                                                \
    ROW(mul, a * b)                                                                                \
    ROW(scale_by, a * b)                                                                           \
    ROW(div, a / b)                                                                                \
    ROW(floor_div, floor_div(a, b))                                                                \
    ROW(mod, mod(a, b))                                                                            \
    ROW(maximum, a > b || isnan(a) ? a : b) /* a NaN wins */                                       \
    ROW(minimum, a < b || isnan(a) ? a : b)                                                        \
    ROW(pow, pow(a, b))                                                                            \
    ROW(less, a < b)                                                                               \
    ROW(less_equal, a <= b)                                                                        \
    ROW(equal, a == b)                                                                             \
    ROW(select, a != 0.0 ? b : c)                                                                  \
    ROW(neg, -a)                                                                                   \
    ROW(exp, exp(a))                                                                               \
    ROW(log, log(a))                                                                               \
    ROW(sqrt, sqrt(a))                                                                             \
    ROW(rsqrt, 1.0 / sqrt(a))                                                                      \
    ROW(abs, fabs(a))                                                                              \
    ROW(round, nearbyint(a))                                                                       \
    ROW(floor_pow2, floor_pow2(a))                                                                 \
    ROW(encode8, (double)tt_code8((float)a, 0))                                                    \
    ROW(encode8u, (double)tt_code8((float)a, 1))                                           \
    ROW(decode8, (double)tt_code8_value((int)a, 0))                                                \
    ROW(decode8u, (double)tt_code8_value((int)a, 1))                                       \
    ROW(tanh, tanh(a))                                                                             \
    ROW(sigmoid, sigmoid(a))                                                                       \
    ROW(silu, a * sigmoid(a))                                                                      \
    ROW(relu, a > 0.0 || isnan(a) ? a : 0.0)                                                       \
    ROW(gelu, 0.5 * a * (1.0 + erf(a * INV_SQRT_2)))                                               \
    ROW(gelu_tanh, 0.5 * a * (1.0 + gelu_tanh_inner(a)))                                           \
    ROW(softplus, (a > 0.0 ? a : 0.0) + log1p(exp(-fabs(a))))                                      \
    ROW(is_finite, isfinite(a) ? 1.0 : 0.0)                                                        \
    ROW(erf, erf(a))                                                                               \
    ROW(sin, sin(a))                                                                               \
    ROW(cos, cos(a))                                                                               \
    ROW(silu_bwd, b * sigmoid(a) * (1.0 + a * (1.0 - sigmoid(a))))                                 \
    ROW(gelu_bwd, b * (0.5 * (1.0 + erf(a * INV_SQRT_2)) + a * INV_SQRT_2PI * exp(-0.5 * a * a)))  \
    ROW(gelu_tanh_bwd, b * gelu_tanh_slope(a))                                                     \
    ROW(relu_bwd, a > 0.0 ? b : 0.0)                                                               \
    ROW(tanh_bwd, b * (1.0 - a * a))                                                               \
    ROW(sigmoid_bwd, b * a * (1.0 - a))                                                            \
    ROW(max_bwd, a >= b ? c : 0.0)                                                                 \
    ROW(keyed_uniform, (double)tt_keyed_uniform((float)a, (float)b))                               \
    ROW(stochastic_round, (double)tt_stochastic_rounded((float)a, (float)b))                       \
    ROW_OF(scale, ref_scale, a * b) /* b: the instruction's number */                              \
    ROW_OF(cast, ref_cast, a)                                                                      \
    ROW_OF(cast_down, ref_cast, a)                                                                 \
    ROW_OF(stop_gradient, ref_copy, a)
/* clang-format on */

#define FN_OF(op, run, expression) FN(fn_##op, expression)
#define FN_ROW(op, expression) FN(fn_##op, expression)
SCALARS(FN_ROW, FN_OF)

static const struct {
    scalar_fn *fn;
    tt_kernel kernel;
} scalars[] = {
#define ENTRY(op_, run_)                                                                           \
    {                                                                                              \
        fn_##op_,                                                                                  \
        {                                                                                          \
            .struct_size = sizeof(tt_kernel), .op = #op_, .run = run_                              \
        }                                                                                          \
    }
#define ENTRY_ROW(op, expression) ENTRY(op, ref_pointwise),
#define ENTRY_OF(op, run, expression) ENTRY(op, run),
    SCALARS(ENTRY_ROW, ENTRY_OF)};

static int scalar_number(const char *op)
{
    for (int i = 0; i < (int)TT_COUNT(scalars); i++)
        if (strcmp(scalars[i].kernel.op, op) == 0)
            return i;
    return -1;
}

static scalar_fn *scalar_of(const char *op)
{
    const int i = scalar_number(op);
    return i < 0 ? NULL : scalars[i].fn;
}

const tt_kernel *ref_pointwise_kernel(const char *op)
{
    const int i = scalar_number(op);
    return i < 0 ? NULL : &scalars[i].kernel;
}

tt_status ref_pointwise(void *backend, const tt_kernel_call *c, tt_error *err)
{
    scalar_fn *fn = scalar_of(c->op);
    int64_t index[TT_MAX_DIMS] = {0}, strides[3][TT_MAX_DIMS], at[3] = {0},
            n = tt_tensor_numel(&c->out[0]);
    (void)backend;
    if (fn == NULL || c->n_in > 3)
        return TT_FAIL(err, TT_EUNSUPPORTED, "reference: no pointwise op %s of %d operands", c->op,
                       c->n_in);
    for (int k = 0; k < c->n_in; k++)
        ref_strides(&c->in[k], &c->out[0], strides[k]);
    for (int64_t i = 0; i < n; i++) {
        double v[3] = {0};
        for (int k = 0; k < c->n_in; k++)
            v[k] = ref_load(&c->in[k], at[k]);
        ref_store(&c->out[0], i, fn(v[0], v[1], v[2]));
        ref_step(&c->out[0], index, c->n_in, strides, at);
    }
    return TT_OK;
}

tt_status ref_scale(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_scale *a = c->attrs;
    int64_t n = tt_tensor_numel(&c->out[0]);
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++)
        ref_store(&c->out[0], i, ref_load(&c->in[0], i) * a->factor);
    return TT_OK;
}

tt_status ref_cast(void *backend, const tt_kernel_call *c, tt_error *err)
{
    int64_t n = tt_tensor_numel(&c->out[0]);
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++)
        ref_store(&c->out[0], i, ref_load(&c->in[0], i));
    return TT_OK;
}

tt_status ref_copy(void *backend, const tt_kernel_call *c, tt_error *err)
{
    size_t n = (size_t)tt_tensor_numel(&c->out[0]) * tt_dtype_size(c->out[0].dtype);
    (void)backend, (void)err;
    if (n > 0 && c->out[0].data != c->in[0].data)
        memcpy(c->out[0].data, c->in[0].data, n);
    return TT_OK;
}

tt_status ref_const(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    ref_store(&c->out[0], 0, ((const tt_attrs_const *)c->attrs)->value);
    return TT_OK;
}

tt_status ref_iota(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *o = &c->out[0];
    (void)backend, (void)err;
    for (int64_t i = 0; i < o->shape[0]; i++)
        ref_store(o, i, (double)(o->begin[0] + i));
    return TT_OK;
}

tt_status ref_random(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_random *a = c->attrs;
    const tt_tensor *o = &c->out[0];
    int64_t index[TT_MAX_DIMS] = {0}, n = tt_tensor_numel(o);
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++) {
        uint64_t global = 0;
        for (int d = 0; d < o->n_dims; d++)
            global = global * (uint64_t)o->global[d] +
                     (d || !c->n_in ? (uint64_t)(o->begin[d] + index[d])
                                    : (uint32_t)ref_index(&c->in[0], index[0]));
        ref_store(o, i,
                  tt_random_at(tt_call_seed(c), tt_call_step(c), a->stream, global, a->normal));
        ref_step(o, index, 0, NULL, NULL);
    }
    return TT_OK;
}

tt_status ref_random_keys(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_random_keys *a = c->attrs;
    const tt_tensor *o = &c->out[0];
    int64_t index[TT_MAX_DIMS] = {0}, n = tt_tensor_numel(o);
    (void)backend, (void)err;
    for (int64_t i = 0; i < n; i++) {
        uint64_t global = 0;
        for (int d = 1; d < o->n_dims; d++)
            global = global * (uint64_t)o->global[d] + (uint64_t)(o->begin[d] + index[d]);
        ((float *)o->data)[i] = tt_random_key_at(tt_call_seed(c), tt_call_step(c),
                                                 a->streams[o->begin[0] + index[0]], global);
        ref_step(o, index, 0, NULL, NULL);
    }
    return TT_OK;
}

#define MAX_REGISTERS 256

tt_status ref_fused(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_fused *f = c->attrs;
    int64_t index[TT_MAX_DIMS] = {0}, strides[TT_MAX_INS][TT_MAX_DIMS], at[TT_MAX_INS] = {0},
            n = tt_tensor_numel(&c->out[0]);
    scalar_fn *fn[MAX_REGISTERS]; /* by instruction; NULL: a constant */
    double r[MAX_REGISTERS];
    (void)backend;
    if (f->n_in > TT_MAX_INS || f->n_in + f->n_instr > MAX_REGISTERS)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "reference: a fused program of %d inputs and %d instructions", f->n_in,
                       f->n_instr);
    for (int k = 0; k < f->n_instr; k++) {
        fn[k] = scalar_of(f->instr[k].op);
        if (fn[k] == NULL && strcmp(f->instr[k].op, "const") != 0)
            return TT_FAIL(err, TT_EUNSUPPORTED, "reference: no pointwise op %s", f->instr[k].op);
    }
    for (int k = 0; k < f->n_in; k++)
        ref_strides(&c->in[k], &c->out[0], strides[k]);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < f->n_in; k++)
            r[k] = ref_load(&c->in[k], at[k]);
        for (int k = 0; k < f->n_instr; k++) {
            const tt_fused_instr *s = &f->instr[k];
            double v[3] = {0};
            for (int j = 0; j < s->n_src; j++)
                v[j] = r[s->src[j]];
            if (fn[k] == fn_scale)
                v[1] = s->imm;
            r[f->n_in + k] = ref_round(fn[k] != NULL ? fn[k](v[0], v[1], v[2]) : s->imm, s->dtype);
        }
        for (int k = 0; k < f->n_out; k++)
            ref_store(&c->out[k], i, r[f->out[k]]);
        ref_step(&c->out[0], index, f->n_in, strides, at);
    }
    return TT_OK;
}

/* Computes the product of two operands in the output that the program reads it from, then runs the
 * program element by element. The product of "X_fused", and of ops derived from it, is op X. */
tt_status ref_fused_product(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_fused_product *f = c->attrs;
    const char *suffix = strstr(c->op, "_fused");
    tt_kernel_call product = *c, program = *c;
    tt_tensor in[TT_MAX_INS];
    char op[64];
    snprintf(op, sizeof op, "%.*s", (int)(suffix - c->op), c->op);
    product.op = op;
    product.attrs = NULL;
    product.n_in = 2;
    product.out = &c->out[f->into];
    product.n_out = 1;
    TT_TRY(ref_kernel(op)->run(backend, &product, err));
    in[0] = c->out[f->into];
    for (int i = 2; i < c->n_in; i++)
        in[i - 1] = c->in[i];
    program.in = in;
    program.n_in = c->n_in - 1;
    program.attrs = &f->program;
    return ref_fused(backend, &program, err);
}

size_t ref_linear_fused_rope_scratch(const tt_kernel_call *c, int n_threads)
{
    tt_kernel_call rope = *c;
    rope.attrs = &((const tt_fused_rope *)c->attrs)->rope;
    return ref_rope_scratch(&rope, n_threads);
}

tt_status ref_linear_fused_rope(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_fused_rope *f = c->attrs;
    const tt_tensor in[2] = {c->out[0], c->in[c->n_in - 1]};
    tt_kernel_call made = *c, turned = *c;
    made.n_in--;
    made.attrs = &f->product;
    TT_TRY(ref_fused_product(backend, &made, err));
    turned.in = in;
    turned.n_in = 2;
    turned.attrs = &f->rope;
    return ref_rope(backend, &turned, err);
}
