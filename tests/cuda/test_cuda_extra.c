/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cuda_call.h"
#include <ttrun/comm.h>

/* The ops of ttrun/device.h, which no row of the battery has, and tensors of many elements. Bits are
 * compared. */

/* ---- reduce_members ---- */

static void check_members(tt_dtype dtype, int n_members, int64_t n, tt_reduce op, int in_place)
{
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    tt_tensor *in = tt_arena_array(a, (size_t)n_members, sizeof *in), out, want;
    const void **data = tt_arena_array(a, (size_t)n_members, sizeof *data);
    const tt_attrs_reduce_members attrs = {.op = (int32_t)op};
    for (int m = 0; m < n_members; m++) {
        in[m] = make(a, dtype, 1, &n);
        if (tt_dtype_is_float(dtype)) /* NaN has many bits; infinities and all else stay */
            for (int64_t i = 0; i < n; i++)
                put(&in[m], i, 8.0 * eval_uniform(&random_state) - 4.0);
        data[m] = in[m].data;
    }
    want = make(a, dtype, 1, &n);
    out = make(a, dtype, 1, &n);
    SUBJECT_OK(tt_reduce_members(want.data, data, n_members, n, dtype, op, &err));
    if (in_place >= 0 && in_place < n_members)
        out = in[in_place];
    run(TT_OP_REDUCE_MEMBERS, in, n_members, &out, &attrs);
    if (memcmp(want.data, out.data, subject_bytes(&want)) != 0)
        fail_msg("%s of %d members of %lld elements, in place of %d: other bits",
                 tt_dtype_name(dtype), n_members, (long long)n, in_place);
    tt_arena_free(a);
}

static void test_reduce_members_adds_in_order(void **state)
{
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I32, TT_I64};
    static const int members[] = {1, 2, 3, 8, 17};
    static const int64_t sizes[] = {0, 1, 5, 64, 1003};
    (void)state;
    for (size_t d = 0; d < TT_COUNT(dtypes); d++)
        for (size_t m = 0; m < TT_COUNT(members); m++)
            for (size_t i = 0; i < TT_COUNT(sizes); i++) {
                cuda.tight = (m + i) % 2 == 1;
                check_members(dtypes[d], members[m], sizes[i], (m + i + d) % 3 ? TT_SUM : TT_MAX,
                              (int)i % 4 - 1);
            }
}

static void test_reduce_members_takes_more_than_a_launch_can_name(void **state)
{
    (void)state;
    cuda.tight = true;
    check_members(TT_F32, 450, 37, TT_SUM, -1);
    check_members(TT_F32, 450, 37, TT_SUM, 1);
    check_members(TT_I64, 441, 5, TT_MAX, 0);
    cuda.tight = false; /* regular addresses */
    check_members(TT_BF16, 500, 61, TT_SUM, -1);
    check_members(TT_F32, 500, 64, TT_SUM, -1);
}

/* ---- copy_box ---- */

static void check_box(tt_dtype dtype, bool tight)
{
    tt_arena *a = tt_arena_new();
    tt_attrs_copy_box box = {.n_dims = draw(5)};
    const size_t size = tt_dtype_size(dtype);
    int64_t from[TT_MAX_DIMS], to[TT_MAX_DIMS], n_from = 1, n_to = 1, n = 1;
    for (int d = box.n_dims - 1; d >= 0; d--) {
        box.size[d] = draw(12) == 0 ? 0 : 1 + draw(d == box.n_dims - 1 ? 40 : 5);
        const int64_t at = draw(2) * draw(4), other = draw(2) * draw(4);
        from[d] = box.size[d] + at + draw(2) * draw(4);
        to[d] = box.size[d] + other + draw(2) * draw(4);
        box.from_stride[d] = n_from;
        box.to_stride[d] = n_to;
        box.from += at * n_from;
        box.to += other * n_to;
        n_from *= from[d];
        n_to *= to[d];
        n *= box.size[d];
    }
    tt_tensor in = make(a, dtype, 1, &n_from), out = make(a, dtype, 1, &n_to),
              want = make(a, dtype, 1, &n_to);
    memcpy(want.data, out.data, subject_bytes(&out));
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, x = box.from, y = box.to;
        for (int d = box.n_dims - 1; d >= 0; d--) {
            x += rest % box.size[d] * box.from_stride[d];
            y += rest % box.size[d] * box.to_stride[d];
            rest /= box.size[d];
        }
        memcpy((char *)want.data + (size_t)y * size, (char *)in.data + (size_t)x * size, size);
    }
    cuda.tight = tight;
    run(TT_OP_COPY_BOX, &in, 1, &out, &box);
    if (memcmp(want.data, out.data, subject_bytes(&want)) != 0)
        fail_msg("a box of %lld elements of %s in %d dims: other bytes", (long long)n,
                 tt_dtype_name(dtype), box.n_dims);
    tt_arena_free(a);
}

static void test_copy_box_copies_boxes(void **state)
{
    (void)state;
    for (int trial = 0; trial < 160; trial++)
        check_box((tt_dtype)(trial % TT_N_DTYPES), trial / TT_N_DTYPES % 2 == 1);
}

/* ---- find_bad ---- */

static int64_t find(tt_dtype dtype, int64_t n, int what, const double *at_value, const int64_t *at,
                    int n_at)
{
    tt_arena *a = tt_arena_new();
    const tt_attrs_find_bad attrs = {.what = what, .pattern = 0x04030201};
    tt_tensor in = make(a, dtype, 1, &n), out = make(a, TT_I64, 0, NULL);
    for (int64_t i = 0; i < n; i++)
        if (what == TT_FIND_NOT_PATTERN)
            ((unsigned char *)in.data)[i] = (unsigned char)(1 + i % 4);
        else
            put(&in, i, (double)i);
    for (int i = 0; i < n_at; i++)
        if (what == TT_FIND_NOT_PATTERN)
            ((unsigned char *)in.data)[at[i]] ^= 1;
        else
            put(&in, at[i], at_value[i]);
    run(TT_OP_FIND_BAD, &in, 1, &out, &attrs);
    const int64_t found = *(int64_t *)out.data;
    tt_arena_free(a);
    return found;
}

static void test_find_bad_finds_the_first(void **state)
{
    static const double nan_inf[] = {(double)NAN, (double)INFINITY};
    static const double minus[] = {-(double)INFINITY, (double)NAN};
    static const int64_t at[] = {2999, 1700}, ordered[] = {5, 900};
    static const tt_dtype floats[] = {TT_F32, TT_BF16, TT_F64};
    (void)state;
    for (size_t t = 0; t < TT_COUNT(floats); t++) {
        cuda.tight = t % 2 == 0;
        assert_int_equal(find(floats[t], 3001, TT_FIND_NOT_FINITE, NULL, NULL, 0), -1);
        assert_int_equal(find(floats[t], 0, TT_FIND_NOT_FINITE, NULL, NULL, 0), -1);
        assert_int_equal(find(floats[t], 3001, TT_FIND_NOT_FINITE, nan_inf, at, 2), 1700);
        assert_int_equal(find(floats[t], 3001, TT_FIND_NOT_FINITE, minus, ordered, 2), 5);
        assert_int_equal(find(floats[t], 3001, TT_FIND_NOT_FINITE_NOR_MINUS_INF, minus, ordered, 2),
                         900);
    }
    assert_int_equal(find(TT_U8, 4099, TT_FIND_NOT_PATTERN, NULL, NULL, 0), -1);
    assert_int_equal(find(TT_U8, 4099, TT_FIND_NOT_PATTERN, NULL, at, 2), 1700);
}

/* ---- more elements than a launch has threads ---- */

static void test_tensors_larger_than_a_grid(void **state)
{
    const int64_t n = 8192 * 256 + 77, row = 16384 * 256 / 2 + 35, wide = 2 * row + 2;
    const tt_attrs_copy_box box = {
        .n_dims = 2, .size = {2,       row},
             .from_stride = {row + 1, 1  },
             .to_stride = {row,     1  }
    };
    const tt_attrs_random uniform = {.stream = "large"};
    const tt_attrs_cast widen = {.to = TT_I32};
    tt_arena *a = tt_arena_new();
    tt_tensor x = make(a, TT_U8, 1, &n), y = make(a, TT_I32, 1, &n), r = make(a, TT_F32, 1, &n),
              from = make(a, TT_U8, 1, &wide), to = make(a, TT_U8, 1, &(int64_t){2 * row});
    (void)state;
    cuda.tight = false;
    run("cast", &x, 1, &y, &widen);
    for (int64_t i = 0; i < n; i++)
        if (((int32_t *)y.data)[i] != ((uint8_t *)x.data)[i])
            fail_msg("cast: element %lld", (long long)i);
    run("random", NULL, 0, &r, &uniform);
    for (int64_t i = 0; i < n; i += i < n - 100 ? 97 : 1)
        if (((float *)r.data)[i] != (float)tt_random_at(42, 3, "large", (uint64_t)i, 0))
            fail_msg("random: element %lld", (long long)i);
    run(TT_OP_COPY_BOX, &from, 1, &to, &box);
    for (int64_t i = 0; i < 2; i++)
        if (memcmp((char *)to.data + i * row, (char *)from.data + i * (row + 1), (size_t)row) != 0)
            fail_msg("copy_box: row %lld", (long long)i);
    cuda.tight = true;
    check_members(TT_BF16, 2, n, TT_SUM, -1);
    cuda.tight = false;
    assert_int_equal(find(TT_F64, n, TT_FIND_NOT_FINITE, (const double[]){(double)NAN},
                          &(const int64_t){n - 1}, 1),
                     n - 1);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_members_adds_in_order),
        cmocka_unit_test(test_reduce_members_takes_more_than_a_launch_can_name),
        cmocka_unit_test(test_copy_box_copies_boxes),
        cmocka_unit_test(test_find_bad_finds_the_first),
        cmocka_unit_test(test_tensors_larger_than_a_grid),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
