/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cuda_call.h"
#include "train/train.h"

/* Random numbers of any stream, initial values, and copies of dtypes and shapes that the battery has not. */

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

/* More streams than one launch takes, and a box of a tensor with large indices. */
static void test_random_keys_have_the_bits_of_the_core(void **state)
{
    static const int64_t shapes[][3] = {
        {801, 3, 1 },
        {2,   5, 33},
        {3,   0, 4 }
    };
    (void)state;
    for (size_t k = 0; k < TT_COUNT(shapes); k++) {
        tt_arena *a = tt_arena_new();
        const int64_t n = shapes[k][0];
        uint64_t *streams = tt_arena_array(a, (size_t)n, sizeof *streams);
        const tt_attrs_random_keys attrs = {.n_streams = n, .streams = streams};
        tt_tensor out = make(a, TT_F32, 3, shapes[k]), want = make(a, TT_F32, 3, shapes[k]);
        for (int64_t i = 0; i < n; i++)
            streams[i] = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        for (int d = 1; d < 3; d++) {
            out.begin[d] = INT64_C(1) << 33;
            out.global[d] = INT64_C(1) << 35;
        }
        run("random_keys", NULL, 0, &out, &attrs);
        for (int64_t i = 0; i < tt_tensor_numel(&out); i++) {
            const int64_t row = i / shapes[k][2] % shapes[k][1] + out.begin[1];
            const uint64_t index =
                ((uint64_t)row << 35) + (uint64_t)(i % shapes[k][2] + out.begin[2]);
            ((float *)want.data)[i] =
                tt_random_key_at(42, 3, streams[i / (shapes[k][1] * shapes[k][2])], index);
        }
        assert_memory_equal(want.data, out.data, subject_bytes(&want));
        tt_arena_free(a);
    }
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

/* ---- initial values: the bits of core/rank/initial.c ---- */

static void check_initial(tt_pool *pool, const tt_init *init, tt_dtype dtype, int n_dims,
                          const int64_t *shape, int64_t shard)
{
    tt_arena *a = tt_arena_new();
    const tt_attrs_initial attrs = tt_initial_attrs(7, "layers.3.mlp.down_proj", init);
    tt_tensor out = make(a, dtype, n_dims, shape), want = make(a, dtype, n_dims, shape);
    for (int d = 0; d < n_dims; d++) {
        out.begin[d] = want.begin[d] = shard * (d + 3);
        out.global[d] = want.global[d] = shape[d] + shard * (2 * d + 5);
    }
    if (n_dims && shard > 1) { /* indices above 2^32 */
        out.begin[0] = want.begin[0] = INT64_C(1) << 33;
        out.global[0] = want.global[0] = INT64_C(1) << 34;
    }
    tt_initial_values(pool, &attrs, &want);
    run(TT_OP_INITIAL, NULL, 0, &out, &attrs);
    if (memcmp(want.data, out.data, subject_bytes(&want)) != 0)
        fail_msg("kind %d, a %g, [%g, %g], %s of %d dims: other bits", (int)init->kind, init->a,
                 init->lo, init->hi, tt_dtype_name(dtype), n_dims);
    tt_arena_free(a);
}

static void test_initial_values_have_the_bits_of_the_core(void **state)
{
    static const tt_init inits[] = {
        {TT_INIT_TRUNC_NORMAL, 0.02,    -2,     2   },
        {TT_INIT_TRUNC_NORMAL, 0.02,    -0.04,  0.04},
        {TT_INIT_TRUNC_NORMAL, 1,       3,      4   },
        {TT_INIT_TRUNC_NORMAL, 1,       8.2,    9   },
        {TT_INIT_TRUNC_NORMAL, 1,       -9,     -8  },
        {TT_INIT_NORMAL,       0.02,    0,      0   },
        {TT_INIT_NORMAL,       3,       0,      0   },
        {TT_INIT_CONSTANT,     1.0 / 3, 0,      0   },
        {TT_INIT_CONSTANT,     0,       0,      0   },
        {TT_INIT_UNIFORM,      0,       -0.125, 0.3 },
    };
    static const struct {
        int n;
        int64_t shape[4];
    } shapes[] = {
        {0, {0}         },
        {1, {1}         },
        {1, {0}         },
        {1, {4099}      },
        {2, {33, 517}   },
        {3, {5, 1, 77}  },
        {4, {3, 2, 5, 9}}
    };
    tt_pool *pool = NULL;
    tt_error err = {0};
    (void)state;
    SUBJECT_OK(tt_pool_new(2, &pool, &err));
    for (size_t i = 0; i < TT_COUNT(inits); i++)
        for (size_t s = 0; s < TT_COUNT(shapes); s++) {
            cuda.tight = (i + s) % 2 == 1;
            check_initial(pool, &inits[i], s % 2 ? TT_BF16 : TT_F32, shapes[s].n, shapes[s].shape,
                          (int64_t)((i + s) % 3));
            check_initial(pool, &inits[i], s % 2 ? TT_F32 : TT_BF16, shapes[s].n, shapes[s].shape,
                          (int64_t)((i + s + 1) % 3));
        }
    tt_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transpose_turns_tiles),
        cmocka_unit_test(test_random_has_the_bits_of_the_core),
        cmocka_unit_test(test_random_keys_have_the_bits_of_the_core),
        cmocka_unit_test(test_a_stream_with_a_longer_name_is_refused),
        cmocka_unit_test(test_initial_values_have_the_bits_of_the_core),
        cmocka_unit_test(test_concat_converts_to_the_first_dtype),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
