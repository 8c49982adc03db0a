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
    size_t i;
    json_int_t id, top = -1;
    json_object_foreach(vocab, key, v)
    {
        char where[96];
        snprintf(where, sizeof where, "model.vocab.\"%s\"", hf_show(key, strlen(key)).text);
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
    json_object_foreach(vocab, key, value)
    {
        const size_t id = (size_t)json_integer_value(value), n = strlen(key);
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
    TT_TRY(hf_vocab_index(&t->vocab, f->err));
    for (int b = 0; b < 256 && !t->subword; b++) {
        const uint8_t byte = (uint8_t)b;
        t->vocab.byte_ids[b] = hf_vocab_word(&t->vocab, &byte, 1);
        if (t->vocab.byte_ids[b] < 0)
            return HF_FAIL(
                f, "%s: model.vocab: no token for the byte 0x%02x; byte-level BPE needs all 256",
                f->name, b);
    }
    return TT_OK;
}

/* Parses "a b", split at the first space, or ["a", "b"]. */
static tt_status merge_parts(const hf_file *f, size_t i, const json_t *item, const char *part[2],
                             size_t n[2])
{
    if (json_is_string(item)) {
        const char *text = json_string_value(item), *blank = strchr(text, ' ');
        if (!blank)
            return HF_FAIL(f, "%s: model.merges[%zu]: \"%s\" has no blank between its two parts",
                           f->name, i, hf_show(text, strlen(text)).text);
        part[0] = text;
        n[0] = (size_t)(blank - text);
        part[1] = blank + 1;
        n[1] = strlen(blank + 1);
    } else {
        for (size_t k = 0; k < 2; k++) {
            const json_t *p = json_array_get(item, k);
            if (json_array_size(item) != 2 || !json_is_string(p))
                return HF_FAIL(f, "%s: model.merges[%zu]: expected \"a b\" or [\"a\", \"b\"]",
                               f->name, i);
            part[k] = json_string_value(p);
            n[k] = json_string_length(p);
        }
    }
    if (n[0] == 0 || n[1] == 0)
        return HF_FAIL(f, "%s: model.merges[%zu]: an empty part would merge for ever", f->name, i);
    return TT_OK;
}

static tt_status vocab_id(const hf_file *f, size_t i, json_t *vocab, const char *text, size_t n,
                          const char *what, uint32_t *id)
{
    const json_t *v = json_object_getn(vocab, text, n);
    if (!v)
        return HF_FAIL(f, "%s: model.merges[%zu]: %s \"%s\" is not in model.vocab", f->name, i,
                       what, hf_show(text, n).text);
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

/* Rejects parts of the model that change ids and that are not supported. */
static tt_status check_model(const hf_file *f, const json_t *model)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    const char *type = hf_type(model);
    const bool known = !*type || !strcmp(type, "BPE") || /* before 2021 there was no type */
                       !strcmp(type, "Unigram") || !strcmp(type, "WordPiece");
    if (!json_is_object(model) || !known)
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
        if (v && !json_is_null(v) && !(json_is_string(v) && !*json_string_value(v)))
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
    hf_digest_text(d, text);
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
        if (!json_object_get(vocab, json_string_value(json_object_get(item, "content"))))
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
    const char *type = hf_type(model);
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
