/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"
#include <float.h>

/* Products of f32 matrices as six bf16 products in AMX tiles (backend.f32_products bf16x6),
 * compared with double and with multiply-adds. Skipped on machines without AMX. */

static int six, fma_isa;

static int open_both(void **state)
{
    if (harness_open(state) != 0)
        return -1;
    six = fma_isa = -1;
    EACH_ISA if (is_bf16x6(isa))
    {
        six = isa;
        fma_isa = isa - 1; /* "amx" */
    }
    return 0;
}

static double gauss(void)
{
    double s = 0;
    for (int i = 0; i < 12; i++)
        s += noise();
    return s / 2; /* variance 12 / 3 / 4 */
}

enum kind { UNIFORM, NORMAL, POSITIVE, LOG_NORMAL, CANCELLING, N_KINDS };
static const char *const kinds[] = {"uniform", "normal", "positive", "log-normal", "cancelling"};

static void fill(enum kind kind, tt_tensor *t, int64_t k)
{
    for (int64_t i = 0; i < tt_tensor_numel(t); i++) {
        float *x = fp(t) + i;
        if (kind == UNIFORM)
            *x = (float)noise();
        else if (kind == POSITIVE)
            *x = (float)(noise() + 1);
        else if (kind == LOG_NORMAL)
            *x = (float)(exp(4 * gauss()) * (noise() < 0 ? -1 : 1));
        else if (kind == CANCELLING && i % k % 2) /* beside its negative, all but equal */
            *x = -x[-1] * (float)(1 + 1e-5 * noise());
        else
            *x = (float)gauss();
    }
}

typedef struct error { /* of sums of |a b|, in 2^-24 of them */
    double max, rms;
} error;

static error measure(int isa, tt_tensor in[2], const double *want, const double *size)
{
    const int64_t m = in[0].shape[0], n = in[1].shape[0];
    tt_tensor y = F32(m, n);
    error e = {0, 0};
    run(isa, "linear", in, 2, &y, 1, NULL);
    for (int64_t i = 0; i < m * n; i++) {
        const double d = fabs((double)fp(&y)[i] - want[i]) / size[i] * 0x1p24;
        assert_true(d >= 0); /* no NaN */
        e.max = d > e.max ? d : e.max;
        e.rms += d * d / (double)(m * n);
    }
    e.rms = sqrt(e.rms);
    drop(&y, 1);
    return e;
}

static void compare(enum kind kind, int64_t k)
{
    enum { M = 70, N = 90 };
    tt_tensor in[] = {F32(M, k), F32(N, k)};
    double want[M * N], size[M * N];
    fill(kind, &in[0], k);
    fill(kind == CANCELLING ? POSITIVE : kind, &in[1], k);
    for (int64_t i = 0; kind == CANCELLING && i < N * k; i++)
        fp(&in[1])[i] = fp(&in[1])[i] < 1 ? 1.0f : 1.0f + FLT_EPSILON; /* pairs nearly equal */
    for (int64_t i = 0; i < M * N; i++) {
        want[i] = size[i] = 0;
        for (int64_t p = 0; p < k; p++) {
            const double z = (double)fp(&in[0])[i / N * k + p] * (double)fp(&in[1])[i % N * k + p];
            want[i] += z;
            size[i] += fabs(z);
        }
    }
    const error by_fma = measure(fma_isa, in, want, size), by_six = measure(six, in, want, size);
    if (getenv("TT_SHOW_ERRORS"))
        fprintf(stderr, "| %s | %lld | %.3f, %.3f | %.3f, %.3f |\n", kinds[kind], (long long)k,
                by_fma.max, by_fma.rms, by_six.max, by_six.rms);
    if (!(by_six.max <= 1.5 * fmax(1, by_fma.max)) || !(by_six.rms <= 1.05 * by_fma.rms))
        fail_msg("%s, k %lld: bf16x6 errs by %.3f at most, rms %.3f; multiply-adds by %.3f, %.3f",
                 kinds[kind], (long long)k, by_six.max, by_six.rms, by_fma.max, by_fma.rms);
    drop(in, 2);
}

/* At worst the error of a single product is 1.5 times that of a rounded one, because three of the
 * nine partial products are not computed. For a few terms and more, sums are more exact than those
 * of multiply-adds, which add 64 terms one after another: see the table here and in
 * docs/numerics.md (TT_SHOW_ERRORS=1 prints it). */
static void test_bf16x6_is_no_less_exact_than_multiply_adds(void **state)
{
    static const int64_t ks[] = {1, 20, 64, 100, 384, 500, 1000, 4096};
    (void)state;
    if (six < 0)
        skip();
    for (int kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < TT_COUNT(ks); i++)
            compare((enum kind)kind, ks[i]);
}

static bool agree(float a, float b) /* NaN equals NaN; finite elements agree to rounding */
{
    return (isnan(a) && isnan(b)) || a == b ||
           fabs((double)a - (double)b) <= 1e-5 * (1 + fabs((double)b));
}

/* If an operand is not finite, or too large for bf16, or a sum overflows, multiply-adds compute the
 * element; its neighbours in a tile keep their bits. */
static void test_bf16x6_keeps_infinities_and_nan(void **state)
{
    enum { M = 50, N = 70, K = 500 };
    static const float special[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 3.4e38f, 0x1p127f};
    (void)state;
    if (six < 0)
        skip();
    for (size_t s = 0; s < TT_COUNT(special); s++)
        for (int side = 0; side < 2; side++)
            for (int add = 0; add < 2; add++) {
                tt_tensor in[] = {filled(F32(M, K)), filled(F32(N, K))};
                tt_tensor plain = F32(M, N), want = F32(M, N), got = F32(M, N);
                for (int i = 0; i < M * N; i++)
                    fp(&plain)[i] = fp(&want)[i] = fp(&got)[i] = 0.5f;
                run_with(six, "linear", in, 2, &plain, 1, NULL, add);
                const int64_t r = side ? 41 : 33;
                fp(&in[side])[r * K + 300] = special[s];
                fp(&in[1 - side])[9 * K + 300] = 0; /* 0 × infinity */
                fp(&in[1 - side])[10 * K + 300] = INFINITY;
                fp(&in[1 - side])[11 * K + 300] = 1e-42f;
                run_with(fma_isa, "linear", in, 2, &want, 1, NULL, add);
                run_with(six, "linear", in, 2, &got, 1, NULL, add);
                for (int64_t i = 0; i < M * N; i++) {
                    const int64_t own = side ? i % N : i / N, other = side ? i / N : i % N;
                    if (own == r && other == 11 && isfinite(special[s]))
                        continue; /* a denormal is zero there */
                    else if (own == r || other == 10)
                        assert_true(agree(fp(&got)[i], fp(&want)[i]));
                    else if (other != 9 && other != 11)
                        assert_true(fp(&got)[i] == fp(&plain)[i]);
                }
                tt_tensor all[] = {in[0], in[1], plain, want, got};
                drop(all, 5);
            }
}

/* AMX flushes numbers below 2^-126 to zero: products of small numbers lose at most that, times
 * their number. */
static void test_bf16x6_loses_little_for_tiny_numbers(void **state)
{
    enum { M = 40, N = 40, K = 100 };
    (void)state;
    if (six < 0)
        skip();
    for (int e = -40; e >= -149; e -= 7) {
        tt_tensor in[] = {filled(F32(M, K)), filled(F32(N, K))}, y = F32(M, N);
        for (int i = 0; i < M * K; i++)
            fp(&in[0])[i] = (float)ldexp((double)fp(&in[0])[i], e);
        run(six, "linear", in, 2, &y, 1, NULL);
        for (int i = 0; i < M * N; i++) {
            double want = 0, size = 0;
            for (int p = 0; p < K; p++) {
                const double z =
                    (double)fp(&in[0])[i / N * K + p] * (double)fp(&in[1])[i % N * K + p];
                want += z;
                size += fabs(z);
            }
            assert_true(fabs((double)fp(&y)[i] - want) <= 4 * 0x1p-24 * size + 8 * K * 0x1p-126);
        }
        tt_tensor all[] = {in[0], in[1], y};
        drop(all, 3);
    }
}

static void test_bf16x6_is_refused_without_amx(void **state)
{
    const char *config[3] = {"generic", "own", "bf16x6"};
    tt_backend_env env = {.struct_size = sizeof env, .n_threads = 1, .world = 1};
    tt_error err = {0};
    void *self = NULL;
    (void)state;
    assert_int_equal(H.vt->open(config, &env, &self, &err), TT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "backend.f32_products: bf16x6 needs AMX"));
    config[2] = "auto";
    assert_int_equal(H.vt->open(config, &env, &self, &err), TT_OK);
    H.vt->close(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16x6_is_no_less_exact_than_multiply_adds),
        cmocka_unit_test(test_bf16x6_keeps_infinities_and_nan),
        cmocka_unit_test(test_bf16x6_loses_little_for_tiny_numbers),
        cmocka_unit_test(test_bf16x6_is_refused_without_amx),
    };
    return cmocka_run_group_tests(tests, open_both, harness_close);
}
