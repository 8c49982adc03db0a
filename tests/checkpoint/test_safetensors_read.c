/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

#define T(dtype, shape, offsets)                                                                   \
    "\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets

typedef struct sample {
    const char *header;
    size_t n_data;
    const char *says; /* NULL = sound */
} sample;

/* Formatted by hand, because clang-format takes the arguments of T for columns. */
/* clang-format off */
static const sample malformed[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "safetensors header"},
    {"{}x", 0, "safetensors header"},
    {"{} /* */", 0, "comment"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "},}", 4, "safetensors header"},
    {"{\"\xff\":{}}", 0, "not UTF-8 at byte 10"},
    {"{}", 1, "1 bytes of data"},
    {"{\"a\":1}", 0, "'a' is not an object"},
    {"{\"a\":{}}", 0, "no string \"dtype\""},
    {"{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no string \"dtype\""},
    {"{\"a\":{" T("F31", "[1]", "[0,4]") "}}", 4, "unknown dtype 'F31'"},
    {"{\"a\":{" T("f32", "[1]", "[0,4]") "}}", 4, "unknown dtype 'f32'"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no list \"shape\""},
    {"{\"a\":{" T("F32", "1", "[0,4]") "}}", 4, "no list \"shape\""},
    {"{\"a\":{" T("F32", "[-1]", "[0,4]") "}}", 4, "shape[0] is not an integer"},
    {"{\"a\":{" T("F32", "[1.0]", "[0,4]") "}}", 4, "shape[0] is not an integer"},
    {"{\"a\":{" T("F32", "[1,\"1\"]", "[0,4]") "}}", 4, "shape[1] is not an integer"},
    {"{\"a\":{" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}}", 4, "9 dims"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "is not a list of two"},
    {"{\"a\":{" T("F32", "[1]", "[0]") "}}", 4, "is not a list of two"},
    {"{\"a\":{" T("F32", "[1]", "[0,4,8]") "}}", 4, "is not a list of two"},
    {"{\"a\":{" T("F32", "[1]", "[0,\"4\"]") "}}", 4, "data_offsets[1]"},
    {"{\"a\":{" T("F32", "[1]", "[-4,0]") "}}", 4, "data_offsets[0]"},
    {"{\"a\":{" T("F32", "[1]", "[4,0]") "}}", 4, "do not hold the 4 bytes"},
    {"{\"a\":{" T("F32", "[2]", "[0,4]") "}}", 4, "do not hold the 8 bytes"},
    {"{\"a\":{" T("F32", "[]", "[0,0]") "}}", 0, "do not hold the 4 bytes"},
    {"{\"a\":{" T("F32", "[0]", "[0,4]") "}}", 4, "do not hold the 0 bytes"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "}}", 3, "cut short"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "}}", 5, "5 bytes of data"},
    {"{\"a\":{" T("F32", "[1]", "[4,8]") "}}", 8, "a hole after"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "},\"b\":{" T("F32", "[1]", "[8,12]") "}}", 12, "tensor 'b'"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "},\"b\":{" T("F32", "[1]", "[2,6]") "}}", 6, "an overlap with"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "},\"b\":{" T("F32", "[1]", "[0,4]") "}}", 4, "an overlap with"},
    {"{\"a\":{" T("F32", "[1]", "[0,4]") "},\"a\":{" T("F32", "[1]", "[4,8]") "}}", 8, "two tensors are named 'a'"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice"},
    {"{\"a\":{" T("F32", "[4294967296,4294967296]", "[0,4]") "}}", 4, "overflows"},
    {"{\"a\":{" T("F64", "[2305843009213693952]", "[0,4]") "}}", 4, "overflows"},
    {"{\"a\":{" T("F32", "[9223372036854775808]", "[0,4]") "}}", 4, "shape[0] is not an integer"},
    {"{\"a\":{" T("F4", "[3]", "[0,2]") "}}", 2, "not a whole number of bytes"},
    {"{\"__metadata__\":[]}", 0, "not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "'a' is not a string"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "'a' is not a string"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "'a' is not a string"},
    {"{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"[]\"}}", 0, "is not an object"},
    {"{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\"}}", 0,
     "safetensors header: x.safetensors (DCP_SHARDING_INFO)"},
#define INFO(text) \
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"" text "\"},\"a\":{" T("U8", "[2]", "[0,2]") "}}"
    {INFO("{}"), 2, "no saved_offsets"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":[]}}"), 2, "1 dims but 0 saved_offsets"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":[-1]}}"), 2, "not a valid offset"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":[1.5]}}"), 2, "not a valid offset"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":[9223372036854775806]}}"), 2, "not a valid offset"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":7}}"), 2, "no saved_offsets"},
    {INFO("{\\\"b\\\":{\\\"saved_offsets\\\":[0]}}"), 2, "no saved_offsets of tensor 'a'"},
    {INFO("{\\\"a\\\":{\\\"saved_offsets\\\":[0]},\\\"a\\\":{}}"), 2, "tensor 'a' twice"},
};
/* clang-format on */

static void test_read_refuses_malformed_files(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        size_t n;
        uint8_t *p = st_image(f, malformed[i].header, malformed[i].n_data, &n);
        tt_st_file out = {0};
        if (tt_st_parse("x.safetensors", p, n, f->a, &out, &f->err) == TT_OK)
            fail_msg("accepted: %s", malformed[i].header);
        assert_has(f->err.text, "x.safetensors");
        assert_has(f->err.text, malformed[i].says);
        assert_null(out.tensors); /* untouched */
    }
}

static void test_read_refuses_bad_lengths(void **state)
{
    fixture *f = *state;
    tt_st_file out;
    static const struct {
        uint8_t bytes[10];
        size_t n;
        const char *says;
    } t[] = {
        {{0},                                   0,  "too short"  },
        {{2, 0, 0, 0, 0, 0, 0},                 7,  "too short"  },
        {{2, 0, 0, 0, 0, 0, 0, 0, '{'},         9,  "goes beyond"},
        {{0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'}, 10, "at most"    },
        {{1, 0xe1, 0xf5, 5, 0, 0, 0, 0},        8,  "at most"    }, /* 100,000,001 */
        {{0, 0xe1, 0xf5, 5, 0, 0, 0, 0},        8,  "goes beyond"}, /* 100,000,000 */
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(tt_st_parse("x", t[i].bytes, t[i].n, f->a, &out, &f->err), TT_EFORMAT);
        assert_has(f->err.text, t[i].says);
    }
}

/* An entry's JSON is read into a tree, of fifty times the bytes of its text: one of a million values is none. */
static void test_read_refuses_an_entry_of_a_million_values(void **state)
{
    fixture *f = *state;
    static const char *const begin[] = {"{\"a\":[0",
                                        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"[0"};
    for (size_t k = 0; k < TT_COUNT(begin); k++) {
        tt_st_file out = {0};
        tt_str text = {0};
        size_t n;
        tt_str_add(&text, begin[k]);
        for (int i = 0; i < 1 << 20; i++)
            tt_str_add(&text, ",0");
        tt_str_add(&text, k ? "]\"}}" : "]}");
        uint8_t *p = st_image(f, tt_str_get(&text), 0, &n);
        assert_int_equal(tt_st_parse("x", p, n, f->a, &out, &f->err), TT_EFORMAT);
        assert_has(f->err.text, "more than 1048576 values are too many");
        tt_str_free(&text);
    }
}

/* As many entries as there are, of which no two are in memory at once. */
static void test_read_takes_more_values_than_an_entry_may_have(void **state)
{
    fixture *f = *state;
    enum { TENSORS = 150000 }; /* of seven values */
    tt_str text = {0};
    tt_st_file out;
    size_t n;
    for (int i = 0; i < TENSORS; i++)
        tt_str_printf(&text, "%c\"t%d\":{" T("U8", "[1]", "[%d,%d]") "}", i ? ',' : '{', i, i,
                      i + 1);
    tt_str_addc(&text, '}');
    uint8_t *p = st_image(f, tt_str_get(&text), TENSORS, &n);
    assert_ok(tt_st_parse("x", p, n, f->a, &out, &f->err), f);
    assert_int_equal(out.n_tensors, TENSORS);
    assert_string_equal(out.tensors[TENSORS - 1].name, "t149999");
    tt_str_free(&text);
}

static void test_read_takes_unaligned_data_in_any_order(void **state)
{
    fixture *f = *state;
    tt_st_file out;
    size_t n;
    /* header of odd length; "b" lies before "a"; an empty and a 0-d tensor; unknown members are let
     * be */
    uint8_t *p =
        st_image(
            f,
            "{\"a\":{" T("F32", "[1,2]", "[1,9]") ",\"more\":[{}]},\"b\":{" T("U8", "[1]", "[0,1]") "},\"e\":{" T(
                "F64", "[3,0]",
                "[9,9]") "},\"s\":{" T("I64", "[]",
                                       "[9,17]") "},\"q\":{" T("F8_E4M3", "[2]",
                                                               "[17,19]") "},\"h\":{" T("F4", "[2]",
                                                                                        "[19,20]") "} } \n",
            20, &n);
    float v = 2.5f;
    memcpy(p + n - 20 + 5, &v, 4);
    put_file(in(f, "u.safetensors"), p, n);
    assert_ok(tt_st_open(in(f, "u.safetensors"), f->a, &out, &f->err), f);
    assert_int_equal(out.n_tensors, 6);
    assert_string_equal(out.tensors[0].name, "a"); /* the header's order */
    const tt_st_tensor *a = tt_st_find(&out, "a"), *q = tt_st_find(&out, "q");
    assert_int_equal(a->n_dims, 2);
    assert_int_equal(a->shape[1], 2);
    memcpy(&v, (const uint8_t *)a->data + 4, 4);
    assert_true(v == 2.5f);
    assert_int_equal(q->dtype, TT_F8E4M3);
    assert_int_equal(tt_st_find(&out, "h")->dtype, TT_N_DTYPES);
    assert_string_equal(q->dtype_name, "F8_E4M3");
    assert_int_equal(tt_st_find(&out, "e")->bytes, 0);
    assert_null(tt_st_find(&out, "none"));
    tt_st_close(&out);
}

static void test_read_gives_offsets_and_metadata(void **state)
{
    fixture *f = *state;
    tt_st_file out;
    size_t n;
    uint8_t *p = st_image(f, INFO("{\\\"a\\\": {\\\"saved_offsets\\\": [6]}}"), 2, &n);
    assert_ok(tt_st_parse("x", p, n, f->a, &out, &f->err), f);
    assert_int_equal(out.tensors[0].offset[0], 6);
    assert_int_equal(out.n_metadata, 1);
    assert_string_equal(out.metadata_keys[0], "DCP_SHARDING_INFO");
    p = st_image(f, INFO(""), 2, &n); /* empty = none, as PyTorch has it */
    assert_ok(tt_st_parse("x", p, n, f->a, &out, &f->err), f);
    assert_int_equal(out.tensors[0].offset[0], 0);
}

static void test_open_says_what_is_wrong_with_the_file(void **state)
{
    fixture *f = *state;
    tt_st_file out;
    assert_int_equal(tt_st_open(in(f, "none"), f->a, &out, &f->err), TT_ENOTFOUND);
    assert_int_not_equal(tt_st_open(f->folder, f->a, &out, &f->err), TT_OK);
    put_file(in(f, "empty"), "", 0);
    assert_int_equal(tt_st_open(in(f, "empty"), f->a, &out, &f->err), TT_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read_refuses_malformed_files),
        TEST(test_read_refuses_bad_lengths),
        TEST(test_read_refuses_an_entry_of_a_million_values),
        TEST(test_read_takes_more_values_than_an_entry_may_have),
        TEST(test_read_takes_unaligned_data_in_any_order),
        TEST(test_read_gives_offsets_and_metadata),
        TEST(test_open_says_what_is_wrong_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
