/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"

/* Norms, softmax, cross-entropy and reductions of the cpu backend against double. */

static const int64_t widths[] = {1, 3, 16, 33, 256, 1000};

static void test_rms_norm_and_its_gradient_match_double(void **state)
{
    (void)state;
    for (size_t s = 0; s < TT_COUNT(widths); s++)
        for (int64_t heads = 1; heads <= 3; heads += 2) { /* 3: a weight of one head */
            const int64_t d = widths[s], rows = 133;
            const tt_attrs_norm at = {1e-5};
            tt_tensor x = filled(F32(rows, heads * d)), w = filled(F32(d)),
                      dy = filled(F32(rows, heads * d));
            tt_tensor y = F32(rows, heads * d), dx = F32(rows, heads * d), dw = F32(d);
            double *wy = calloc((size_t)(rows * heads * d), 8),
                   *wdx = calloc((size_t)(rows * heads * d), 8), *wdw = calloc((size_t)d, 8);
            for (int64_t r = 0; r < rows * heads; r++) {
                const float *px = fp(&x) + r * d, *pd = fp(&dy) + r * d;
                double ss = 0, hg = 0;
                for (int64_t i = 0; i < d; i++)
                    ss += (double)px[i] * (double)px[i];
                double f = 1 / sqrt(ss / (double)d + 1e-5);
                for (int64_t i = 0; i < d; i++)
                    hg += (double)px[i] * f * (double)pd[i] * (double)fp(&w)[i];
                for (int64_t i = 0; i < d; i++) {
                    double h = (double)px[i] * f;
                    wy[r * d + i] = h * (double)fp(&w)[i];
                    wdx[r * d + i] = f * ((double)pd[i] * (double)fp(&w)[i] - h * hg / (double)d);
                    wdw[i] += h * (double)pd[i];
                }
            }
            EACH_ISA
            {
                tt_tensor in[] = {x, w, dy}, out[] = {dx, dw};
                run(isa, "rms_norm", in, 2, &y, 1, &at);
                assert_near("rms_norm", isa, fp(&y), wy, rows * heads * d, 1e-6);
                run(isa, "rms_norm_bwd", in, 3, out, 2, &at);
                assert_near("rms_norm_bwd dx", isa, fp(&dx), wdx, rows * heads * d,
                            d == 1 ? 2e-4 : 1e-5);
                assert_near("rms_norm_bwd dw", isa, fp(&dw), wdw, d, 1e-5);
            }
            free(wy);
            free(wdx);
            free(wdw);
            tt_tensor all[] = {x, w, dy, y, dx, dw};
            drop(all, 6);
        }
}

static void test_layer_norm_and_its_gradient_match_double(void **state)
{
    (void)state;
    for (size_t s = 1; s < TT_COUNT(widths); s++) {
        const int64_t d = widths[s], rows = 70;
        const tt_attrs_norm at = {1e-5};
        tt_tensor x = filled(F32(rows, d)), w = filled(F32(d)), b = filled(F32(d)),
                  dy = filled(F32(rows, d));
        tt_tensor y = F32(rows, d), dx = F32(rows, d), dw = F32(d), db = F32(d);
        double *wy = calloc((size_t)(rows * d), 8), *wdx = calloc((size_t)(rows * d), 8),
               *wdw = calloc((size_t)d, 8), *wdb = calloc((size_t)d, 8);
        for (int64_t r = 0; r < rows; r++) {
            const float *px = fp(&x) + r * d, *pd = fp(&dy) + r * d;
            double mean = 0, var = 0, g = 0, hg = 0;
            for (int64_t i = 0; i < d; i++)
                mean += (double)px[i] / (double)d;
            for (int64_t i = 0; i < d; i++)
                var += ((double)px[i] - mean) * ((double)px[i] - mean) / (double)d;
            double f = 1 / sqrt(var + 1e-5);
            for (int64_t i = 0; i < d; i++) {
                double e = (double)pd[i] * (double)fp(&w)[i];
                g += e / (double)d;
                hg += ((double)px[i] - mean) * f * e / (double)d;
            }
            for (int64_t i = 0; i < d; i++) {
                double h = ((double)px[i] - mean) * f;
                wy[r * d + i] = h * (double)fp(&w)[i] + (double)fp(&b)[i];
                wdx[r * d + i] = f * ((double)pd[i] * (double)fp(&w)[i] - g - h * hg);
                wdw[i] += h * (double)pd[i];
                wdb[i] += (double)pd[i];
            }
        }
        EACH_ISA
        {
            tt_tensor in[] = {x, w, b}, bin[] = {x, w, dy}, out[] = {dx, dw, db};
            run(isa, "layer_norm", in, 3, &y, 1, &at);
            assert_near("layer_norm", isa, fp(&y), wy, rows * d, 2e-6);
            run(isa, "layer_norm_bwd", bin, 3, out, 3, &at);
            assert_near("layer_norm_bwd dx", isa, fp(&dx), wdx, rows * d, 1e-4);
            assert_near("layer_norm_bwd dw", isa, fp(&dw), wdw, d, 1e-5);
            assert_near("layer_norm_bwd db", isa, fp(&db), wdb, d, 1e-5);
        }
        free(wy);
        free(wdx);
        free(wdw);
        free(wdb);
        tt_tensor all[] = {x, w, b, dy, y, dx, dw, db};
        drop(all, 8);
    }
}

static void check_logits(int64_t v, int64_t first)
{
    const int64_t rows = 21;
    tt_tensor x = filled(F32(rows, v)), labels = I32(rows), d = filled(F32(rows)), nll = F32(rows),
              lse = F32(rows), y = F32(rows, v);
    tt_tensor m = F32(rows), s = F32(rows), p = F32(rows), dy = filled(F32(rows, v)),
              dx = F32(rows, v);
    x.begin[1] = y.begin[1] = first; /* this rank's part of the vocabulary */
    double *prob = calloc((size_t)(rows * v), 8), *grad = calloc((size_t)(rows * v), 8),
           *sdx = calloc((size_t)(rows * v), 8);
    double wn[21], wl[21], wm[21], ws[21], wp[21];
    for (int64_t r = 0; r < rows; r++) {
        double top = -INFINITY, sum = 0, dot = 0;
        for (int64_t i = 0; i < v; i++) {
            fp(&x)[r * v + i] *= 20;
            top = fmax(top, (double)fp(&x)[r * v + i]);
        }
        for (int64_t i = 0; i < v; i++)
            sum += exp((double)fp(&x)[r * v + i] - top);
        int32_t label = r % 5 == 0 ? -100 : (int32_t)(r * 37 % (v + 3));
        ip(&labels)[r] = label;
        int64_t at = label - first;
        int inside = label >= 0 && at >= 0 && at < v;
        wm[r] = top;
        ws[r] = sum;
        wl[r] = top + log(sum);
        wp[r] = inside ? (double)fp(&x)[r * v + at] : 0;
        wn[r] = label < 0 ? 0 : wl[r] - wp[r];
        for (int64_t i = 0; i < v; i++) {
            prob[r * v + i] = exp((double)fp(&x)[r * v + i] - wl[r]);
            dot += prob[r * v + i] * (double)fp(&dy)[r * v + i];
            grad[r * v + i] =
                label < 0 ? 0 : (prob[r * v + i] - (inside && i == at)) * (double)fp(&d)[r];
        }
        for (int64_t i = 0; i < v; i++)
            sdx[r * v + i] = prob[r * v + i] * ((double)fp(&dy)[r * v + i] - dot);
    }
    EACH_ISA
    {
        tt_tensor in[] = {x, labels}, out[] = {nll, lse}, bin[] = {x, labels, lse, d},
                  xm[] = {x, m}, yd[] = {y, dy}, pb[] = {x, labels, d};
        run(isa, "cross_entropy", in, 2, out, 2, NULL);
        assert_near("nll", isa, fp(&nll), wn, rows, 2e-6);
        assert_near("lse", isa, fp(&lse), wl, rows, 2e-6);
        run(isa, "cross_entropy_bwd", bin, 4, &y, 1, NULL);
        assert_near("cross_entropy_bwd", isa, fp(&y), grad, rows * v, 3e-6);
        run(isa, "max_last", &x, 1, &m, 1, NULL);
        assert_near("max_last", isa, fp(&m), wm, rows, 0);
        run(isa, "sum_exp", xm, 2, &s, 1, NULL);
        assert_near("sum_exp", isa, fp(&s), ws, rows, 1e-6);
        run(isa, "pick", in, 2, &p, 1, NULL);
        assert_near("pick", isa, fp(&p), wp, rows, 0);
        run(isa, "softmax", &x, 1, &y, 1, NULL);
        assert_near("softmax", isa, fp(&y), prob, rows * v, 1e-6);
        run(isa, "softmax_bwd", yd, 2, &dx, 1, NULL);
        assert_near("softmax_bwd", isa, fp(&dx), sdx, rows * v, 2e-6);
        run(isa, "pick_bwd", pb, 3, &y, 1, NULL);
        for (int64_t i = 0; i < rows * v; i++) {
            int32_t label = ip(&labels)[i / v];
            assert_true(fp(&y)[i] == (label >= 0 && label - first == i % v ? fp(&d)[i / v] : 0.0f));
        }
    }
    free(prob);
    free(grad);
    free(sdx);
    tt_tensor all[] = {x, labels, d, nll, lse, y, m, s, p, dy, dx};
    drop(all, 11);
}

static void test_logits_kernels_match_double(void **state)
{
    (void)state;
    check_logits(1, 0);
    check_logits(7, 0);
    check_logits(16, 0);
    check_logits(513, 0);
    check_logits(9000, 0);
    check_logits(40, 17);
}

static void test_an_empty_part_of_the_vocabulary_is_neutral(void **state)
{
    (void)state;
    tt_tensor x = F32(3, 0), m = F32(3), s = F32(3), in[] = {x, m};
    EACH_ISA
    {
        run(isa, "max_last", &x, 1, &m, 1, NULL);
        for (int i = 0; i < 3; i++)
            assert_true(isinf(fp(&m)[i]) && fp(&m)[i] < 0);
        run(isa, "sum_exp", in, 2, &s, 1, NULL);
        for (int i = 0; i < 3; i++)
            assert_true(fp(&s)[i] == 0.0f);
    }
    tt_tensor all[] = {x, m, s};
    drop(all, 3);
}

static void test_reductions_over_each_dim_match_double(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {3,  5,    7  },
        {1,  2500, 300},
        {2,  1,    40 },
        {4,  0,    6  },
        {70, 33,   1  },
        {0,  3,    3  }
    };
    for (size_t i = 0; i < TT_COUNT(shapes); i++)
        for (int dim = 0; dim < 3; dim++) {
            const int64_t *n = shapes[i];
            tt_tensor x = filled(F32(n[0], n[1], n[2]));
            int64_t outer = 1, inner = 1, out[3] = {n[0], n[1], n[2]};
            for (int d = 0; d < 3; d++)
                *(d < dim ? &outer : &inner) *= d == dim ? 1 : n[d];
            out[dim] = 1;
            tt_tensor y = tensor(TT_F32, 3, out);
            double *sum = calloc((size_t)(outer * inner + 1), 8),
                   *top = calloc((size_t)(outer * inner + 1), 8);
            for (int64_t o = 0; o < outer; o++)
                for (int64_t j = 0; j < inner; j++) {
                    double m = -INFINITY, s = 0;
                    for (int64_t r = 0; r < n[dim]; r++) {
                        double v = (double)fp(&x)[(o * n[dim] + r) * inner + j];
                        s += v;
                        m = v > m ? v : m;
                    }
                    sum[o * inner + j] = s;
                    top[o * inner + j] = m;
                }
            const tt_attrs_reduce at = {dim, 1};
            EACH_ISA
            {
                run(isa, "reduce_sum", &x, 1, &y, 1, &at);
                assert_near("reduce_sum", isa, fp(&y), sum, outer * inner, 1e-5);
                run(isa, "reduce_max", &x, 1, &y, 1, &at);
                assert_near("reduce_max", isa, fp(&y), top, outer * inner, 0);
            }
            free(sum);
            free(top);
            tt_tensor all[] = {x, y};
            drop(all, 2);
        }
}

static void test_line_sum_and_sum_squares_match_double(void **state)
{
    (void)state;
    enum { N = 50000 };
    tt_tensor x = filled(F32(N)), lines = F32(8), s = tensor(TT_F32, 0, NULL), none = F32(0);
    double want[8] = {0}, squares = 0;
    for (int64_t i = 0; i < N; i++) {
        want[i / (N / 8)] += (double)fp(&x)[i];
        squares += (double)fp(&x)[i] * (double)fp(&x)[i];
    }
    EACH_ISA
    {
        run(isa, "line_sum", &x, 1, &lines, 1, NULL);
        assert_near("line_sum", isa, fp(&lines), want, 8, 1e-5);
        run(isa, "sum_squares", &x, 1, &s, 1, NULL);
        assert_true(fp(&s)[0] == (float)squares || fabs((double)fp(&s)[0] / squares - 1) < 1e-7);
        /* cut inside lines, as over context-parallel ranks: 2.5 lines of 6250, from the middle */
        tt_tensor part = x, of = lines;
        part.shape[0] = 15625;
        part.begin[0] = 3125;
        part.global[0] = N;
        of.global[0] = 8;
        run(isa, "line_sum", &part, 1, &of, 1, NULL);
        double cut[8] = {0};
        for (int64_t i = 0; i < part.shape[0]; i++)
            cut[(i + 3125) / (N / 8)] += (double)fp(&x)[i];
        assert_near("line_sum, cut", isa, fp(&of), cut, 8, 1e-5);
        run(isa, "sum_squares", &none, 1, &s, 1, NULL);
        assert_true(fp(&s)[0] == 0.0f);
    }
    tt_tensor all[] = {x, lines, s, none};
    drop(all, 4);
}

/* The place of the element does not matter: in the vectors that are read several at once, in the
 * single ones after them, or among the last few elements. */
static void test_a_maximum_sees_every_element_and_every_nan(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 5, 17, 64, 67, 150};
    for (size_t k = 0; k < TT_COUNT(sizes); k++) {
        const int64_t n = sizes[k];
        tt_tensor x = F32(2 * n, n), m = F32(2 * n); /* row r: the largest at r, or NaN at r - n */
        for (int64_t r = 0; r < 2 * n; r++)
            for (int64_t i = 0; i < n; i++)
                fp(&x)[r * n + i] = i != r % n ? -2.0f - (float)i : r < n ? -1.5f : NAN;
        EACH_ISA
        {
            run(isa, "max_last", &x, 1, &m, 1, NULL);
            for (int64_t r = 0; r < n; r++)
                assert_true(fp(&m)[r] == -1.5f && isnan(fp(&m)[n + r]));
        }
        free(x.data);
        free(m.data);
    }
}

/* Sizes of a half, at the ends of halves, and of more than one task's share. */
static void test_sum_squares_of_any_size_counts_each_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1,  15,   31,    32,    33,          63,
                                    65, 1000, 65535, 65537, 131072 + 17, 300007};
    for (size_t k = 0; k < TT_COUNT(sizes); k++) {
        tt_tensor x = filled(F32(sizes[k])), s = tensor(TT_F32, 0, NULL);
        double want = 0;
        for (int64_t i = 0; i < sizes[k]; i++)
            want += (double)fp(&x)[i] * (double)fp(&x)[i];
        EACH_ISA
        {
            run(isa, "sum_squares", &x, 1, &s, 1, NULL);
            assert_true(fabs((double)fp(&s)[0] / want - 1) < 6e-8);
        }
        free(x.data);
        free(s.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm_and_its_gradient_match_double),
        cmocka_unit_test(test_layer_norm_and_its_gradient_match_double),
        cmocka_unit_test(test_logits_kernels_match_double),
        cmocka_unit_test(test_an_empty_part_of_the_vocabulary_is_neutral),
        cmocka_unit_test(test_reductions_over_each_dim_match_double),
        cmocka_unit_test(test_line_sum_and_sum_squares_match_double),
        cmocka_unit_test(test_a_maximum_sees_every_element_and_every_nan),
        cmocka_unit_test(test_sum_squares_of_any_size_counts_each_once),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
