/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

/* tests/golden/safetensors_writer.json has what Hugging Face's writer writes for 20 random dicts
 * (tests/peers/safetensors_peer.py). */

static uint64_t fnv1a(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 0x100000001b3u;
    return h;
}

static tt_st_tensor golden_tensor(fixture *f, const tt_json *v, size_t k)
{
    tt_st_tensor t = {.name = tt_json_get(v, "name")->string,
                      .dtype_name = tt_json_get(v, "dtype")->string};
    const tt_json *shape = tt_json_get(v, "shape");
    const tt_st_dtype *dtype = tt_st_dtype_by_name(t.dtype_name);
    t.dtype = dtype->dtype;
    t.n_dims = (int)shape->n;
    for (size_t d = 0; d < shape->n; d++)
        t.shape[d] = shape->items[d]->integer;
    assert_true(tt_st_bytes(dtype, t.shape, t.n_dims, &t.bytes));
    uint8_t *data = tt_arena_alloc(f->a, t.bytes + 1);
    for (size_t i = 0; i < t.bytes; i++)
        data[i] = (uint8_t)(7 * i + 13 * k + 1);
    t.data = data;
    return t;
}

static void test_write_is_byte_identical_to_the_reference(void **state)
{
    fixture *f = *state;
    const tt_json *cases;
    char *text;
    size_t n;
    assert_ok(tt_read_file("tests/golden/safetensors_writer.json", 0, &text, &n, &f->err), f);
    assert_ok(tt_json_parse(f->a, "golden", text, n, &cases, &f->err), f);
    free(text);
    assert_int_equal(cases->n, 20);
    for (size_t c = 0; c < cases->n; c++) {
        const tt_json *list = tt_json_get(cases->items[c], "tensors"),
                      *meta = tt_json_get(cases->items[c], "metadata");
        tt_st_tensor *t = tt_arena_array(f->a, list->n, sizeof *t);
        for (size_t k = 0; k < list->n; k++)
            t[k] = golden_tensor(f, list->items[k], k);
        const char *key = meta->n ? meta->keys[0] : NULL,
                   *value = meta->n ? meta->items[0]->string : NULL;
        char hash[33], again[33], fnv[17];
        assert_ok(tt_st_write(in(f, "x"), t, list->n, false, &key, &value, meta->n, hash, &f->err),
                  f);
        assert_ok(tt_read_file(in(f, "x"), 0, &text, &n, &f->err), f);
        snprintf(fnv, sizeof fnv, "%016llx", (unsigned long long)fnv1a(text, n));
        assert_int_equal(n, tt_json_get(cases->items[c], "bytes")->integer);
        assert_string_equal(fnv, tt_json_get(cases->items[c], "fnv1a")->string);
        tt_hash128_hex(text, n, again);
        assert_string_equal(hash, again);
        free(text);
    }
}

static void test_write_adds_offsets_as_pytorch_does(void **state)
{
    fixture *f = *state;
    /* As torch 2.15 lays it out; checkpoint_peer.py has torch read it. */
    static const char want[] =
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"step\\\": {\\\"saved_offsets\\\": []}, "
        "\\\"b\\\": "
        "{\\\"saved_offsets\\\": [4, "
        "0]}}\",\"DCP_VERSION\":\"1.0\",\"format\":\"pt\"},\"step\":{\"dtype\":\"I64\","
        "\"shape\":[],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_"
        "offsets\":[8,16]}}";
    int64_t step = 5;
    float b[2] = {1, 2};
    tt_st_tensor t[] = {
        {.name = "b",
         .dtype = TT_F32,
         .n_dims = 2,
         .shape = {2, 1},
         .offset = {4, 0},
         .data = b,
         .bytes = 8},
        {.name = "step",   .dtype = TT_I64,      .data = &step, .bytes = 8},
    };
    char *text;
    size_t n;
    assert_ok(tt_st_write(in(f, "x"), t, 2, true, NULL, NULL, 0, NULL, &f->err), f);
    assert_ok(tt_read_file(in(f, "x"), 0, &text, &n, &f->err), f);
    assert_memory_equal(text + 8, want, sizeof want - 1);
    assert_int_equal((n - 16) % 8, 0);
    free(text);
}

static void test_write_refuses_what_the_format_cannot_hold(void **state)
{
    fixture *f = *state;
    uint8_t data[8] = {0};
    const tt_st_tensor good = {
        .name = "a", .dtype = TT_U8, .n_dims = 1, .shape = {8}, .data = data, .bytes = 8};
    tt_st_tensor t[2] = {good, good};
    const char *keys[] = {"k", "k"}, *values[] = {"1", "2"}, *format = "format";
    assert_int_equal(tt_st_write(in(f, "x"), t, 2, false, NULL, NULL, 0, NULL, &f->err), TT_EINVAL);
    assert_has(f->err.text, "two tensors are named 'a'");
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, false, keys, values, 2, NULL, &f->err),
                     TT_EINVAL);
    assert_has(f->err.text, "given twice");
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, true, &format, values, 1, NULL, &f->err),
                     TT_EINVAL);
    t[0].name = "__metadata__";
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, false, NULL, NULL, 0, NULL, &f->err), TT_EINVAL);
    t[0].name = "\xff";
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, false, NULL, NULL, 0, NULL, &f->err), TT_EINVAL);
    t[0] = good;
    t[0].bytes = 7;
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, false, NULL, NULL, 0, NULL, &f->err), TT_EINVAL);
    t[0] = good;
    t[0].dtype = TT_N_DTYPES;
    t[0].dtype_name = "F31";
    assert_int_equal(tt_st_write(in(f, "x"), t, 1, false, NULL, NULL, 0, NULL, &f->err), TT_EINVAL);
    assert_false(tt_path_exists(in(f, "x")));
}

static void test_write_reports_a_full_disk_and_keeps_the_device_file(void **state)
{
    fixture *f = *state;
    uint8_t data[8] = {0};
    tt_st_tensor t = {
        .name = "a", .dtype = TT_U8, .n_dims = 1, .shape = {8}, .data = data, .bytes = 8};
    if (!tt_path_exists("/dev/full"))
        skip();
    assert_int_equal(tt_st_write("/dev/full", &t, 1, false, NULL, NULL, 0, NULL, &f->err), TT_EIO);
    assert_has(f->err.text, "/dev/full: cannot write: No space left on device; free some space");
    assert_true(tt_path_exists("/dev/full"));
    assert_int_not_equal(tt_st_write(in(f, "no/x"), &t, 1, false, NULL, NULL, 0, NULL, &f->err),
                         TT_OK);
    assert_has(f->err.text, "cannot create");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write_is_byte_identical_to_the_reference),
        TEST(test_write_adds_offsets_as_pytorch_does),
        TEST(test_write_refuses_what_the_format_cannot_hold),
        TEST(test_write_reports_a_full_disk_and_keeps_the_device_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
