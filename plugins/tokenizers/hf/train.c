/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/files.h>
#include <ttrun/log.h>

/* tokenizer train: counts words, learns merges, and writes tokenizer.json and
 * tokenizer_config.json. */

#define MOST_TOKENS ((int64_t)1 << 22) /* the limit of load_model.c */

static tt_status check_special(const tt_tokenizer_train *o, tt_error *err)
{
    for (size_t i = 0; i < o->n_special; i++) {
        const char *s = o->special[i];
        const size_t n = strlen(s);
        uint8_t bytes[4];
        size_t m = 0;
        unsigned k = 0;
        if (n == 0 || hf_utf8_valid((const uint8_t *)s, n) != n)
            return TT_FAIL(err, TT_EINVAL, "special token %zu: expected a text in UTF-8", i);
        hf_decode((const uint8_t *)s, &k);
        if (k == n && hf_spell_bytes(s, n, bytes, &m))
            return TT_FAIL(err, TT_EINVAL,
                           "special token \"%s\": one character that stands for a byte; take a "
                           "longer text",
                           s);
        for (size_t j = 0; j < i; j++)
            if (strcmp(s, o->special[j]) == 0)
                return TT_FAIL(err, TT_EINVAL, "special token \"%.60s\": given twice", s);
    }
    return TT_OK;
}

static tt_status check_train(const tt_tokenizer_train *o, tt_error *err)
{
    const int64_t least = 256 + (int64_t)o->n_special;
    TT_TRY(check_special(o, err));
    if (o->vocab_size < least || o->vocab_size > MOST_TOKENS)
        return TT_FAIL(err, TT_EINVAL,
                       "vocabulary size %lld: expected %lld (256 bytes and %zu special tokens) to "
                       "%lld",
                       (long long)o->vocab_size, (long long)least, o->n_special,
                       (long long)MOST_TOKENS);
    for (size_t i = 0; i < o->n_texts; i++)
        if (o->texts[i].n > 0)
            return TT_OK;
    return TT_FAIL(err, TT_EINVAL, "there is no text to learn a tokenizer from");
}

/* ---- the files ---- */

/* A token as tokenizer.json spells it: the byte alphabet's letter for each byte. */
static json_t *spell(const hf_vocab *v, uint32_t id, hf_bytes *text, tt_error *err)
{
    const hf_token *t = &v->tokens[id];
    text->n = 0;
    if (hf_bytes_room(text, 2 * (size_t)t->n, err) != TT_OK)
        return NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t byte = v->bytes.s[t->at + i];
        const uint32_t c = t->spelt ? hf_byte_letter(byte) : byte;
        if (c < 0x80 || !t->spelt) {
            text->s[text->n++] = (uint8_t)c;
        } else {
            text->s[text->n++] = (uint8_t)(0xc0 | c >> 6);
            text->s[text->n++] = (uint8_t)(0x80 | (c & 0x3f));
        }
    }
    return json_stringn((const char *)text->s, text->n);
}

static json_t *byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *split_step(const char *regex)
{
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", regex,
                     "behavior", "Isolated", "invert", 0);
}

static json_t *pre_tokenizer(const char *pattern)
{
    const hf_family *family = NULL;
    json_t *steps = json_array();
    if (!hf_is_name(pattern) || hf_family_find(pattern, true, &family, NULL) != TT_OK)
        json_array_append_new(steps, split_step(pattern));
    else if (strcmp(family->steps[0], "gpt2") == 0) {
        json_decref(steps);
        return byte_level(true);
    }
    for (size_t i = 0; family && i < TT_COUNT(family->steps) && family->steps[i]; i++)
        json_array_append_new(steps, split_step(hf_pattern_named(family->steps[i])->regex));
    json_array_append_new(steps, byte_level(false));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}

static json_t *added_tokens(const tt_tokenizer_train *o)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->n_special; i++)
        json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)i,
                                              "content", o->special[i], "single_word", 0, "lstrip",
                                              0, "rstrip", 0, "normalized", 0, "special", 1));
    return list;
}

/* Does a document begin with bos? Where bos is eos, too, one stands between documents. */
static bool begins_with_bos(const tt_tokenizer_train *o)
{
    return o->bos && (!o->eos || strcmp(o->bos, o->eos) != 0);
}

/* The part of tokenizer.json that puts bos before a text; NULL: none. */
static json_t *post_processor(const tt_tokenizer_train *o)
{
    size_t id = 0;
    if (!begins_with_bos(o))
        return NULL;
    while (id < o->n_special && strcmp(o->special[id], o->bos) != 0)
        id++;
    json_t *one = json_pack("[{s:{s:s, s:i}}, {s:{s:s, s:i}}]", "SpecialToken", "id", o->bos,
                            "type_id", 0, "Sequence", "id", "A", "type_id", 0);
    json_t *two = json_deep_copy(one);
    json_array_append_new(two,
                          json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", o->bos, "type_id", 1));
    json_array_append_new(two, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B", "type_id", 1));
    return json_pack("{s:s, s:o, s:o, s:{s:{s:s, s:[i], s:[s]}}}", "type", "TemplateProcessing",
                     "single", one, "pair", two, "special_tokens", o->bos, "id", o->bos, "ids",
                     (int)id, "tokens", o->bos);
}

static json_t *model(const hf_learnt *l, tt_error *err)
{
    json_t *vocab = json_object(), *merges = json_array();
    hf_bytes text = {0};
    bool good = vocab && merges;
    for (uint32_t id = 0; good && id < l->vocab.n_ids; id++) {
        json_t *token = spell(&l->vocab, id, &text, err);
        good = token && json_object_setn_new(vocab, json_string_value(token),
                                             json_string_length(token), json_integer(id)) == 0;
        json_decref(token);
    }
    for (size_t i = 0; good && i < l->n_merges; i++)
        good = json_array_append_new(merges,
                                     json_pack("[o, o]", spell(&l->vocab, l->left[i], &text, err),
                                               spell(&l->vocab, l->right[i], &text, err))) == 0;
    free(text.s);
    json_t *m = good ? json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type",
                                 "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                                 "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                                 "ignore_merges", 0, "vocab", vocab, "merges", merges)
                     : NULL;
    json_decref(vocab);
    json_decref(merges);
    return m;
}

/* Writes the file under another name first, so that it appears whole or not at all. Releases
 * root. */
static tt_status write_json(const char *folder, const char *name, json_t *root, tt_error *err)
{
    char path[4096], part[4096 + 8];
    if (!root)
        return TT_FAIL(err, TT_ENOMEM, "%s/%s: out of memory", folder, name);
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(part, sizeof part, "%s.part", path);
    int fd = -1;
    if (n < (int)sizeof path) {
        const tt_status s = tt_open_own(part, O_WRONLY | O_CREAT | O_TRUNC, 0666, &fd, err);
        if (s != TT_OK) {
            json_decref(root);
            return s;
        }
    }
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    bool good = f && json_dumpf(root, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF;
    if (f && fclose(f) != 0)
        good = false;
    if (good)
        good = rename(part, path) == 0;
    json_decref(root);
    if (good)
        return TT_OK;
    const int why = errno;
    if (f)
        remove(part);
    return TT_FAIL(err, TT_EIO, "%s: cannot be written: %s", path, strerror(why));
}

static tt_status write_files(const tt_tokenizer_train *o, bool nfc, const hf_learnt *l,
                             tt_error *err)
{
    json_t *m = model(l, err);
    json_t *root = m ? json_pack("{s:s, s:n, s:n, s:o, s:o?, s:o, s:o?, s:o, s:o}", "version",
                                 "1.0", "truncation", "padding", "added_tokens", added_tokens(o),
                                 "normalizer", nfc ? json_pack("{s:s}", "type", "NFC") : NULL,
                                 "pre_tokenizer", pre_tokenizer(o->pattern), "post_processor",
                                 post_processor(o), "decoder", byte_level(true), "model", m)
                     : NULL;
    TT_TRY(write_json(o->out, "tokenizer.json", root, err));
    return write_json(o->out, "tokenizer_config.json",
                      json_pack("{s:s, s:s?, s:s?, s:s?, s:b, s:b}", "tokenizer_class",
                                "PreTrainedTokenizerFast", "bos_token", o->bos, "eos_token", o->eos,
                                "pad_token", o->pad, "add_bos_token", begins_with_bos(o),
                                "clean_up_tokenization_spaces", 0),
                      err);
}

tt_status hf_train(const tt_tokenizer_train *o, tt_error *err)
{
    hf_counts words = {0};
    hf_learnt learnt = {0};
    TT_TRY(check_train(o, err));
    hf_tokenizer *t = hf_new();
    tt_status s = t ? hf_set_splits(t, o->pattern, true, HF_ONIGURUMA, err)
                    : TT_FAIL(err, TT_ENOMEM, "out of memory for a tokenizer");
    if (s == TT_OK)
        s = hf_unicode_new(t->nfc, &t->flags, err);
    if (s == TT_OK)
        s = hf_count_words(t, o, &words, err);
    if (s == TT_OK)
        s = hf_learn(&words, o, &learnt, err);
    if (s == TT_OK && (int64_t)learnt.vocab.n_ids < o->vocab_size)
        tt_log(TT_WARN, "data", "no pair is left after %zu tokens of the %lld asked for",
               learnt.vocab.n_ids, (long long)o->vocab_size);
    if (s == TT_OK)
        s = write_files(o, t->nfc, &learnt, err);
    hf_counts_release(&words);
    hf_learnt_release(&learnt);
    hf_close(t);
    return s;
}
