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

static inline int load_golden(void **state)
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

static inline int free_golden(void **state)
{
    (void)state;
    json_decref(g.root);
    return 0;
}

/* The family's tokenizer.json with the vocabulary put in. */
static inline json_t *whole(const char *family, bool old_merges)
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

static inline tt_status open_text(const char *text, const char *config, bool allow_special,
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

static inline void set_at(json_t *root, const char *const *path, const char *value)
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

static inline uint64_t draw(uint64_t *x, uint64_t below)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return (*x * 2685821657736338717u >> 33) % below;
}

static inline void draw_text(uint64_t *x, hf_bytes *text)
{
    text->n = 0;
    for (uint64_t k = 1 + draw(x, 30); k > 0; k--) {
        const json_t *bit = json_array_get(g.bits, (size_t)draw(x, json_array_size(g.bits)));
        assert_int_equal(hf_bytes_add(text, json_string_value(bit), json_string_length(bit), NULL),
                         TT_OK);
    }
}

static inline void add_digest(uint64_t *h, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        *h = (*h ^ (v >> (8 * i) & 0xff)) * 0x100000001b3u;
}

static inline void digest_of(hf_tokenizer *t, char hex[17])
{
    uint64_t x = 1, h = 0xcbf29ce484222325u;
    hf_bytes text = {0};
    tt_ids ids = {0};
    for (size_t i = 0; i < g.n_texts; i++) {
        draw_text(&x, &text);
        ids.n = 0;
        assert_int_equal(hf_encode(t, (char *)text.s, text.n, &ids, NULL), TT_OK);
        add_digest(&h, (uint32_t)ids.n);
        for (size_t k = 0; k < ids.n; k++)
            add_digest(&h, (uint32_t)ids.ids[k]);
    }
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
    free(text.s);
    tt_ids_free(&ids);
}

static inline hf_tokenizer *open_json(json_t *root, bool allow_special)
{
    hf_tokenizer *t = NULL;
    tt_error err = {0};
    char *text = json_dumps(root, JSON_COMPACT);
    if (open_text(text, NULL, allow_special, &t, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(text);
    json_decref(root);
    return t;
}

#endif
