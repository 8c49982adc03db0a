/* SPDX-License-Identifier: Apache-2.0 */
#include "eval.h"
#include "interchange/formats/hf_low.h"
#include <ttrun/narrow.h>
#include <ttrun/quantize.h>

/* Codes and scales of Hugging Face folders in 8 and 4 bits are those that tt_quantize gives to the converters'
 * products, to the bit. Sizes end within a block. */

enum { E = 2, ROWS = 133, COLS = 304, N = E * ROWS * COLS };

static const tt_backend_vt *backend;

/* Numbers of many sizes, of both signs; a block of zeros, a row of tiny numbers, ties of e2m1, a large number. */
static float number_at(uint32_t i)
{
    const uint32_t row = i / COLS, col = i % COLS;
    uint32_t h = (i + 1) * 0x9e3779b1u;
    h = (h ^ h >> 15) * 0x85ebca77u;
    h = (h ^ h >> 13) * 0xc2b2ae3du;
    h ^= h >> 16;
    const float x =
        ldexpf((float)(h & 0xffffff) / 0x800000p0f - 1, (int)(row % 11) - (int)(h >> 28));
    if (row < 16 && col >= 32 && col < 48)
        return i % 2 ? 0.0f : -0.0f;
    if (row == 40)
        return x * 1e-16f;
    if (row / 16 == 3 && col < 16) /* the scale is 1 */
        return (row % 2 ? 0.25f : -0.25f) * (float)(col < 14 ? col : col < 15 ? 20 : 24);
    return i == ROWS * COLS + 77 ? -2688.0f : x;
}

typedef struct quantized {
    eval e;
    const float *x, *scales;
    const uint8_t *codes; /* e4m3 */
} quantized;

/* x: [E, ROWS, COLS], or its first matrix. */
static void quantize(quantized *q, int n_dims, tt_low_format format, tt_scale_rule rule,
                     int64_t rows, int64_t cols)
{
    const tt_dim dims[] = {TT_DIM(E, NULL), TT_DIM(ROWS, NULL), TT_DIM(COLS, NULL)};
    const tt_quantize_opts o = {.struct_size = sizeof o,
                                .format = format,
                                .rule = rule,
                                .block_rows = rows,
                                .block_cols = cols};
    eval_init(&q->e, backend, false);
    tt_value *s = NULL, *x = leaf_of(&q->e, TT_F32, 0, 1, n_dims, dims + 3 - n_dims);
    tt_value *codes = tt_quantize(q->e.b, x, &o, &s);
    eval_prepare(&q->e);
    float *data = q->e.tensors[x->id].data;
    for (int64_t i = 0; i < tt_tensor_numel(&q->e.tensors[x->id]); i++)
        data[i] = number_at((uint32_t)i);
    eval_run(&q->e, q->e.g->nodes.n);
    q->x = data;
    q->codes = q->e.tensors[codes->id].data;
    q->scales = q->e.tensors[s->id].data;
}

static void test_blocks_of_float8_are_those_of_blockwise(void **state)
{
    static uint8_t codes[ROWS * COLS];
    float scales[2 * 3];
    (void)state;
    quantized q;
    quantize(&q, 2, TT_LOW_E4M3, TT_SCALE_F32, 128, 128);
    tt_hf_to_float8(q.x, ROWS, COLS, codes, scales);
    assert_memory_equal(codes, q.codes, sizeof codes);
    assert_memory_equal(scales, q.scales, sizeof scales);
    eval_release(&q.e);
}

static void test_rows_of_float8_are_those_of_rowwise(void **state)
{
    static uint8_t codes[ROWS * COLS];
    float scales[ROWS];
    (void)state;
    quantized q;
    quantize(&q, 2, TT_LOW_E4M3, TT_SCALE_POW2, 1, 0);
    tt_hf_to_float8_rows(q.x, ROWS, COLS, codes, scales);
    assert_memory_equal(codes, q.codes, sizeof codes);
    assert_memory_equal(scales, q.scales, sizeof scales);
    eval_release(&q.e);
}

/* Experts share the scale of the tensor. */
static void test_nvfp4_is_that_of_the_converter(void **state)
{
    enum { BLOCKS = (ROWS + 15) / 16, GROUPS = COLS / 16 };
    static const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static uint8_t packed[ROWS * COLS / 2], scales[ROWS * GROUPS];
    (void)state;
    quantized q;
    quantize(&q, 3, TT_LOW_E2M1, TT_SCALE_NV, 16, 16);
    float most = 0, factor = 0;
    int signs = 0, used[16] = {0};
    for (int64_t i = 0; i < N; i++)
        most = fmaxf(most, fabsf(q.x[i]));
    assert_true(most == 2688.0f);
    for (int64_t e = 0; e < E; e++) {
        tt_hf_to_nvfp4(q.x + e * ROWS * COLS, ROWS, COLS, most, packed, scales, &factor);
        assert_true(factor == 1.0f / (most / 2688.0f));
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            const int code = i % 2 ? packed[i / 2] >> 4 : packed[i / 2] & 15;
            const float want = tt_from_float8(q.codes[e * ROWS * COLS + i], 0);
            const int64_t block = (e * BLOCKS + i / COLS / 16) * GROUPS + i % COLS / 16;
            used[code]++;
            signs += code == 8;
            if (numbers[code & 7] != fabsf(want) || (code >> 3) != (signbit(want) != 0))
                fail_msg("expert %d, %d: %x is not %g", (int)e, (int)i, code, (double)want);
            assert_true(tt_from_float8(scales[i / 16], 0) * (most / 2688.0f) == q.scales[block]);
        }
    }
    for (int i = 0; i < 16; i++)
        assert_true(used[i] > 0);
    assert_true(signs > 0);
    eval_release(&q.e);
}

static void test_a_matrix_of_zeros_has_finite_scales(void **state)
{
    static const float x[32 * 32];
    uint8_t codes[32 * 32], scales[32 * 2];
    float of_rows[32], whole = 0;
    (void)state;
    tt_hf_to_float8_rows(x, 32, 32, codes, of_rows);
    for (int i = 0; i < 32; i++)
        assert_true(of_rows[i] > 0 && isfinite(of_rows[i]));
    tt_hf_to_nvfp4(x, 32, 32, 0, codes, scales, &whole);
    assert_true(whole == 1);
    for (int i = 0; i < 32 * 2; i++)
        assert_true(tt_from_float8(scales[i], 0) == 0x1p-6f);
    for (int i = 0; i < 32 * 16; i++)
        assert_int_equal(codes[i], 0);
}

/* ---- which file tensors can be so ---- */

static tt_hf_tensor file_tensor(tt_arena *a, const char *name, int64_t rows, int64_t cols,
                                const tt_hf_part *part)
{
    tt_hf_tensor t = {
        .name = name, .n_dims = 2, .shape = {rows, cols}
    };
    tt_vec_push(a, &t.parts, *part);
    return t;
}

static void test_forms_that_hold_no_such_matrix(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_hf_param p = {
        .name = "w", .n_dims = 2, .dims = {40, 32},
                .low = TT_HF_NVFP4
    };
    const tt_hf_param row = {.low = TT_HF_FP8_ROW}, block = {.low = TT_HF_FP8};
    const tt_hf_part all = {.param = &p, .size = 40}, turned = {.param = &row, .transpose = true};
    const tt_hf_part first = {.param = &p, .size = 24},
                     rest = {.param = &p, .begin = 32, .size = 8};
    const tt_hf_part turned_block = {.param = &block, .transpose = true};
    (void)state;
    tt_hf_tensor t = file_tensor(a, "a.weight", 40, 32, &all);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_NVFP4);
    tt_vec_push(a, &t.parts, all);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_WIDE);
    t = file_tensor(a, "a.weight", 40, 40, &all);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_WIDE);
    t = file_tensor(a, "a.kernel", 40, 32, &all);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_WIDE);
    t = file_tensor(a, "a.weight", 24, 32, &first);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_WIDE);
    t = file_tensor(a, "a.weight", 8, 32, &rest);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_NVFP4);
    t = file_tensor(a, "a.weight", 40, 32, &turned);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_WIDE);
    t = file_tensor(a, "a.weight", 40, 32, &turned_block);
    assert_int_equal(tt_hf_low_of(&t), TT_HF_FP8);
    tt_arena_free(a);
}

static void test_numbers_that_are_not_finite_are_refused(void **state)
{
    static float x[16 * 16];
    tt_arena *a = tt_arena_new();
    tt_hf_param p = {
        .name = "w", .n_dims = 2, .dims = {16, 16}
    };
    const tt_hf_part all = {.param = &p, .size = 16};
    tt_st_tensor out[TT_HF_LOW_TENSORS];
    (void)state;
    const tt_hf_tensor t = file_tensor(a, "a.weight", 16, 16, &all);
    for (int i = 0; i < 4; i++) {
        tt_error err = {0};
        p.low = i % 2 ? TT_HF_NVFP4 : TT_HF_FP8_ROW;
        x[3 * 16 + 2] = i < 2 ? NAN : -INFINITY;
        assert_int_equal(tt_hf_low_tensors(a, &t, out), i % 2 ? 3 : 2);
        assert_int_equal(tt_hf_low_encode(&t, x, 1, out, &err), TT_EINVAL);
        assert_non_null(strstr(err.text, "'a.weight': row 3 has a NaN or an infinity"));
        for (int k = 0; k < 2; k++)
            assert_null(out[k].data);
    }
    tt_arena_free(a);
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_float8_are_those_of_blockwise),
        cmocka_unit_test(test_rows_of_float8_are_those_of_rowwise),
        cmocka_unit_test(test_nvfp4_is_that_of_the_converter),
        cmocka_unit_test(test_a_matrix_of_zeros_has_finite_scales),
        cmocka_unit_test(test_forms_that_hold_no_such_matrix),
        cmocka_unit_test(test_numbers_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
