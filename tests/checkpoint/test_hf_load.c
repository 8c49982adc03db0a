/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
/* ckpt_test.h must be first: it defines what libc's headers declare */
#include "checkpoint/exports.h"
#include "interchange/formats/hf.h"

/* Storage maps (three parameters in one transposed tensor, as in gpt2's c_attn; one parameter in
 * two tensors), boxes of any mesh, and export followed by import. Elements show parameter and
 * position. */

#define ROWS 4 /* of q, k, v each */
#define COLS 3

static const tt_ckpt_matching said = {.report = true}, silent = {.report = false};

static const tt_storage fused[] = {
    {.name = "c_attn.weight", .transpose = 1        },
    { .name = "c_attn.weight",         .transpose = 1,     .file_begin = ROWS},
    { .name = "c_attn.weight",         .transpose = 1, .file_begin = 2 * ROWS}
};
static const tt_storage halves[] = {
    {.name = "left",  .begin = 0, .size = 2},
    {.name = "right", .begin = 2, .size = 4}
};
static const tt_hf_param params[] = {
    {.name = "q",           .n_dims = 2, .dims = {ROWS, COLS}, .storage = &fused[0], .n_storage = 1},
    {.name = "k", .n_dims = 2, .dims = {ROWS, COLS}, .storage = &fused[1], .n_storage = 1},
    {.name = "v",       .n_dims = 2, .dims = {ROWS, COLS}, .storage = &fused[2], .n_storage = 1},
    {.name = "pair",           .n_dims = 2, .dims = {6, 5}, .storage = halves, .n_storage = 2},
    {.name = "norm", .n_dims = 1, .dims = {7}},
    {.name = "scale"      }
};
#define N TT_COUNT(params)

static float value(size_t param, int64_t i, int64_t j)
{
    return (float)(1000 * (param + 1)) + (float)(10 * i + j);
}

/* A piece of a parameter: rows [r0, r1), columns [c0, c1). */
static tt_ckpt_piece piece(fixture *f, size_t param, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const tt_hf_param *p = &params[param];
    tt_ckpt_piece out = {.name = p->name, .dtype = TT_F32, .n_dims = p->n_dims, .owner = true};
    memcpy(out.global, p->dims, sizeof out.global);
    out.box.begin[0] = p->n_dims > 0 ? r0 : 0;
    out.box.end[0] = p->n_dims > 0 ? r1 : 0;
    out.box.begin[1] = p->n_dims > 1 ? c0 : 0;
    out.box.end[1] = p->n_dims > 1 ? c1 : 0;
    out.data = tt_arena_array(f->a, (size_t)((r1 - r0) * (c1 - c0)) + 1, sizeof(float));
    return out;
}

static tt_ckpt_piece whole(fixture *f, size_t param)
{
    const tt_hf_param *p = &params[param];
    return piece(f, param, 0, p->n_dims > 0 ? p->dims[0] : 1, 0, p->n_dims > 1 ? p->dims[1] : 1);
}

static const char *native(fixture *f) /* a step folder of ours */
{
    tt_ckpt_piece p[N];
    for (size_t i = 0; i < N; i++) {
        p[i] = whole(f, i);
        const int64_t cols = params[i].n_dims > 1 ? params[i].dims[1] : 1;
        const int64_t rows = params[i].n_dims > 0 ? params[i].dims[0] : 1;
        for (int64_t k = 0; k < rows * cols; k++)
            ((float *)p[i].data)[k] = value(i, k / cols, k % cols);
    }
    const tt_trainer_state st = {.step = 1,
                                 .job_json = "{}",
                                 .model_fingerprint = "",
                                 .tokenizer_fingerprint = "",
                                 .world = 1};
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 0, p, N, &f->err), f);
    assert_ok(tt_ckpt_commit(f->folder, 1, &st, &f->err), f);
    return in(f, "step-1");
}

static const char *exported(fixture *f, int64_t shard_bytes)
{
    const char *from = native(f), *to = in(f, "hf");
    assert_ok(tt_mkdirs(to, &f->err), f);
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_ckpt_open(from, &r, &f->err), f);
    assert_ok(tt_hf_save(r, params, N, TT_F32, shard_bytes, to, NULL, &f->err), f);
    tt_ckpt_close(r);
    return to;
}

static void assert_values(const tt_ckpt_piece *p, size_t param)
{
    const int64_t rows = p->n_dims > 0 ? p->box.end[0] - p->box.begin[0] : 1;
    const int64_t cols = p->n_dims > 1 ? p->box.end[1] - p->box.begin[1] : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const float want = value(param, p->box.begin[0] + i, p->box.begin[1] + j);
            if (((float *)p->data)[i * cols + j] != want)
                fail_msg("%s[%lld,%lld]", p->name, (long long)i, (long long)j);
        }
}

static void test_save_stores_parameters_as_their_storage_maps_say(void **state)
{
    fixture *f = *state;
    tt_st_file file = {0};
    const char *folder = exported(f, TT_HF_SHARD_BYTES);
    assert_ok(tt_st_open(tt_path_join(f->a, folder, "model.safetensors"), f->a, &file, &f->err), f);
    assert_int_equal(file.n_tensors, 5);
    const tt_st_tensor *t = tt_st_find(&file, "c_attn.weight");
    assert_non_null(t);
    assert_int_equal(t->shape[0], COLS);
    assert_int_equal(t->shape[1], 3 * ROWS);
    for (int64_t c = 0; c < COLS; c++)
        for (int64_t r = 0; r < 3 * ROWS; r++) {
            float x;
            memcpy(&x, (const float *)t->data + c * 3 * ROWS + r, sizeof x);
            assert_true(x == value((size_t)(r / ROWS), r % ROWS, c));
        }
    t = tt_st_find(&file, "right");
    assert_non_null(t);
    assert_int_equal(t->shape[0], 4);
    float x;
    memcpy(&x, t->data, sizeof x);
    assert_true(x == value(3, 2, 0));
    assert_null(tt_st_find(&file, "q"));
    assert_string_equal(file.metadata_values[0], "pt");
    tt_st_close(&file);
}

static void test_boxes_of_any_mesh_are_filled(void **state)
{
    fixture *f = *state;
    const char *folder = exported(f, TT_HF_SHARD_BYTES);
    for (size_t i = 0; i < N; i++) {
        const int64_t rows = params[i].n_dims > 0 ? params[i].dims[0] : 1;
        const int64_t cols = params[i].n_dims > 1 ? params[i].dims[1] : 1;
        for (int64_t r0 = 0; r0 <= rows; r0++)
            for (int64_t r1 = r0; r1 <= rows; r1++)
                for (int64_t c0 = 0; c0 < cols; c0++) {
                    if (params[i].n_dims == 0 && r1 == r0)
                        continue;
                    const tt_ckpt_piece p = piece(f, i, r0, r1, c0, cols);
                    assert_ok(tt_hf_load(folder, params, N, NULL, &p, 1, &silent, &f->err), f);
                    assert_values(&p, i);
                }
    }
}

static void test_shards_have_an_index_and_load_again(void **state)
{
    fixture *f = *state;
    tt_ckpt_piece p[N];
    const char *folder = exported(f, 100); /* c_attn alone is larger */
    assert_false(tt_path_exists(tt_path_join(f->a, folder, "model.safetensors")));
    assert_true(tt_path_exists(tt_path_join(f->a, folder, "model.safetensors.index.json")));
    assert_true(tt_path_exists(tt_path_join(f->a, folder, "model-00001-of-00003.safetensors")));
    for (size_t i = 0; i < N; i++)
        p[i] = whole(f, i);
    assert_ok(tt_hf_load(folder, params, N, NULL, p, N, &said, &f->err), f);
    for (size_t i = 0; i < N; i++)
        assert_values(&p[i], i);
}

static void test_only_the_files_of_the_index_are_read(void **state)
{
    fixture *f = *state;
    const char *folder = exported(f, 100);
    const tt_ckpt_piece p = whole(f, 0);
    put_file(tt_path_join(f->a, folder, "consolidated.safetensors"), "rubbish", 7);
    assert_ok(tt_hf_load(folder, params, N, NULL, &p, 1, &silent, &f->err), f);
    assert_values(&p, 0);
}

/* Files of a model without its head have names without the prefix; a tensor is found with or
 * without it. */
static void test_names_are_found_without_their_prefix(void **state)
{
    fixture *f = *state;
    static const tt_storage long_left[] = {
        {.name = "body.left",  .begin = 0, .size = 2},
        {.name = "body.right", .begin = 2, .size = 4}
    };
    const tt_hf_param longer[] = {
        {.name = "body.norm", .n_dims = 1, .dims = {7}},
        {.name = "pair",        .n_dims = 2, .dims = {6, 5}, .storage = long_left, .n_storage = 2},
        {.name = "scale"     }
    };
    const char *folder = exported(f, TT_HF_SHARD_BYTES);
    tt_ckpt_piece p[] = {whole(f, 4), whole(f, 3), whole(f, 5)};
    p[0].name = "body.norm";
    assert_int_equal(tt_hf_load(folder, longer, 3, NULL, p, 3, &silent, &f->err), TT_ENOTFOUND);
    assert_has(f->err.text, "no tensor 'body.norm'");
    assert_ok(tt_hf_load(folder, longer, 3, "body.", p, 3, &said, &f->err), f);
    assert_values(&p[0], 4);
    assert_values(&p[1], 3);
    assert_values(&p[2], 5);
    assert_int_equal(tt_hf_load(folder, longer, 3, "bodies.", p, 3, &silent, &f->err),
                     TT_ENOTFOUND);
}

static void test_absent_tensor_names_tensor_and_parameter(void **state)
{
    fixture *f = *state;
    const char *folder = exported(f, TT_HF_SHARD_BYTES);
    const tt_storage other = {.name = "c_atn.weight"};
    const tt_hf_param one = {
        .name = "q", .n_dims = 2, .dims = {ROWS, COLS},
                .storage = &other, .n_storage = 1
    };
    const tt_ckpt_piece p = whole(f, 0);
    assert_int_equal(tt_hf_load(folder, &one, 1, NULL, &p, 1, &silent, &f->err), TT_ENOTFOUND);
    assert_has(f->err.text, "parameter 'q'");
    assert_has(f->err.text, "no tensor 'c_atn.weight' (there is 'c_attn.weight')");
}

static void test_shape_of_a_fused_tensor_is_checked_whole(void **state)
{
    fixture *f = *state;
    const char *folder = exported(f, TT_HF_SHARD_BYTES);
    const tt_ckpt_piece p = whole(f, 0);
    assert_int_equal(tt_hf_load(folder, params, 2, NULL, &p, 1, &silent, &f->err), TT_EINVAL);
    assert_has(f->err.text, "parameter 'q'");
    assert_has(f->err.text, "is [3,12] there, [3,8] in the model");
}

static void test_storage_maps_that_leave_a_gap_are_refused(void **state)
{
    fixture *f = *state;
    tt_map *out = NULL;
    const tt_storage beyond = {.name = "x", .begin = 3, .size = 4};
    const tt_hf_param gap[] = {params[0], params[2]}, far = {.name = "y",
                                                             .n_dims = 1,
                                                             .dims = {5},
                                                             .storage = &beyond,
                                                             .n_storage = 1};
    assert_int_equal(tt_hf_layout(f->a, gap, 2, &out, &f->err), TT_EINVAL);
    assert_has(f->err.text, "file tensor 'c_attn.weight'");
    assert_int_equal(tt_hf_layout(f->a, &far, 1, &out, &f->err), TT_EINVAL);
    assert_has(f->err.text, "parameter 'y'");
    assert_null(out);
}

static void test_publish_replaces_and_links(void **state)
{
    fixture *f = *state;
    char to[64] = "";
    for (int i = 0; i < 2; i++) {
        assert_ok(tt_mkdirs(in(f, "hf/step-7.tmp"), &f->err), f);
        put_file(in(f, "hf/step-7.tmp/x"), i ? "two" : "one", 3);
        assert_ok(tt_exports_publish(in(f, "hf"), 7, &f->err), f);
        assert_false(tt_path_exists(in(f, "hf/step-7.tmp")));
    }
    assert_int_equal(readlink(in(f, "hf/latest"), to, sizeof to - 1), 6);
    assert_string_equal(to, "step-7");
    char *text = NULL;
    size_t n = 0;
    assert_ok(tt_read_file(in(f, "hf/latest/x"), 0, &text, &n, &f->err), f);
    assert_string_equal(text, "two");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_save_stores_parameters_as_their_storage_maps_say),
        TEST(test_boxes_of_any_mesh_are_filled),
        TEST(test_shards_have_an_index_and_load_again),
        TEST(test_only_the_files_of_the_index_are_read),
        TEST(test_names_are_found_without_their_prefix),
        TEST(test_absent_tensor_names_tensor_and_parameter),
        TEST(test_shape_of_a_fused_tensor_is_checked_whole),
        TEST(test_storage_maps_that_leave_a_gap_are_refused),
        TEST(test_publish_replaces_and_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
