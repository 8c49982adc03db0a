/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

static const model_tensor a =
                              {
                                  "a", TT_BF16, 2, {3, 4},
                                     1
},
                          b = {"b", TT_F32, 1, {5}, 2};

/* A plain safetensors file, no DCP metadata: whole tensors. */
static void put_plain(fixture *f, const char *file, const model_tensor *t)
{
    tt_box all = whole_box(t);
    tt_ckpt_piece p = piece_of(f->a, t, &all, true, true);
    tt_st_tensor s = {.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = p.data};
    memcpy(s.shape, t->shape, sizeof t->shape);
    s.bytes = (size_t)tt_box_numel(&all, t->n_dims) * tt_dtype_size(t->dtype);
    assert_ok(tt_st_write(in(f, file), &s, 1, false, NULL, NULL, 0, NULL, &f->err), f);
}

static void put_index(fixture *f, const char *text)
{
    put_file(in(f, "model.safetensors.index.json"), text, strlen(text));
}

static tt_status load(fixture *f, const model_tensor *t)
{
    tt_ckpt_reader *r;
    tt_box all = whole_box(t);
    tt_ckpt_piece p = piece_of(f->a, t, &all, true, false);
    TT_TRY(tt_ckpt_open(f->folder, &r, &f->err));
    tt_status status = tt_ckpt_load(r, &p, 1, &f->err);
    tt_ckpt_close(r);
    if (status == TT_OK)
        assert_piece(f->a, t, &p);
    return status;
}

static void test_open_reads_a_hugging_face_folder(void **state)
{
    fixture *f = *state;
    put_plain(f, "model-00001-of-00002.safetensors", &a);
    put_plain(f, "model-00002-of-00002.safetensors", &b);
    put_file(in(f, "config.json"), "{}", 2);
    assert_ok(load(f, &a), f);
    assert_ok(load(f, &b), f);
    model_tensor wide = a;
    wide.dtype = TT_F64;
    assert_ok(load(f, &wide), f);
}

static void test_open_takes_the_files_of_the_index(void **state)
{
    fixture *f = *state;
    put_plain(f, "model-00001-of-00001.safetensors", &a);
    put_plain(f, "consolidated.safetensors",
              &a); /* the same once more, as some repositories have it */
    assert_int_equal(load(f, &a), TT_EFORMAT);
    assert_has(f->err.text, "is in two files");
    put_index(f, "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"a\":\"model-00001-of-00001."
                 "safetensors\"}}");
    assert_ok(load(f, &a), f);
}

static void test_open_refuses_a_bad_index(void **state)
{
    fixture *f = *state;
    static const char *const bad[][2] = {
        {"{",                                               "index.json:1:"         },
        {"{}",                                              "weight_map"            },
        {"{\"weight_map\":[]}",                             "weight_map"            },
        {"{\"weight_map\":{\"a\":1}}",                      "'a' is not in the name"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}",   "'a' is not in the name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",        "'a' is not in the name"},
        {"{\"weight_map\":{\"a\":\"absent.safetensors\"}}", "absent.safetensors"    },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_index(f, bad[i][0]);
        assert_int_not_equal(load(f, &a), TT_OK);
        assert_has(f->err.text, bad[i][1]);
    }
}

static void test_open_takes_only_the_files_of_the_state(void **state)
{
    fixture *f = *state;
    assert_ok(save_whole(f, in(f, "c"), 1, &a, 1, 0, &f->err), f);
    strcat(f->folder, "/c/step-1");
    put_plain(f, "copy.safetensors", &a);
    assert_ok(load(f, &a), f);
    assert_int_equal(unlink(in(f, "shard-00001-model-00001-of-00001.safetensors")), 0);
    assert_int_equal(load(f, &a), TT_ENOTFOUND);
    assert_has(f->err.text, "shard-00001-model-00001-of-00001.safetensors");
    f->folder[strlen(f->folder) - strlen("/c/step-1")] = '\0';
}

static void test_open_refuses_a_folder_that_is_not_a_checkpoint(void **state)
{
    fixture *f = *state;
    tt_ckpt_reader *r = NULL;
    assert_int_equal(tt_ckpt_open(f->folder, &r, &f->err), TT_ENOTFOUND);
    assert_has(f->err.text, "not a checkpoint");
    assert_int_equal(tt_ckpt_open(in(f, "none"), &r, &f->err), TT_ENOTFOUND);
    put_plain(f, "1.safetensors", &a);
    put_plain(f, "2.safetensors", &(model_tensor){"a", TT_BF16, 1, {3}, 1});
    assert_int_equal(tt_ckpt_open(f->folder, &r, &f->err), TT_EFORMAT);
    assert_has(f->err.text, "1 dims, 2 in another file");
    assert_null(r);
}

static tt_status fill_with_a(tt_ckpt_reader *r, const void *user, tt_error *err)
{
    static const char *const names[] = {"a.other"};
    assert_null(user);
    return tt_ckpt_add_files(r, names, 1, tt_st_open, err);
}

static void test_open_asks_the_formats_that_the_program_has(void **state)
{
    static const tt_ckpt_format other = {".other", fill_with_a};
    fixture *f = *state;
    put_plain(f, "a.other", &a);
    put_file(in(f, ".other"), "", 0);
    assert_int_equal(load(f, &a), TT_ENOTFOUND);
    assert_has(f->err.text, "not a checkpoint");
    tt_ckpt_set_formats(&other, 1);
    assert_ok(load(f, &a), f);
    put_file(in(f, "trainer.json"), "{}", 2); /* a step, whatever else is there */
    assert_int_equal(load(f, &a), TT_EFORMAT);
    assert_has(f->err.text, "trainer.json");
    tt_ckpt_set_formats(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_open_reads_a_hugging_face_folder),
        TEST(test_open_takes_the_files_of_the_index),
        TEST(test_open_refuses_a_bad_index),
        TEST(test_open_takes_only_the_files_of_the_state),
        TEST(test_open_refuses_a_folder_that_is_not_a_checkpoint),
        TEST(test_open_asks_the_formats_that_the_program_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
