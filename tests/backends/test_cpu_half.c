/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"
#include <ttrun/narrow.h>

/* Products of bf16 matrices compared with double on the very same numbers: the difference is f32's
 * rounding of sums, and bf16's rounding of a bf16 result. Every instruction set gives the same bits
 * with any number of threads (cpu_harness.h). Sizes are around a tile's and above a block's. */

static tt_tensor halved(int64_t rows, int64_t cols)
{
    tt_tensor x = filled(F32(rows, cols)), h = x;
    h.dtype = TT_BF16;
    h.data = malloc((size_t)(rows * cols) * sizeof(uint16_t) + 64);
    for (int64_t i = 0; i < rows * cols; i++)
        ((uint16_t *)h.data)[i] = tt_to_bf16(fp(&x)[i]);
    free(x.data);
    return h;
}

static double at(const tt_tensor *t, int64_t r, int64_t c, bool trans)
{
    const int64_t i = trans ? c * t->shape[1] + r : r * t->shape[1] + c;
    return (double)tt_from_bf16(((const uint16_t *)t->data)[i]);
}

static double value(const tt_tensor *t, int64_t i)
{
    return t->dtype == TT_F32 ? (double)fp(t)[i]
                              : (double)tt_from_bf16(((const uint16_t *)t->data)[i]);
}

/* Runs op on (a, b) into f32 and into bf16, stored and accumulated; long products into bf16 only.
 */
static void check_op(const char *op, tt_tensor *a, bool ta, tt_tensor *b, bool tb, int64_t m,
                     int64_t n, int64_t k)
{
    tt_tensor in[2] = {*a, *b}, wide = F32(m, n), narrow = halved(m, n);
    double *want = malloc((size_t)(m * n + 1) * sizeof *want);
    for (int64_t i = 0; i < m * n; i++) {
        want[i] = 0;
        for (int64_t p = 0; p < k; p++)
            want[i] += at(a, i / n, p, ta) * at(b, p, i % n, tb);
    }
    EACH_ISA
    for (int add = 0; add < (k > 10000 ? 1 : 2); add++)
        for (int half = k > 10000; half < 2; half++) {
            tt_tensor *y = half ? &narrow : &wide;
            for (int64_t i = 0; i < m * n; i++)
                if (half)
                    ((uint16_t *)y->data)[i] = tt_to_bf16(2);
                else
                    fp(y)[i] = 2;
            run_with(isa, op, in, 2, y, 1, NULL, add);
            for (int64_t i = 0; i < m * n; i++) {
                const double w = want[i] + 2 * add, e = fabs(value(y, i) - w);
                if (!(e <=
                      1e-6 * (4 + sqrt((double)k)) * (1 + fabs(w)) + (half ? fabs(w) * 0x1p-8 : 0)))
                    fail_msg("%s (%s)%s%s, element %lld: %.9g, not %.9g", op, H.isa[isa],
                             half ? " bf16" : "", add ? ", added" : "", (long long)i, value(y, i),
                             w);
            }
        }
    free(want);
    free(wide.data);
    free(narrow.data);
}

static void check(int64_t t, int64_t in, int64_t out)
{
    tt_tensor x = halved(t, in), w = halved(out, in), dy = halved(t, out);
    check_op("linear", &x, false, &w, true, t, out, in);
    check_op("linear_dx", &dy, false, &w, false, t, in, out);
    check_op("linear_dw", &dy, true, &x, false, out, in, t);
    free(x.data);
    free(w.data);
    free(dy.data);
}

static void test_products_match_double(void **state)
{
    static const int64_t sizes[][3] = {
        {1,   1,   1  },
        {3,   5,   7  },
        {16,  32,  16 },
        {31,  33,  32 },
        {33,  31,  65 },
        {64,  96,  32 },
        {17,  400, 100},
        {0,   3,   4  },
        {3,   0,   4  },
        {3,   4,   0  },
        {129, 97,  131},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        check(sizes[i][0], sizes[i][1], sizes[i][2]);
}

static void test_products_above_a_block_match_double(void **state)
{
    (void)state;
    tt_tensor x = halved(33, 140001), w = halved(35, 140001);
    check_op("linear", &x, false, &w, true, 33, 35, 140001);
    free(x.data);
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_match_double),
        cmocka_unit_test(test_products_above_a_block_match_double),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
