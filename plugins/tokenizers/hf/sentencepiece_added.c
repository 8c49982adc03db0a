/* SPDX-License-Identifier: Apache-2.0 */
#include "sentencepiece.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokens that are added to a tokenizer.model: added_tokens_decoder of tokenizer_config.json, or,
 * in folders of older versions of transformers, added_tokens.json; and the named special tokens,
 * which get the next ids where they are neither. */

#define MOST_IDS ((json_int_t)1 << 22)

typedef struct adder {
    sp_model *sp;
    const char *path;
    const hf_configs *c;
    json_t *list;
    tt_error *err;
} adder;

static const char *file_name(const adder *a, hf_config_file file)
{
    return a->c->names[file] ? a->c->names[file] : hf_config_names[file];
}

/* The id of the piece of this text; -1: none has it. */
static json_int_t piece_id(const sp_model *sp, const char *text, size_t n)
{
    for (size_t i = 0; i < sp->n; i++)
        if (sp->pieces[i].n == n && memcmp(sp->pieces[i].s, text, n) == 0)
            return (json_int_t)i;
    return -1;
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
    if (!text || n == 0 || strlen(text) != n)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: expected a token's text", file, where);
    const json_int_t piece = piece_id(a->sp, text, n);
    if (id < 0 || id >= MOST_IDS)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: the id is not between 0 and %lld", file, where,
                       (long long)MOST_IDS - 1);
    if (piece >= 0 && piece != id)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: %s has \"%s\" as %lld, not %lld", file, where,
                       a->path, hf_show(text, n).text, (long long)piece, (long long)id);
    if (piece < 0 && (size_t)id < a->sp->n && a->sp->pieces[id].type == BYTE)
        return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: %s has a byte as %lld", file, where, a->path,
                       (long long)id);
    json_t *item = json_pack("{s:I, s:s, s:b, s:b}", "id", id, "content", text, "special", special,
                             "normalized", 0);
    for (size_t i = 0; item && i < TT_COUNT(flags); i++)
        if ((said = json_is_object(v) ? json_object_get(v, flags[i]) : NULL) != NULL)
            json_object_set(item, flags[i], (json_t *)said);
    if (!item || json_array_append_new(a->list, item) != 0)
        return TT_FAIL(a->err, TT_ENOMEM, "%s: out of memory for added tokens", file);
    if (piece < 0 && (size_t)id < a->sp->n) {
        sp_piece *p = &a->sp->pieces[id];
        p->s = (const uint8_t *)json_string_value(json_object_get(item, "content"));
        p->n = n;
        p->type = p->type == UNKNOWN ? UNKNOWN : CONTROL; /* no text is cut into it */
    }
    a->sp->n_ids = (size_t)id >= a->sp->n_ids ? (size_t)id + 1 : a->sp->n_ids;
    return TT_OK;
}

static const char *const named_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
static const char *const list_keys[] = {"additional_special_tokens", "extra_special_tokens"};

static bool has_text(const json_t *v, const char *text)
{
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    return s && strcmp(s, text) == 0;
}

/* Is the text one of the named special tokens? */
static bool is_named(const hf_configs *c, const char *text)
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
        const hf_file f = {file, a->err};
        snprintf(where, sizeof where, "added_tokens_decoder.\"%s\"",
                 hf_show(key, strlen(key)).text);
        snprintf(digits, sizeof digits, "%lld", id);
        if (strcmp(digits, key) != 0)
            return TT_FAIL(a->err, TT_EFORMAT, "%s: %s: expected an id", file, where);
        TT_TRY(hf_bool(&f, v, where, "special", false, &special));
        const char *text = json_string_value(json_object_get(v, "content"));
        special = special || (text && is_named(a->c, text));
        TT_TRY(add_one(a, file, where, v, id, special));
    }
    return TT_OK;
}

static tt_status add_old(adder *a, const json_t *added)
{
    const char *file = file_name(a, HF_ADDED_TOKENS), *key;
    json_t *v;
    json_object_foreach((json_t *)added, key, v)
    {
        json_t *text = json_string(key);
        const tt_status s =
            add_one(a, file, hf_show(key, strlen(key)).text, text,
                    json_is_integer(v) ? json_integer_value(v) : -1, is_named(a->c, key));
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
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (json_is_object(v) && !json_object_get(v, "content"))
        return TT_OK;
    json_array_foreach(a->list, i, item) if (text && has_text(item, text)) return TT_OK;
    const json_int_t piece = text ? piece_id(a->sp, text, strlen(text)) : -1;
    return add_one(a, file_name(a, file), key, v, piece >= 0 ? piece : (json_int_t)a->sp->n_ids,
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

/* transformers puts Llama's blank before the text alone, unless legacy is true, and nowhere where
 * add_prefix_space is false. */
static void set_prefix(sp_model *sp, const json_t *config)
{
    static const char llama[] = "LlamaTokenizer";
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    if (!class || strncmp(class, llama, strlen(llama)) != 0)
        return;
    sp->first_only = !json_is_true(json_object_get(config, "legacy"));
    sp->dummy_prefix =
        sp->dummy_prefix && !json_is_false(json_object_get(config, "add_prefix_space"));
}

tt_status hf_sentencepiece_added(sp_model *sp, const char *path, const hf_configs *c, json_t **list,
                                 tt_error *err)
{
    const json_t *tokens =
        c ? json_object_get(c->roots[HF_TOKENIZER_CONFIG], "added_tokens_decoder") : NULL;
    if (!c)
        return TT_OK;
    adder a = {sp, path, c, json_array(), err};
    tt_status s = a.list ? TT_OK : TT_FAIL(err, TT_ENOMEM, "%s: out of memory", path);
    if (s == TT_OK && tokens)
        s = add_decoder(&a, tokens);
    else if (s == TT_OK)
        s = add_old(&a, c->roots[HF_ADDED_TOKENS]);
    if (s == TT_OK)
        s = add_all_named(&a);
    set_prefix(sp, c->roots[HF_TOKENIZER_CONFIG]);
    *list = a.list; /* renamed pieces point into it, so it is the caller's even on failure */
    return s;
}
