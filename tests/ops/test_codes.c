/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* decode_codes: the ops that it decomposes into, for a backend without a kernel, give the kernel's bits. */

static const tt_backend_vt *backend;

static void run(tt_codes format, bool decompose, float *out, size_t n)
{
    eval e;
    eval_init(&e, backend, decompose);
    const bool nf4 = format == TT_CODES_NF4;
    const tt_dim codes[] = {N(7), nf4 ? N(3) : N(256), N(TT_NF4_BYTES)}, scales[] = {N(7), N(3)},
                 one[] = {N(7), N(1)};
    tt_value *in[] = {leaf_of(&e, TT_U8, 0, 256, nf4 ? 3 : 2, codes),
                      leaf_of(&e, TT_F32, 0, 2, 2, nf4 ? scales : one)},
             *y = NULL;
    tt_op(e.b, "decode_codes", in, 2, &(tt_attrs_codes){(int32_t)format, TT_F32}, &y, 1);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    const tt_tensor *t = &e.tensors[y->id];
    assert_int_equal(tt_tensor_numel(t), (int64_t)n);
    if (decompose)
        assert_true(e.g->nodes.n > 5);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)get(t, (int64_t)i);
    eval_release(&e);
}

static void test_decomposition_has_the_bits_of_the_kernel(void **state)
{
    (void)state;
    float a[7 * 256], b[7 * 256];
    for (int f = TT_CODES_NF4; f <= TT_CODES_INT8; f++) {
        const size_t n = f == TT_CODES_NF4 ? 7 * 3 * TT_NF4_BLOCK : 7 * 256;
        run((tt_codes)f, false, a, n);
        run((tt_codes)f, true, b, n);
        for (size_t i = 0; i < n; i++)
            assert_true(memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (a[i] == 0 && b[i] == 0));
    }
}

/* ---- dynamic codes ---- */

static void test_the_dynamic_map_is_sorted_and_has_its_known_numbers(void **state)
{
    (void)state;
    for (int positive = 0; positive < 2; positive++) {
        const int zero = positive ? 0 : 127;
        float last = -2;
        for (int at = 0; at < 256; at++) {
            const float x = tt_code8_value((at - zero) & 255, positive);
            assert_true(x > last);
            assert_int_equal(tt_code8(x, positive), (at - zero) & 255);
            last = x;
        }
        assert_true(tt_code8_value(0, positive) == 0 && last == 1.0f);
    }
    /* of bitsandbytes.functional.create_dynamic_map(signed): places 0, 1, 126, 128, 129, 254 */
    assert_true(fabs((double)tt_code8_value(129, 0) + 0.99296875) < 1e-7);
    assert_true(fabs((double)tt_code8_value(130, 0) + 0.97890625) < 1e-7);
    assert_true(fabs((double)tt_code8_value(255, 0) + 5.5e-7) < 1e-13);
    assert_true(fabs((double)tt_code8_value(1, 0) - 5.5e-7) < 1e-13);
    assert_true(fabs((double)tt_code8_value(2, 0) - 3.25e-6) < 1e-12);
    assert_true(fabs((double)tt_code8_value(127, 0) - 0.99296875) < 1e-7);
    /* (unsigned): places 1, 2, 3, 254 */
    assert_true(fabs((double)tt_code8_value(1, 1) - 3.25e-7) < 1e-13);
    assert_true(fabs((double)tt_code8_value(2, 1) - 7.75e-7) < 1e-13);
    assert_true(fabs((double)tt_code8_value(3, 1) - 2.125e-6) < 1e-12);
    assert_true(fabs((double)tt_code8_value(254, 1) - 0.996484375) < 1e-7);
}

static void test_a_dynamic_code_is_the_nearest(void **state)
{
    uint64_t random = 5;
    (void)state;
    for (int k = 0; k < 20000; k++)
        for (int positive = 0; positive < 2; positive++) {
            const double size = pow(10, -8 * eval_uniform(&random));
            const float x = (float)(size * (2 * eval_uniform(&random) - (positive ? 0 : 1)));
            const float got = tt_code8_value(tt_code8(x, positive), positive);
            double best = 2;
            for (int i = 0; i < 256; i++)
                best = fmin(best, fabs((double)x - (double)tt_code8_value(i, positive)));
            assert_true(fabs((double)(x - got)) <= best * (1 + 1e-6));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_dynamic_map_is_sorted_and_has_its_known_numbers),
        cmocka_unit_test(test_a_dynamic_code_is_the_nearest),
        cmocka_unit_test(test_decomposition_has_the_bits_of_the_kernel),
    };
    backend = backend_load("reference");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
