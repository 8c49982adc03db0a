/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"
#include <float.h>
#include <ttrun/codes.h>

/* Pointwise ops: the distance from double in units in the last place, broadcasting, dtypes, and
 * fused = unfused. */

static double ulps(float got, double want)
{
    if ((isnan(want) && isnan(got)) || (double)got == want || (float)want == got)
        return 0;
    if (isnan(want) || isnan(got) || isinf(want) || isinf(got))
        return INFINITY;
    int e;
    frexp(want, &e);
    double unit = ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / unit;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}
static double gelu_u(double x)
{
    return sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);
}

static double unary_want(const char *op, double x)
{
    if (!strcmp(op, "neg"))
        return -x;
    if (!strcmp(op, "exp"))
        return exp(x);
    if (!strcmp(op, "log"))
        return log(x);
    if (!strcmp(op, "sqrt"))
        return sqrt(x);
    if (!strcmp(op, "rsqrt"))
        return 1 / sqrt(x);
    if (!strcmp(op, "abs"))
        return fabs(x);
    if (!strcmp(op, "round"))
        return nearbyint(x);
    if (!strcmp(op, "tanh"))
        return tanh(x);
    if (!strcmp(op, "sigmoid"))
        return sigmoid(x);
    if (!strcmp(op, "silu"))
        return x * sigmoid(x);
    if (!strcmp(op, "relu"))
        return x < 0 ? 0 : x;
    if (!strcmp(op, "gelu"))
        return x * cdf(x);
    if (!strcmp(op, "softplus"))
        return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    return x * sigmoid(2 * gelu_u(x)); /* gelu_tanh */
}

/* The largest distance over many magnitudes of x. */
static void check_unary(const char *op, double lo, double hi, double limit)
{
    enum { N = 40001 };
    tt_tensor x = F32(N), y = F32(N);
    for (int i = 0; i < N; i++)
        fp(&x)[i] = (float)(lo + (hi - lo) * i / (N - 1));
    EACH_ISA
    {
        run(isa, op, &x, 1, &y, 1, NULL);
        for (int i = 0; i < N; i++) {
            double want = unary_want(op, (double)fp(&x)[i]);
            if (!(ulps(fp(&y)[i], want) <= limit))
                fail_msg("%s(%.9g) (%s) is %.9g, not %.9g: %.2f ulp", op, (double)fp(&x)[i],
                         H.isa[isa], (double)fp(&y)[i], want, ulps(fp(&y)[i], want));
        }
    }
    free(x.data);
    free(y.data);
}

static void test_unary_ops_are_within_two_ulp(void **state)
{
    (void)state;
    static const char *const exact[] = {"neg", "abs", "sqrt", "relu", "round"};
    for (size_t i = 0; i < TT_COUNT(exact); i++)
        check_unary(exact[i], -3, 50, 0.5);
    check_unary("round", -1e4, 1e4, 0.5); /* by halves: every other one is a tie */
    check_unary("round", -0x1p23, 0x1p23, 0.5);
    check_unary("round", 0x1p22, 0x1p24, 0.5);
    check_unary("rsqrt", 1e-3, 9, 1.5);
    check_unary("exp", -105, 89.5, 2);
    check_unary("exp", -1e-3, 1e-3, 2);
    check_unary("log", 1e-40, 1e-37, 2);
    check_unary("log", 0.01, 4, 2);
    check_unary("log", 1, 1e30, 2);
    check_unary("log", -1, 0, 2);
    check_unary("tanh", -12, 12, 2);
    check_unary("tanh", -0.01, 0.01, 2);
    check_unary("sigmoid", -80, 80, 2.5);
    check_unary("silu", -80, 80, 3);
    check_unary("gelu", -5, 9, 6); /* the tail: two exponentials and a polynomial, each rounded */
    check_unary("gelu_tanh", -1, 9, 4);
    check_unary("softplus", -87, 90, 3);
    check_unary("softplus", -0.01, 0.01, 3);
}

static void test_special_values_stay_special(void **state)
{
    (void)state;
    static const char *const ops[] = {"exp",  "log",   "sqrt",    "tanh",      "sigmoid",
                                      "silu", "relu",  "gelu",    "gelu_tanh", "abs",
                                      "neg",  "round", "softplus"};
    const float values[] = {NAN, INFINITY, 0.0f, -0.0f, FLT_MIN, 1e-42f, FLT_MAX};
    tt_tensor x = F32(7), y = F32(7);
    memcpy(x.data, values, sizeof values);
    EACH_ISA
    for (size_t o = 0; o < TT_COUNT(ops); o++) {
        run(isa, ops[o], &x, 1, &y, 1, NULL);
        for (int i = 0; i < 7; i++) {
            double want = unary_want(ops[o], (double)values[i]);
            if (!(ulps(fp(&y)[i], want) <= 4))
                fail_msg("%s(%g) (%s) is %g, not %g", ops[o], (double)values[i], H.isa[isa],
                         (double)fp(&y)[i], want);
        }
    }
    tt_tensor all[] = {x, y};
    drop(all, 2);
}

static double binary_want(const char *op, double x, double y)
{
    double s = sigmoid(x), u = gelu_u(x);
    if (!strcmp(op, "add"))
        return x + y;
    if (!strcmp(op, "sub"))
        return x - y;
    if (!strcmp(op, "mul") || !strcmp(op, "scale_by"))
        return x * y;
    if (!strcmp(op, "div"))
        return x / y;
    if (!strcmp(op, "maximum"))
        return x > y ? x : y;
    if (!strcmp(op, "minimum"))
        return x < y ? x : y;
    if (!strcmp(op, "pow"))
        return pow(x, y);
    if (!strcmp(op, "silu_bwd"))
        return y * (s + x * s * (1 - s));
    if (!strcmp(op, "gelu_bwd"))
        return y * (cdf(x) + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0)));
    if (!strcmp(op, "gelu_tanh_bwd"))
        return y * (sigmoid(2 * u) + x * sigmoid(2 * u) * sigmoid(-2 * u) * 2 *
                                         sqrt(2 / acos(-1.0)) * (1 + 3 * 0.044715 * x * x));
    if (!strcmp(op, "relu_bwd"))
        return x > 0 ? y : 0;
    if (!strcmp(op, "tanh_bwd"))
        return y * (1 - x * x);
    return y * x * (1 - x); /* sigmoid_bwd */
}

static void test_binary_ops_match_double_with_any_broadcast(void **state)
{
    static const char *const ops[] = {
        "add", "sub",      "mul",      "scale_by",      "div",      "maximum",  "minimum",
        "pow", "silu_bwd", "gelu_bwd", "gelu_tanh_bwd", "relu_bwd", "tanh_bwd", "sigmoid_bwd"};
    (void)state;
    enum { R = 37, C = 61 };
    for (size_t o = 0; o < TT_COUNT(ops); o++)
        for (int v = 0; v < 6; v++) {
            tt_tensor a = filled(v == 3 ? F32(R, 1) : v == 4 ? F32(1, 1) : F32(R, C));
            tt_tensor b = filled(v == 1   ? F32(C)
                                 : v == 2 ? F32(R, 1)
                                 : v == 5 ? tensor(TT_F32, 0, NULL)
                                          : F32(R, C)),
                      y = F32(R, C);
            if (!strcmp(ops[o], "pow"))
                for (int64_t i = 0; i < tt_tensor_numel(&a); i++)
                    fp(&a)[i] = fabsf(fp(&a)[i]);
            double want[R * C];
            for (int i = 0; i < R * C; i++)
                want[i] = binary_want(ops[o],
                                      (double)fp(&a)[v == 3   ? i / C
                                                     : v == 4 ? 0
                                                              : i],
                                      (double)fp(&b)[v == 1   ? i % C
                                                     : v == 2 ? i / C
                                                     : v == 5 ? 0
                                                              : i]);
            tt_tensor in[] = {a, b};
            EACH_ISA
            {
                run(isa, ops[o], in, 2, &y, 1, NULL);
                assert_near(ops[o], isa, fp(&y), want, R * C, 1e-6);
            }
            tt_tensor all[] = {a, b, y};
            drop(all, 3);
        }
}

static void test_comparisons_select_and_max_bwd_choose(void **state)
{
    enum { N = 77 };
    (void)state;
    tt_tensor a = filled(F32(N)), b = filled(F32(N)), c = filled(F32(N)), y = F32(N),
              m = tensor(TT_BOOL, DIMS(N));
    fp(&a)[3] = fp(&b)[3];
    fp(&a)[5] = NAN;
    fp(&a)[6] = INFINITY;
    EACH_ISA
    {
        uint8_t *r = m.data;
        tt_tensor ab[] = {a, b}, sel[] = {m, a, b}, mb[] = {a, b, c};
        run(isa, "less", ab, 2, &m, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_int_equal(r[i], fp(&a)[i] < fp(&b)[i]);
        run(isa, "select", sel, 3, &y, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_memory_equal(fp(&y) + i, r[i] ? fp(&a) + i : fp(&b) + i, sizeof(float));
        run(isa, "less_equal", ab, 2, &m, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_int_equal(r[i], fp(&a)[i] <= fp(&b)[i]);
        run(isa, "equal", ab, 2, &m, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_int_equal(r[i], fp(&a)[i] == fp(&b)[i]);
        run(isa, "is_finite", &a, 1, &m, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_int_equal(r[i], isfinite(fp(&a)[i]) != 0);
        run(isa, "max_bwd", mb, 3, &y, 1, NULL);
        for (int i = 0; i < N; i++)
            assert_true(fp(&y)[i] == (fp(&a)[i] >= fp(&b)[i] ? fp(&c)[i] : 0.0f));
    }
    tt_tensor all[] = {a, b, c, y, m};
    drop(all, 5);
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Where the code changes, found by the definition; and all numbers of bf16. */
static int numbers_for_codes(int positive, float *x)
{
    int n = 0;
    for (uint32_t i = 0; i < 65536; i++)
        x[n++] = of_bits(i << 16);
    for (int at = 0; at < 255; at++) {
        const int zero = positive ? 0 : 127;
        const float a = tt_code8_value((at - zero) & 255, positive),
                    b = tt_code8_value((at + 1 - zero) & 255, positive);
        float near = a + (b - a) * 0.5f;
        for (int k = 0; k < 8; k++)
            near = nextafterf(near, -2.0f);
        for (int k = 0; k < 16; k++, near = nextafterf(near, 2.0f))
            x[n++] = near;
    }
    return n;
}

static void test_dynamic_codes_are_those_of_the_definition(void **state)
{
    enum { MOST = 65536 + 255 * 16 };
    (void)state;
    tt_tensor x = F32(MOST), y = F32(MOST), z = F32(MOST);
    for (int positive = 0; positive < 2; positive++) {
        const int n = numbers_for_codes(positive, fp(&x));
        assert_int_equal(n, MOST);
        EACH_ISA
        {
            run(isa, positive ? "encode8u" : "encode8", &x, 1, &y, 1, NULL);
            run(isa, positive ? "decode8u" : "decode8", &y, 1, &z, 1, NULL);
            for (int i = 0; i < n; i++) {
                const int want = tt_code8(fp(&x)[i], positive);
                if (fp(&y)[i] != (float)want)
                    fail_msg("%a: %g, not %d", (double)fp(&x)[i], (double)fp(&y)[i], want);
                assert_true(fp(&z)[i] == tt_code8_value(want, positive));
            }
        }
    }
    tt_tensor all[] = {x, y, z};
    drop(all, 3);
}

static void test_casts_round_to_nearest_even(void **state)
{
    const float values[] = {1.0f,  1.00390625f, 1.01171875f, -3.3f,     65504.0f, 65520.0f, 1e-7f,
                            6e-8f, 0.0f,        3e38f,       -INFINITY, 0.1f,     1e-40f};
    enum { N = 13 };
    (void)state;
    tt_tensor x = F32(N), b = tensor(TT_BF16, DIMS(N)), h = tensor(TT_F16, DIMS(N)), y = F32(N),
              i32 = I32(N);
    memcpy(x.data, values, sizeof values);
    EACH_ISA
    {
        run(isa, "cast", &x, 1, &b, 1, NULL);
        run(isa, "cast", &b, 1, &y, 1, NULL);
        for (int i = 0; i < N; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], 4);
            bits = isinf(values[i]) ? bits : (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
            assert_memory_equal(&bits, fp(&y) + i, 4);
        }
        run(isa, "cast_down", &x, 1, &h, 1, NULL);
        run(isa, "cast", &h, 1, &y, 1, NULL);
        const float half[] = {1.0f,      1.00390625f,      1.01171875f, -3.30078125f, 65504.0f,
                              INFINITY,  2 * 0x1p-24f,     0x1p-24f,    0.0f,         INFINITY,
                              -INFINITY, 0.0999755859375f, 0.0f};
        assert_memory_equal(half, y.data, sizeof half);
        run(isa, "cast_down", &x, 1, &i32, 1, NULL);
        assert_int_equal(ip(&i32)[3], -3);
        assert_int_equal(ip(&i32)[9], INT32_MAX);
    }
    tt_tensor all[] = {x, b, h, y, i32};
    drop(all, 5);
}

/* AdamW's update as one program: mixes full, row, column and scalar operands, f64 scalars and a
 * bool. */
static void test_fused_equals_its_ops_one_by_one(void **state)
{
    enum { R = 43, C = 71, N = R * C };
    static const tt_fused_instr prog[] = {
        {"mul",    {0, 1, 0},   2, TT_F32,  0  }, /* 6 = x * row */
        {"add",    {6, 2, 0},   2, TT_F32,  0  }, /* 7 = + column */
        {"silu",   {7, 0, 0},   1, TT_F32,  0  }, /* 8 */
        {"scale",  {8, 0, 0},   1, TT_F32,  0.3}, /* 9 */
        {"pow",    {3, 4, 0},   2, TT_F64,  0  }, /* 10: scalars in double */
        {"cast",   {10, 0, 0},  1, TT_F32,  0  }, /* 11 */
        {"div",    {9, 11, 0},  2, TT_F32,  0  }, /* 12 */
        {"less",   {12, 5, 0},  2, TT_BOOL, 0  }, /* 13 */
        {"select", {13, 12, 8}, 3, TT_F32,  0  }, /* 14 */
        {"sub",    {14, 5, 0},  2, TT_F32,  0  }, /* 15 */
    };
    const int16_t outs[] = {15, 8, 13};
    const tt_fused f = {6, 10, 3, prog, outs};
    (void)state;
    tt_tensor x = filled(F32(R, C)), row = filled(F32(C)), col = filled(F32(R, 1)),
              p = tensor(TT_F64, 0, NULL), q = tensor(TT_F64, 0, NULL);
    tt_tensor other = filled(F32(R, C)), y = F32(R, C), y2 = F32(R, C),
              m = tensor(TT_BOOL, DIMS(R, C));
    *(double *)p.data = 0.95;
    *(double *)q.data = 7;
    EACH_ISA
    {
        tt_tensor in[] = {x, row, col, p, q, other}, out[] = {y, y2, m};
        run(isa, "fused", in, 6, out, 3, &f);
        tt_tensor t[6], last = F32(R, C), w = tensor(TT_F64, 0, NULL), wf = tensor(TT_F32, 0, NULL),
                        mask = tensor(TT_BOOL, DIMS(R, C));
        for (int i = 0; i < 6; i++)
            t[i] = F32(R, C);
        const tt_attrs_scale scale = {0.3};
        run(isa, "mul", (tt_tensor[]){x, row}, 2, &t[0], 1, NULL);
        run(isa, "add", (tt_tensor[]){t[0], col}, 2, &t[1], 1, NULL);
        run(isa, "silu", &t[1], 1, &t[2], 1, NULL);
        run(isa, "scale", &t[2], 1, &t[3], 1, &scale);
        run(isa, "pow", (tt_tensor[]){p, q}, 2, &w, 1, NULL);
        assert_true(*(double *)w.data == pow(0.95, 7));
        run(isa, "cast", &w, 1, &wf, 1, NULL);
        run(isa, "div", (tt_tensor[]){t[3], wf}, 2, &t[4], 1, NULL);
        run(isa, "less", (tt_tensor[]){t[4], other}, 2, &mask, 1, NULL);
        run(isa, "select", (tt_tensor[]){mask, t[4], t[2]}, 3, &t[5], 1, NULL);
        run(isa, "sub", (tt_tensor[]){t[5], other}, 2, &last, 1, NULL);
        assert_memory_equal(y.data, last.data, N * sizeof(float));
        assert_memory_equal(y2.data, t[2].data, N * sizeof(float));
        assert_memory_equal(m.data, mask.data, N);
        /* in place: a result where an operand lay that no later instruction reads, and where one
         * lay that some still do */
        tt_tensor same = F32(R, C);
        for (int o = 0; o < 2; o++) {
            tt_tensor in2[] = {x, row, col, p, q, same}, out2[] = {y, y2, m};
            out2[o] = same;
            memcpy(same.data, other.data, N * sizeof(float));
            tt_kernel_call c = {.struct_size = sizeof c,
                                .op = "fused",
                                .in = in2,
                                .n_in = 6,
                                .out = out2,
                                .n_out = 3,
                                .attrs = &f};
            run_once(isa, 1, H.vt->kernel(H.self[isa], "fused"), &c);
            assert_memory_equal(out2[0].data, last.data, N * sizeof(float));
            assert_memory_equal(out2[1].data, t[2].data, N * sizeof(float));
        }
        drop(t, 6);
        tt_tensor more[] = {last, w, wf, mask, same};
        drop(more, 5);
    }
    tt_tensor all[] = {x, row, col, p, q, other, y, y2, m};
    drop(all, 9);
}

/* bf16 or f16 beside f32 is computed as f32 is, whether the result is f32, a truth or rounded: as if it had been cast
 * before, and the result after. */
static void test_mixed_operands_are_computed_in_f32(void **state)
{
    enum { N = 70 };
    static const char *const ops[] = {"add", "pow", "floor_div", "silu_bwd", "tanh_bwd", "less"};
    static const tt_dtype halves[] = {TT_BF16, TT_F16};
    (void)state;
    EACH_ISA
    for (size_t k = 0; k < 4 * TT_COUNT(ops); k++) {
        const char *op = ops[k / 4];
        const tt_dtype half = halves[k % 2];
        const int narrow = k / 2 % 2; /* the operand */
        const bool truth = !strcmp(op, "less");
        tt_tensor x[2] = {filled(F32(N)), filled(F32(N))}, as_f32[2], h = tensor(half, DIMS(N)),
                  y = tensor(truth ? TT_BOOL : TT_F32, DIMS(N)), want = y,
                  low = tensor(half, DIMS(N)), want_low = tensor(half, DIMS(N));
        want.data = malloc(N * sizeof(float) + 64);
        run(isa, "cast_down", &x[narrow], 1, &h, 1, NULL);
        run(isa, "cast", &h, 1, &x[narrow], 1, NULL);
        memcpy(as_f32, x, sizeof x);
        run(isa, op, as_f32, 2, &want, 1, NULL);
        x[narrow] = h;
        run(isa, op, x, 2, &y, 1, NULL);
        if (memcmp(y.data, want.data, truth ? N : N * sizeof(float)) != 0)
            fail_msg("%s (%s), operand %d in %s", op, H.isa[isa], narrow, tt_dtype_name(half));
        if (!truth) {
            run(isa, "cast_down", &want, 1, &want_low, 1, NULL);
            run(isa, op, x, 2, &low, 1, NULL);
            assert_memory_equal(low.data, want_low.data, N * sizeof(uint16_t));
        }
        tt_tensor all[] = {as_f32[0], as_f32[1], h, y, want, low, want_low};
        drop(all, 7);
    }
}

static void test_empty_tensors_are_allowed(void **state)
{
    (void)state;
    tt_tensor a = F32(0, 5), b = F32(5), y = F32(0, 5), in[] = {a, b};
    EACH_ISA run(isa, "add", in, 2, &y, 1, NULL);
    tt_tensor all[] = {a, b, y};
    drop(all, 3);
}

static void test_integers_and_doubles_work_too(void **state)
{
    (void)state;
    tt_tensor a = I32(5), zero = tensor(TT_I32, 0, NULL), m = tensor(TT_BOOL, DIMS(5)), s = I32(5),
              cst = tensor(TT_F64, 0, NULL);
    const int32_t v[] = {-100, 0, 7, INT32_MAX, -1};
    const tt_attrs_const at = {.value = 0.1, .dtype = TT_F64};
    memcpy(a.data, v, sizeof v);
    ip(&zero)[0] = 0;
    EACH_ISA
    {
        tt_tensor in[] = {zero, a}, sum[] = {a, zero};
        run(isa, "less_equal", in, 2, &m, 1, NULL);
        for (int i = 0; i < 5; i++)
            assert_int_equal(((uint8_t *)m.data)[i], 0 <= v[i]);
        run(isa, "add", sum, 2, &s, 1, NULL);
        assert_memory_equal(s.data, v, sizeof v);
        run(isa, "const", NULL, 0, &cst, 1, &at);
        assert_true(*(double *)cst.data == 0.1);
    }
    tt_tensor all[] = {a, zero, m, s, cst};
    drop(all, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_ops_are_within_two_ulp),
        cmocka_unit_test(test_special_values_stay_special),
        cmocka_unit_test(test_binary_ops_match_double_with_any_broadcast),
        cmocka_unit_test(test_comparisons_select_and_max_bwd_choose),
        cmocka_unit_test(test_dynamic_codes_are_those_of_the_definition),
        cmocka_unit_test(test_casts_round_to_nearest_even),
        cmocka_unit_test(test_fused_equals_its_ops_one_by_one),
        cmocka_unit_test(test_mixed_operands_are_computed_in_f32),
        cmocka_unit_test(test_empty_tensors_are_allowed),
        cmocka_unit_test(test_integers_and_doubles_work_too),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
