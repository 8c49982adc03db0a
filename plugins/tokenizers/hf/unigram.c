/* SPDX-License-Identifier: Apache-2.0 */
#include "subword.h"
#include <stdlib.h>

/* Unigram: of all ways to cut a text into tokens, the one whose scores have the largest sum. One
 * pass finds the best way to each place. Where no token crosses a place the way to it is settled:
 * its ids are written, and the memory is used again, so a long text needs little.
 *
 * Hugging Face tokenizers adds in double precision. sentencepiece (0.2.3) keeps its sums in single
 * precision, and begins them anew at 0 where they pass MOST_SUM: both decide between ways of nearly
 * equal scores, so its sums are made here in the same way, from the beginning of the text. */

#define NO_WAY UINT32_MAX
#define MOST_SUM 100000.0

static tt_status subword_room(hf_subword_room *r, size_t n, tt_error *err)
{
    if (n <= r->cap)
        return TT_OK;
    const size_t cap = n + n / 2 + 256;
    hf_node *nodes = cap < SIZE_MAX / sizeof *nodes ? realloc(r->nodes, cap * sizeof *nodes) : NULL;
    if (!nodes)
        return TT_FAIL(err, TT_ENOMEM, "out of memory to tokenize %zu bytes", n);
    r->nodes = nodes;
    r->cap = cap;
    return TT_OK;
}

/* A word's text: places are counted from `base`, the last settled one. */
typedef struct lattice {
    const hf_tokenizer *t;
    const hf_subword *m;
    hf_subword_room *room;
    const uint8_t *s;
    size_t n, base, reach; /* reach: the furthest place with a way to it */
    tt_ids *out;
    size_t first; /* ids in out before this word */
} lattice;

static tt_status reach_for(lattice *l, size_t place, tt_error *err)
{
    if (place <= l->reach)
        return TT_OK;
    TT_TRY(subword_room(l->room, place - l->base + 1, err));
    for (size_t i = l->reach + 1; i <= place; i++)
        l->room->nodes[i - l->base].from = NO_WAY;
    l->reach = place;
    return TT_OK;
}

static tt_status offer(lattice *l, size_t from, size_t to, int32_t id, double score, tt_error *err)
{
    TT_TRY(reach_for(l, to, err));
    hf_node *node = &l->room->nodes[to - l->base];
    double sum = score + l->room->nodes[from - l->base].score;
    if (l->m->sentencepiece)
        sum = (double)(float)sum;
    if (node->from == NO_WAY || sum > node->score)
        *node = (hf_node){sum, id, (uint32_t)(from - l->base)};
    return TT_OK;
}

/* sentencepiece's score of a user-defined symbol, which no other token's reaches. */
static double user_score(size_t bytes)
{
    return (double)(float)(0.1 * (double)(bytes - 1));
}

/* Offers all tokens that begin at `at`, and unk if none of them is its first code point. */
static tt_status extend(lattice *l, size_t at, size_t length, tt_error *err)
{
    const hf_subword *m = l->m;
    bool single = false;
    uint32_t node = 0;
    for (size_t i = at; i < l->n && (node = hf_tree_next(&m->tree, node, l->s[i])) != 0; i++) {
        const int32_t id = m->tree.units[node].id;
        if (id < 0)
            continue;
        const size_t bytes = i + 1 - at;
        const double score = m->user && m->user[id] ? user_score(bytes) : m->scores[id];
        TT_TRY(offer(l, at, i + 1, id, score, err));
        single = single || bytes == length;
    }
    if (single)
        return TT_OK;
    if (m->unk < 0)
        return TT_FAIL(err, TT_EINVAL,
                       "%s has no token for \"%.*s\" at byte %zu of a word, and no unknown token",
                       l->t->path, (int)length, (const char *)l->s + at, at);
    return offer(l, at, at + length, m->unk, m->unk_score, err);
}

/* A run of unknown code points is one text, which is looked up as a whole. */
static tt_status put_run(lattice *l, size_t begin, size_t end, tt_error *err)
{
    const hf_subword *m = l->m;
    const uint8_t *s = l->s + l->base + begin;
    const int32_t id = m->sentencepiece ? -1 : hf_vocab_word(&l->t->vocab, s, end - begin);
    if (id >= 0)
        return tt_ids_push(l->out, id, err);
    const bool again = l->out->n > l->first && l->out->ids[l->out->n - 1] == m->unk;
    return hf_put_unknown(m, s, end - begin, again, l->out, err);
}

/* Writes the ids of the way to `at`, and makes it the new base. */
static tt_status settle(lattice *l, size_t at, tt_error *err)
{
    hf_node *nodes = l->room->nodes;
    const int32_t unk = l->m->unk;
    const uint32_t last = (uint32_t)(at - l->base);
    const double score = nodes[last].score;
    uint32_t next = last, run = NO_WAY;
    int32_t id = -1;
    for (uint32_t place = last; place != NO_WAY;) { /* turn the way round */
        const uint32_t from = place ? nodes[place].from : NO_WAY;
        const int32_t own = nodes[place].id;
        nodes[place].from = next;
        nodes[place].id = id;
        id = own;
        next = place;
        place = from;
    }
    for (uint32_t place = 0; place < last;) {
        next = nodes[place].from;
        id = nodes[place].id;
        if (id == unk && run == NO_WAY)
            run = place;
        if (id != unk) {
            if (run != NO_WAY)
                TT_TRY(put_run(l, run, place, err));
            run = NO_WAY;
            TT_TRY(tt_ids_push(l->out, id, err));
        }
        place = next;
    }
    if (run != NO_WAY)
        TT_TRY(put_run(l, run, last, err));
    nodes[0] = (hf_node){score, -1, 0};
    l->base = at;
    return TT_OK;
}

/* Sums that are too large for single precision are counted from `at` on. */
static void begin_sums(lattice *l, size_t at)
{
    hf_node *nodes = l->room->nodes;
    const double sum = nodes[at - l->base].score;
    if (sum >= -MOST_SUM && sum <= MOST_SUM)
        return;
    for (size_t i = at - l->base; i <= l->reach - l->base; i++)
        if (nodes[i].from != NO_WAY)
            nodes[i].score = (double)(float)(nodes[i].score - sum);
}

tt_status hf_unigram(const hf_tokenizer *t, hf_subword_room *r, const uint8_t *s, size_t n,
                     tt_ids *out, tt_error *err)
{
    lattice l = {t, t->subword, r, s, n, 0, 0, out, out->n};
    if (n >= UINT32_MAX)
        return TT_FAIL(err, TT_EINVAL,
                       "a word of %zu bytes is too long to tokenize; split the text", n);
    TT_TRY(subword_room(r, 1, err));
    r->nodes[0] = (hf_node){0, -1, 0};
    for (size_t at = 0; at < n;) {
        unsigned k;
        hf_decode(s + at, &k);
        if (l.m->sentencepiece)
            begin_sums(&l, at);
        TT_TRY(extend(&l, at, k, err));
        at += k;
        if (l.reach == at && r->nodes[at - l.base].id != l.m->unk)
            TT_TRY(settle(&l, at, err));
    }
    return l.base < n ? settle(&l, n, err) : TT_OK;
}
