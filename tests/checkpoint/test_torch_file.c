/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
/* ckpt_test.h must be first: it defines what libc's headers declare */
#include "interchange/formats/pickle.h"
#include "interchange/formats/torch_file.h"
#include "torch_writer.h"

/* The reader of torch.save's files: tests/golden/torch_file.json has files of PyTorch and their tensors
 * (torch_file_golden.py); damaged and hostile ones are made here. */

static uint8_t *bytes_of(fixture *f, const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    uint8_t *out = malloc(*n + 1); /* exactly its size, so that a sanitizer sees a read past it */
    for (size_t i = 0; i < *n; i++) {
        unsigned x = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &x), 1);
        out[i] = (uint8_t)x;
    }
    (void)f;
    return out;
}

static const tt_json *golden(fixture *f)
{
    char *text = NULL;
    size_t n = 0;
    const tt_json *root = NULL;
    assert_ok(tt_read_file("tests/golden/torch_file.json", 0, &text, &n, &f->err), f);
    assert_ok(tt_json_parse(f->a, "golden", tt_arena_strn(f->a, text, n), n, &root, &f->err), f);
    free(text);
    return root;
}

static void check_tensor(fixture *f, const tt_st_tensor *t, const tt_json *want)
{
    const tt_json *shape = tt_json_get(want, "shape");
    size_t n = 0;
    uint8_t *bytes = bytes_of(f, tt_json_get(want, "hex")->string, &n);
    assert_string_equal(t->name, tt_json_get(want, "name")->string);
    assert_string_equal(t->dtype_name, tt_json_get(want, "dtype")->string);
    assert_int_equal(t->n_dims, shape->n);
    for (size_t d = 0; d < shape->n; d++)
        assert_int_equal(t->shape[d], shape->items[d]->integer);
    assert_int_equal(t->bytes, n);
    if (n && memcmp(t->data, bytes, n) != 0)
        fail_msg("%s: other bytes", t->name);
    free(bytes);
}

static void test_files_of_pytorch(void **state)
{
    fixture *f = *state;
    const tt_json *files = tt_json_get(golden(f), "files");
    assert_int_equal(files->n, 3);
    for (size_t i = 0; i < files->n; i++) {
        const tt_json *tensors = tt_json_get(files->items[i], "tensors");
        size_t n = 0;
        uint8_t *bytes = bytes_of(f, tt_json_get(files->items[i], "file")->string, &n);
        tt_st_file st;
        assert_ok(tt_torch_parse("x.bin", bytes, n, f->a, &st, &f->err), f);
        assert_int_equal(st.n_tensors, tensors->n);
        for (size_t k = 0; k < tensors->n; k++)
            check_tensor(f, &st.tensors[k], tensors->items[k]);
        tt_st_close(&st);
        for (size_t cut = 0; cut < n; cut += 1 + cut / 64) /* every file that is cut short fails */
            assert_true(tt_torch_parse("x.bin", bytes, cut, f->a, &st, &f->err) != TT_OK);
        free(bytes);
    }
}

static void test_what_is_no_dict_of_tensors_is_refused_by_name(void **state)
{
    static const char *const says[] = {
        "'a': it is a dict, not a tensor", "it names the global torch.nn.modules.linear.Linear",
        "it holds a list, not a dict of tensors", "it names the global __builtin__.print",
        "before PyTorch 1.6, which is not read; write it again: python3 -c"};
    fixture *f = *state;
    const tt_json *files = tt_json_get(golden(f), "refused");
    assert_int_equal(files->n, 5);
    for (size_t i = 0; i < files->n; i++) {
        size_t n = 0;
        uint8_t *bytes = bytes_of(f, tt_json_get(files->items[i], "file")->string, &n);
        tt_st_file st;
        assert_true(tt_torch_parse("x.bin", bytes, n, f->a, &st, &f->err) != TT_OK);
        assert_has(f->err.text, says[i]);
        assert_has(f->err.text, "x.bin");
        assert_null(strchr(f->err.text, '\n'));
        free(bytes);
    }
}

/* ---- pickles ---- */

static const tt_pickle_global globals[] = {
    {"collections", "OrderedDict", 0, true },
    {"m",           "f",           1, false},
    {NULL,          NULL,          0, false}
};

static const tt_pickle_value *read_ok(fixture *f, const char *p, size_t n)
{
    const tt_pickle_value *v = NULL;
    assert_ok(tt_pickle_read("x", (const uint8_t *)p, n, globals, f->a, &v, &f->err), f);
    return v;
}
#define READ(f, p) read_ok(f, p, sizeof(p) - 1)

static void test_values_of_every_opcode(void **state)
{
    fixture *f = *state;
    assert_int_equal(READ(f, "\x80\x02N.")->kind, TT_PICKLE_NONE);
    assert_int_equal(READ(f, "\x88.")->integer, 1);
    assert_int_equal(READ(f, "K\xff.")->integer, 255);
    assert_int_equal(READ(f, "M\x01\x02.")->integer, 513);
    assert_int_equal(READ(f, "J\xfe\xff\xff\xff.")->integer, -2);
    assert_int_equal(READ(f, "\x8a\x00.")->integer, 0);
    assert_int_equal(READ(f, "\x8a\x02\x00\x80.")->integer, -32768);
    assert_int_equal(READ(f, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.")->integer, INT64_MAX);
    assert_true(READ(f, "G\x3f\xf8\x00\x00\x00\x00\x00\x00.")->real == 1.5);
    assert_string_equal(READ(f, "X\x02\x00\x00\x00"
                                "ab.")
                            ->text,
                        "ab");
    assert_string_equal(READ(f, "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x02"
                                "ab.")
                            ->text,
                        "ab");
    assert_int_equal(READ(f, "C\x01\xff.")->kind, TT_PICKLE_BYTES);
    assert_int_equal(READ(f, "(K\x01K\x02t.")->n, 2);
    assert_int_equal(READ(f, "K\x01K\x02K\x03\x87.")->n, 3);
    assert_int_equal(READ(f, ").")->n, 0);
    assert_int_equal(READ(f, "](K\x01K\x02"
                             "eK\x03"
                             "a.")
                         ->n,
                     3);
    assert_int_equal(READ(f, "}(K\x01K\x02uK\x03K\x04s.")->n, 4);
    assert_int_equal(READ(f, "ccollections\nOrderedDict\n)R}b.")->kind, TT_PICKLE_DICT);
    const tt_pickle_value *v = READ(f, "\x8c\x01m\x8c\x01"
                                       "f\x93K\x05\x85R.");
    assert_int_equal(v->kind, TT_PICKLE_CALL);
    assert_int_equal(v->global->id, 1);
    assert_int_equal(v->items[0]->items[0]->integer, 5);
    assert_int_equal(READ(f, "cm\nf\n)\x81}b.")->kind, TT_PICKLE_CALL);
    assert_int_equal(READ(f, "K\x07Q.")->kind, TT_PICKLE_PERSISTENT);
    assert_int_equal(READ(f, "K\x07q\x00K\x08\x94\x86h\x01\x86j\x00\x00\x00\x00\x86.")->n, 2);
    assert_int_equal(READ(f, "K\x01N0.")->integer, 1);
    v = READ(f, "]q\x00h\x00"
                "a."); /* a list that holds itself */
    assert_true(v->n == 1 && v->items[0] == v);
}

static void test_refused_pickles_name_opcode_global_and_offset(void **state)
{
    static const struct {
        const char *pickle;
        size_t n;
        const char *says;
    } cases[] = {
#define CASE(p, says) {p, sizeof(p) - 1, says}
        CASE("", "byte 0 of the pickle: the pickle is cut short"),
        CASE("\x80\x02", "byte 2 of the pickle: the pickle is cut short"),
        CASE("N", "byte 1 of the pickle: the pickle is cut short"),
        CASE(".", "it ends with 0 values on the stack"),
        CASE("NN.", "it ends with 2 values on the stack"),
        CASE("(N.", "it ends with 1 values"),
        CASE("N.N", "1 bytes follow its end"),
        CASE("\x80\x01N.", "protocol 1; 2 to 5 are read"),
        CASE("N\xff", "byte 1 of the pickle: 0xff is no opcode"),
        CASE("NNcos\nsystem\n", "byte 2 of the pickle: it names the global os.system, which"),
        CASE("cm\nf", "cut short"),
        CASE("cm\nff\n.", "the global m.ff"),
        CASE("c\n\n.", "the global ."),
        CASE("cm\nf\x1b[2J\n.", "the global m.f?[2J"),
        CASE("(S'x'\nios\nsystem\n.", "opcode STRING"),
        CASE("(ios\nsystem\n.", "opcode INST"),
        CASE("\x82\x01", "opcode EXT1"),
        CASE("P1\n", "opcode PERSID"),
        CASE("I1\n.", "opcode INT"),
        CASE("N2.", "opcode DUP"),
        CASE("\x8c\x02os\x8c\x06system\x93.",
             "byte 12 of the pickle: it names the global os.system"),
        CASE("NK\x01\x93.", "a global is named by None and an int"),
        CASE("NNR.", "None is called with None"),
        CASE("cm\nf\n]R.", "a global is called with a list"),
        CASE("N)R.", "None is called with a tuple"),
        CASE("NNb.", "None gets a state"),
        CASE("}Nb.", "a dict gets a state"),
        CASE("NNa.", "items are added to None"),
        CASE("]NNs.", "items are added to a list"),
        CASE("}(Nu.", "a key without a value"),
        CASE("t.", "no mark on the stack"),
        CASE("(e.", "the stack is empty"),
        CASE("N(s.", "the stack is too short"),
        CASE("(0.", "the stack is empty"),
        CASE("N\x86.", "a tuple of 2 items of a shorter stack"),
        CASE("h\x00.", "memo 0 of 0"),
        CASE("Nq\x01.", "memo 1 follows 0 others"),
        CASE("Nr\xff\xff\xff\xff.", "memo 4294967295 follows 0 others"),
        CASE("\x8a\x09"
             "012345678.",
             "an int of 9 bytes"),
        CASE("X\xff\xff\xff\xff"
             "a.",
             "cut short"),
        CASE("X\x01\x00\x00\x00\xff.", "not UTF-8"),
        CASE("Q.", "the stack is empty"),
#undef CASE
    };
    fixture *f = *state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        const tt_pickle_value *v = NULL;
        uint8_t *exact = malloc(cases[i].n + 1);
        memcpy(exact, cases[i].pickle, cases[i].n);
        assert_int_equal(tt_pickle_read("x", exact, cases[i].n, globals, f->a, &v, &f->err),
                         TT_EFORMAT);
        assert_has(f->err.text, cases[i].says);
        assert_has(f->err.text, "x: byte ");
        free(exact);
    }
}

/* Marks, lists in lists, and values shared by reference: no recursion, and memory by the pickle's size. */
static void test_deep_and_shared_pickles_cost_their_size(void **state)
{
    fixture *f = *state;
    const tt_pickle_value *v = NULL;
    tt_str s = {0};
    enum { DEEP = 1000000 };
    for (int i = 0; i < DEEP; i++)
        tt_str_addc(&s, '(');
    for (int i = 0; i < DEEP; i++)
        tt_str_addc(&s, 't');
    tt_str_addc(&s, '.');
    v = read_ok(f, s.s, s.n);
    assert_int_equal(v->n, 1);
    tt_str_clear(&s);
    tt_str_addn(&s, "Nq\x00", 3);
    for (int i = 1; i < 200; i++) { /* 2^199 values, as a tree */
        tt_str_addn(&s, "h", 1);
        tt_str_addc(&s, (char)(i - 1));
        tt_str_addc(&s, 'h');
        tt_str_addc(&s, (char)(i - 1));
        tt_str_addn(&s, "\x86q", 2);
        tt_str_addc(&s, (char)i);
        tt_str_addc(&s, '0');
    }
    tt_str_addc(&s, '.');
    assert_int_equal(read_ok(f, s.s, s.n)->kind, TT_PICKLE_NONE);
    tt_str_free(&s);
}

/* ---- files ---- */

typedef struct made { /* a file of one tensor of [2,3] floats in a storage of six */
    int64_t size[2], stride[2], offset, n_elements;
    const char *class, *key, *pickle_name, *data_name;
    bool wide;
} made;

static const made usual = {
    {2, 3},
    {3, 1},
    0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", false
};

static tt_str file_of(const made *m)
{
    static const float values[6] = {0, 1, 2, 3, 4, 5};
    zip z = {.wide = m->wide};
    tt_str p = {0};
    pickle_begin(&p);
    pickle_tensor(&p, "w", m->class, m->key, m->n_elements, m->offset, m->size, m->stride, 2);
    pickle_end(&p);
    zip_add(&z, m->pickle_name, p.s, p.n);
    zip_add(&z, m->data_name, values, sizeof values);
    zip_end(&z);
    tt_str_free(&p);
    return z.file;
}

static tt_status parse(fixture *f, const tt_str *s, tt_st_file *st)
{
    uint8_t *exact = tt_arena_alloc(f->a, s->n); /* its end is guarded */
    memcpy(exact, s->s, s->n);
    return tt_torch_parse("x.bin", exact, s->n, f->a, st, &f->err);
}

static void test_zip64_and_strides(void **state)
{
    fixture *f = *state;
    for (int wide = 0; wide < 2; wide++) {
        made m = usual;
        m.wide = wide;
        m.stride[0] = 1; /* transposed */
        m.stride[1] = 2;
        tt_str s = file_of(&m);
        tt_st_file st;
        assert_ok(parse(f, &s, &st), f);
        const float *x = st.tensors[0].data;
        assert_true(x[0] == 0 && x[1] == 2 && x[2] == 4 && x[3] == 1 && x[4] == 3 && x[5] == 5);
        tt_st_close(&st);
        tt_str_free(&s);
    }
}

static void test_refused_files(void **state)
{
    static const struct {
        made m;
        const char *says;
    } cases[] = {
        {{{2, 4}, {3, 1}, 0, 8, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "'w': it reaches beyond the 24 bytes of its storage a/data/0"                                 },
        {{{2, 3}, {3, 1}, 1, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "it reaches beyond"                                                                           },
        {{{2, 3}, {3, 1}, 0, 6, "DoubleStorage", "0", "a/data.pkl", "a/data/0", 0},
         "it reaches beyond"                                                                           },
        {{{2, 3}, {3, 1}, -1, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},        "do not fit"},
        {{{-2, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "'w': its size has an item that is not an int >= 0"                                           },
        {{{2, 3}, {-3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "'w': its stride has an item that is not an int >= 0"                                         },
        {{{INT64_MAX, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "its size overflows"                                                                          },
        {{{2, 3}, {INT64_MAX, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "it reaches beyond"                                                                           },
        {{{2, 3}, {3, 1}, INT64_MAX, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "it reaches beyond"                                                                           },
        {{{1000000, 3}, {0, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data/0", 0},
         "more bytes than the file"                                                                    },
        {{{2, 3}, {3, 1}, 0, 6, "QInt8Storage", "0", "a/data.pkl", "a/data/0", 0},
         "the global torch.QInt8Storage"                                                               },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "1", "a/data.pkl", "a/data/0", 0},
         "no entry data/1, its storage"                                                                },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "../x", "a/data.pkl", "a/data/0", 0},
         "no entry data/../x"                                                                          },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "b/data/0", 0},
         "no entry data/0"                                                                             },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "data.pkl", "a/data/0", 0},
         "without data.pkl"                                                                            },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "a/data.pkl", 0},
         "two entries are named a/data.pkl"                                                            },
        {{{2, 3}, {3, 1}, 0, 6, "FloatStorage", "0", "a/data.pkl", "b/data.pkl", 0},
         "two entries are a data.pkl"                                                                  },
    };
    fixture *f = *state;
    tt_st_file st;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        tt_str s = file_of(&cases[i].m);
        assert_int_equal(parse(f, &s, &st), TT_EFORMAT);
        assert_has(f->err.text, cases[i].says);
        tt_str_free(&s);
    }
}

/* Bytes of the zip's records are changed: at `from_end` bytes before the file's end, or in the first entry
 * of the directory. */
static void test_damaged_zip_records(void **state)
{
    static const struct {
        int in_end, at;
        uint8_t byte;
        const char *says;
    } cases[] = {
        {1, 0,  0,    "no end of a zip file"      },
        {1, 4,  1,    "several parts"             },
        {1, 8,  3,    "several parts"             },
        {1, 12, 0xff, "its directory"             },
        {1, 19, 0x7f, "its directory"             },
        {1, 20, 1,    "no end of a zip file"      },
        {0, 0,  0,    "no entry at byte"          },
        {0, 8,  1,    "is encrypted"              },
        {0, 10, 8,    "is compressed"             },
        {0, 20, 0xff, "is compressed"             },
        {0, 28, 0xff, "its directory is cut short"},
        {0, 42, 1,    "is not at byte 1"          },
        {0, 45, 0x7f, "after the entries' end"    },
        {0, 46, 'b',  "is not at byte 0"          },
    };
    fixture *f = *state;
    tt_st_file st;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        tt_str s = file_of(&usual);
        uint8_t *p = (uint8_t *)s.s, *end = p + s.n - 22;
        uint64_t directory = 0;
        for (int k = 3; k >= 0; k--)
            directory = directory << 8 | end[16 + k];
        (cases[i].in_end ? end : p + directory)[cases[i].at] = cases[i].byte;
        assert_int_equal(parse(f, &s, &st), TT_EFORMAT);
        assert_has(f->err.text, cases[i].says);
        tt_str_free(&s);
    }
}

/* Two names for the same bytes: a zip bomb's way. */
static void test_overlapping_entries_are_refused(void **state)
{
    fixture *f = *state;
    zip z = {0};
    tt_st_file st;
    zip_add(&z, "a/data.pkl", "N.", 2);
    const size_t one = z.directory.n;
    tt_str copy = {0};
    tt_str_addn(&copy, z.directory.s, one);
    tt_str_addn(&z.directory, copy.s, one);
    z.n++;
    zip_end(&z);
    assert_int_equal(parse(f, &z.file, &st), TT_EFORMAT);
    assert_has(f->err.text, "entries a/data.pkl and a/data.pkl overlap");
    tt_str_free(&copy);
    tt_str_free(&z.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_files_of_pytorch),
        TEST(test_what_is_no_dict_of_tensors_is_refused_by_name),
        TEST(test_values_of_every_opcode),
        TEST(test_refused_pickles_name_opcode_global_and_offset),
        TEST(test_deep_and_shared_pickles_cost_their_size),
        TEST(test_zip64_and_strides),
        TEST(test_refused_files),
        TEST(test_damaged_zip_records),
        TEST(test_overlapping_entries_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
