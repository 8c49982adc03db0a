/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

/* What `ttrun ckpt diff` says of two folders. */

static const char *diff(fixture *f, const model_tensor *a, const model_tensor *b, size_t *n_differ)
{
    tt_str out = {0};
    size_t n = 0;
    assert_ok(save_whole(f, in(f, "a"), 1, a, 1, 0, &f->err), f);
    assert_ok(save_whole(f, in(f, "b"), 1, b, 1, 0, &f->err), f);
    assert_ok(tt_ckpt_diff(in(f, "a/step-1"), in(f, "b/step-1"), &out, &n, n_differ, &f->err), f);
    const char *text = tt_arena_str(f->a, tt_str_get(&out));
    tt_str_free(&out);
    tt_remove_tree(in(f, "a"), &f->err);
    tt_remove_tree(in(f, "b"), &f->err);
    return text;
}

/* Floats of any two dtypes are numbers; anything else has bytes, of one dtype. */
static void test_diff_of_two_dtypes(void **state)
{
    fixture *f = *state;
    static const char other[] = "x: the dtypes cannot be compared\n",
                      floats[] = "x: 6 of 6 elements differ, by 1 at most\n",
                      bytes[] = "x: 6 of 6 elements differ\n",
                      codes[] = "x: 4 of 6 elements differ\n"; /* which two are rounded alike */
    static const struct {
        tt_dtype a, b;
        const char *same, *differ; /* where all values are the same, and where all differ by 1 */
    } pairs[] = {
        {TT_F32,    TT_F32,    "",    floats},
        {TT_F32,    TT_BF16,   "",    floats},
        {TT_F16,    TT_F64,    "",    floats},
        {TT_F32,    TT_I64,    other, other },
        {TT_I64,    TT_F32,    other, other },
        {TT_BOOL,   TT_BF16,   other, other },
        {TT_U8,     TT_U8,     "",    bytes },
        {TT_I64,    TT_I64,    "",    bytes },
        {TT_I32,    TT_I64,    other, other },
        {TT_F8E4M3, TT_F8E4M3, "",    codes },
        {TT_F8E5M2, TT_I32,    other, other },
    };
    for (size_t i = 0; i < TT_COUNT(pairs); i++)
        for (int differ = 0; differ < 2; differ++) {
            const model_tensor a =
                                   {
                                       "x", pairs[i].a, 2, {3, 2},
                                          8
            },
                               b = {"x", pairs[i].b, 2, {3, 2}, 8 + differ};
            const char *want = differ ? pairs[i].differ : pairs[i].same;
            size_t n;
            assert_string_equal(diff(f, &a, &b, &n), want);
            assert_int_equal(n, *want != '\0');
        }
}

static void test_diff_of_shapes_and_names(void **state)
{
    fixture *f = *state;
    const model_tensor a =
                           {
                               "x", TT_F32, 2, {3, 2},
                                  8
    },
                       turned = {"x", TT_F32, 2, {2, 3}, 8}, flat = {"x", TT_F32, 1, {6}, 8},
                       named = {"y", TT_F32, 2, {3, 2}, 8};
    size_t n;
    assert_string_equal(diff(f, &a, &turned, &n), "x: [3,2] and [2,3]\n");
    assert_int_equal(n, 1);
    assert_string_equal(diff(f, &flat, &a, &n), "x: [6] and [3,2]\n");
    assert_int_equal(n, 1);
    assert_string_equal(diff(f, &a, &named, &n),
                        tt_arena_printf(f->a, "x: only in %s/a/step-1\ny: only in %s/b/step-1\n",
                                        f->folder, f->folder));
    assert_int_equal(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_diff_of_two_dtypes),
        TEST(test_diff_of_shapes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
