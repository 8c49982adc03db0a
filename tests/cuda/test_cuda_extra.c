/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cuda_config.h"
#include <ttrun/comm.h>

/* What no row of the battery has: the ops of ttrun/device.h, random numbers of any stream, and copies of
 * dtypes and shapes that take other paths. Bits are compared. */

static subject cuda;
static uint64_t random_state = 11;

static int draw(int n)
{
    return (int)(eval_uniform(&random_state) * n);
}

static tt_tensor make(tt_arena *a, tt_dtype dtype, int n_dims, const int64_t *shape)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n_dims};
    for (int d = 0; d < n_dims; d++)
        t.shape[d] = t.global[d] = shape[d];
    t.data = tt_arena_array(a, (size_t)tt_tensor_numel(&t) + 1, tt_dtype_size(dtype));
    for (size_t i = 0; i < subject_bytes(&t); i++)
        ((unsigned char *)t.data)[i] = (unsigned char)draw(256);
    return t;
}

static void run(const char *op, const tt_tensor *in, int n_in, tt_tensor *out, const void *attrs)
{
    static const uint64_t seed = 42;
    static const double step = 3;
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .n_out = 1,
                        .attrs = attrs,
                        .seed = &seed,
                        .step = &step};
    const tt_kernel *k = cuda.vt->kernel(cuda.self[0], op);
    assert_non_null(k);
    assert_true(subject_run(&cuda, 0, k, &c, out));
}

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

/* ---- transpose: each dtype, whole tiles and parts of them ---- */

static void check_transpose(tt_dtype dtype, const int64_t *shape, const int32_t *perm)
{
    tt_arena *a = tt_arena_new();
    tt_attrs_perm attrs = {{0}};
    int64_t stride[3] = {shape[1] * shape[2], shape[2], 1}, turned[3];
    for (int d = 0; d < 3; d++) {
        attrs.perm[d] = perm[d];
        turned[d] = shape[perm[d]];
    }
    const size_t size = tt_dtype_size(dtype);
    tt_tensor in = make(a, dtype, 3, shape), out = make(a, dtype, 3, turned);
    run("transpose", &in, 1, &out, &attrs);
    for (int64_t i = 0; i < tt_tensor_numel(&out); i++) {
        const int64_t at[3] = {i / turned[2] / turned[1], i / turned[2] % turned[1], i % turned[2]};
        int64_t from = 0;
        for (int d = 0; d < 3; d++)
            from += at[d] * stride[perm[d]];
        if (memcmp((char *)out.data + (size_t)i * size, (char *)in.data + (size_t)from * size,
                   size) != 0)
            fail_msg("transpose of %s [%lld,%lld,%lld]: element %lld", tt_dtype_name(dtype),
                     (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)i);
    }
    tt_arena_free(a);
}

static void test_transpose_turns_tiles(void **state)
{
    static const int64_t shapes[][3] = {
        {2,  33, 70},
        {9,  3,  32},
        {1,  8,  8 },
        {40, 1,  65},
        {3,  0,  9 }
    };
    static const int32_t perms[][3] = {
        {0, 2, 1},
        {2, 1, 0},
        {1, 2, 0},
        {1, 0, 2},
        {2, 0, 1}
    };
    (void)state;
    for (int t = 0; t < TT_N_DTYPES; t++)
        for (size_t i = 0; i < TT_COUNT(shapes); i++)
            for (size_t p = 0; p < TT_COUNT(perms); p++) {
                cuda.tight = (i + p) % 2 == 1;
                check_transpose((tt_dtype)t, shapes[i], perms[p]);
            }
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

/* ---- random ---- */

static void check_random(const char *stream, int normal, tt_dtype dtype)
{
    tt_arena *a = tt_arena_new();
    static const int64_t shape[] = {4, 3, 17};
    tt_attrs_random attrs = {.stream = stream, .normal = normal};
    tt_tensor out = make(a, dtype, 3, shape), want = make(a, dtype, 3, shape);
    for (int d = 0; d < 3; d++) {
        out.begin[d] = 2 * d + 1;
        out.global[d] = shape[d] + 7;
    }
    out.begin[0] = INT64_C(1) << 35; /* indices above 2^40 */
    out.global[0] = INT64_C(1) << 40;
    run("random", NULL, 0, &out, &attrs);
    for (int64_t i = 0; i < tt_tensor_numel(&out); i++) {
        const int64_t at[3] = {i / 51 + out.begin[0], i / 17 % 3 + out.begin[1],
                               i % 17 + out.begin[2]};
        const uint64_t index = ((uint64_t)at[0] * (uint64_t)out.global[1] + (uint64_t)at[1]) *
                                   (uint64_t)out.global[2] +
                               (uint64_t)at[2];
        put(&want, i, tt_random_at(42, 3, stream, index, normal));
    }
    if (memcmp(want.data, out.data, subject_bytes(&want)) != 0)
        fail_msg("stream of %zu bytes%s in %s: other bits", stream != NULL ? strlen(stream) : 0,
                 normal ? ", normal" : "", tt_dtype_name(dtype));
    tt_arena_free(a);
}

static void test_random_has_the_bits_of_the_core(void **state)
{
    static const int lengths[] = {0,  1,  2,  3,  4,  7,  8,   9,   15,  16,  17,  31,  32, 33,
                                  48, 64, 65, 95, 96, 97, 128, 129, 144, 159, 160, 200, 240};
    char name[256];
    (void)state;
    for (size_t i = 0; i < TT_COUNT(lengths); i++) {
        for (int k = 0; k < lengths[i]; k++)
            name[k] = (char)('!' + (k * 37 + 11 * lengths[i]) % 90);
        name[lengths[i]] = '\0';
        cuda.tight = i % 2 == 1;
        check_random(name, (int)i % 2, i % 3 == 2 ? TT_F64 : TT_F32);
    }
    check_random(NULL, 1, TT_F32);
    check_random("s", 1, TT_BF16);
}

static void test_a_stream_with_a_longer_name_is_refused(void **state)
{
    char name[300];
    (void)state;
    memset(name, 'x', sizeof name);
    name[241] = '\0';
    const tt_attrs_random attrs = {.stream = name};
    tt_tensor out = {.dtype = TT_F32};
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = "random",
                              .out = &out,
                              .n_out = 1,
                              .attrs = &attrs,
                              .backend = cuda.self[0]};
    const tt_kernel *k = cuda.vt->kernel(cuda.self[0], "random");
    assert_int_equal(k->supports(&c), 0);
    name[240] = '\0';
    assert_int_equal(k->supports(&c), 1);
}

/* ---- concat of other dtypes ---- */

static void test_concat_converts_to_the_first_dtype(void **state)
{
    static const int64_t shapes[3][2] =
        {
            {3, 5},
            {3, 2},
            {3, 9}
    },
                         whole[2] = {3, 16};
    static const tt_attrs_concat attrs = {1};
    tt_arena *a = tt_arena_new();
    tt_tensor in[3] = {make(a, TT_BF16, 2, shapes[0]), make(a, TT_F32, 2, shapes[1]),
                       make(a, TT_F64, 2, shapes[2])},
              out = make(a, TT_BF16, 2, whole), want = make(a, TT_BF16, 2, whole);
    (void)state;
    for (int k = 0, at = 0; k < 3; at += (int)in[k].shape[1], k++)
        for (int64_t i = 0; i < tt_tensor_numel(&in[k]); i++) {
            put(&in[k], i, 8.0 * eval_uniform(&random_state) - 4.0);
            put(&want, i / in[k].shape[1] * 16 + at + i % in[k].shape[1], get(&in[k], i));
        }
    run("concat", in, 3, &out, &attrs);
    assert_memory_equal(want.data, out.data, subject_bytes(&want));
    tt_arena_free(a);
}

static int load(void **state)
{
    (void)state;
    subject_open(&cuda, "cuda", cuda_test_config());
    cuda_test_interpret(&cuda);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    subject_close(&cuda);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_members_adds_in_order),
        cmocka_unit_test(test_reduce_members_takes_more_than_a_launch_can_name),
        cmocka_unit_test(test_copy_box_copies_boxes),
        cmocka_unit_test(test_transpose_turns_tiles),
        cmocka_unit_test(test_find_bad_finds_the_first),
        cmocka_unit_test(test_random_has_the_bits_of_the_core),
        cmocka_unit_test(test_a_stream_with_a_longer_name_is_refused),
        cmocka_unit_test(test_concat_converts_to_the_first_dtype),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
