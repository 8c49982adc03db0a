/* SPDX-License-Identifier: Apache-2.0 */
#include "hf_test.h"

/* Files that are wrong, or that ask for what is not supported: each gives a one-line error. */

static void test_hf_names_the_part_that_it_cannot_do(void **state)
{
    (void)state;
    static const struct {
        const char *path[6], *value, *want;
    } cases[] = {
        {{"model", "type"},                                           "\"WordLevel\"",            "model: \"WordLevel\" is not supported"      },
        {{"model", "dropout"},                                        "0.1",                      "model.dropout"                              },
        {{"model", "end_of_word_suffix"},                             "\"</w>\"",                 "model.end_of_word_suffix"                   },
        {{"model", "ignore_merges"},                                  "3",                        "model.ignore_merges: expected true"         },
        {{"model", "vocab"},                                          "[]",                       "model.vocab: expected an object"            },
        {{"model", "vocab"},                                          "{}",                       "is not in model.vocab"                      },
        {{"model", "vocab", "zz"},                                    "5",                        "model.vocab.\"zz\": id 5 is another"        },
        {{"model", "vocab", "zz"},                                    "-1",                       "id -1 is not between"                       },
        {{"model", "vocab", "zz"},                                    "99999999999",              "id 99999999999 is not between"              },
        {{"model", "vocab", "z\nz"},                                  "1.5",                      "model.vocab.\"z?z\": expected an id"        },
        {{"model", "merges"},                                         "{}",                       "model.merges: expected a list"              },
        {{"model", "merges", "3"},                                    "\"ab\"",                   "model.merges[3]: \"ab\" has no blank"       },
        {{"model", "merges", "3"},                                    "[\"a\"]",                  "model.merges[3]: expected"                  },
        {{"model", "merges", "3"},                                    "[\"a\", 1]",               "model.merges[3]: expected"                  },
        {{"model", "merges", "3"},                                    "[\"\", \"a\"]",            "model.merges[3]: an empty part"             },
        {{"model", "merges", "3"},                                    "[\"qqq\", \"a\"]",         "model.merges[3]: the part \"qqq\""          },
        {{"model", "merges", "3"},                                    "\"q Q\"",                  "model.merges[3]: the result \"qQ\""         },
        {{"normalizer"},                                              "{\"type\": \"Bytes\"}",    "normalizer: \"Bytes\" is not supported"     },
        {{"normalizer"},                                              "{\"type\": \"Sequence\"}", "normalizer.normalizers: expected"           },
        {{"normalizer"},
         "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
         "\"Prepend\"}]}",                                                                        "normalizer.normalizers[1].prepend: expected"},
        {{"pre_tokenizer"},                                           "{\"type\": \"Scripts\"}",  "pre_tokenizer: \"Scripts\" is not"          },
        {{"pre_tokenizer", "pretokenizers"},                          "[]",                       "expected a list of steps"                   },
        {{"pre_tokenizer", "pretokenizers", "0"},
         "{\"type\": \"Digit\"}",                                                                 "pretokenizers[0]: \"Digit\""                },
        {{"pre_tokenizer", "pretokenizers", "0"},
         "{\"type\": \"ByteLevel\"}",                                                             "pretokenizers[0]: ByteLevel before"         },
        {{"pre_tokenizer", "pretokenizers", "1"},
         "{\"type\": \"Split\"}",                                                                 "pretokenizers[1].pattern: expected"         },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"},
         "\"(\"",                                                                                 "pattern does not compile"                   },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"}, "\"\\\\d{1,3}+\"",          "{…}+"                                     },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"},
         "\"[a&&[b]]\"",                                                                          "a set within"                               },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"},
         "\"\\\\h\"",                                                                             "\\h, which is not"                          },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"},
         "\"a\\\\\"",                                                                             "ends in a backslash"                        },
        {{"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"}, "\"\"",                     "pattern: expected"                          },
        {{"pre_tokenizer", "pretokenizers", "0", "behavior"},
         "\"Sometimes\"",                                                                         "behavior: \"Sometimes\""                    },
        {{"pre_tokenizer", "pretokenizers", "0", "behavior"},         "1",                        "behavior: expected"                         },
        {{"added_tokens"},                                            "3",                        "added_tokens: expected a list"              },
        {{"added_tokens", "0", "id"},                                 "-4",                       "added_tokens[0].id: id -4 is not"           },
        {{"added_tokens", "0", "id"},                                 "4",                        "added_tokens[0].id: 4 is another"           },
        {{"added_tokens", "0", "id"},                                 "\"4\"",                    "added_tokens[0].id: expected an id"         },
        {{"added_tokens", "0", "content"},                            "\"a\"",                    "but model.vocab has \"a\" as"               },
        {{"added_tokens", "0", "content"},                            "\"\"",                     "added_tokens[0].content: expected"          },
        {{"added_tokens", "1"},                                       "[]",                       "added_tokens[1].id: expected an id"         },
        {{"added_tokens", "1", "lstrip"},                             "1",                        "added_tokens[1].lstrip: expected true"      },
        {{"model"},                                                   "\"BPE\"",                  "model: "                                    },
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        json_t *root = whole("llama3", false);
        json_t *copy = json_deep_copy(root); /* the vocabulary is shared */
        hf_tokenizer *t = NULL;
        tt_error err = {0};
        set_at(copy, cases[i].path, cases[i].value);
        char *text = json_dumps(copy, 0);
        if (open_text(text, NULL, false, &t, &err) == TT_OK)
            fail_msg("case %zu (%s) was taken", i, cases[i].want);
        if (!strstr(err.text, cases[i].want) || strncmp(err.text, "tokenizer.json: ", 16) != 0)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, cases[i].want);
        assert_null(strchr(err.text, '\n'));
        free(text);
        json_decref(copy);
        json_decref(root);
    }
}

static void test_hf_malformed_json_is_an_error_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"",                                               "tokenizer.json:1:"        },
        {"[]",                                             "expected an object"       },
        {"{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}", "duplicate"                },
        {"{\n\"model\": {\"vocab\": {\"a\": }}}",          "tokenizer.json:2:"        },
        {"{\"model\": {\"vocab\": {\"\xff\": 1}}}",        "tokenizer.json:1:"        },
        {"{\"a\": \"\\u0000\"}",                           "model: expected an object"},
        {"{\"a\": \"\\ud800\"}",                           "tokenizer.json:1:"        },
        {"{\"a\": 99999999999999999999}",                  "model: expected an object"},
        {"{\"a\": 99999999999999999999, \"a\": 1}",        "duplicate"                },
        {"{\"a\": 1e999,\n \"b\": }",                      "tokenizer.json:2:"        },
        {"{} x",                                           "tokenizer.json:1:"        },
        {"{}",                                             "model: expected an object"},
    };
    hf_tokenizer *t = NULL;
    tt_error err;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        err.text[0] = '\0';
        assert_int_not_equal(open_text(cases[i].text, NULL, false, &t, &err), TT_OK);
        if (!strstr(err.text, cases[i].want))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, cases[i].want);
    }
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    assert_int_not_equal(open_text(deep, NULL, false, &t, &err), TT_OK);
    free(deep);
}

/* A charsmap is the bytes of its trie, the trie, and texts, of which there may be none. */
static void test_hf_charsmap_is_a_trie_within_its_bytes(void **state)
{
    static const struct {
        size_t n;
        uint8_t bytes;
        bool ok;
    } rows[] = {
        {0,  0,  false},
        {3,  0,  false},
        {7,  4,  false},
        {8,  0,  false},
        {8,  4,  true },
        {8,  8,  false},
        {9,  4,  true },
        {12, 6,  false},
        {12, 8,  true },
        {12, 12, false},
        {13, 8,  true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const uint8_t blob[16] = {rows[i].bytes};
        hf_charsmap *m = NULL;
        size_t used;
        tt_error err = {0};
        if ((hf_charsmap_new(blob, rows[i].n, &m, &err) == TT_OK) != rows[i].ok)
            fail_msg("%zu bytes, %d of them a trie: %s", rows[i].n, rows[i].bytes,
                     rows[i].ok ? err.text : "taken");
        if (rows[i].ok)
            assert_null(hf_charsmap_find(m, (const uint8_t *)"a", 1, true, &used));
        else
            assert_non_null(strstr(err.text, "are not a trie and texts"));
        hf_charsmap_free(m);
    }
}

/* A text of the map that is no UTF-8, or begins within a character, or stands for a part of one, would be looked up beyond the tables of
 * code points. */
static void test_hf_charsmap_gives_whole_characters(void **state)
{
    static const struct {
        uint8_t key; /* the byte that the trie has */
        uint8_t value;
        const char *in, *texts;
        size_t n_texts;
        const char *out; /* NULL: none; "": the map is refused */
    } rows[] = {
        {'a',  0, "a",        "x\0\xc3\xa4",      5, "x"       },
        {'a',  2, "a",        "x\0\xc3\xa4",      5, "\xc3\xa4"},
        {'a',  3, "a",        "x\0\xc3\xa4",      5, NULL      },
        {0xc3, 0, "\xc3\xa4", "x",                2, NULL      },
        {'a',  0, "a",        "\xf7\xbf\xbf\xbf", 5, ""        },
        {'a',  0, "a",        "x\0\xc3",          4, ""        },
        {'a',  0, "a",        "\xed\xa0\x80",     4, ""        },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        uint8_t blob[4 + 1024 + 16] = {0, 4}; /* a trie of 256 units */
        uint32_t unit[2] = {rows[i].key | 1u << 8 | 1u << 10, rows[i].value | 1u << 31};
        memcpy(blob + 4 + 4 * rows[i].key, &unit[0], 4);
        memcpy(blob + 4 + 4 * (rows[i].key ^ 1), &unit[1], 4);
        memcpy(blob + 4 + 1024, rows[i].texts, rows[i].n_texts);
        hf_charsmap *m = NULL;
        size_t used = 0;
        tt_error err = {0};
        const bool refused = hf_charsmap_new(blob, 4 + 1024 + rows[i].n_texts, &m, &err) != TT_OK;
        const char *out = refused ? ""
                                  : hf_charsmap_find(m, (const uint8_t *)rows[i].in,
                                                     strlen(rows[i].in), true, &used);
        if (rows[i].out ? !out || strcmp(out, rows[i].out) != 0 : out != NULL)
            fail_msg("row %zu: %s", i, out ? out : "none");
        hf_charsmap_free(m);
    }
}

/* A piece is a message of text (1), score (2) and type (3); it is normal if it does not say. */
static void test_hf_pieces_have_a_text_a_score_and_a_type(void **state)
{
#define TEXT(s) "\x0a\x01" s
#define SCORE(s) TEXT("a") "\x15" s
#define TYPE(s) TEXT("a") "\x18" s
    static const struct {
        const char *bytes;
        size_t n;
        unsigned type; /* 0: the piece is refused */
    } rows[] = {
        {TEXT("a"),                    3, NORMAL},
        {"\x0a\x02\xc3\xa4",           4, NORMAL},
        {SCORE("\0\0\x80\x3f"),        8, NORMAL},
        {TYPE("\1"),                   5, NORMAL},
        {TYPE("\6"),                   5, BYTE  },
        {TYPE("\0"),                   5, 0     },
        {TYPE("\7"),                   5, 0     },
        {TYPE("\x81\x80\x80\x80\x10"), 9, 0     }, /* 2^32 + 1 */
        {TYPE("\x81"),                 5, 0     },
        {SCORE("\0\0\x80\x7f"),        8, 0     }, /* infinite */
        {SCORE("\0\0\xc0\x7f"),        8, 0     },
        {TEXT("\0"),                   3, 0     },
        {TEXT("\xc3"),                 3, 0     },
        {"\x0a\0",                     2, 0     },
        {"\x18\1",                     2, 0     },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        char file[16] = {0x0a, (char)rows[i].n};
        sp_model sp;
        tt_error err = {0};
        const hf_file f = {.name = "tokenizer.model", .err = &err};
        memcpy(file + 2, rows[i].bytes, rows[i].n);
        const tt_status s = hf_read_sentencepiece(&sp, &f, file, rows[i].n + 2);
        if ((s == TT_OK) != (rows[i].type != 0) ||
            (s == TT_OK && sp.pieces[0].type != rows[i].type))
            fail_msg("row %zu: %s", i, s == TT_OK ? "taken" : err.text);
        if (s != TT_OK)
            assert_string_equal(err.text, "tokenizer.model: piece 0: not a text with a score and a "
                                          "type");
        free(sp.pieces);
    }
}

/* Its tree would take 50 times the bytes of the text. */
static void test_hf_of_too_many_values_is_refused(void **state)
{
    const size_t n = (size_t)1 << 24;
    char *text = test_malloc(n + 1);
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    (void)state;
    memset(text, ',', n);
    text[0] = '[';
    text[n] = '\0';
    assert_int_equal(open_text(text, NULL, false, &t, &err), TT_EFORMAT);
    assert_non_null(strstr(err.text, "tokenizer.json: 16777217 values are too many"));
    test_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hf_names_the_part_that_it_cannot_do),
        cmocka_unit_test(test_hf_malformed_json_is_an_error_with_its_place),
        cmocka_unit_test(test_hf_of_too_many_values_is_refused),
        cmocka_unit_test(test_hf_pieces_have_a_text_a_score_and_a_type),
        cmocka_unit_test(test_hf_charsmap_is_a_trie_within_its_bytes),
        cmocka_unit_test(test_hf_charsmap_gives_whole_characters),
    };
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
