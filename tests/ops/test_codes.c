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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decomposition_has_the_bits_of_the_kernel),
    };
    backend = backend_load("reference");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
