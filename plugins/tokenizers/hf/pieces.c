/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "normalize.h"
#include "subword.h"
#include <stdlib.h>
#include <string.h>

/* The tokens with their scores, for programs that have SentencePiece's algorithms: of BPE as SentencePiece has it and
 * of tokenizer.json's that makes the same tokens of every text, and of Unigram. */

#define BLANK "\xe2\x96\x81"
#define BLANK_BYTES (sizeof BLANK - 1)

typedef struct hf_one {
    double score;
    int32_t added; /* index of the added token + 1; 0: none */
    uint8_t kind;
} hf_one;

struct hf_pieces {
    tt_pieces said;
    hf_bytes map;
    hf_one *all; /* [n_ids] */
};

void hf_pieces_free(hf_pieces *p)
{
    if (!p)
        return;
    free(p->map.s);
    free(p->all);
    free(p);
}

#define MOST_SHOWN 40 /* bytes of a token in a message */

static int shown_bytes(size_t n)
{
    return n < MOST_SHOWN ? (int)n : MOST_SHOWN;
}

static tt_text piece_text(const hf_tokenizer *t, size_t id)
{
    const hf_token *token = &t->vocab.tokens[id];
    const int32_t added = t->pieces->all[id].added;
    if (added)
        return (tt_text){(const char *)t->added[added - 1].content.s,
                         t->added[added - 1].content.n};
    return (tt_text){(const char *)t->vocab.bytes.s + token->at, token->n};
}

static bool has_blank(tt_text text)
{
    return text.n && memmem(text.s, text.n, BLANK, BLANK_BYTES);
}

/* ---- what is done before the model ---- */

/* map: as SentencePiece's files have it. */
static tt_status put_map(hf_bytes *out, const hf_charsmap *m, tt_error *err)
{
    const uint32_t bytes = (uint32_t)(4 * m->n_units);
    const uint8_t size[] = {(uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)(bytes >> 16),
                            (uint8_t)(bytes >> 24)};
    TT_TRY(hf_bytes_add(out, size, 4, err));
    for (size_t i = 0; i < m->n_units; i++) {
        const uint32_t u = m->units[i];
        const uint8_t unit[] = {(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16),
                                (uint8_t)(u >> 24)};
        TT_TRY(hf_bytes_add(out, unit, 4, err));
    }
    return hf_bytes_add(out, m->text, m->n_text, err);
}

static bool is_text(const hf_bytes *b, const char *text)
{
    return b->n == strlen(text) && !memcmp(b->s, text, b->n);
}

typedef struct hf_steps { /* what is known of the steps */
    bool blanks, strips,
        cut; /* blanks are U+2581; those at the end are dropped; words are cut at them */
} hf_steps;

static tt_status take_norm(const hf_tokenizer *t, const hf_norm *p, hf_steps *b, tt_error *err)
{
    tt_pieces *o = &t->pieces->said;
    const bool unigram = t->subword->kind == HF_UNIGRAM;
    if (p->map)
        TT_TRY(put_map(&t->pieces->map, p->map, err));
    if (p->kind == HF_SENTENCEPIECE && p->escape && !p->suffix) {
        b->blanks = true;
        o->blank_before = p->dummy_prefix;
        o->first_only = p->first_only;
        o->one_blank = b->strips = p->trim_blanks;
        return TT_OK;
    }
    if (p->kind == HF_PREPEND && is_text(&p->to, BLANK)) {
        o->blank_before = 1;
        return TT_OK;
    }
    if (p->kind == HF_REPLACE && !p->regex && is_text(&p->from, " ") && is_text(&p->to, BLANK)) {
        b->blanks = true;
        return TT_OK;
    }
    if (p->kind == HF_REPLACE && p->blanks && (is_text(&p->to, " ") || is_text(&p->to, BLANK))) {
        o->one_blank = 1;
        return TT_OK;
    }
    if (p->kind == HF_NFC) {
        o->nfc = 1;
        return TT_OK;
    }
    b->strips = b->strips || (p->kind == HF_STRIP && p->right);
    if (unigram && (p->kind == HF_PRECOMPILED || p->kind == HF_STRIP))
        return TT_OK;
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "%s: its normalizer does more to a text than to mark the blanks", t->path);
}

static tt_status take_split(const hf_tokenizer *t, const hf_split *s, hf_steps *b, tt_error *err)
{
    tt_pieces *o = &t->pieces->said;
    if (!strcmp(s->metaspace, BLANK)) {
        b->blanks = true;
        b->cut = b->cut || !s->whole;
        o->blank_before = o->blank_before || s->prepend != 'n';
        o->first_only = o->first_only || s->prepend == 'f';
        return TT_OK;
    }
    if (s->blank && b->blanks)
        return TT_OK; /* there is none left */
    return TT_FAIL(err, TT_EUNSUPPORTED,
                   "%s: its pre_tokenizer cuts texts at more than their blanks", t->path);
}

/* ---- the tokens ---- */

static bool in_tree(const hf_tree *tree, tt_text text, size_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.n; i++)
        if (!tree->units || (node = hf_tree_next(tree, node, (uint8_t)text.s[i])) == 0)
            return false;
    return tree->units[node].id == (int32_t)id;
}

static void set_kinds(const hf_tokenizer *t)
{
    const hf_subword *m = t->subword;
    hf_one *all = t->pieces->all;
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const hf_token *token = &t->vocab.tokens[id];
        const bool known = token->n > 0;
        all[id].kind = !known                   ? TT_PIECE_UNUSED
                       : (int32_t)id == m->unk  ? TT_PIECE_UNKNOWN
                       : token->special         ? TT_PIECE_CONTROL
                       : m->user && m->user[id] ? TT_PIECE_USER
                       : m->kind == HF_UNIGRAM && !in_tree(&m->tree, piece_text(t, id), id)
                           ? TT_PIECE_UNUSED
                           : TT_PIECE_NORMAL;
    }
    for (int b = 0; b < 256 && m->byte_fallback; b++)
        if (m->fallback[b] >= 0)
            all[m->fallback[b]].kind = TT_PIECE_BYTE;
    for (size_t i = 0; i < t->n_added; i++) {
        const hf_added *a = &t->added[i];
        const tt_text text = {(const char *)a->content.s, a->content.n};
        hf_one *p = &all[a->id];
        if (a->special)
            p->kind = p->kind == TT_PIECE_UNKNOWN ? TT_PIECE_UNKNOWN : TT_PIECE_CONTROL;
        else if (a->normalized || p->kind == TT_PIECE_UNUSED || !has_blank(text))
            p->kind = TT_PIECE_USER; /* the others are joined of blanks, in texts that have some */
        p->added = (int32_t)i + 1;
    }
}

/* ---- tokenizer.json's merges as scores ---- */

typedef struct hf_ranks {
    uint32_t least, most; /* of the merges that make a token; least > most: there are none */
} hf_ranks;

/* Is the text a symbol that merges may join: a normal token, or a single character? *id: -1: no token */
static bool is_symbol(const hf_tokenizer *t, const uint8_t *s, size_t n, int32_t *id)
{
    unsigned k;
    *id = hf_vocab_word(&t->vocab, s, n);
    if (*id >= 0)
        return t->pieces->all[*id].kind == TT_PIECE_NORMAL;
    hf_decode(s, &k);
    return k == n;
}

/* Scores alone say what is joined: every way to make a token of two must be a merge. */
static tt_status check_cuts(const hf_tokenizer *t, size_t id, tt_error *err)
{
    const hf_token *token = &t->vocab.tokens[id];
    const uint8_t *s = t->vocab.bytes.s + token->at;
    unsigned k;
    for (size_t i = (hf_decode(s, &k), k); i < token->n; i += k) {
        int32_t left, right;
        hf_decode(s + i, &k);
        if (!is_symbol(t, s, i, &left) || !is_symbol(t, s + i, token->n - i, &right))
            continue;
        const hf_slot *merge = left >= 0 && right >= 0
                                   ? hf_merges_get(&t->vocab, (uint32_t)left, (uint32_t)right)
                                   : NULL;
        if (!merge || merge->id != id)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s: token \"%.*s\" is not made of \"%.*s\" and \"%.*s\", and scores in "
                           "place of merges cannot say that",
                           t->path, shown_bytes(token->n), s, shown_bytes(i), s,
                           shown_bytes(token->n - i), s + i);
    }
    return TT_OK;
}

static int by_rank(const void *a, const void *b)
{
    const hf_ranks *x = *(const hf_ranks *const *)a, *y = *(const hf_ranks *const *)b;
    return x->least < y->least ? -1 : x->least > y->least;
}

/* … and the merges of one token must come one after the other. */
static tt_status check_order(const hf_tokenizer *t, const hf_ranks *of, const hf_ranks **order,
                             size_t n, tt_error *err)
{
    qsort(order, n, sizeof *order, by_rank);
    for (size_t i = 1; i < n; i++) {
        const tt_text text = piece_text(t, (size_t)(order[i - 1] - of));
        if (order[i - 1]->most > order[i]->least)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s: the merges that make token \"%.*s\" do not follow each other, and "
                           "scores in place of merges cannot say that",
                           t->path, shown_bytes(text.n), text.s);
    }
    return TT_OK;
}

static tt_status score_merges(const hf_tokenizer *t, hf_ranks *of, const hf_ranks **order,
                              tt_error *err)
{
    const hf_vocab *v = &t->vocab;
    hf_one *all = t->pieces->all;
    size_t n = 0;
    for (size_t id = 0; id < v->n_ids; id++)
        of[id] = (hf_ranks){UINT32_MAX, 0};
    for (size_t i = 0; v->merges && i <= v->merges_mask; i++) {
        const hf_slot *merge = &v->merges[i];
        if (merge->rank == UINT32_MAX)
            continue;
        hf_ranks *r = &of[merge->id];
        r->least = merge->rank < r->least ? merge->rank : r->least;
        r->most = merge->rank > r->most ? merge->rank : r->most;
    }
    for (size_t id = 0; id < v->n_ids; id++) {
        const bool made = of[id].least != UINT32_MAX;
        all[id].score = made ? -(double)of[id].least : -(double)v->n_ranks;
        if (all[id].kind != TT_PIECE_NORMAL)
            continue;
        TT_TRY(check_cuts(t, id, err));
        if (made)
            order[n++] = &of[id];
    }
    return check_order(t, of, order, n, err);
}

static tt_status set_merge_scores(const hf_tokenizer *t, tt_error *err)
{
    const size_t n = t->vocab.n_ids;
    hf_ranks *of = malloc(n * sizeof *of);
    const hf_ranks **order = malloc(n * sizeof *order);
    const tt_status s = of && order
                            ? score_merges(t, of, order, err)
                            : TT_FAIL(err, TT_ENOMEM, "%s: out of memory for scores", t->path);
    free(of);
    free(order);
    return s;
}

/* ---- the whole ---- */

/* Where words are cut at blanks, no token may hold one but at its beginning. */
static tt_status check_cut(const hf_tokenizer *t, tt_error *err)
{
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        const tt_text text = piece_text(t, id);
        if (t->pieces->all[id].kind == TT_PIECE_NORMAL && text.n > BLANK_BYTES &&
            has_blank((tt_text){text.s + 1, text.n - 1}))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "%s: token \"%.*s\" has a blank inside, at which its pre_tokenizer cuts",
                           t->path, shown_bytes(text.n), text.s);
    }
    return TT_OK;
}

static tt_status check_bpe(const hf_tokenizer *t, tt_error *err)
{
    const tt_pieces *o = &t->pieces->said;
    bool bytes = t->subword->byte_fallback;
    for (int b = 0; b < 256; b++)
        bytes = bytes && t->subword->fallback[b] >= 0;
    if (!bytes)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: it has no byte_fallback: characters that are no token become the "
                       "unknown token",
                       t->path);
    if (o->one_blank || t->pieces->map.n)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: its normalizer does more to a text than to mark the blanks", t->path);
    if (t->vocab.ignore_merges)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: model.ignore_merges is set", t->path);
    return TT_OK;
}

static tt_status check_added(const hf_tokenizer *t, tt_error *err)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].single_word && !t->added[i].special)
            return TT_FAIL(
                err, TT_EUNSUPPORTED,
                "%s: its added token \"%.*s\" stands for whole words alone (single_word)", t->path,
                shown_bytes(t->added[i].content.n), t->added[i].content.s);
    return TT_OK;
}

static tt_status fill_pieces(const hf_tokenizer *t, tt_error *err)
{
    const hf_subword *m = t->subword;
    hf_steps b = {false, false, false};
    if (m->kind == HF_WORDPIECE)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: its model is WordPiece", t->path);
    t->pieces->said.kind = m->kind == HF_UNIGRAM ? TT_PIECES_UNIGRAM : TT_PIECES_BPE;
    t->pieces->said.nfc = t->nfc;
    for (size_t i = 0; i < t->n_norms; i++)
        TT_TRY(take_norm(t, &t->norms[i], &b, err));
    for (size_t i = 0; i < t->n_splits; i++)
        TT_TRY(take_split(t, &t->splits[i], &b, err));
    if (b.strips != (t->pieces->said.one_blank != 0))
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "%s: its normalizer drops blanks at the ends alone, or several between words "
            "alone",
            t->path);
    if (!b.blanks)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: blanks are not U+2581 in its tokens", t->path);
    set_kinds(t);
    if (b.cut)
        TT_TRY(check_cut(t, err));
    if (m->kind == HF_CHARS)
        TT_TRY(check_bpe(t, err));
    else if (m->byte_fallback)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: its model is Unigram with byte_fallback",
                       t->path);
    TT_TRY(check_added(t, err));
    if (!m->scores)
        return set_merge_scores(t, err);
    for (size_t id = 0; id < t->vocab.n_ids; id++)
        t->pieces->all[id].score = t->pieces->all[id].kind == TT_PIECE_NORMAL && id < m->n_scores
                                       ? m->scores[id]
                                       : m->unk_score;
    return TT_OK;
}

tt_status hf_pieces_of(void *self, tt_pieces *out, tt_error *err)
{
    hf_tokenizer *t = self;
    const size_t size = out->struct_size;
    if (!t->subword) {
        memset(out, 0, size);
        out->struct_size = size;
        out->kind = TT_PIECES_MERGES;
        return TT_OK;
    }
    hf_pieces_free(t->pieces);
    t->pieces = calloc(1, sizeof *t->pieces);
    if (t->pieces)
        t->pieces->all = calloc(t->vocab.n_ids + 1, sizeof *t->pieces->all);
    if (!t->pieces || !t->pieces->all)
        return TT_FAIL(err, TT_ENOMEM, "%s: out of memory for its tokens", t->path);
    TT_TRY(fill_pieces(t, err));
    t->pieces->said.map = (tt_text){(const char *)t->pieces->map.s, t->pieces->map.n};
    memcpy(out, &t->pieces->said, size < sizeof t->pieces->said ? size : sizeof t->pieces->said);
    out->struct_size = size;
    return TT_OK;
}

int hf_piece_of(void *self, int32_t id, tt_vocab_piece *out)
{
    const hf_tokenizer *t = self;
    if (!t->pieces || id < 0 || (size_t)id >= t->vocab.n_ids)
        return 0;
    const hf_one *p = &t->pieces->all[id];
    out->text = piece_text(t, (size_t)id);
    out->score = p->score;
    out->kind = p->kind;
    return out->text.n > 0;
}
