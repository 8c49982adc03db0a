/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"

/* Matrix products of the cpu backend against double. Errors grow with the square root of k. */

static double at2(const tt_tensor *t, int64_t r, int64_t c, int trans)
{
    return (double)fp(t)[trans ? c * t->shape[t->n_dims - 1] + r : r * t->shape[t->n_dims - 1] + c];
}

/* want[m, n] = start + op(a) op(b) */
static void product(const tt_tensor *a, int ta, const tt_tensor *b, int tb, int64_t m, int64_t n,
                    int64_t k, double start, double *want)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = start;
            for (int64_t p = 0; p < k; p++)
                s += at2(a, i, p, ta) * at2(b, p, j, tb);
            want[i * n + j] = s;
        }
}

static void set_all(tt_tensor *t, float v)
{
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        fp(t)[i] = v;
}

static void check_linear(int64_t t, int64_t in, int64_t out)
{
    tt_tensor x = filled(F32(t, in)), w = filled(F32(out, in)), dy = filled(F32(t, out));
    tt_tensor y = F32(t, out), dx = F32(t, in), dw = F32(out, in);
    int64_t most = (t > in ? t : in) * (out > in ? out : in);
    double *want = malloc((size_t)(most + 1) * sizeof *want);
    tt_tensor f[] = {x, w}, bx[] = {dy, w}, bw[] = {dy, x};
    EACH_ISA
    {
        product(&x, 0, &w, 1, t, out, in, 0, want);
        run(isa, "linear", f, 2, &y, 1, NULL);
        assert_near("linear", isa, fp(&y), want, t * out, 1e-6 * (4 + sqrt((double)in)));
        product(&x, 0, &w, 1, t, out, in, 2, want);
        set_all(&y, 2);
        run_with(isa, "linear", f, 2, &y, 1, NULL, 1);
        assert_near("linear, accumulated", isa, fp(&y), want, t * out,
                    1e-6 * (4 + sqrt((double)in)));
        product(&dy, 0, &w, 0, t, in, out, 0, want);
        run(isa, "linear_dx", bx, 2, &dx, 1, NULL);
        assert_near("linear_dx", isa, fp(&dx), want, t * in, 1e-6 * (4 + sqrt((double)out)));
        product(&dy, 1, &x, 0, out, in, t, 1, want);
        set_all(&dw, 1);
        run_with(isa, "linear_dw", bw, 2, &dw, 1, NULL, 1);
        assert_near("linear_dw, accumulated", isa, fp(&dw), want, out * in,
                    1e-6 * (4 + sqrt((double)t)));
        product(&dy, 1, &x, 0, out, in, t, 0, want);
        run(isa, "linear_dw", bw, 2, &dw, 1, NULL);
        assert_near("linear_dw", isa, fp(&dw), want, out * in, 1e-6 * (4 + sqrt((double)t)));
    }
    free(want);
    tt_tensor all[] = {x, w, dy, y, dx, dw};
    drop(all, 6);
}

/* Products of up to 16 rows use another algorithm than products of many rows; the bits of a row
 * must not show which. With bf16x6 they are those of multiply-adds. */
static void test_linear_gives_a_row_the_same_bits_alone(void **state)
{
    static const int64_t ks[] = {1, 15, 64, 65, 300, 384, 385, 1001}, rows[] = {1, 2, 3, 5, 8, 16};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(ks); i++) {
        const int64_t n = 77, m = 40;
        tt_tensor x = filled(F32(m, ks[i])), w = filled(F32(n, ks[i])), many = F32(m, n),
                  few = F32(m, n);
        EACH_ISA for (int add = 0; add < 2; add++)
        {
            tt_tensor in[] = {x, w};
            set_all(&many, 0.3f);
            run_with(is_bf16x6(isa) ? isa - 1 : isa, "linear", in, 2, &many, 1, NULL, add);
            for (size_t r = 0; r < TT_COUNT(rows); r++) {
                tt_tensor y = few;
                in[0].shape[0] = y.shape[0] = rows[r];
                in[0].data = fp(&x) + (m - rows[r]) * ks[i];
                set_all(&few, 0.3f);
                run_with(isa, "linear", in, 2, &y, 1, NULL, add);
                assert_memory_equal(fp(&few), fp(&many) + (m - rows[r]) * n,
                                    (size_t)(rows[r] * n) * sizeof(float));
            }
        }
        tt_tensor all[] = {x, w, many, few};
        drop(all, 4);
    }
}

static void test_linear_matches_double_at_odd_sizes(void **state)
{
    static const int64_t sizes[][3] = {
        {1,    1,   1   },
        {2,    3,   5   },
        {7,    16,  32  },
        {14,   32,  33  },
        {15,   257, 31  },
        {85,   40,  97  },
        {100,  300, 7   },
        {2017, 5,   19  },
        {3,    7,   2051},
        {170,  520, 90  },
        {1,    512, 64  },
        {33,   1,   64  }
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        check_linear(sizes[i][0], sizes[i][1], sizes[i][2]);
}

static void test_linear_with_an_empty_dim_is_zero_or_empty(void **state)
{
    (void)state;
    check_linear(0, 5, 6);
    check_linear(4, 0, 6);
    check_linear(4, 5, 0);
    check_linear(0, 0, 0);
}

/* The bits of an element depend on k alone: rows computed separately equal the rows computed
 * together. */
static void test_linear_does_not_depend_on_how_rows_are_cut(void **state)
{
    (void)state;
    tt_tensor x = filled(F32(101, 300)), w = filled(F32(70, 300)), y = F32(101, 70),
              part = F32(17, 70);
    EACH_ISA
    {
        tt_tensor in[] = {x, w};
        run(isa, "linear", in, 2, &y, 1, NULL);
        const int64_t n = is_bf16x6(isa) ? 17 : 13;
        part.shape[0] = n;
        for (int64_t r = 0; r + n <= 101; r += n) {
            tt_tensor some = x, cut[] = {x, w};
            some.data = fp(&x) + r * 300;
            some.shape[0] = n;
            cut[0] = some;
            run(isa, "linear", cut, 2, &part, 1, NULL);
            assert_memory_equal(part.data, fp(&y) + r * 70, (size_t)(n * 70) * sizeof(float));
        }
    }
    tt_tensor all[] = {x, w, y, part};
    drop(all, 4);
}

static void test_matmul_matches_double_for_all_transpositions(void **state)
{
    const int64_t b = 3, m = 19, n = 37, k = 21;
    (void)state;
    for (int v = 0; v < 8; v++) {
        const tt_attrs_matmul at = {v & 1, v >> 1 & 1};
        const int batched = v >> 2 & 1;
        tt_tensor x = batched ? filled(at.trans_a ? F32(b, k, m) : F32(b, m, k))
                              : filled(at.trans_a ? F32(k, m) : F32(m, k));
        tt_tensor y = batched ? filled(at.trans_b ? F32(b, n, k) : F32(b, k, n))
                              : filled(at.trans_b ? F32(n, k) : F32(k, n));
        tt_tensor z = batched ? F32(b, m, n) : F32(m, n), in[] = {x, y};
        double want[19 * 37];
        EACH_ISA
        {
            run(isa, "matmul", in, 2, &z, 1, &at);
            for (int64_t i = 0; i < (batched ? b : 1); i++) {
                tt_tensor xi = x, yi = y;
                xi.data = fp(&x) + i * m * k;
                yi.data = fp(&y) + i * k * n;
                product(&xi, at.trans_a, &yi, at.trans_b, m, n, k, 0, want);
                assert_near("matmul", isa, fp(&z) + i * m * n, want, m * n, 1e-5);
            }
        }
        tt_tensor all[] = {x, y, z};
        drop(all, 3);
    }
}

static void test_experts_compute_their_own_rows(void **state)
{
    const int64_t rows = 60, in = 21, out = 35, experts = 4;
    (void)state;
    tt_tensor x = filled(F32(rows, in)), w = filled(F32(experts, out, in)),
              dy = filled(F32(rows, out)), counts = I32(experts);
    tt_tensor y = F32(rows, out), dx = F32(rows, in), dw = F32(experts, out, in);
    const int32_t n[] = {17, 0, 30, 5}; /* 8 rows belong to no expert */
    memcpy(counts.data, n, sizeof n);
    double *wy = calloc((size_t)(rows * out), sizeof *wy),
           *wdx = calloc((size_t)(rows * in), sizeof *wdx);
    double *wdw = calloc((size_t)(experts * out * in), sizeof *wdw);
    for (int64_t e = 0, r = 0; e < experts; e++)
        for (int64_t end = r + n[e]; r < end; r++)
            for (int64_t o = 0; o < out; o++)
                for (int64_t i = 0; i < in; i++) {
                    double we = (double)fp(&w)[(e * out + o) * in + i],
                           d = (double)fp(&dy)[r * out + o], xi = (double)fp(&x)[r * in + i];
                    wy[r * out + o] += xi * we;
                    wdx[r * in + i] += d * we;
                    wdw[(e * out + o) * in + i] += d * xi;
                }
    EACH_ISA
    {
        tt_tensor f[] = {x, w, counts}, bx[] = {dy, w, counts}, bw[] = {dy, x, counts};
        run(isa, "grouped_linear", f, 3, &y, 1, NULL);
        assert_near("grouped_linear", isa, fp(&y), wy, rows * out, 1e-5);
        run(isa, "grouped_linear_dx", bx, 3, &dx, 1, NULL);
        assert_near("grouped_linear_dx", isa, fp(&dx), wdx, rows * in, 1e-5);
        run(isa, "grouped_linear_dw", bw, 3, &dw, 1, NULL);
        assert_near("grouped_linear_dw", isa, fp(&dw), wdw, experts * out * in, 1e-5);
    }
    free(wy);
    free(wdx);
    free(wdw);
    tt_tensor all[] = {x, w, dy, counts, y, dx, dw};
    drop(all, 7);
}

/* bf16 operands: exactly the f32 product of their values, rounded once. */
static void test_bf16_operands_are_products_in_f32(void **state)
{
    enum { T = 33, I = 40, O = 17 };
    (void)state;
    tt_tensor x = filled(F32(T, I)), w = filled(F32(O, I)), y = F32(T, O),
              bx = tensor(TT_BF16, DIMS(T, I)), bw = tensor(TT_BF16, DIMS(O, I));
    tt_tensor by = tensor(TT_BF16, DIMS(T, O)), want = tensor(TT_BF16, DIMS(T, O));
    EACH_ISA
    {
        run(isa, "cast", &x, 1, &bx, 1, NULL);
        run(isa, "cast", &w, 1, &bw, 1, NULL);
        tt_tensor b[] = {bx, bw};
        run(isa, "linear", b, 2, &by, 1, NULL);
        run(isa, "cast", &bx, 1, &x, 1, NULL);
        run(isa, "cast", &bw, 1, &w, 1, NULL);
        tt_tensor f[] = {x, w}, mix[] = {x, bw};
        run(isa, "linear", f, 2, &y, 1, NULL);
        run(isa, "cast", &y, 1, &want, 1, NULL);
        assert_memory_equal(by.data, want.data, T * O * 2);
        run(isa, "linear", mix, 2, &by, 1, NULL);
        assert_memory_equal(by.data, want.data, T * O * 2);
    }
    tt_tensor all[] = {x, w, y, bx, bw, by, want};
    drop(all, 7);
}

static bool openblas_is_mapped(void)
{
    char line[600];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        found = found || strstr(line, "openblas");
    fclose(f);
    return found;
}

/* OpenBLAS is not loaded unless asked for: loading it takes as long as the rest of a start. */
static void test_openblas_is_not_loaded_before_it_is_wanted(void **state)
{
    (void)state;
    assert_true(H.n_isa > 0); /* backends are open, with our own products */
    assert_false(openblas_is_mapped());
}

/* OpenBLAS instead of our own tiles: the same numbers to rounding, and equal bits for any number of
 * threads. */
static void test_openblas_agrees_with_own_tiles(void **state)
{
    (void)state;
    const char *config[3] = {"auto", "openblas", "auto"};
    tt_backend_env env = {.struct_size = sizeof env, .n_threads = 2, .world = 1};
    tt_error err;
    void *own = H.self[0], *blas = NULL;
    assert_int_equal(H.vt->open(config, &env, &blas, &err), TT_OK);
    assert_true(openblas_is_mapped());
    H.self[0] = blas;
    check_linear(700, 130, 50);
    check_linear(50, 130, 700);
    check_linear(1, 5, 1);
    H.self[0] = own;
    H.vt->close(blas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_gives_a_row_the_same_bits_alone),
        cmocka_unit_test(test_linear_matches_double_at_odd_sizes),
        cmocka_unit_test(test_linear_with_an_empty_dim_is_zero_or_empty),
        cmocka_unit_test(test_linear_does_not_depend_on_how_rows_are_cut),
        cmocka_unit_test(test_matmul_matches_double_for_all_transpositions),
        cmocka_unit_test(test_experts_compute_their_own_rows),
        cmocka_unit_test(test_bf16_operands_are_products_in_f32),
        cmocka_unit_test(test_openblas_is_not_loaded_before_it_is_wanted),
        cmocka_unit_test(test_openblas_agrees_with_own_tiles),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
