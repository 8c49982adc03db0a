/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/backends/cpu/check.c"

#include "../../plugins/backends/cpu/half_gemm.c"
#define CPU_LEVEL 0
#include "../../plugins/backends/cpu/vec.h"

#include <ttrun/narrow.h>

static void from_bf16(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tt_from_bf16(x[i]);
}

#include "../../plugins/backends/cpu/check_impl.h"

#include "cpu_harness.h"
#include "tier.h"

/* Checksums of products (debug.check_products): a flipped high bit of a product is found, and rounding is not. */

static const cpu_isa sums = {.name = "sums", .check_sums = check_sums, .check_total = check_total};
/* panels of 8 rows and columns */
static const cpu_half panels = {.mr = 8, .nr = 8};
static const cpu_isa half_sums = {.name = "half", .half = &panels, .check_half = check_half};

enum kind { NORMAL, POSITIVE, LOG_NORMAL, OUTLIERS, N_KINDS };

static double gauss(void)
{
    double s = 0;
    for (int i = 0; i < 12; i++)
        s += noise();
    return s / 2;
}

static float element(enum kind kind, int64_t row, int64_t col)
{
    const double x = gauss();
    if (kind == POSITIVE)
        return (float)(x + 3);
    if (kind == LOG_NORMAL)
        return (float)(exp(2 * gauss()) * (x < 0 ? -1 : 1));
    if (kind == OUTLIERS) /* some rows and columns are a thousand times as large */
        return (float)(x * (row % 61 == 7 ? 1000 : 1) * (col % 53 == 5 ? 1000 : 1));
    return (float)x;
}

typedef struct operands {
    int64_t m, n, k;
    float *a, *b, *c;
    tt_checks found;
} operands;

static operands make(enum kind kind, int64_t m, int64_t n, int64_t k)
{
    operands o = {.m = m, .n = n, .k = k};
    o.a = malloc((size_t)(m * k) * sizeof(float));
    o.b = malloc((size_t)(k * n) * sizeof(float));
    o.c = calloc((size_t)(m * n), sizeof(float));
    for (int64_t i = 0; i < m * k; i++)
        o.a[i] = element(kind, i / k, i % k);
    for (int64_t i = 0; i < k * n; i++)
        o.b[i] = element(kind, i / n, i % n);
    return o;
}

static cpu_gemm_call call_of(operands *o, bool add)
{
    return (cpu_gemm_call){
        .m = o->m,
        .n = o->n,
        .k = o->k,
        .a = {o->a, o->k, 1},
        .b = {o->b, o->n, 1},
        .c = o->c,
        .ldc = o->n,
        .add = add,
        .checks = &o->found
    };
}

/* C += A B, as the kernels add: short sums of CPU_K_SUM terms. */
static void add_product(operands *o)
{
    float *t = malloc((size_t)o->n * sizeof *t);
    for (int64_t r = 0; r < o->m; r++)
        for (int64_t p0 = 0; p0 < o->k; p0 += CPU_K_SUM) {
            memset(t, 0, (size_t)o->n * sizeof *t);
            for (int64_t p = p0; p < o->k && p < p0 + CPU_K_SUM; p++)
                for (int64_t j = 0; j < o->n; j++)
                    t[j] += o->a[r * o->k + p] * o->b[p * o->n + j];
            for (int64_t j = 0; j < o->n; j++)
                o->c[r * o->n + j] += t[j];
        }
    free(t);
}

static void release(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
}

/* Sign, exponent and the four highest bits of the mantissa, of any element. */
static void check_flips(enum kind kind, int64_t m, int64_t n, int64_t k, bool add, double least)
{
    enum { FLIPS = 2000, LOWEST = 19 };
    operands o = make(kind, m, n, k);
    const cpu_rectangle all = {0, m, 0, n};
    const cpu_gemm_call g = call_of(&o, add);
    cpu_check before;
    int found = 0;
    if (add)
        add_product(&o);
    cpu_check_open(&before, &sums, &g, &all);
    cpu_check_whole_before(&before);
    add_product(&o);
    cpu_check check = before;
    cpu_check_whole(&check);
    assert_int_equal(o.found.wrong, 0);
    assert_true(o.found.products > 0);
    for (int i = 0; i < FLIPS; i++) {
        const int64_t at = (int64_t)((noise() + 1) / 2 * (double)(m * n)) % (m * n);
        const int bit = LOWEST + i % (32 - LOWEST);
        uint32_t x;
        const float right = o.c[at];
        memcpy(&x, &right, sizeof x);
        x ^= UINT32_C(1) << bit;
        memcpy(&o.c[at], &x, sizeof x);
        o.found.wrong = 0;
        check = before;
        cpu_check_whole(&check);
        found += o.found.wrong > 0;
        o.c[at] = right;
    }
    release(&o);
    printf("%lld x %lld x %lld: %d of %d flips found\n", (long long)m, (long long)n, (long long)k,
           found, FLIPS);
    if (found < least * FLIPS)
        fail_msg("kind %d, %lld x %lld x %lld: %d of %d flips found", kind, (long long)m,
                 (long long)n, (long long)k, found, FLIPS);
}

static void test_flipped_high_bits_are_found(void **state)
{
    (void)state;
    check_flips(NORMAL, 61, 300, 131, false, 0.99);
    check_flips(NORMAL, 61, 300, 131, true, 0.99);
    check_flips(NORMAL, 140, 256, 384, false, 0.99);
    check_flips(NORMAL, 532, 256, 768, false, 0.99); /* as large as the kernels' parts */
    check_flips(NORMAL, 1, 1, 1, false, 0.99);
    check_flips(POSITIVE, 61, 300, 131, false, 0.99);
}

/* The same of a task of a bf16 product, before it is rounded. */
static void test_flipped_bits_of_bf16_products_are_found(void **state)
{
    enum { M = 32, N = 64, LD = 200 + 1 };
    (void)state;
    operands o = make(NORMAL, M, N, LD - 1);
    uint16_t a[M * (LD - 1)], b[N * (LD - 1)];
    float of_panels[2 * LD];
    tt_checks found = {0, 0};
    for (int i = 0; i < M * (LD - 1); i++)
        a[i] = tt_to_bf16(o.a[i]), o.a[i] = tt_from_bf16(a[i]);
    for (int i = 0; i < N * (LD - 1); i++)
        b[i] = tt_to_bf16(o.b[i]), o.b[i] = tt_from_bf16(b[i]);
    add_product(&o);
    check_half(a, LD - 1, 1, M, LD - 1, of_panels + LD); /* along k */
    check_half(b, 1, N, N, LD - 1, of_panels);           /* columns of B, across it */
    const cpu_half_call g = {.m = M, .n = N, .k = LD - 1, .checks = &found};
    const product w = {.isa = &half_sums, .g = &g, .m = M, .n = N, .sums = of_panels};
    int wrong = 0;
    for (int i = -1; i < 2600; i++) {
        double sum[SLACK] = {0}, squares = 0;
        const int at = (int)((noise() + 1) / 2 * M * N) % (M * N);
        const float right = o.c[at];
        uint32_t x;
        memcpy(&x, &right, sizeof x);
        x ^= i < 0 ? 0 : UINT32_C(1) << (19 + i % 13);
        memcpy(&o.c[at], &x, sizeof x);
        for (int c = 0; c < N; c += 8)
            check_columns(o.c + c, N, M, 8, sum, &squares);
        o.c[at] = right;
        found.wrong = 0;
        check_task(&w, 0, 0, sum, squares);
        assert_true(i >= 0 || !found.wrong);
        wrong += found.wrong > 0;
    }
    release(&o);
    printf("bf16: %d of 2600 flips found\n", wrong);
    if (wrong < 0.99 * 2600)
        fail_msg("%d of 2600 flips found", wrong);
}

static tt_kernel_call checked_call(const char *op, tt_tensor *in, tt_tensor *out, tt_checks *k)
{
    return (tt_kernel_call){.struct_size = sizeof(tt_kernel_call),
                            .op = op,
                            .in = in,
                            .n_in = 2,
                            .out = out,
                            .n_out = 1,
                            .checks = k};
}

static void fill(tt_tensor *t, enum kind kind)
{
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        fp(t)[i] = element(kind, i / t->shape[1], i % t->shape[1]);
}

static tt_tensor narrow(const tt_tensor *t)
{
    tt_tensor h = tensor(TT_BF16, 2, t->shape);
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        ((uint16_t *)h.data)[i] = tt_to_bf16(fp(t)[i]);
    return h;
}

/* Kernels of each instruction set check what they multiply, and find nothing. */
static void run_checked(int isa, const char *op, tt_tensor *in, tt_tensor *out, int accumulate)
{
    tt_checks found = {0, 0};
    tt_kernel_call c = checked_call(op, in, out, &found);
    const tt_kernel *k = H.vt->kernel(H.self[isa], op);
    tt_error err = {0};
    c.accumulate = accumulate;
    c.pool = H.pool[1];
    c.backend = H.self[isa];
    c.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(&c, 2) : 0;
    c.scratch = aligned_alloc(64, (c.scratch_bytes + 127) / 64 * 64);
    assert_int_equal(k->run(H.self[isa], &c, &err), TT_OK);
    free(c.scratch);
    if (found.wrong || !found.products)
        fail_msg("%s of %d x %d on %s: %lld of %lld parts are wrong", op, (int)in[0].shape[0],
                 (int)in[0].shape[1], H.isa[isa], (long long)found.wrong,
                 (long long)found.products);
}

static void test_kernels_find_no_fault_in_what_they_round(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1,   70,  33  },
        {7,   300, 500 },
        {97,  513, 1025},
        {600, 131, 64  },
        {33,  40,  9000},
        {700, 70,  9000}  /* bf16: several blocks of rows, the last one smaller */
    };
    EACH_ISA for (int kind = 0; kind < N_KINDS; kind++) for (size_t i = 0; i < TT_COUNT(sizes); i++)
    {
        if (!in_tier((size_t)kind, i, 2))
            continue;
        const int64_t t = sizes[i][0], o = sizes[i][1], n = sizes[i][2];
        tt_tensor x = F32(t, n), w = F32(o, n), y = F32(t, o), dx = F32(t, n), dw = F32(o, n);
        fill(&x, (enum kind)kind);
        fill(&w, (enum kind)kind);
        tt_tensor forward[] = {x, w};
        run_checked(isa, "linear", forward, &y, 0);
        tt_tensor data[] = {y, w}, weight[] = {y, x};
        run_checked(isa, "linear_dx", data, &dx, 0);
        run_checked(isa, "linear_dw", weight, &dw, 0);
        run_checked(isa, "linear_dw", weight, &dw, 1);
        tt_tensor hx = narrow(&x), hw = narrow(&w), hy = narrow(&y), hdx = narrow(&x),
                  halves[] = {hx, hw, hy, hdx};
        tt_tensor half_in[] = {hx, hw}, half_weight[] = {hy, hx}, half_data[] = {hy, hw};
        run_checked(isa, "linear", half_in, &hy, 0);
        run_checked(isa, "linear_dx", half_data, &hdx, 0);
        run_checked(isa, "linear_dw", half_weight, &dw, 1);
        drop(halves, 4);
        tt_tensor all[] = {x, w, y, dx, dw};
        drop(all, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_high_bits_are_found),
        cmocka_unit_test(test_flipped_bits_of_bf16_products_are_found),
        cmocka_unit_test(test_kernels_find_no_fault_in_what_they_round),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
