/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "normalize.h"
#include "subword.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* Loads model.vocab, model.merges and added_tokens. */

#define MAX_ID ((json_int_t)1 << 22) /* the largest known vocabularies have 2^18 ids */

static tt_status check_id(const hf_file *f, const char *what, const json_t *v, json_int_t *id)
{
    if (!json_is_integer(v))
        return HF_FAIL(f, "%s: %s: expected an id", f->name, what);
    *id = json_integer_value(v);
    if (*id < 0 || *id >= MAX_ID)
        return HF_FAIL(f, "%s: %s: id %lld is not between 0 and %lld", f->name, what,
                       (long long)*id, (long long)MAX_ID - 1);
    return TT_OK;
}

/* Makes room for ids up to the highest one in the file. */
static tt_status size_vocab(hf_tokenizer *t, const hf_file *f, json_t *vocab, const json_t *added)
{
    const char *key;
    json_t *v;
    const json_t *item;
    size_t i, n;
    json_int_t id, top = -1;
    json_object_keylen_foreach(vocab, key, n, v)
    {
        char where[96];
        snprintf(where, sizeof where, "model.vocab.\"%s\"", hf_show(key, n).text);
        TT_TRY(check_id(f, where, v, &id));
        top = id > top ? id : top;
    }
    json_array_foreach(added, i, item)
    {
        char where[64];
        snprintf(where, sizeof where, "added_tokens[%zu].id", i);
        TT_TRY(check_id(f, where, json_object_get(item, "id"), &id));
        top = id > top ? id : top;
    }
    if (top < 0)
        return HF_FAIL(f, "%s: model.vocab: no tokens", f->name);
    t->vocab.n_ids = (size_t)top + 1;
    t->vocab.tokens = calloc(t->vocab.n_ids, sizeof *t->vocab.tokens);
    if (!t->vocab.tokens)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu ids", f->name, t->vocab.n_ids);
    return TT_OK;
}

/* The token's bytes: decoded from the byte alphabet, or its text unchanged if a character is not in
 * the alphabet. */
tt_status hf_set_token(hf_tokenizer *t, const hf_file *f, size_t id, const char *text, size_t n,
                       bool alphabet, bool in_words)
{
    hf_vocab *v = &t->vocab;
    hf_token *token = &v->tokens[id];
    size_t m = n;
    if (v->bytes.n > UINT32_MAX - n)
        return HF_FAIL(f, "%s: model.vocab: more than 4 GiB of tokens", f->name);
    TT_TRY(hf_bytes_room(&v->bytes, n, f->err));
    const bool spelt = alphabet && hf_spell_bytes(text, n, v->bytes.s + v->bytes.n, &m);
    if (!spelt) {
        m = n;
        memcpy(v->bytes.s + v->bytes.n, text, n);
    }
    *token = (hf_token){
        .at = (uint32_t)v->bytes.n, .n = (uint32_t)m, .known = true, .spelt = spelt || in_words};
    v->bytes.n += m;
    return TT_OK;
}

static tt_status load_vocab(hf_tokenizer *t, const hf_file *f, json_t *vocab, hf_digest *d)
{
    const char *key;
    json_t *value;
    size_t n;
    json_object_keylen_foreach(vocab, key, n, value)
    {
        const size_t id = (size_t)json_integer_value(value);
        if (t->vocab.tokens[id].known)
            return HF_FAIL(f, "%s: model.vocab.\"%s\": id %zu is another token's too", f->name,
                           hf_show(key, n).text, id);
        TT_TRY(hf_set_token(t, f, id, key, n, !t->subword, t->subword));
    }
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const hf_token *token = &t->vocab.tokens[id];
        if (!token->known)
            continue;
        hf_digest_number(d, (int64_t)(id << 1 | token->spelt));
        hf_digest_number(d, token->n);
        hf_digest_bytes(d, t->vocab.bytes.s + token->at, token->n);
    }
    return hf_vocab_index(&t->vocab, f->err);
}

/* The unk_token, for bytes without a token. */
static tt_status load_byte_unk(hf_tokenizer *t, const hf_file *f, const json_t *model,
                               json_t *vocab, hf_digest *d)
{
    const json_t *v = json_object_get(model, "unk_token");
    const json_t *id =
        v ? json_object_getn(vocab, json_string_value(v), json_string_length(v)) : NULL;
    bool fallback;
    TT_TRY(hf_bool(f, model, "model", "byte_fallback", false, &fallback));
    TT_TRY(hf_bool(f, model, "model", "fuse_unk", false, &t->vocab.fuse_unk));
    if (json_is_string(v) && !id)
        return HF_FAIL(f, "%s: model.unk_token: \"%s\" is not in model.vocab", f->name,
                       hf_show(json_string_value(v), json_string_length(v)).text);
    if (fallback)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: model.byte_fallback: not supported in byte-level BPE without all 256 "
                       "bytes",
                       f->name);
    t->vocab.unk = id ? (int32_t)json_integer_value(id) : -1;
    hf_digest_number(d, (int64_t)t->vocab.unk * 2 + t->vocab.fuse_unk); /* unk may be -1 */
    return TT_OK;
}

/* Can the byte be in UTF-8? */
static bool in_utf8(int b)
{
    return b != 0xc0 && b != 0xc1 && b < 0xf5;
}

/* The tokens of single bytes. Where some byte of UTF-8 has none, texts lose something, which a line
 * says. */
static tt_status load_bytes(hf_tokenizer *t, const hf_file *f, const json_t *model, json_t *vocab,
                            hf_digest *d)
{
    hf_vocab *v = &t->vocab;
    int gaps = 0, first = -1;
    for (int b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;
        v->byte_ids[b] = hf_vocab_word(v, &byte, 1);
        v->gaps = v->gaps || v->byte_ids[b] < 0;
        if (v->byte_ids[b] >= 0 || !in_utf8(b))
            continue;
        first = gaps++ ? first : b;
    }
    if (v->gaps)
        TT_TRY(load_byte_unk(t, f, model, vocab, d));
    if (gaps)
        tt_log(
            TT_WARN, "data",
            "%s: model.vocab: %d of the 243 bytes of UTF-8 have no token, 0x%02x is the first; in "
            "a text they %s, as in Hugging Face tokenizers",
            f->name, gaps, (unsigned)first, v->unk < 0 ? "are left out" : "become the unk_token");
    return TT_OK;
}

typedef struct merge_place {
    char text[600];
} merge_place;

/* The place of merge i, for an error message. */
static merge_place where_merge(const hf_file *f, size_t i)
{
    merge_place at;
    if (f->merges)
        snprintf(at.text, sizeof at.text, "%.500s: merge %zu", f->merges, i + 1);
    else
        snprintf(at.text, sizeof at.text, "%.500s: model.merges[%zu]", f->name, i);
    return at;
}

/* Parses "a b", split at the first space, or ["a", "b"]. */
static tt_status merge_parts(const hf_file *f, size_t i, const json_t *item, const char *part[2],
                             size_t n[2])
{
    if (json_is_string(item)) {
        const char *text = json_string_value(item);
        const size_t length = json_string_length(item);
        const char *blank = memchr(text, ' ', length);
        if (!blank)
            return HF_FAIL(f, "%s: \"%s\" has no blank between its two parts",
                           where_merge(f, i).text, hf_show(text, length).text);
        part[0] = text;
        n[0] = (size_t)(blank - text);
        part[1] = blank + 1;
        n[1] = length - n[0] - 1;
    } else {
        for (size_t k = 0; k < 2; k++) {
            const json_t *p = json_array_get(item, k);
            if (json_array_size(item) != 2 || !json_is_string(p))
                return HF_FAIL(f, "%s: expected \"a b\" or [\"a\", \"b\"]", where_merge(f, i).text);
            part[k] = json_string_value(p);
            n[k] = json_string_length(p);
        }
    }
    if (n[0] == 0 || n[1] == 0)
        return HF_FAIL(f, "%s: an empty part would merge for ever", where_merge(f, i).text);
    return TT_OK;
}

static tt_status vocab_id(const hf_file *f, size_t i, json_t *vocab, const char *text, size_t n,
                          const char *what, uint32_t *id)
{
    const json_t *v = json_object_getn(vocab, text, n);
    if (!v)
        return HF_FAIL(f, "%s: %s \"%s\" is not in %s", where_merge(f, i).text, what,
                       hf_show(text, n).text, f->merges ? f->name : "model.vocab");
    *id = (uint32_t)json_integer_value(v);
    return TT_OK;
}

static tt_status load_merges(hf_tokenizer *t, const hf_file *f, const json_t *model, json_t *vocab,
                             hf_digest *d)
{
    const json_t *list = json_object_get(model, "merges"), *item;
    hf_bytes whole = {0};
    tt_status s = TT_OK;
    size_t i;
    if (!json_is_array(list))
        return HF_FAIL(f, "%s: model.merges: expected a list", f->name);
    TT_TRY(hf_merges_new(&t->vocab, json_array_size(list), f->err));
    json_array_foreach(list, i, item)
    {
        const char *part[2] = {NULL, NULL};
        size_t n[2] = {0, 0};
        uint32_t left = 0, right = 0, id = 0;
        whole.n = 0;
        s = merge_parts(f, i, item, part, n);
        if (s == TT_OK)
            s = vocab_id(f, i, vocab, part[0], n[0], "the part", &left);
        if (s == TT_OK)
            s = vocab_id(f, i, vocab, part[1], n[1], "the part", &right);
        if (s == TT_OK)
            s = hf_bytes_add(&whole, part[0], n[0], f->err);
        if (s == TT_OK)
            s = hf_bytes_add(&whole, part[1], n[1], f->err);
        if (s == TT_OK)
            s = vocab_id(f, i, vocab, (const char *)whole.s, whole.n, "the result", &id);
        if (s != TT_OK)
            break;
        hf_merges_set(&t->vocab, left, right, (uint32_t)i, id);
        hf_digest_number(d, (int64_t)((uint64_t)left << 32 | right));
    }
    free(whole.s);
    return s;
}

const char *hf_model_type(const json_t *model)
{
    const char *type = hf_type(model);
    if (*type)
        return type;
    if (json_is_array(json_object_get(model, "vocab")))
        return "Unigram";
    if (json_object_get(model, "merges"))
        return "BPE";
    return json_object_get(model, "continuing_subword_prefix") &&
                   json_object_get(model, "max_input_chars_per_word")
               ? "WordPiece"
               : "WordLevel";
}

/* Rejects parts of the model that change ids and that are not supported. */
static tt_status check_model(const hf_file *f, const json_t *model)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    const char *type = hf_model_type(model);
    const bool known =
        !strcmp(type, "BPE") || !strcmp(type, "Unigram") || !strcmp(type, "WordPiece");
    if (!json_is_object(model))
        return HF_FAIL(f, "%s: model: expected an object; a tokenizer.json has one", f->name);
    if (!known)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: model: \"%s\" is not supported (BPE, Unigram and WordPiece are)",
                       f->name, hf_show(type, strlen(type)).text);
    if (*type == 'U' || *type == 'W')
        return TT_OK;
    if (dropout && !json_is_null(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) <= 0))
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: model.dropout: merging at random is not supported; set it to null",
                       f->name);
    for (size_t i = 0; i < TT_COUNT(texts); i++) {
        const json_t *v = json_object_get(model, texts[i]);
        if (v && !json_is_null(v) && !(json_is_string(v) && !json_string_length(v)))
            return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: model.%s: not supported in BPE", f->name,
                           texts[i]);
    }
    return TT_OK;
}

/* Hugging Face tokenizers numbers added tokens that are not in model.vocab consecutively, whatever
 * the file says. next: the id it would give. Warns once. */
static void warn_of_other_id(const hf_file *f, size_t i, json_int_t id, json_int_t next,
                             bool *warned)
{
    if (id == next || *warned)
        return;
    *warned = true;
    tt_log(TT_WARN, "data",
           "%s: added_tokens[%zu].id: %lld is used; Hugging Face tokenizers would make it %lld",
           f->name, i, (long long)id, (long long)next);
}

static tt_status load_added_flags(const hf_file *f, const json_t *item, const char *path,
                                  hf_added *a)
{
    TT_TRY(hf_bool(f, item, path, "special", false, &a->special));
    TT_TRY(hf_bool(f, item, path, "normalized", !a->special, &a->normalized));
    TT_TRY(hf_bool(f, item, path, "single_word", false, &a->single_word));
    TT_TRY(hf_bool(f, item, path, "lstrip", false, &a->lstrip));
    return hf_bool(f, item, path, "rstrip", false, &a->rstrip);
}

/* What the text of an added token becomes where texts are normalized before it is sought. */
static tt_status normalized_text(const hf_tokenizer *t, const hf_file *f, const char *text,
                                 size_t n, hf_bytes *out)
{
    hf_norm_room room = {0};
    const uint8_t *s = (const uint8_t *)text;
    if (t->nfc)
        return hf_nfc(t->flags, s, n, out, f->err);
    tt_status status = hf_normalize(t, &room, &s, &n, f->err);
    if (status == TT_OK)
        status = hf_bytes_add(out, s, n, f->err);
    hf_norm_room_release(&room);
    return status;
}

static tt_status load_added(hf_tokenizer *t, const hf_file *f, const json_t *item, size_t i,
                            json_t *vocab, hf_digest *d)
{
    char path[48];
    snprintf(path, sizeof path, "added_tokens[%zu]", i);
    const json_t *content = json_object_get(item, "content"), *in_vocab;
    const char *text = json_string_value(content);
    const size_t n = json_string_length(content);
    const json_int_t id = json_integer_value(json_object_get(item, "id"));
    if (!text || n == 0)
        return HF_FAIL(f, "%s: %s.content: expected the token's text", f->name, path);
    in_vocab = json_object_getn(vocab, text, n);
    if (in_vocab && json_integer_value(in_vocab) != id)
        return HF_FAIL(f, "%s: %s.id: %lld, but model.vocab has \"%s\" as %lld", f->name, path,
                       (long long)id, hf_show(text, n).text,
                       (long long)json_integer_value(in_vocab));
    if (!in_vocab && t->vocab.tokens[id].known)
        return HF_FAIL(f, "%s: %s.id: %lld is another token's too", f->name, path, (long long)id);
    hf_added *a = &t->added[i];
    a->id = (int32_t)id;
    TT_TRY(load_added_flags(f, item, path, a));
    TT_TRY(hf_bytes_add(&a->content, text, n, f->err));
    TT_TRY(a->normalized ? normalized_text(t, f, text, n, &a->sought)
                         : hf_bytes_add(&a->sought, text, n, f->err));
    hf_digest_number(d, id << 8 | a->special | a->normalized << 1 | a->single_word << 2 |
                            a->lstrip << 3 | a->rstrip << 4);
    hf_digest_string(d, text, n);
    if (!in_vocab)
        TT_TRY(hf_set_token(t, f, (size_t)id, text, n, false, false));
    if (a->special)
        t->vocab.tokens[id].special = true;
    return TT_OK;
}

tt_status hf_load_added(hf_tokenizer *t, const hf_file *f, const json_t *added, json_t *vocab,
                        json_int_t next, hf_digest *d)
{
    const json_t *item;
    size_t i;
    bool any = false, warned = false;
    if (json_array_size(added) == 0)
        return TT_OK;
    t->added = calloc(json_array_size(added), sizeof *t->added);
    if (!t->added)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for added tokens", f->name);
    t->n_added = json_array_size(added);
    json_array_foreach(added, i, item)
    {
        TT_TRY(load_added(t, f, item, i, vocab, d));
        const json_int_t id = t->added[i].id;
        const json_t *content = json_object_get(item, "content");
        if (!json_object_getn(vocab, json_string_value(content), json_string_length(content)))
            warn_of_other_id(f, i, id, next, &warned);
        next = id >= next ? id + 1 : next;
        any = any || !t->added[i].special || t->allow_special;
    }
    if (!any) /* only special ones, and they are plain text to encode */
        return TT_OK;
    TT_TRY(hf_trie_new(t->added, t->n_added, false, &t->raw, f->err));
    return hf_trie_new(t->added, t->n_added, true, &t->normalized, f->err);
}

/* Everything of the model but the object of tokens and ids, which Unigram has as a list. */
static tt_status load_with(hf_tokenizer *t, const hf_file *f, const json_t *model, json_t *vocab,
                           const json_t *added, hf_digest *d)
{
    if (!json_is_object(vocab))
        return HF_FAIL(f, "%s: model.vocab: expected an object of tokens and ids", f->name);
    if (added && !json_is_null(added) && !json_is_array(added))
        return HF_FAIL(f, "%s: added_tokens: expected a list", f->name);
    TT_TRY(hf_bool(f, model, "model", "ignore_merges", false, &t->vocab.ignore_merges));
    hf_digest_number(d, t->vocab.ignore_merges);
    TT_TRY(size_vocab(t, f, vocab, added));
    TT_TRY(load_vocab(t, f, vocab, d));
    if (!t->subword)
        TT_TRY(load_bytes(t, f, model, vocab, d));
    if (!t->subword || t->subword->kind == HF_CHARS)
        TT_TRY(load_merges(t, f, model, vocab, d));
    if (t->subword)
        TT_TRY(hf_subword_tokens(t, f, model, vocab));
    else
        hf_merges_finish(&t->vocab);
    return hf_load_added(t, f, added, vocab, (json_int_t)json_object_size(vocab), d);
}

/* The parts that other models have and byte-level BPE has not determine its ids too. */
static tt_status digest_parts(const hf_file *f, const json_t *root, hf_digest *d)
{
    static const char *const model_keys[] = {"type",
                                             "unk_token",
                                             "unk_id",
                                             "byte_fallback",
                                             "fuse_unk",
                                             "continuing_subword_prefix",
                                             "max_input_chars_per_word"};
    const json_t *model = json_object_get(root, "model");
    for (size_t i = 0; i <= TT_COUNT(model_keys); i++) {
        const json_t *v =
            i ? json_object_get(model, model_keys[i - 1]) : json_object_get(root, "normalizer");
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT);
        if (v && !text)
            return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory", f->name);
        hf_digest_text(d, text ? text : "");
        free(text);
    }
    return TT_OK;
}

tt_status hf_load_model(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d)
{
    const json_t *model = json_object_get(root, "model"),
                 *added = json_object_get(root, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab"), *own = NULL;
    TT_TRY(check_model(f, model));
    const char *type = hf_model_type(model);
    if (!t->byte_level || *type == 'U' || *type == 'W')
        TT_TRY(hf_subword_begin(t, f, model));
    if (t->subword || t->n_norms)
        TT_TRY(digest_parts(f, root, d));
    if (t->subword && t->subword->kind == HF_UNIGRAM)
        TT_TRY(hf_unigram_vocab(t, f, model, &own));
    const tt_status s = load_with(t, f, model, own ? own : vocab, added, d);
    json_decref(own);
    return s;
}

int32_t hf_find_token(const hf_tokenizer *t, const char *text, size_t n)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].content.n == n && memcmp(t->added[i].content.s, text, n) == 0)
            return t->added[i].id;
    if (t->subword && hf_vocab_word(&t->vocab, (const uint8_t *)text, n) >= 0)
        return hf_vocab_word(&t->vocab, (const uint8_t *)text, n);
    uint8_t *bytes = malloc(n ? n : 1);
    size_t m;
    const int32_t id = bytes && n && !t->subword && hf_spell_bytes(text, n, bytes, &m)
                           ? hf_vocab_word(&t->vocab, bytes, m)
                           : -1;
    free(bytes);
    if (id >= 0)
        return id;
    /* a token of the vocabulary, not spelt in the byte alphabet */
    for (size_t i = 0; i < t->vocab.n_ids; i++) {
        const hf_token *token = &t->vocab.tokens[i];
        if (token->known && !token->spelt && token->n == n &&
            memcmp(t->vocab.bytes.s + token->at, text, n) == 0)
            return (int32_t)i;
    }
    return -1;
}
