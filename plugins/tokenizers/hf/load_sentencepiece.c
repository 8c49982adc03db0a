/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "normalize.h"
#include "protobuf.h"
#include "subword.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.model of sentencepiece, a protocol buffer: pieces with scores and types, a normalizer,
 * and what the trainer was told. Field numbers are those of its sentencepiece_model.proto. */

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum model_type { UNIGRAM = 1, BPE };
#define MOST_PIECES ((size_t)1 << 22)
#define LONGEST_PIECE 1024 /* bytes of a piece of BPE, which is looked up in all its parts */

typedef struct sp_piece {
    const uint8_t *s;
    size_t n;
    float score;
    unsigned type;
} sp_piece;

typedef struct sp_text {
    const uint8_t *s;
    size_t n;
} sp_text;

typedef struct sp_model {
    sp_piece *pieces;
    size_t n, cap;
    uint64_t model_type;
    bool byte_fallback, suffix, dummy_prefix, trim_blanks, escape, denormalizer;
    sp_text charsmap, unk_surface, bos, eos, pad;
} sp_model;

bool hf_is_sentencepiece(const char *text, size_t n)
{
    hf_message m = {(const uint8_t *)text, (const uint8_t *)text + n, false};
    hf_field f;
    bool piece = false;
    if (n < 4 || text[0] != 0x0a) /* it begins with a piece */
        return false;
    while (hf_next_field(&m, &f))
        piece = piece || (f.number == 1 && f.wire == 2);
    return piece && !m.bad;
}

/* ---- the messages ---- */

static tt_status read_piece(sp_model *sp, const hf_file *f, const hf_field *outer)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    sp_piece p = {.type = NORMAL};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        if (in.number == 1 && in.wire == 2) {
            p.s = in.text;
            p.n = in.n;
        } else if (in.number == 2 && in.wire == 5) {
            p.score = hf_float(&in);
        } else if (in.number == 3 && in.wire == 0) {
            p.type = in.value <= BYTE ? (unsigned)in.value : 0;
        }
    }
    if (m.bad || p.n == 0 || !isfinite(p.score) || p.type < NORMAL || memchr(p.s, 0, p.n) ||
        hf_utf8_valid(p.s, p.n) != p.n)
        return HF_FAIL(f, "%s: piece %zu: not a text with a score and a type", f->name, sp->n);
    if (sp->n == MOST_PIECES)
        return HF_FAIL(f, "%s: more than %zu pieces", f->name, MOST_PIECES);
    if (sp->n == sp->cap) {
        const size_t cap = 2 * sp->cap + 1024;
        sp_piece *more = realloc(sp->pieces, cap * sizeof *more);
        if (!more)
            return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu pieces", f->name, cap);
        sp->pieces = more;
        sp->cap = cap;
    }
    sp->pieces[sp->n++] = p;
    return TT_OK;
}

static void read_trainer(sp_model *sp, const hf_field *outer, bool *bad)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        const sp_text text = {in.text, in.n};
        if (in.number == 3 && in.wire == 0)
            sp->model_type = in.value;
        else if (in.number == 24 && in.wire == 0)
            sp->suffix = in.value;
        else if (in.number == 35 && in.wire == 0)
            sp->byte_fallback = in.value;
        else if (in.number == 44 && in.wire == 2)
            sp->unk_surface = text;
        else if (in.number == 46 && in.wire == 2)
            sp->bos = text;
        else if (in.number == 47 && in.wire == 2)
            sp->eos = text;
        else if (in.number == 48 && in.wire == 2)
            sp->pad = text;
    }
    *bad = *bad || m.bad;
}

static void read_normalizer(sp_model *sp, const hf_field *outer, bool *bad)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in)) {
        if (in.number == 2 && in.wire == 2)
            sp->charsmap = (sp_text){in.text, in.n};
        else if (in.number == 3 && in.wire == 0)
            sp->dummy_prefix = in.value;
        else if (in.number == 4 && in.wire == 0)
            sp->trim_blanks = in.value;
        else if (in.number == 5 && in.wire == 0)
            sp->escape = in.value;
    }
    *bad = *bad || m.bad;
}

static void read_denormalizer(sp_model *sp, const hf_field *outer)
{
    hf_message m = {outer->text, outer->text + outer->n, false};
    hf_field in;
    while (hf_next_field(&m, &in))
        sp->denormalizer = sp->denormalizer || (in.number == 2 && in.wire == 2 && in.n > 0);
}

static tt_status read_model(sp_model *sp, const hf_file *f, const char *text, size_t n)
{
    hf_message m = {(const uint8_t *)text, (const uint8_t *)text + n, false};
    hf_field in;
    bool bad = false;
    while (hf_next_field(&m, &in)) {
        if (in.wire != 2)
            continue;
        if (in.number == 1)
            TT_TRY(read_piece(sp, f, &in));
        else if (in.number == 2)
            read_trainer(sp, &in, &bad);
        else if (in.number == 3)
            read_normalizer(sp, &in, &bad);
        else if (in.number == 5)
            read_denormalizer(sp, &in);
    }
    if (m.bad || bad)
        return HF_FAIL(f, "%s: not a sentencepiece model: a field is cut short", f->name);
    if (sp->model_type != UNIGRAM && sp->model_type != BPE)
        return TT_FAIL(
            f->err, TT_EUNSUPPORTED,
            "%s: trainer_spec.model_type: %llu is not supported (1, Unigram, and 2, BPE, "
            "are)",
            f->name, (unsigned long long)sp->model_type);
    if (sp->denormalizer)
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: denormalizer_spec: not supported", f->name);
    return TT_OK;
}

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
    t->vocab.n_ids = sp->n;
    t->vocab.tokens = calloc(sp->n, sizeof *t->vocab.tokens);
    m->scores = calloc(sp->n, sizeof *m->scores);
    m->user = calloc(sp->n, sizeof *m->user);
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
                   .suffix = sp->suffix};
    hf_digest_number(d, sp->dummy_prefix | sp->trim_blanks << 1 | sp->escape << 2 |
                            sp->suffix << 3 | sp->byte_fallback << 4 | (int)sp->model_type << 5);
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

static tt_status sp_build(hf_tokenizer *t, const hf_file *f, const sp_model *sp, hf_digest *d)
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
    t->bos = control(t, sp, sp->bos);
    t->eos = control(t, sp, sp->eos);
    t->pad = control(t, sp, sp->pad);
    return hf_sentencepiece_decoder(t, sp->dummy_prefix || sp->trim_blanks,
                                    (const char *)sp->unk_surface.s, sp->unk_surface.n, f->err);
}

tt_status hf_load_sentencepiece(hf_tokenizer *t, const char *text, size_t n, hf_digest *d,
                                tt_error *err)
{
    static const char surface[] = " \xe2\x81\x87 ";
    const hf_file f = {t->path, err};
    sp_model sp = {
        .model_type = UNIGRAM,
        .dummy_prefix = true,
        .trim_blanks = true,
        .escape = true,
        .unk_surface = {(const uint8_t *)surface, sizeof surface - 1},
        .bos = {(const uint8_t *)"<s>",   3                 },
        .eos = {(const uint8_t *)"</s>",  4                 },
        .pad = {(const uint8_t *)"<pad>", 5                 }
    };
    tt_status s = read_model(&sp, &f, text, n);
    if (s == TT_OK)
        s = sp_build(t, &f, &sp, d);
    free(sp.pieces);
    return s;
}
