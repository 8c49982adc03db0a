/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"
#include <float.h>

/* erf, sin, cos, floor division and remainders: the distance from double in units in the last place, and
 * special values. Casts, divisions of integers, argmax and sorting: the bits of the reference backend. */

static const tt_backend_vt *reference;

static int load(void **state)
{
    char path[4096];
    const char *folder = getenv("PLUGINS");
    if (harness_open(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/backends/reference.so", folder ? folder : "plugins");
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    reference = ((const tt_plugin *)dlsym(so, "tt_plugin_entry"))->components[0].vtable;
    return 0;
}

static size_t bytes_of(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

/* Every output of the cpu backend has the reference's bits, but that a NaN may have others. */
static void check_equal(const char *op, tt_tensor *in, int n_in, tt_tensor *out, int n_out,
                        const void *attrs)
{
    tt_tensor want[2];
    tt_error err = {0};
    for (int k = 0; k < n_out; k++)
        want[k] = tensor(out[k].dtype, out[k].n_dims, out[k].shape);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .out = want,
                        .n_out = n_out,
                        .attrs = attrs};
    assert_int_equal(reference->kernel(NULL, op)->run(NULL, &c, &err), TT_OK);
    EACH_ISA
    {
        run(isa, op, in, n_in, out, n_out, attrs);
        for (int k = 0; k < n_out; k++)
            for (size_t i = 0, size = tt_dtype_size(out[k].dtype); i < bytes_of(&out[k]) / size;
                 i++) {
                const char *a = (const char *)want[k].data + i * size,
                           *b = (const char *)out[k].data + i * size;
                const bool nan =
                    out[k].dtype == TT_F32 && isnan(fp(&want[k])[i]) && isnan(fp(&out[k])[i]);
                if (!nan && memcmp(a, b, size) != 0)
                    fail_msg("%s (%s): output %d element %zu differs from the reference's", op,
                             H.isa[isa], k, i);
            }
    }
    drop(want, n_out);
}

/* ---- erf, sin, cos ---- */

static double ulps(float got, double want)
{
    int e;
    if ((isnan(want) && isnan(got)) || (double)got == want)
        return 0;
    if (isnan(want) || isnan(got) || isinf(got))
        return INFINITY;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void check_unary(const char *op, double (*fn)(double), double lo, double hi, double limit)
{
    enum { N = 40003 };
    tt_tensor x = F32(N), y = F32(N);
    for (int i = 0; i < N; i++)
        fp(&x)[i] = (float)(lo + (hi - lo) * i / (N - 1));
    EACH_ISA
    {
        run(isa, op, &x, 1, &y, 1, NULL);
        for (int i = 0; i < N; i++) {
            const double want = fn((double)fp(&x)[i]);
            if (!(ulps(fp(&y)[i], want) <= limit))
                fail_msg("%s(%.9g) (%s) is %.9g, not %.9g: %.2f ulp", op, (double)fp(&x)[i],
                         H.isa[isa], (double)fp(&y)[i], want, ulps(fp(&y)[i], want));
        }
    }
    tt_tensor all[] = {x, y};
    drop(all, 2);
}

static void test_erf_is_within_two_ulp(void **state)
{
    (void)state;
    check_unary("erf", erf, -5, 5, 2);
    check_unary("erf", erf, 0.9, 1.1, 2);
    check_unary("erf", erf, -1e-3, 1e-3, 2);
    check_unary("erf", erf, 1e-40, 1e-37, 2);
    check_unary("erf", erf, -1e30, 1e30, 0.5);
}

static void test_sin_and_cos_are_rounded_once(void **state)
{
    static const double limits[][2] = {
        {-10,      10    },
        {-1e-3,    1e-3  },
        {1e-40,    1e-37 },
        {-1e5,     1e5   },
        {0x1p27,   0x1p28},
        {0x1.8p27, 0x1p29},
        {-1e12,    1e12  },
        {1e30,     3e38  }
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(limits); i++) {
        check_unary("sin", sin, limits[i][0], limits[i][1], 0.55);
        check_unary("cos", cos, limits[i][0], limits[i][1], 0.55);
    }
}

/* The floats nearest to multiples of pi/2: nothing but the rest of the reduction is left of them. */
static void test_sin_and_cos_near_their_zeros(void **state)
{
    enum { N = 20000 };
    (void)state;
    tt_tensor x = F32(N), y = F32(N);
    for (int i = 0; i < N; i++)
        fp(&x)[i] = (float)((i < 10000 ? i : (double)i * 8500.0) * 1.57079632679489661923);
    EACH_ISA
    for (int c = 0; c < 2; c++) {
        run(isa, c ? "cos" : "sin", &x, 1, &y, 1, NULL);
        for (int i = 0; i < N; i++) {
            const double at = (double)fp(&x)[i], want = c ? cos(at) : sin(at);
            if (!(ulps(fp(&y)[i], want) <= 0.55))
                fail_msg("%s(%.9g) (%s): %.2f ulp", c ? "cos" : "sin", at, H.isa[isa],
                         ulps(fp(&y)[i], want));
        }
    }
    tt_tensor all[] = {x, y};
    drop(all, 2);
}

static void test_special_values_of_functions(void **state)
{
    static const float values[] = {NAN,     INFINITY, -INFINITY, 0.0f,    -0.0f,
                                   FLT_MIN, 1e-42f,   FLT_MAX,   -1e-45f, -FLT_MAX};
    static const char *const ops[] = {"erf", "sin", "cos"};
    static double (*const fns[])(double) = {erf, sin, cos};
    enum { N = 10 };
    (void)state;
    tt_tensor x = F32(N), y = F32(N);
    memcpy(x.data, values, sizeof values);
    EACH_ISA
    for (size_t o = 0; o < TT_COUNT(ops); o++) {
        run(isa, ops[o], &x, 1, &y, 1, NULL);
        for (int i = 0; i < N; i++) {
            const double want = fns[o]((double)values[i]);
            if (!(ulps(fp(&y)[i], want) <= 2) ||
                (!isnan(want) && !signbit(fp(&y)[i]) != !signbit(want)))
                fail_msg("%s(%g) (%s) is %g, not %g", ops[o], (double)values[i], H.isa[isa],
                         (double)fp(&y)[i], want);
        }
    }
    tt_tensor all[] = {x, y};
    drop(all, 2);
}

/* ---- floor division and remainder ---- */

static void test_floor_division_of_floats_is_exact(void **state)
{
    enum { N = 30011 };
    (void)state;
    tt_tensor x = F32(N), y = F32(N), out = F32(N), in[] = {x, y};
    for (int i = 0; i < N;
         i++) { /* quotients from 2^-60 to 2^60, whole ones and their neighbours too */
        const float v = (float)(noise() + (i % 2 ? 2.0 : -2.0));
        fp(&y)[i] = v;
        fp(&x)[i] = i % 3 ? v * (float)(i % 1000) : v * ldexpf((float)noise(), i % 120 - 60);
        if (i % 5 == 0)
            fp(&x)[i] = nextafterf(fp(&x)[i], i % 2 ? 1e30f : -1e30f);
    }
    check_equal("floor_div", in, 2, &out, 1, NULL);
    check_equal("mod", in, 2, &out, 1, NULL);
    EACH_ISA
    {
        run(isa, "mod", in, 2, &out, 1, NULL);
        for (int i = 0; i < N; i++) { /* y's sign, smaller than y */
            const float r = fp(&out)[i], b = fp(&y)[i];
            assert_true(r == 0.0f || signbit(r) == signbit(b));
            assert_true(fabsf(r) <= fabsf(b));
        }
    }
    tt_tensor all[] = {x, y, out};
    drop(all, 3);
}

static void test_floor_division_of_special_values(void **state)
{
    static const float v[] = {0.0f,        -0.0f,  1.0f,   -1.0f,    0.1f,      -0.1f,
                              0.7f,        -2.5f,  7.0f,   1e-20f,   1e10f,     -1e16f,
                              16777216.0f, -3e38f, 1e-45f, INFINITY, -INFINITY, NAN};
    enum { M = sizeof v / sizeof *v, N = M * M };
    (void)state;
    tt_tensor x = F32(N), y = F32(N), out = F32(N), in[] = {x, y};
    for (int i = 0; i < N; i++) {
        fp(&x)[i] = v[i / M];
        fp(&y)[i] = v[i % M];
    }
    check_equal("floor_div", in, 2, &out, 1, NULL);
    check_equal("mod", in, 2, &out, 1, NULL);
    tt_tensor all[] = {x, y, out};
    drop(all, 3);
}

static void test_floor_division_of_integers(void **state)
{
    static const int32_t v[] = {0,   1,       -1,        2,         -3,           7,
                                -10, 1000003, INT32_MAX, INT32_MIN, INT32_MIN + 1};
    enum { M = sizeof v / sizeof *v, N = M * M };
    (void)state;
    tt_tensor x = I32(N), y = I32(N), q = I32(N), r = I32(N), in[] = {x, y};
    for (int i = 0; i < N; i++) {
        ip(&x)[i] = v[i / M];
        ip(&y)[i] = v[i % M];
    }
    check_equal("floor_div", in, 2, &q, 1, NULL);
    check_equal("mod", in, 2, &r, 1, NULL);
    for (int i = 0; i < N; i++) {
        const int64_t a = ip(&x)[i], b = ip(&y)[i],
                      none = a > 0   ? INT32_MAX
                             : a < 0 ? INT32_MIN
                                     : 0;
        const int64_t t = b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : none;
        assert_int_equal(ip(&q)[i], t > INT32_MAX ? INT32_MAX : t);
        assert_int_equal(ip(&r)[i], b ? a - t * b : 0);
    }
    tt_tensor all[] = {x, y, q, r};
    drop(all, 4);
}

/* ---- casts ---- */

static void test_casts_to_whole_numbers(void **state)
{
    static const float v[] = {0.0f,     -0.0f,    0.9f,           -0.9f,     1.5f,   -1.5f,
                              254.9f,   255.0f,   256.0f,         -1.0f,     1e-45f, 2147483520.0f,
                              0x1p31f,  -0x1p31f, -2147483904.0f, 1e19f,     -1e19f, 0x1p63f,
                              -0x1p63f, FLT_MAX,  INFINITY,       -INFINITY, NAN,    -NAN};
    static const int32_t want[] = {
        0,         0,         0,         0,          1,         -1,        254,       255,
        256,       -1,        0,         2147483520, INT32_MAX, INT32_MIN, INT32_MIN, INT32_MAX,
        INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX,  INT32_MAX, INT32_MIN, 0,         0};
    static const tt_dtype froms[] = {TT_F32, TT_F64, TT_BF16, TT_F16},
                          tos[] = {TT_I32, TT_I64, TT_U8, TT_BOOL};
    enum { N = sizeof v / sizeof *v };
    (void)state;
    tt_tensor x = F32(N);
    memcpy(x.data, v, sizeof v);
    for (size_t f = 0; f < TT_COUNT(froms); f++)
        for (size_t t = 0; t < TT_COUNT(tos); t++) {
            const tt_attrs_cast at = {.to = tos[t]};
            tt_tensor from = tensor(froms[f], DIMS(N)), to = tensor(tos[t], DIMS(N));
            run(0, "cast", &x, 1, &from, 1, &(tt_attrs_cast){.to = froms[f]});
            check_equal("cast_down", &from, 1, &to, 1, &at);
            for (int i = 0; i < N && f < 2 && tos[t] == TT_I32; i++)
                assert_int_equal(ip(&to)[i], want[i]);
            tt_tensor all[] = {from, to};
            drop(all, 2);
        }
    free(x.data);
}

/* ---- order ---- */

static void test_argmax_of_ties_and_nan(void **state)
{
    enum { A = 9, B = 37, C = 300 };
    (void)state;
    tt_tensor x = filled(F32(A, B, C));
    for (int i = 0; i < A * B * C; i++)
        fp(&x)[i] = i % 997 == 0 ? NAN : i % 131 == 0 ? -0.0f : roundf(fp(&x)[i] * 3) / 2;
    for (int s = 0; s < 2; s++)
        for (int dim = 0; dim < 3; dim++) {
            const tt_attrs_arg at = {.dim = dim, .smallest = s};
            tt_tensor y = dim == 0 ? I32(B, C) : dim == 1 ? I32(A, C) : I32(A, B);
            check_equal("argmax", &x, 1, &y, 1, &at);
            free(y.data);
        }
    free(x.data);
}

/* Inserted (k to 32) and sorted rows. */
static void test_top_k_of_ties_and_nan(void **state)
{
    static const int64_t ks[] = {1, 31, 32, 33, 64, 257};
    enum { R = 13, N = 257 };
    (void)state;
    tt_tensor x = filled(F32(R, N));
    for (int i = 0; i < R * N; i++)
        fp(&x)[i] = i % 41 == 0   ? NAN
                    : i % 53 == 0 ? -NAN
                    : i % 43 == 0 ? INFINITY
                    : i % 47 == 0 ? -INFINITY
                    : i % 3 == 0  ? fp(&x)[i] * 1e-39f
                                  : roundf(fp(&x)[i] * 4) * (i % 5 ? 1.0f : 1e30f);
    for (size_t i = 0; i < TT_COUNT(ks); i++) {
        const tt_attrs_dims at = {.n_dims = 1, .dims = {TT_DIM(ks[i], NULL)}};
        tt_tensor out[] = {F32(R, ks[i]), I32(R, ks[i])};
        check_equal("top_k", &x, 1, out, 2, &at);
        drop(out, 2);
    }
    free(x.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_erf_is_within_two_ulp),
        cmocka_unit_test(test_sin_and_cos_are_rounded_once),
        cmocka_unit_test(test_sin_and_cos_near_their_zeros),
        cmocka_unit_test(test_special_values_of_functions),
        cmocka_unit_test(test_floor_division_of_floats_is_exact),
        cmocka_unit_test(test_floor_division_of_special_values),
        cmocka_unit_test(test_floor_division_of_integers),
        cmocka_unit_test(test_casts_to_whole_numbers),
        cmocka_unit_test(test_argmax_of_ties_and_nan),
        cmocka_unit_test(test_top_k_of_ties_and_nan),
    };
    return cmocka_run_group_tests(tests, load, harness_close);
}
