/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"
#include "sentencepiece.h"
#include "subword.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

/* A tokenizer from sentencepiece's tokenizer.model and the files beside it. */

#define LONGEST_PIECE 1024 /* bytes of a piece of BPE, which is looked up in all its parts */

/* ---- the vocabulary ---- */

static bool in_texts(const sp_piece *p) /* may a text contain it? */
{
    return p->type == NORMAL || p->type == USER_DEFINED || p->type == UNUSED;
}

static tt_status set_piece(hf_tokenizer *t, const hf_file *f, const sp_model *sp, size_t id,
                           hf_digest *d)
{
    const sp_piece *p = &sp->pieces[id];
    hf_subword *m = t->subword;
    uint8_t byte;
    if (p->type == BYTE && !hf_byte_token(p->s, p->n, &byte))
        return HF_FAIL(f, "%s: piece %zu: \"%s\" is not a byte", f->name, id,
                       hf_show((const char *)p->s, p->n).text);
    if (p->type == UNUSED && sp->model_type == BPE)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: piece %zu: \"%s\" is unused, which is not supported with BPE", f->name,
                       id, hf_show((const char *)p->s, p->n).text);
    if (p->type == UNKNOWN && m->unk >= 0)
        return HF_FAIL(f, "%s: pieces %d and %zu: only one can be the unknown one", f->name, m->unk,
                       id);
    if (p->type == UNKNOWN)
        m->unk = (int32_t)id;
    TT_TRY(hf_set_token(t, f, id, (const char *)p->s, p->n, false, true));
    t->vocab.tokens[id].special = p->type == CONTROL;
    m->longest = p->n > m->longest ? p->n : m->longest;
    m->scores[id] = (double)p->score;
    uint32_t bits;
    memcpy(&bits, &p->score, sizeof bits);
    hf_digest_number(d, (int64_t)((uint64_t)bits << 32 | p->type));
    hf_digest_number(d, (int64_t)p->n);
    hf_digest_bytes(d, p->s, p->n);
    return TT_OK;
}

static tt_status set_pieces(hf_tokenizer *t, const hf_file *f, const sp_model *sp, hf_digest *d)
{
    hf_subword *m = t->subword;
    t->vocab.n_ids = sp->n_ids;
    t->vocab.tokens = calloc(sp->n_ids, sizeof *t->vocab.tokens);
    m->n_scores = sp->n;
    m->scores = calloc(sp->n_ids, sizeof *m->scores);
    m->user = calloc(sp->n_ids, sizeof *m->user);
    if (!t->vocab.tokens || !m->scores || !m->user)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu pieces", f->name, sp->n);
    float least = FLT_MAX; /* as in sentencepiece */
    for (size_t id = 0; id < sp->n; id++) {
        const sp_piece *p = &sp->pieces[id];
        TT_TRY(set_piece(t, f, sp, id, d));
        if (p->type == NORMAL)
            least = p->score < least ? p->score : least;
        m->user[id] = p->type == USER_DEFINED;
        if (m->user[id])
            TT_TRY(hf_tree_add(&m->user_symbols, p->s, p->n, (int32_t)id, f->err));
        if (in_texts(p) && p->type != UNUSED)
            TT_TRY(hf_tree_add(&m->tree, p->s, p->n, (int32_t)id, f->err));
    }
    TT_TRY(hf_tree_finish(&m->tree, f->err));
    TT_TRY(hf_tree_finish(&m->user_symbols, f->err));
    m->unk_score = (double)(least - 10.0f);
    if (m->unk < 0)
        return HF_FAIL(f, "%s: no piece is the unknown one", f->name);
    TT_TRY(hf_vocab_index(&t->vocab, f->err));
    for (size_t id = 0; id < sp->n; id++)
        if (hf_vocab_word(&t->vocab, sp->pieces[id].s, sp->pieces[id].n) != (int32_t)id)
            return HF_FAIL(f, "%s: piece %zu: \"%s\" is there twice", f->name, id,
                           hf_show((const char *)sp->pieces[id].s, sp->pieces[id].n).text);
    return TT_OK;
}

/* ---- BPE's merges: every way to cut a piece in two, the piece of highest score first ---- */

/* The symbol of a text: a piece, or one code point; false: it can be none. */
static bool symbol_of(const hf_tokenizer *t, const sp_model *sp, const uint8_t *s, size_t n,
                      uint32_t *out)
{
    unsigned k;
    const int32_t id = hf_vocab_word(&t->vocab, s, n);
    if (id >= 0 && in_texts(&sp->pieces[id])) {
        *out = (uint32_t)id;
        return true;
    }
    *out = HF_NO_TOKEN | hf_decode(s, &k);
    return k == n;
}

/* Calls set for every way to cut a piece; returns their number. */
static size_t cut_piece(hf_tokenizer *t, const sp_model *sp, size_t id, uint32_t rank, bool set)
{
    const sp_piece *p = &sp->pieces[id];
    size_t count = 0;
    unsigned k;
    hf_decode(p->s, &k);
    for (size_t i = k; i < p->n; i += k) {
        uint32_t left, right;
        hf_decode(p->s + i, &k);
        if (!symbol_of(t, sp, p->s, i, &left) || !symbol_of(t, sp, p->s + i, p->n - i, &right))
            continue;
        count++;
        if (set)
            hf_merges_set(&t->vocab, left, right, rank, (uint32_t)id);
    }
    return count;
}

typedef struct sp_order {
    float score;
    uint32_t id;
} sp_order;

static int by_score(const void *a, const void *b)
{
    const sp_order *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static tt_status make_pieces_merges(hf_tokenizer *t, const hf_file *f, const sp_model *sp)
{
    sp_order *order = malloc(sp->n * sizeof *order);
    size_t n = 0, ways = 0;
    tt_status s =
        order ? TT_OK : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for merges", f->name);
    for (size_t id = 0; s == TT_OK && id < sp->n; id++) {
        const sp_piece *p = &sp->pieces[id];
        if (!in_texts(p))
            continue;
        if (p->n > LONGEST_PIECE)
            s = HF_FAIL(f, "%s: piece %zu: %zu bytes; at most %d", f->name, id, p->n,
                        LONGEST_PIECE);
        else if ((ways += cut_piece(t, sp, id, 0, false)) > MOST_PIECES)
            s = HF_FAIL(f, "%s: the pieces have more than %zu ways to merge", f->name, MOST_PIECES);
        order[n++] = (sp_order){p->score, (uint32_t)id};
    }
    if (s == TT_OK && n)
        qsort(order, n, sizeof *order, by_score);
    if (s == TT_OK)
        s = hf_merges_new(&t->vocab, ways, f->err);
    for (size_t i = 0, rank = 0; s == TT_OK && i < n; i++) {
        rank += i > 0 && order[i].score != order[i - 1].score;
        cut_piece(t, sp, order[i].id, (uint32_t)rank, true);
    }
    free(order);
    return s;
}

static tt_status set_merges(hf_tokenizer *t, const hf_file *f, const sp_model *sp)
{
    hf_subword *m = t->subword;
    TT_TRY(make_pieces_merges(t, f, sp));
    TT_TRY(hf_subword_symbols(t, f));
    for (size_t c = 0; c < HF_CODE_POINTS; c++) /* control symbols are not in texts */
        if (m->symbols[c] && !in_texts(&sp->pieces[m->symbols[c] - 1]))
            m->symbols[c] = 0;
    return hf_chars_finish(t, f->err);
}

/* ---- the whole ---- */

static tt_status set_normalizer(hf_tokenizer *t, const hf_file *f, const sp_model *sp, hf_digest *d)
{
    t->norms = calloc(HF_MAX_NORMS, sizeof *t->norms);
    if (!t->norms)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for a normalizer", f->name);
    hf_norm *p = &t->norms[t->n_norms++];
    *p = (hf_norm){.kind = HF_SENTENCEPIECE,
                   .dummy_prefix = sp->dummy_prefix,
                   .trim_blanks = sp->trim_blanks,
                   .escape = sp->escape,
                   .suffix = sp->suffix,
                   .first_only = sp->first_only};
    hf_digest_number(d, sp->dummy_prefix | sp->trim_blanks << 1 | sp->escape << 2 |
                            sp->suffix << 3 | sp->byte_fallback << 4 | (int)sp->model_type << 5 |
                            sp->first_only << 8);
    hf_digest_number(d, (int64_t)sp->charsmap.n);
    hf_digest_bytes(d, sp->charsmap.s, sp->charsmap.n);
    if (sp->charsmap.n && hf_charsmap_new(sp->charsmap.s, sp->charsmap.n, &p->map, f->err) != TT_OK)
        return tt_error_context(f->err, "%s: normalizer_spec", f->name);
    return TT_OK;
}

/* The id of a control symbol, by its text. */
static int32_t control(const hf_tokenizer *t, const sp_model *sp, sp_text text)
{
    const int32_t id = text.n ? hf_vocab_word(&t->vocab, text.s, text.n) : -1;
    return id >= 0 && sp->pieces[id].type == CONTROL ? id : -1;
}

/* The added tokens, in tokenizer.json's form: those that are pieces have their texts already. */
static tt_status add_beside(hf_tokenizer *t, const hf_file *f, const sp_model *sp,
                            const json_t *added, hf_digest *d)
{
    json_t *pieces = json_object();
    const json_t *item;
    size_t i;
    tt_status s = pieces ? TT_OK : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory", f->name);
    json_array_foreach(added, i, item)
    {
        json_t *id = json_object_get(item, "id");
        const json_t *text = json_object_get(item, "content");
        if (s == TT_OK && (size_t)json_integer_value(id) < sp->n &&
            json_object_setn(pieces, json_string_value(text), json_string_length(text), id) != 0)
            s = TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for added tokens", f->name);
        if ((size_t)json_integer_value(id) < sp->n)
            t->vocab.tokens[json_integer_value(id)].special = false; /* the item says it */
    }
    if (s == TT_OK)
        s = hf_load_added(t, f, added, pieces, (json_int_t)sp->n, d);
    json_decref(pieces);
    return s;
}

static tt_status sp_build(hf_tokenizer *t, const hf_file *f, const sp_model *sp,
                          const json_t *added, hf_digest *d)
{
    hf_subword *m = t->subword = calloc(1, sizeof *m);
    if (!m)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for a model", f->name);
    m->kind = sp->model_type == BPE ? HF_CHARS : HF_UNIGRAM;
    m->sentencepiece = m->fuse_unk = true;
    m->byte_fallback = sp->byte_fallback;
    m->unk = -1;
    TT_TRY(set_normalizer(t, f, sp, d));
    TT_TRY(hf_unicode_new(false, &t->flags, f->err));
    TT_TRY(set_pieces(t, f, sp, d));
    TT_TRY(hf_subword_fallback(t, f));
    if (m->kind == HF_CHARS)
        TT_TRY(set_merges(t, f, sp));
    if (added)
        TT_TRY(add_beside(t, f, sp, added, d));
    t->bos = control(t, sp, sp->bos);
    t->eos = control(t, sp, sp->eos);
    t->pad = control(t, sp, sp->pad);
    t->trims_begin = sp->trim_blanks;
    return hf_sentencepiece_decoder(t, sp->dummy_prefix || sp->trim_blanks,
                                    (const char *)sp->unk_surface.s, sp->unk_surface.n, f->err);
}

/* ---- the files beside it ---- */

static json_int_t piece_id(void *arg, const char *text, size_t n)
{
    const sp_model *sp = arg;
    for (size_t i = 0; i < sp->n; i++)
        if (sp->pieces[i].n == n && memcmp(sp->pieces[i].s, text, n) == 0)
            return (json_int_t)i;
    return -1;
}

static tt_status rename_piece(void *arg, size_t id, const json_t *text, tt_error *err)
{
    sp_piece *p = &((sp_model *)arg)->pieces[id];
    if (p->type == BYTE)
        return TT_FAIL(err, TT_EFORMAT, "the model has a byte as %zu", id);
    p->s = (const uint8_t *)json_string_value(text);
    p->n = json_string_length(text);
    p->type = p->type == UNKNOWN ? UNKNOWN : CONTROL; /* no text is cut into it */
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

tt_status hf_load_sentencepiece(hf_tokenizer *t, const char *text, size_t n, const hf_configs *c,
                                hf_digest *d, tt_error *err)
{
    const hf_file f = {.name = t->path, .err = err};
    sp_model sp;
    json_t *added = NULL;
    tt_status s = hf_read_sentencepiece(&sp, &f, text, n);
    hf_beside b = {t->path, piece_id, rename_piece, &sp, sp.n, sp.n};
    if (s == TT_OK)
        s = hf_added_beside(&b, c, &added, err);
    sp.n_ids = b.n_ids;
    if (c)
        set_prefix(&sp, c->roots[HF_TOKENIZER_CONFIG]);
    if (s == TT_OK)
        s = sp_build(t, &f, &sp, added, d);
    json_decref(added);
    free(sp.pieces);
    return s;
}
