/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
#include "serve/json_mask.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The automaton of JSON objects is compared with our parser, masks with the automaton, and texts that random choices among the
 * allowed tokens write are read. */

/* The first byte that may not come; n: none. *whole: the object is complete after n bytes. */
static size_t accepted(const char *text, size_t n, bool *whole)
{
    tt_json_text t = {0};
    size_t i = 0;
    while (i < n && tt_json_text_next(&t, (unsigned char)text[i]))
        i++;
    *whole = i == n && tt_json_text_is_whole(&t);
    return i;
}

static void test_objects(void **state)
{
    static const char *const good[] = {
        "{}",
        " \n{ } ",
        "{\"a\":1}",
        "{\"\":[]}",
        "{\"a\":[1,-0,0.5,-1.25e+10,1E-3,0e0],\"b\":{\"c\":[[],{}]}}",
        "{ \"a\" : [ true , false,null ] }",
        "{\"\\\"\\\\\\/"
        "\\b\\f\\n\\r\\t\\u00e9\\uD7ff\\ue000\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}",
        "{\"a\":\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\"}"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(good); i++) {
        size_t n = strlen(good[i]);
        bool whole;
        n -= good[i][n - 1] == ' '; /* nothing comes after the object */
        assert_int_equal(accepted(good[i], n, &whole), n);
        assert_true(whole);
        assert_int_equal(accepted(good[i], n - 1, &whole), n - 1);
        assert_false(whole);
    }
}

static void test_what_may_not_come(void **state)
{
    static const struct {
        const char *text;
        size_t at; /* of the byte */
    } bad[] = {
        {"[",             0},
        {"1",             0},
        {"\"",            0},
        {"{}}",           2},
        {"{} ",           2},
        {"{,",            1},
        {"{a",            1},
        {"{\"a\",",       4},
        {"{\"a\":,",      5},
        {"{\"a\":1,}",    7},
        {"{\"a\":[1,]",   8},
        {"{\"a\":[}",     6},
        {"{\"a\":1]",     6},
        {"{\"a\":01",     6},
        {"{\"a\":-}",     6},
        {"{\"a\":1.}",    7},
        {"{\"a\":1e}",    7},
        {"{\"a\":1e+}",   8},
        {"{\"a\":1.2.",   8},
        {"{\"a\":1e2.",   8},
        {"{\"a\":+1",     5},
        {"{\"a\":.5",     5},
        {"{\"a\":tru}",   8},
        {"{\"a\":nulL",   8},
        {"{\"a\":True",   5},
        {"{\"\\x",        3},
        {"{\"\\u00g",     6},
        {"{\"\\ud8",      5},
        {"{\"\\uDf",      5},
        {"{\"\n",         2},
        {"{\"\x1f",       2},
        {"{\"\x80",       2},
        {"{\"\xc0",       2},
        {"{\"\xc1",       2},
        {"{\"\xc3\"",     3},
        {"{\"\xe0\x9f",   3},
        {"{\"\xed\xa0",   3},
        {"{\"\xf0\x8f",   3},
        {"{\"\xf4\x90",   3},
        {"{\"\xf5",       2},
        {"{\"\xe2\x82\"", 4},
        {"{'",            1},
        {"{\"a\":1 2",    7},
        {"{\"a\" \"",     5},
        {"{//",           1}
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        bool whole;
        if (accepted(bad[i].text, strlen(bad[i].text), &whole) != bad[i].at)
            fail_msg("%s: byte %zu", bad[i].text,
                     accepted(bad[i].text, strlen(bad[i].text), &whole));
    }
}

static void test_limits(void **state)
{
    char text[1024];
    bool whole;
    (void)state;
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', 100);
    assert_int_equal(accepted(text, 105, &whole), 5 + 63); /* 64 containers with the object */
    memset(text + 5 + 63, ']', 63);
    text[5 + 126] = '}';
    assert_int_equal(accepted(text, 5 + 127, &whole), 5 + 127);
    assert_true(whole);
    memset(text + 1, ' ', 300);
    assert_int_equal(accepted(text, 300, &whole), 1 + TT_JSON_MOST_BLANKS);
}

/* ---- a vocabulary ---- */

typedef struct vocabulary {
    const char *texts[400];
    size_t n[400];
    int32_t count;
} vocabulary;

static size_t decode_piece(void *self, int32_t id, char *buf, size_t cap)
{
    const vocabulary *v = self;
    if (v->n[id] <= cap)
        memcpy(buf, v->texts[id], v->n[id]);
    return v->n[id];
}

static const tt_tokenizer_vt vt = {.struct_size = sizeof vt, .decode = decode_piece};

static unsigned char all_bytes[256];

/* Every byte, pieces of JSON of several bytes, halves of characters, a special token. */
static void fill_vocabulary(vocabulary *v)
{
    static const char *const more[] = {"{\"",   "\":",    "\": ",
                                       "\",\"", "\"}",    "}}",
                                       "}]",    "]}",     "]}}",
                                       "[[",    "[{\"",   "true",
                                       "fal",   "se",     "null",
                                       "nul",   "l,",     "12",
                                       "-3",    "0.",     ".5",
                                       "e1",    "E+",     "1}",
                                       "1]",    "1,",     "\\u",
                                       "\\n",   "\\\"",   "\\u00",
                                       "00e",   "d8",     "\xc3\xa9",
                                       "a\xc3", "\xa9\"", "\xe2\x82",
                                       "\xac",  "  ",     "\n    ",
                                       "    ",  "{}",     "{ }",
                                       "[]",    "},",     "word",
                                       " word", "\"\"",   ": 1",
                                       "{\n",   "\n}",    "                                "};
    *v = (vocabulary){.count = 0};
    for (int i = 0; i < 256; i++) {
        all_bytes[i] = (unsigned char)i;
        v->texts[v->count] = (const char *)&all_bytes[i];
        v->n[v->count++] = 1;
    }
    v->texts[v->count] = "";
    v->n[v->count++] = 0;
    for (size_t i = 0; i < TT_COUNT(more); i++) {
        v->texts[v->count] = more[i];
        v->n[v->count++] = strlen(more[i]);
    }
}

static bool may_come(const vocabulary *v, const tt_json_text *t, int32_t id)
{
    tt_json_text s = *t;
    for (size_t i = 0; i < v->n[id]; i++)
        if (!tt_json_text_next(&s, (unsigned char)v->texts[id][i]))
            return false;
    return v->n[id] > 0;
}

static uint32_t draw(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* 400 texts of tokens drawn among those that may come: at each state the mask is what the automaton says of every token, and
 * each text that ends is JSON for our parser. */
static void test_masks_and_random_texts(void **state)
{
    vocabulary v;
    uint32_t x = 1;
    int ended = 0;
    (void)state;
    fill_vocabulary(&v);
    tt_json_masks *m = tt_json_masks_new(&vt, &v, v.count);
    for (int text = 0; text < 400; text++) {
        tt_json_text t = {0};
        tt_str s = {0};
        for (int k = 0; k < 300 && !tt_json_text_is_whole(&t); k++) {
            const uint64_t *words = tt_json_masks_get(m, &t);
            int32_t allowed[400];
            uint32_t n = 0;
            for (int32_t id = 0; id < v.count; id++) {
                const bool bit = words[id / 64] >> (id % 64) & 1;
                assert_int_equal(bit, may_come(&v, &t, id));
                if (bit)
                    allowed[n++] = id;
            }
            assert_true(n > 0);
            int32_t id = allowed[draw(&x) % n];
            for (int again = 0; again < 4 && t.depth > 2 + text % 8;
                 again++) /* so that texts end */
                for (uint32_t i = 0; i < n; i++)
                    if (strchr("]}\"", v.texts[allowed[i]][0]) && v.texts[allowed[i]][0] &&
                        !(draw(&x) & 3))
                        id = allowed[i];
            for (size_t i = 0; i < v.n[id]; i++)
                assert_true(tt_json_text_next(&t, (unsigned char)v.texts[id][i]));
            tt_str_addn(&s, v.texts[id], v.n[id]);
        }
        if (tt_json_text_is_whole(&t)) {
            tt_arena *a = tt_arena_new();
            const tt_json *o = NULL;
            tt_error e = {0};
            /* our parser refuses what RFC 8259 leaves open: a key twice, and a NUL in a string */
            if (tt_json_parse(a, "text", tt_str_get(&s), s.n, &o, &e) != TT_OK &&
                !strstr(e.text, "occurs twice") && !strstr(e.text, "u0000"))
                fail_msg("%s: %s", e.text, tt_str_get(&s));
            ended++;
            tt_arena_free(a);
        }
        tt_str_free(&s);
    }
    assert_true(ended > 100);
    tt_json_masks_free(m);
}

/* 1,024 stacks of containers, twice: the masks of those that were dropped are made again. */
static void test_more_states_than_are_kept(void **state)
{
    vocabulary v;
    (void)state;
    fill_vocabulary(&v);
    tt_json_masks *m = tt_json_masks_new(&vt, &v, v.count);
    for (int round = 0; round < 2048; round++) {
        tt_json_text t = {0};
        tt_str s = {0};
        tt_str_add(&s, "{\"a\":");
        for (int d = 0; d < 10; d++)
            tt_str_add(&s, round >> d & 1 ? "[" : "{\"a\":");
        tt_str_add(&s, "1");
        for (size_t i = 0; i < s.n; i++)
            assert_true(tt_json_text_next(&t, (unsigned char)s.s[i]));
        const uint64_t *words = tt_json_masks_get(m, &t);
        for (int32_t id = 0; id < v.count; id++)
            assert_int_equal(words[id / 64] >> (id % 64) & 1, may_come(&v, &t, id));
        assert_int_equal(words['}' / 64] >> ('}' % 64) & 1, !(round >> 9 & 1));
        tt_str_free(&s);
    }
    assert_true(tt_json_masks_made(m) == 2048);
    tt_json_masks_free(m);
}

static void test_equal_states_share_a_mask(void **state)
{
    static const char *const texts[] = {"{\"a\": ", "{\"b\" : ", "{\"other\":[1],  \"k\":\n"};
    vocabulary v;
    (void)state;
    fill_vocabulary(&v);
    tt_json_masks *m = tt_json_masks_new(&vt, &v, v.count);
    for (size_t k = 0; k < TT_COUNT(texts); k++) {
        tt_json_text t = {0};
        for (size_t i = 0; texts[k][i]; i++)
            assert_true(tt_json_text_next(&t, (unsigned char)texts[k][i]));
        tt_json_masks_get(m, &t);
    }
    assert_int_equal(tt_json_masks_made(m), 1);
    tt_json_masks_free(m);
}

/* Texts made by changing a byte of good ones: whole for the automaton is whole for our parser, and the other way round. */
static void test_changed_texts(void **state)
{
    static const char good[] =
        "{\"a\": [1, -2.5e3, true, {\"b\": \"x\\n\\u00e9\xc3\xa9\"}], \"c\": {}, \"d\": null}";
    static const char bytes[] = "{}[]\",:\\ 0123.eE+-truefalsn\xc3\xa9\x80u";
    const size_t n = sizeof good - 1;
    uint32_t x = 3;
    int both = 0;
    (void)state;
    for (int round = 0; round < 40000; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (uint32_t k = draw(&x) % 3; k + 1 > 0 && k < 3; k--)
            text[draw(&x) % n] = bytes[draw(&x) % (sizeof bytes - 1)];
        tt_arena *a = tt_arena_new();
        const tt_json *o = NULL;
        tt_error e = {0};
        bool whole;
        const bool parsed =
            tt_json_parse(a, "text", text, n, &o, &e) == TT_OK && o->type == TT_JSON_OBJECT;
        accepted(text, n, &whole);
        if (parsed != whole && !strstr(e.text, "occurs twice") && !strstr(e.text, "u0000"))
            fail_msg("%d %d %s: %s", parsed, whole, text, e.text);
        both += parsed && whole;
        tt_arena_free(a);
    }
    assert_true(both > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_what_may_not_come),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_masks_and_random_texts),
        cmocka_unit_test(test_more_states_than_are_kept),
        cmocka_unit_test(test_equal_states_share_a_mask),
        cmocka_unit_test(test_changed_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
