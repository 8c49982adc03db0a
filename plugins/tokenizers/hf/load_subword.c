/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "subword.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads the models of tokenizer.json other than byte-level BPE. */

tt_status hf_subword_begin(hf_tokenizer *t, const hf_file *f, const json_t *model)
{
    const char type = *hf_model_type(model);
    hf_subword *m = t->subword = calloc(1, sizeof *m);
    if (!m)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for a model", f->name);
    m->kind = type == 'U' ? HF_UNIGRAM : type == 'W' ? HF_WORDPIECE : HF_CHARS;
    m->unk = -1;
    if (t->byte_level)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: pre_tokenizer: ByteLevel is supported only with BPE", f->name);
    TT_TRY(hf_bool(f, model, "model", "byte_fallback", false, &m->byte_fallback));
    TT_TRY(hf_bool(f, model, "model", "fuse_unk", false, &m->fuse_unk));
    m->fuse_unk = m->fuse_unk || m->kind == HF_UNIGRAM;
    return TT_OK;
}

tt_status hf_unigram_vocab(hf_tokenizer *t, const hf_file *f, const json_t *model, json_t **out)
{
    const json_t *list = json_object_get(model, "vocab"), *item;
    hf_subword *m = t->subword;
    size_t i;
    double least = INFINITY;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return HF_FAIL(f, "%s: model.vocab: expected a list of tokens and scores", f->name);
    json_t *vocab = json_object();
    m->n_scores = json_array_size(list);
    m->scores = calloc(m->n_scores, sizeof *m->scores);
    tt_status s = vocab && m->scores
                      ? TT_OK
                      : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for tokens", f->name);
    json_array_foreach(list, i, item)
    {
        const json_t *text = json_array_get(item, 0), *score = json_array_get(item, 1);
        if (s != TT_OK)
            break;
        if (!json_is_string(text) || !json_is_number(score)) {
            s = HF_FAIL(f, "%s: model.vocab[%zu]: expected [token, score]", f->name, i);
            break;
        }
        if (json_object_getn(vocab, json_string_value(text), json_string_length(text))) {
            s = HF_FAIL(f, "%s: model.vocab[%zu]: \"%s\" is there twice", f->name, i,
                        hf_show(json_string_value(text), json_string_length(text)).text);
            break;
        }
        m->scores[i] = json_number_value(score);
        least = m->scores[i] < least ? m->scores[i] : least;
        if (json_object_setn_new(vocab, json_string_value(text), json_string_length(text),
                                 json_integer((json_int_t)i)) != 0)
            s = HF_FAIL(f, "%s: model.vocab[%zu]: not a token", f->name, i);
    }
    if (s != TT_OK) {
        json_decref(vocab);
        return s;
    }
    m->unk_score = least - 10; /* tokenizers and sentencepiece have the same penalty */
    *out = vocab;
    return TT_OK;
}

/* unk_token is a text, Unigram's unk_id an index. */
static tt_status load_unk(hf_tokenizer *t, const hf_file *f, const json_t *model,
                          const json_t *vocab)
{
    hf_subword *m = t->subword;
    const json_t *v = json_object_get(model, m->kind == HF_UNIGRAM ? "unk_id" : "unk_token");
    if (m->kind == HF_UNIGRAM) {
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (v && !json_is_null(v) && (id < 0 || id >= (json_int_t)json_object_size(vocab)))
            return HF_FAIL(f, "%s: model.unk_id: not an id of model.vocab", f->name);
        m->unk = (int32_t)id;
        return TT_OK;
    }
    const char *text = json_string_value(v);
    size_t n = json_string_length(v);
    if (m->kind == HF_WORDPIECE && !v) {
        text = "[UNK]";
        n = strlen(text);
    }
    if (!text && m->kind != HF_WORDPIECE && (!v || json_is_null(v)))
        return TT_OK;
    const json_t *id = text ? json_object_getn(vocab, text, n) : NULL;
    if (!id)
        return HF_FAIL(f, "%s: model.unk_token: \"%s\" is not in model.vocab", f->name,
                       text ? hf_show(text, n).text : "");
    m->unk = (int32_t)json_integer_value(id);
    return TT_OK;
}

static tt_status load_word_piece(hf_tokenizer *t, const hf_file *f, const json_t *model)
{
    hf_subword *m = t->subword;
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix"),
                 *most = json_object_get(model, "max_input_chars_per_word");
    const char *text = prefix ? hf_text_of(prefix) : "##";
    if (!text || (most && (!json_is_integer(most) || json_integer_value(most) < 0)))
        return HF_FAIL(f, "%s: model.%s: not of the right kind", f->name,
                       text ? "max_input_chars_per_word" : "continuing_subword_prefix");
    m->most_chars = most ? (size_t)json_integer_value(most) : 100;
    TT_TRY(hf_bytes_add(&m->prefix, text, strlen(text), f->err));
    for (size_t i = 0; i < m->prefix.n; i++) {
        m->inner = hf_tree_next(&m->tree, m->inner, m->prefix.s[i]);
        if (!m->inner) {
            m->inner = UINT32_MAX;
            break;
        }
    }
    return TT_OK;
}

tt_status hf_subword_fallback(hf_tokenizer *t, const hf_file *f)
{
    hf_subword *m = t->subword;
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        m->fallback[b] = hf_vocab_word(&t->vocab, (const uint8_t *)text, 6);
        if (m->sentencepiece && m->byte_fallback && m->fallback[b] < 0)
            return HF_FAIL(f, "%s: no token %s, but byte_fallback is set", f->name, text);
    }
    return TT_OK;
}

tt_status hf_subword_symbols(hf_tokenizer *t, const hf_file *f)
{
    hf_subword *m = t->subword;
    m->symbols = calloc(HF_CODE_POINTS, sizeof *m->symbols);
    if (!m->symbols)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for the table of code points",
                       f->name);
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const hf_token *token = &t->vocab.tokens[id];
        unsigned k;
        if (!token->spelt || token->n == 0)
            continue;
        const uint32_t c = hf_decode(t->vocab.bytes.s + token->at, &k);
        if (k == token->n)
            m->symbols[c] = (uint32_t)id + 1;
    }
    return TT_OK;
}

tt_status hf_subword_tokens(hf_tokenizer *t, const hf_file *f, const json_t *model,
                            const json_t *vocab)
{
    hf_subword *m = t->subword;
    TT_TRY(load_unk(t, f, model, vocab));
    TT_TRY(hf_subword_fallback(t, f));
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const hf_token *token = &t->vocab.tokens[id];
        if (token->known && token->n > m->longest)
            m->longest = token->n;
        if (m->kind != HF_CHARS && token->known && token->n > 0)
            TT_TRY(
                hf_tree_add(&m->tree, t->vocab.bytes.s + token->at, token->n, (int32_t)id, f->err));
    }
    TT_TRY(hf_tree_finish(&m->tree, f->err));
    if (m->kind == HF_WORDPIECE)
        return load_word_piece(t, f, model);
    if (m->kind == HF_UNIGRAM)
        return TT_OK;
    TT_TRY(hf_subword_symbols(t, f));
    return hf_chars_finish(t, f->err);
}
