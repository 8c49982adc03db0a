/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
/* ckpt_test.h must be first: it defines what libc's headers declare */
#include "interchange/formats/hf_low.h"
#include <math.h>

/* Folders with experts in NVFP4 beside a matrix in float8 by rows and one that stays: files, index, and the way
 * back. tests/ops/test_hf_low.c compares the codes with the converters'. */

enum { E = 2, ROWS = 20, COLS = 32, N = ROWS * COLS };

static const tt_storage items[] = {
    {.name = "e.0.weight", .begin = 0, .size = 1, .transpose = TT_STORAGE_ITEM},
    {.name = "e.1.weight", .begin = 1, .size = 1, .transpose = TT_STORAGE_ITEM}
};
static const tt_hf_param params[] = {
    {.name = "e",
     .n_dims = 3,
     .dims = {E, ROWS, COLS},
     .storage = items,
     .n_storage = 2,
     .low = TT_HF_NVFP4},
    {.name = "row.weight", .n_dims = 2,                 .dims = {ROWS, COLS},                                                     .low = TT_HF_FP8_ROW},
    {.name = "plain.weight",   .n_dims = 2,.dims = {ROWS, COLS}}
};

/* The second expert has the larger numbers. */
static float value(size_t param, int64_t i)
{
    const float x = sinf((float)i) * ldexpf(1, (int)(i / COLS) % 5);
    return param == 0 && i >= N ? 8 * x : x;
}

static const char *exported(fixture *f, int64_t shard_bytes)
{
    const tt_trainer_state st = {.step = 1,
                                 .job_json = "{}",
                                 .model_fingerprint = "",
                                 .tokenizer_fingerprint = "",
                                 .world = 1};
    tt_ckpt_piece p[TT_COUNT(params)];
    for (size_t k = 0; k < TT_COUNT(params); k++) {
        float *data = tt_arena_array(f->a, E * N, sizeof *data);
        p[k] = (tt_ckpt_piece){.name = params[k].name,
                               .dtype = TT_F32,
                               .n_dims = params[k].n_dims,
                               .owner = true,
                               .data = data};
        for (int d = 0; d < params[k].n_dims; d++)
            p[k].global[d] = p[k].box.end[d] = params[k].dims[d];
        for (int64_t i = 0; i < (k ? N : E * N); i++)
            data[i] = value(k, i);
    }
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 0, p, TT_COUNT(params), &f->err), f);
    assert_ok(tt_ckpt_commit(f->folder, 1, &st, &f->err), f);
    assert_ok(tt_mkdirs(in(f, "hf"), &f->err), f);
    tt_ckpt_reader *r = NULL;
    size_t made = 0;
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    assert_ok(
        tt_hf_save(r, params, TT_COUNT(params), TT_BF16, shard_bytes, in(f, "hf"), &made, &f->err),
        f);
    tt_ckpt_close(r);
    return in(f, "hf");
}

static const float *loaded(fixture *f, tt_ckpt_reader *r, const char *name)
{
    float *out = tt_arena_array(f->a, N, sizeof *out);
    const tt_ckpt_piece p = {
        .name = name,
        .dtype = TT_F32,
        .n_dims = 2,
        .data = out,
        .global = {ROWS, COLS        },
        .box = {{0},  {ROWS, COLS}}
    };
    assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
    return out;
}

/* Both experts are rounded by the largest number of the two; what is read is code * (scale / global scale). */
static void check_experts(fixture *f, tt_ckpt_reader *r)
{
    float x[E * N], most = 0, global_scale;
    uint8_t packed[N / 2], scales[N / 16];
    for (int i = 0; i < E * N; i++) {
        x[i] = value(0, i);
        most = fmaxf(most, fabsf(x[i]));
    }
    for (int e = 0; e < E; e++) {
        static const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        const float *got = loaded(f, r, e ? "e.1.weight" : "e.0.weight");
        tt_hf_to_nvfp4(x + e * N, ROWS, COLS, most, packed, scales, &global_scale);
        for (int i = 0; i < N; i++) {
            float scale = 0;
            const int code = packed[i / 2] >> (i % 2 ? 4 : 0) & 15;
            tt_convert(&scale, TT_F32, &scales[i / 16], TT_F8E4M3, 1);
            const float want = numbers[code & 7] * (scale / global_scale);
            if (got[i] != (code & 8 ? -want : want))
                fail_msg("expert %d, %d: %g is read, not %g", e, i, (double)got[i], (double)want);
            assert_true(fabsf(got[i] - x[e * N + i]) <= scale / global_scale * 1.0001f);
        }
    }
}

static void test_low_matrices_are_read_as_they_were_written(void **state)
{
    fixture *f = *state;
    uint8_t codes[N];
    float x[N], scales[ROWS];
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_hf_open(exported(f, TT_HF_SHARD_BYTES), &r, &f->err), f);
    check_experts(f, r);
    for (int i = 0; i < N; i++)
        x[i] = value(1, i);
    tt_hf_to_float8_rows(x, ROWS, COLS, codes, scales);
    const float *row = loaded(f, r, "row.weight"), *plain = loaded(f, r, "plain.weight");
    for (int i = 0; i < N; i++) {
        float want = 0;
        tt_convert(&want, TT_F32, &codes[i], TT_F8E4M3, 1);
        assert_true(row[i] == want * scales[i / COLS]);
        assert_true(fabsf(plain[i] - value(2, i)) <= fabsf(plain[i]) * 0x1p-8f);
    }
    tt_ckpt_close(r);
}

/* Of as many files as tensors: the index names all of each. */
static void test_shards_have_the_scales_of_their_matrices(void **state)
{
    fixture *f = *state;
    tt_ckpt_reader *r = NULL;
    tt_st_file file = {0};
    const char *folder = exported(f, 1);
    assert_ok(tt_st_open(tt_path_join(f->a, folder, "model-00002-of-00004.safetensors"), f->a,
                         &file, &f->err),
              f);
    assert_int_equal(file.n_tensors, 3);
    assert_non_null(tt_st_find(&file, "e.1.weight_packed"));
    assert_non_null(tt_st_find(&file, "e.1.weight_scale"));
    assert_non_null(tt_st_find(&file, "e.1.weight_global_scale"));
    tt_st_close(&file);
    assert_ok(tt_hf_open(folder, &r, &f->err), f);
    check_experts(f, r);
    (void)loaded(f, r, "row.weight");
    tt_ckpt_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_low_matrices_are_read_as_they_were_written),
        TEST(test_shards_have_the_scales_of_their_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
