/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_TEST_H
#define TT_HF_TEST_H
#define _GNU_SOURCE
#include "hf_sources.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

/* tests/golden/hf_tokenizer.json is written by hf_tokenizer.py with Hugging Face tokenizers: a
 * vocabulary, families of pre-tokenizers, and digests of the ids of texts that are drawn alike
 * here. */

typedef struct golden {
    json_t *root, *bits;
    size_t n_texts;
} golden;

static golden g;

static int load_golden(void **state)
{
    (void)state;
    json_error_t why;
    g.root = json_load_file("tests/golden/hf_tokenizer.json", 0, &why);
    if (!g.root)
        return -1;
    g.bits = json_object_get(g.root, "bits");
    g.n_texts = (size_t)json_integer_value(json_object_get(g.root, "n_texts"));
    return 0;
}

static int free_golden(void **state)
{
    (void)state;
    json_decref(g.root);
    return 0;
}

/* The family's tokenizer.json with the vocabulary put in. */
static json_t *whole(const char *family, bool old_merges)
{
    const json_t *f = json_object_get(json_object_get(g.root, "families"), family);
    json_t *root = json_deep_copy(json_object_get(f, "tokenizer"));
    json_t *model = json_object_get(root, "model"), *merges = json_object_get(g.root, "merges"),
           *pair;
    size_t i;
    json_object_set(model, "vocab", json_object_get(g.root, "vocab"));
    if (!old_merges) {
        json_object_set(model, "merges", merges);
        return root;
    }
    json_t *strings = json_array();
    json_array_foreach(merges, i, pair) json_array_append_new(
        strings, json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                              json_string_value(json_array_get(pair, 1))));
    json_object_set_new(model, "merges", strings);
    return root;
}

static tt_status open_text(const char *text, const char *config, bool allow_special,
                           hf_tokenizer **out, tt_error *err)
{
    hf_tokenizer *t = hf_new();
    t->allow_special = allow_special;
    const tt_status s =
        hf_load_text(t, text, strlen(text), config, config ? strlen(config) : 0, err);
    if (s == TT_OK)
        *out = t;
    else
        hf_close(t);
    return s;
}

static void set_at(json_t *root, const char *const *path, const char *value)
{
    json_t *at = root, *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    for (; path[1]; path++)
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(*path))
                               : json_object_get(at, *path);
    if (json_is_array(at))
        assert_int_equal(json_array_set_new(at, (size_t)atoi(*path), v), 0);
    else
        assert_int_equal(json_object_set_new(at, *path, v), 0);
}

#endif
