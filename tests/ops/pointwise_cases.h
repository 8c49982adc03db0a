/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_POINTWISE_CASES_H
#define TT_TESTS_OPS_POINTWISE_CASES_H
#include "eval.h"

/* What a case is, and the cases of one line each. */

typedef int (*case_fn)(eval *e, tt_value **y);

#define DIMS(...)                                                                                  \
    (const tt_dim[])                                                                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define N(size) TT_DIM((size), NULL)
#define F(lo, hi, n, ...) leaf_of(e, TT_F64, lo, hi, n, DIMS(__VA_ARGS__))
#define CASE(name) static int case_##name(eval *e, tt_value **y)
#define ONE(value)                                                                                 \
    y[0] = (value);                                                                                \
    return 1

#define UNARY_CASE(name, fn, lo, hi)                                                               \
    CASE(name)                                                                                     \
    {                                                                                              \
        ONE(fn(e->b, F(lo, hi, 2, tokens_dim(), N(3))));                                           \
    }
UNARY_CASE(neg, tt_neg, -1, 1)
UNARY_CASE(exp, tt_exp, -1, 1)
UNARY_CASE(log, tt_log_e, 0.5, 2)
UNARY_CASE(sqrt, tt_sqrt, 0.5, 2)
UNARY_CASE(rsqrt, tt_rsqrt, 0.5, 2)
UNARY_CASE(abs, tt_abs, -1, 1)
UNARY_CASE(tanh, tt_tanh, -2, 2)
UNARY_CASE(sigmoid, tt_sigmoid, -3, 3)
UNARY_CASE(silu, tt_silu, -3, 3)
UNARY_CASE(relu, tt_relu, -1, 1)
UNARY_CASE(gelu, tt_gelu, -3, 3)
UNARY_CASE(gelu_tanh, tt_gelu_tanh, -3, 3)
UNARY_CASE(softplus, tt_softplus, -3, 3)
UNARY_CASE(erf, tt_erf, -3, 3)
UNARY_CASE(sin, tt_sin, -7, 7)
UNARY_CASE(cos, tt_cos, -7, 7)
UNARY_CASE(sum_all, tt_sum_all, -1, 1)
UNARY_CASE(sum_squares, tt_sum_squares, -1, 1)
UNARY_CASE(softmax, tt_softmax, -2, 2)
UNARY_CASE(stop, tt_stop_gradient, -1, 1)

#define BINARY_CASE(name, fn, lo, hi)                                                              \
    CASE(name)                                                                                     \
    {                                                                                              \
        ONE(fn(e->b, F(lo, hi, 2, tokens_dim(), N(3)), F(lo, hi, 2, tokens_dim(), N(3))));         \
    }                                                                                              \
    CASE(name##_stretched) /* [T,3] with [3], then [T,1] with that */                              \
    {                                                                                              \
        tt_value *z = fn(e->b, F(lo, hi, 2, tokens_dim(), N(3)), F(lo, hi, 1, N(3)));              \
        ONE(fn(e->b, F(lo, hi, 2, tokens_dim(), N(1)), tt_sigmoid(e->b, z)));                      \
    }
BINARY_CASE(add, tt_add, -1, 1)
BINARY_CASE(sub, tt_sub, -1, 1)
BINARY_CASE(mul, tt_mul, -1, 1)
BINARY_CASE(div, tt_div, 0.5, 2)
BINARY_CASE(maximum, tt_maximum, -1, 1)
BINARY_CASE(minimum, tt_minimum, -1, 1)
BINARY_CASE(pow, tt_pow, 0.5, 2)
BINARY_CASE(mod, tt_mod, 0.5, 2)

#endif
