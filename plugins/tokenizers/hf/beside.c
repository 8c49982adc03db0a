/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokens that the files beside a vocabulary (tokenizer.model, vocab.json, a tiktoken file) add to
 * it: added_tokens_decoder of tokenizer_config.json, or, in folders of older versions of transformers,
 * added_tokens.json; and the named special tokens, which get the next ids where they are neither. */

#define MOST_IDS ((json_int_t)1 << 22)

typedef struct adder {
    hf_beside *b;
    const hf_configs *c;
    json_t *list;
    tt_error *err;
} adder;

static const char *file_name(const adder *a, hf_config_file file)
{
    return a->c->names[file] ? a->c->names[file] : hf_config_names[file];
}

/* Adds the token that v describes: a text, or an object with content and flags. where: its place in
 * the file. Texts are compared as they are, before they are normalized. */
static tt_status add_one(adder *a, const char *file, const char *where, const json_t *v,
                         json_int_t id, bool special)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v, *said;
    const char *text = json_string_value(content);
    const size_t n = json_string_length(content);
    if (!text || n == 0)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: expected a token's text", file, where);
    const json_int_t known = a->b->id_of(a->b->arg, text, n);
    if (id < 0 || id >= MOST_IDS)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: the id is not between 0 and %lld", file, where,
                       (long long)MOST_IDS - 1);
    if (known >= 0 && known != id)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: %s has \"%s\" as %lld, not %lld", file, where,
                       a->b->path, hf_show(text, n).text, (long long)known, (long long)id);
    json_t *item = json_pack("{s:I, s:s%, s:b, s:b}", "id", id, "content", text, n, "special",
                             special, "normalized", 0);
    for (size_t i = 0; item && i < TT_COUNT(flags); i++)
        if ((said = json_is_object(v) ? json_object_get(v, flags[i]) : NULL) != NULL)
            json_object_set(item, flags[i], (json_t *)said);
    if (!item || json_array_append_new(a->list, item) != 0)
        return TT_FAIL(a->err, TT_ENOMEM, "%s: out of memory for added tokens", file);
    if (known < 0 && (size_t)id < a->b->n && a->b->rename &&
        a->b->rename(a->b->arg, (size_t)id, json_object_get(item, "content"), a->err) != TT_OK)
        return tt_error_context(a->err, "%s: %s", file, where);
    a->b->n_ids = (size_t)id >= a->b->n_ids ? (size_t)id + 1 : a->b->n_ids;
    return TT_OK;
}

static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
static const char *const list_keys[] = {"additional_special_tokens", "extra_special_tokens"};

static const json_t *content_of(const json_t *v)
{
    return json_is_object(v) ? json_object_get(v, "content") : v;
}

static bool has_text(const json_t *v, const json_t *text)
{
    const json_t *own = content_of(v);
    return json_is_string(own) && json_equal(own, text);
}

/* Is the text one of the named special tokens? */
static bool is_named(const hf_configs *c, const json_t *text)
{
    hf_config_file file;
    const json_t *item;
    size_t k;
    bool yes = false;
    for (size_t i = 0; i < TT_COUNT(named_keys); i++)
        yes = yes || has_text(hf_configs_token(c, named_keys[i], &file), text);
    for (size_t i = 0; i < TT_COUNT(list_keys); i++)
        json_array_foreach(hf_configs_token(c, list_keys[i], &file), k, item) yes =
            yes || has_text(item, text);
    return yes;
}

static tt_status add_decoder(adder *a, const json_t *tokens)
{
    const char *file = file_name(a, HF_TOKENIZER_CONFIG), *key;
    json_t *v;
    if (!json_is_object(tokens))
        return TT_FAIL(a->err, TT_EFORMAT, "%s: added_tokens_decoder: expected an object", file);
    json_object_foreach((json_t *)tokens, key, v)
    {
        char where[96], digits[24];
        char *end;
        const long long id = strtoll(key, &end, 10);
        bool special;
        const hf_file f = {.name = file, .err = a->err};
        snprintf(where, sizeof where, "added_tokens_decoder.\"%s\"",
                 hf_show(key, strlen(key)).text);
        snprintf(digits, sizeof digits, "%lld", id);
        if (strcmp(digits, key) != 0)
            return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: expected an id", file, where);
        TT_TRY(hf_bool(&f, v, where, "special", false, &special));
        special = special || is_named(a->c, json_object_get(v, "content"));
        TT_TRY(add_one(a, file, where, v, id, special));
    }
    return TT_OK;
}

static tt_status add_old(adder *a, const json_t *added)
{
    const char *file = file_name(a, HF_ADDED_TOKENS), *key;
    json_t *v;
    size_t n;
    json_object_keylen_foreach((json_t *)added, key, n, v)
    {
        json_t *text = json_stringn(key, n);
        const tt_status s =
            add_one(a, file, hf_show(key, n).text, text,
                    json_is_integer(v) ? json_integer_value(v) : -1, is_named(a->c, text));
        json_decref(text);
        TT_TRY(s);
    }
    return TT_OK;
}

/* A named special token: added already, a piece, or new. */
static tt_status add_named(adder *a, const char *key, const json_t *v, hf_config_file file)
{
    const json_t *item;
    size_t i;
    const json_t *text = content_of(v);
    if (json_is_object(v) && !text)
        return TT_OK;
    json_array_foreach(a->list, i, item) if (text && has_text(item, text)) return TT_OK;
    const json_int_t known =
        a->b->id_of(a->b->arg, json_string_value(text), json_string_length(text));
    return add_one(a, file_name(a, file), key, v, known >= 0 ? known : (json_int_t)a->b->n_ids,
                   true);
}

static tt_status add_all_named(adder *a)
{
    hf_config_file file;
    const json_t *v, *item;
    size_t k;
    for (size_t i = 0; i < TT_COUNT(named_keys); i++)
        if ((v = hf_configs_token(a->c, named_keys[i], &file)) != NULL)
            TT_TRY(add_named(a, named_keys[i], v, file));
    for (size_t i = 0; i < TT_COUNT(list_keys); i++) {
        v = hf_configs_token(a->c, list_keys[i], &file);
        json_array_foreach(v, k, item) TT_TRY(add_named(a, list_keys[i], item, file));
    }
    return TT_OK;
}

tt_status hf_added_beside(hf_beside *b, const hf_configs *c, json_t **list, tt_error *err)
{
    const json_t *tokens =
        c ? json_object_get(c->roots[HF_TOKENIZER_CONFIG], "added_tokens_decoder") : NULL;
    b->n_ids = b->n;
    if (!c)
        return TT_OK;
    adder a = {b, c, json_array(), err};
    tt_status s = a.list ? TT_OK : TT_FAIL(err, TT_ENOMEM, "%s: out of memory", b->path);
    if (s == TT_OK && tokens)
        s = add_decoder(&a, tokens);
    else if (s == TT_OK)
        s = add_old(&a, c->roots[HF_ADDED_TOKENS]);
    if (s == TT_OK)
        s = add_all_named(&a);
    *list = a.list; /* what was renamed points into it, so it is the caller's even on failure */
    return s;
}
