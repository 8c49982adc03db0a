/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "ckpt_test.h"
#include "interchange/formats/hf_low.h"
#include <math.h>

/* Quantized Hugging Face folders: tests/golden/quantized.json has files and what transformers and torch make of
 * them (quantized_golden.py). */

static uint8_t *bytes_of(fixture *f, const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    uint8_t *out = tt_arena_alloc(f->a, *n + 1);
    for (size_t i = 0; i < *n; i++) {
        unsigned x = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &x), 1);
        out[i] = (uint8_t)x;
    }
    return out;
}

static const tt_json *golden(fixture *f)
{
    char *text = NULL;
    size_t n = 0;
    const tt_json *root = NULL;
    assert_ok(tt_read_file("tests/golden/quantized.json", 0, &text, &n, &f->err), f);
    assert_ok(tt_json_parse(f->a, "golden", tt_arena_strn(f->a, text, n), n, &root, &f->err), f);
    free(text);
    return tt_json_get(root, "files");
}

static tt_ckpt_reader *open_case(fixture *f, const tt_json *c)
{
    size_t n = 0;
    tt_str config = {0};
    tt_ckpt_reader *r = NULL;
    const uint8_t *bytes = bytes_of(f, tt_json_get(c, "file")->string, &n);
    put_file(in(f, "model.safetensors"), bytes, n);
    tt_json_write(tt_json_get(c, "config"), &config);
    put_file(in(f, "config.json"), config.s, config.n);
    tt_str_free(&config);
    assert_ok(tt_hf_open(f->folder, &r, &f->err), f);
    return r;
}

static tt_ckpt_piece piece_of_golden(const tt_json *want, tt_dtype dtype, void *data)
{
    const tt_json *shape = tt_json_get(want, "shape");
    tt_ckpt_piece p = {.name = tt_json_get(want, "name")->string,
                       .dtype = dtype,
                       .n_dims = (int)shape->n,
                       .data = data};
    for (size_t d = 0; d < shape->n; d++)
        p.global[d] = p.box.end[d] = shape->items[d]->integer;
    return p;
}

static void test_numbers_are_those_of_transformers_and_torch(void **state)
{
    static const char *const keys[] = {"f32", "bf16"};
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16};
    fixture *f = *state;
    const tt_json *files = golden(f);
    assert_int_equal(files->n, 5);
    for (size_t i = 0; i < files->n; i++) {
        const tt_json *tensors = tt_json_get(files->items[i], "tensors");
        tt_ckpt_reader *r = open_case(f, files->items[i]);
        for (size_t k = 0; k < 2 * tensors->n; k++) {
            const tt_json *want = tensors->items[k / 2];
            size_t n = 0;
            const uint8_t *bytes = bytes_of(f, tt_json_get(want, keys[k % 2])->string, &n);
            uint8_t *got = tt_arena_alloc(f->a, n);
            const tt_ckpt_piece p = piece_of_golden(want, dtypes[k % 2], got);
            assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
            if (memcmp(got, bytes, n) != 0)
                fail_msg("%s: %s: other numbers", tt_json_get(files->items[i], "name")->string,
                         p.name);
        }
        tt_ckpt_close(r);
    }
}

/* A rank's box of each tensor, in the middle of blocks. */
static void test_parts_are_those_of_the_whole(void **state)
{
    fixture *f = *state;
    const tt_json *files = golden(f);
    for (size_t i = 0; i < files->n; i++) {
        const tt_json *want = tt_json_get(files->items[i], "tensors")->items[0];
        tt_ckpt_reader *r = open_case(f, files->items[i]);
        float whole[512], part[512];
        tt_ckpt_piece p = piece_of_golden(want, TT_F32, whole);
        assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
        tt_ckpt_piece q = piece_of_golden(want, TT_F32, part);
        for (int d = 0; d < q.n_dims; d++)
            q.box.begin[d] = q.box.end[d] / 3;
        assert_ok(tt_ckpt_load(r, &q, 1, &f->err), f);
        size_t at = 0;
        int64_t x[3];
        const int three = q.n_dims == 3;
        for (x[0] = q.box.begin[0]; x[0] < q.box.end[0]; x[0]++)
            for (x[1] = q.box.begin[1]; x[1] < q.box.end[1]; x[1]++)
                for (x[2] = three ? q.box.begin[2] : 0; x[2] < (three ? q.box.end[2] : 1); x[2]++) {
                    const int64_t flat =
                        (x[0] * q.global[1] + x[1]) * (three ? q.global[2] : 1) + x[2];
                    assert_memory_equal(&part[at++], &whole[flat], sizeof *part);
                }
        tt_ckpt_close(r);
    }
}

/* Sides that end within a block, a block of zeros, a block with one number that is large. */
static void test_float8_is_read_as_it_was_written(void **state)
{
    enum { ROWS = 130, COLS = 300, SCALES = 2 * 3 };
    fixture *f = *state;
    float *x = tt_arena_array(f->a, ROWS * COLS, sizeof *x),
          *y = tt_arena_dup(f->a, x, 4 * ROWS * COLS);
    uint8_t codes[ROWS * COLS];
    float scales[SCALES + 1];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            x[r * COLS + c] =
                r < 128 && c < 128 ? 0.0f : sinf((float)(r * COLS + c)) * ldexpf(1, r % 9 - 5);
    x[5 * COLS + 140] = -1000.0f;
    scales[SCALES] = 77;
    tt_hf_to_float8(x, ROWS, COLS, codes, scales);
    assert_true(scales[SCALES] == 77);
    assert_true(fabsf(scales[1] * 448 - 1000) < 1e-3f);
    assert_int_equal(codes[5 * COLS + 140], 0xfe); /* -448 */
    const tt_st_tensor files[] = {
        {.name = "w",
         .dtype = TT_F8E4M3,
         .dtype_name = "F8_E4M3",
         .n_dims = 2,
         .shape = {ROWS, COLS},
         .data = codes,
         .bytes = sizeof codes},
        {.name = "w_scale_inv",
         .dtype = TT_F32,
         .dtype_name = "F32",
         .n_dims = 2,
         .shape = {2, 3},
         .data = scales,
         .bytes = 4 * SCALES  },
    };
    assert_ok(
        tt_st_write(in(f, "model.safetensors"), files, 2, false, NULL, NULL, 0, NULL, &f->err), f);
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_hf_open(f->folder, &r, &f->err), f);
    const tt_ckpt_piece p = {
        .name = "w",
        .dtype = TT_F32,
        .n_dims = 2,
        .data = y,
        .global = {ROWS, COLS        },
        .box = {{0},  {ROWS, COLS}}
    };
    assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
    tt_ckpt_close(r);
    for (int i = 0; i < ROWS * COLS; i++) {
        const float scale = scales[i / COLS / 128 * 3 + i % COLS / 128];
        const float near = fmaxf(fabsf(x[i]) / 16, scale * 0x1p-10f); /* half of the last place */
        if (!(fabsf(x[i] - y[i]) <= near * 1.0001f))
            fail_msg("%d: %g is read as %g", i, (double)x[i], (double)y[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_numbers_are_those_of_transformers_and_torch),
        TEST(test_parts_are_those_of_the_whole),
        TEST(test_float8_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
