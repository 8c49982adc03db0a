/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The pointwise operations, a row each: its number's name, its op, the number of operands, and what it computes of x, y and
 * z, of type T: f32, or f64 where an operand or the result is f64, i32 or i64; imm is the number of "scale" and "const".
 * A result is then rounded to its dtype. This row is all there is of an op: single ops, fused programs that are compiled
 * and the interpreter expand it. Of C files, which need ops and numbers alone, the last column is dropped. */
#define POINT_OPS(ROW)                                                                                                      \
    ROW(ADD,           "add",           2, x + y)                                                                           \
    ROW(SUB,           "sub",           2, x - y)                                                                           \
    ROW(MUL,           "mul",           2, x * y)                                                                           \
    ROW(SCALE_BY,      "scale_by",      2, x * y)                                                                           \
    ROW(DIV,           "div",           2, x / y)                                                                           \
    ROW(FLOOR_DIV,     "floor_div",     2, T(point_floor_div(x, y)))                                                        \
    ROW(MOD,           "mod",           2, T(point_mod(x, y)))                                                              \
    ROW(MAXIMUM,       "maximum",       2, x > y || x != x ? x : y) /* a NaN wins */                                        \
    ROW(MINIMUM,       "minimum",       2, x < y || x != x ? x : y)                                                         \
    ROW(POW,           "pow",           2, point_pow(x, y))                                                                 \
    ROW(LESS,          "less",          2, T(x < y))                                                                        \
    ROW(LESS_EQUAL,    "less_equal",    2, T(x <= y))                                                                       \
    ROW(EQUAL,         "equal",         2, T(x == y))                                                                       \
    ROW(SELECT,        "select",        3, x != T(0) ? y : z)                                                               \
    ROW(NEG,           "neg",           1, -x)                                                                              \
    ROW(EXP,           "exp",           1, point_exp(x))                                                                    \
    ROW(LOG,           "log",           1, point_log(x))                                                                    \
    ROW(SQRT,          "sqrt",          1, point_sqrt(x))                                                                   \
    ROW(RSQRT,         "rsqrt",         1, T(1) / point_sqrt(x))                                                            \
    ROW(ABS,           "abs",           1, point_abs(x))                                                                    \
    ROW(ROUND,         "round",         1, point_rint(x))                                                                   \
    ROW(FLOOR_POW2,    "floor_pow2",    1, T(point_floor_pow2(x)))                                                          \
    ROW(ENCODE8,       "encode8",       1, T(point_encode8((float)x, false)))                                               \
    ROW(ENCODE8U, "encode8u", 1, T(point_encode8((float)x, true)))                                          \
    ROW(DECODE8,       "decode8",       1, T(point_decode8((int)x, false)))                                                 \
    ROW(DECODE8U, "decode8u", 1, T(point_decode8((int)x, true)))                                            \
    ROW(TANH,          "tanh",          1, point_tanh(x))                                                                   \
    ROW(SIGMOID,       "sigmoid",       1, point_sigmoid(x))                                                                \
    ROW(SILU,          "silu",          1, x * point_sigmoid(x))                                                            \
    ROW(RELU,          "relu",          1, x > T(0) || x != x ? x : T(0))                                                   \
    ROW(GELU,          "gelu",          1, x * point_normal_cdf(x))                                                         \
    ROW(GELU_TANH,     "gelu_tanh",     1, x * point_sigmoid(point_gelu_inner(x)))                                          \
    ROW(SOFTPLUS,      "softplus",      1, (x > T(0) || x != x ? x : T(0)) + point_log1p(point_exp(-point_abs(x))))         \
    ROW(IS_FINITE,     "is_finite",     1, T(x - x == T(0)))                                                                \
    ROW(ERF,           "erf",           1, point_erf(x))                                                                    \
    ROW(SIN,           "sin",           1, point_sin(x))                                                                    \
    ROW(COS,           "cos",           1, point_cos(x))                                                                    \
    ROW(SILU_BWD,      "silu_bwd",      2, y * (point_sigmoid(x) + x * point_sigmoid(x) * point_sigmoid(-x)))               \
    ROW(GELU_BWD,      "gelu_bwd",      2, y * (point_normal_cdf(x) + x * point_exp(T(-0.5) * x * x) * T(0.39894228040143267794))) \
    ROW(GELU_TANH_BWD, "gelu_tanh_bwd", 2, y * point_gelu_tanh_slope(x))                                                    \
    ROW(RELU_BWD,      "relu_bwd",      2, x > T(0) ? y : T(0))                                                             \
    ROW(TANH_BWD,      "tanh_bwd",      2, y * (T(1) - x * x))                                                              \
    ROW(SIGMOID_BWD,   "sigmoid_bwd",   2, y * (x * (T(1) - x)))                                                            \
    ROW(MAX_BWD,       "max_bwd",       3, x >= y ? z : T(0))                                                               \
    ROW(KEYED_UNIFORM, "keyed_uniform", 2, T(point_keyed_uniform((float)x, (float)y)))                                      \
    ROW(STOCHASTIC_ROUND, "stochastic_round", 2, T(point_stochastic_round((float)x, (float)y)))                             \
    ROW(SCALE,         "scale",         1, x * T(imm))                                                                      \
    ROW(CONST,         "const",         0, T(imm))                                                                          \
    ROW(CAST,          "cast",          1, x)                                                                               \
    ROW(CAST_DOWN,     "cast_down",     1, x)                                                                               \
    ROW(STOP_GRADIENT, "stop_gradient", 1, x)
/* clang-format on */
