/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"
#include <stdlib.h>
#include <string.h>

/* Learning merges: repeatedly merges the most frequent pair, among equals the one of lower ids. A
 * heap holds the pairs and the words they were seen in; a count in the heap may be outdated and is
 * corrected when it reaches the top. It makes the same merges in the same order as Hugging Face's
 * BpeTrainer, even where that is odd: a pair keeps its own count when it is merged, and two merges
 * that spell the same token both stay, with one id. Source: Sennrich, Haddow & Birch 2016,
 * arXiv:1508.07909. */

typedef struct pair_count {
    uint64_t pair; /* left << 32 | right; UINT64_MAX = empty */
    int64_t count;
    uint32_t update; /* index in updates during the current merge, or UINT32_MAX */
} pair_count;

typedef struct candidate {
    int64_t count;
    uint64_t pair;
    uint32_t n;
    union { /* the words that contain the pair */
        uint32_t one;
        uint32_t *many;
    } in;
} candidate;

typedef struct update { /* a pair that became more frequent in the current merge */
    uint64_t pair;
    uint32_t n, last; /* number of words, and the last one added */
    uint32_t *to;
} update;

typedef struct seen { /* the word is in the list of this update already */
    uint32_t update, word;
} seen;

typedef struct learner {
    const hf_counts *words;
    uint32_t *symbols; /* of all words, concatenated */
    uint32_t *at, *n;  /* word i has n[i] symbols, from at[i] */
    pair_count *pairs;
    size_t n_pairs, pairs_mask;
    candidate *heap;
    size_t n_heap, cap_heap;
    update *updates;
    size_t n_updates, cap_updates;
    seen *seen;
    size_t n_seen, cap_seen;
    tt_error *err;
} learner;

static tt_status no_room(learner *l)
{
    return TT_FAIL(l->err, TT_ENOMEM, "out of memory to learn merges of %zu pairs", l->n_pairs);
}

/* Grows the array to n + 1 items; NULL: out of memory, and the array is unchanged. */
static void *more_room(void *array, size_t item, size_t n, size_t *cap)
{
    if (n < *cap)
        return array;
    const size_t want = *cap + *cap / 2 + 1024;
    void *more = want <= SIZE_MAX / item ? realloc(array, want * item) : NULL;
    *cap = more ? want : *cap;
    return more;
}
#define ROOM(l, array, n, cap)                                                                     \
    do {                                                                                           \
        void *more_ = more_room((array), sizeof *(array), (n), (cap));                             \
        if (!more_)                                                                                \
            return no_room(l);                                                                     \
        (array) = more_;                                                                           \
    } while (0)

/* ---- counts of pairs ---- */

static size_t pair_hash(uint64_t pair)
{
    const uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32);
}

static tt_status grow_pairs(learner *l)
{
    const size_t size = l->pairs ? 2 * (l->pairs_mask + 1) : (size_t)1 << 16;
    pair_count *pairs = size <= SIZE_MAX / sizeof *pairs ? malloc(size * sizeof *pairs) : NULL;
    if (!pairs)
        return no_room(l);
    for (size_t i = 0; i < size; i++)
        pairs[i].pair = UINT64_MAX;
    for (size_t i = 0; l->pairs && i <= l->pairs_mask; i++) {
        size_t k = pair_hash(l->pairs[i].pair) & (size - 1);
        if (l->pairs[i].pair == UINT64_MAX)
            continue;
        while (pairs[k].pair != UINT64_MAX)
            k = (k + 1) & (size - 1);
        pairs[k] = l->pairs[i];
    }
    free(l->pairs);
    l->pairs = pairs;
    l->pairs_mask = size - 1;
    return TT_OK;
}

static pair_count *pair_of(learner *l, uint64_t pair)
{
    size_t i = pair_hash(pair) & l->pairs_mask;
    while (l->pairs[i].pair != pair && l->pairs[i].pair != UINT64_MAX)
        i = (i + 1) & l->pairs_mask;
    return &l->pairs[i];
}

/* Adds sign times the word's count to a pair; if the pair grew, records the word for it. */
static tt_status change(learner *l, uint32_t left, uint32_t right, int sign, uint32_t word)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    if (2 * l->n_pairs >= l->pairs_mask)
        TT_TRY(grow_pairs(l));
    pair_count *p = pair_of(l, key);
    if (p->pair == UINT64_MAX) {
        *p = (pair_count){key, 0, UINT32_MAX};
        l->n_pairs++;
    }
    p->count += sign * l->words->words[word].count;
    if (sign < 0)
        return TT_OK;
    if (p->update == UINT32_MAX) {
        ROOM(l, l->updates, l->n_updates, &l->cap_updates);
        p->update = (uint32_t)l->n_updates;
        l->updates[l->n_updates++] = (update){.pair = key, .last = UINT32_MAX};
    }
    update *u = &l->updates[p->update];
    if (u->last == word)
        return TT_OK;
    ROOM(l, l->seen, l->n_seen, &l->cap_seen);
    l->seen[l->n_seen++] = (seen){p->update, word};
    u->last = word;
    u->n++;
    return TT_OK;
}

/* ---- the heap ---- */

static bool better(const candidate *a, const candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static tt_status heap_add(learner *l, candidate c)
{
    ROOM(l, l->heap, l->n_heap, &l->cap_heap);
    size_t i = l->n_heap++;
    for (; i > 0 && better(&c, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = c;
    return TT_OK;
}

/* Puts c at the top and sifts it down. */
static void heap_sink(learner *l, candidate c)
{
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && better(&l->heap[child + 1], &l->heap[child]))
            child++;
        if (!better(&l->heap[child], &c))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = c;
}

static candidate heap_take(learner *l)
{
    const candidate top = l->heap[0];
    if (--l->n_heap)
        heap_sink(l, l->heap[l->n_heap]);
    return top;
}

static const uint32_t *words_of(const candidate *c)
{
    return c->n == 1 ? &c->in.one : c->in.many;
}

static void candidate_release(candidate *c)
{
    if (c->n > 1)
        free(c->in.many);
}

/* Makes candidates of the pairs that grew, with the words in which they grew. */
static tt_status take_updates(learner *l)
{
    tt_status s = TT_OK;
    for (size_t i = 0; i < l->n_updates; i++) {
        update *u = &l->updates[i];
        pair_count *p = pair_of(l, u->pair);
        candidate c = {p->count, u->pair, u->n, {0}};
        p->update = UINT32_MAX;
        u->to = NULL;
        if (p->count <= 0 || s != TT_OK)
            continue;
        if (u->n > 1 && !(c.in.many = malloc(u->n * sizeof *c.in.many))) {
            s = no_room(l);
            continue;
        }
        u->to = c.in.many;
        if (u->n == 1)
            c.in.one = u->last;
        s = heap_add(l, c);
        if (s != TT_OK)
            candidate_release(&c);
        u->n = u->n == 1 || s != TT_OK ? 0 : u->n;
        u->last = 0; /* from here on, n: number of words recorded */
    }
    for (size_t i = 0; s == TT_OK && i < l->n_seen; i++) {
        update *u = &l->updates[l->seen[i].update];
        if (u->to && u->n > 1)
            u->to[u->last++] = l->seen[i].word;
    }
    l->n_updates = l->n_seen = 0;
    return s;
}

/* ---- words ---- */

/* Replaces every pair (left, right) of a word by id. */
static tt_status merge_word(learner *l, uint32_t word, uint32_t left, uint32_t right, uint32_t id)
{
    uint32_t *s = l->symbols + l->at[word];
    const uint32_t n = l->n[word];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] != left || i + 1 == n || s[i + 1] != right) {
            s[k++] = s[i];
            continue;
        }
        if (k > 0) {
            TT_TRY(change(l, s[k - 1], left, -1, word));
            TT_TRY(change(l, s[k - 1], id, 1, word));
        }
        if (i + 2 < n) {
            TT_TRY(change(l, right, s[i + 2], -1, word));
            TT_TRY(change(l, id, s[i + 2], 1, word));
        }
        s[k++] = id;
        i++;
    }
    l->n[word] = k;
    return TT_OK;
}

static tt_status lay_out_words(learner *l, const hf_learnt *out)
{
    const hf_counts *c = l->words;
    uint64_t total = 0;
    for (size_t i = 0; i < c->n; i++)
        total += c->words[i].n;
    if (total >= UINT32_MAX || c->n >= UINT32_MAX)
        return TT_FAIL(l->err, TT_EINVAL,
                       "the distinct words have %llu bytes; at most 2^32 are supported",
                       (unsigned long long)total);
    l->symbols = malloc((total + 1) * sizeof *l->symbols);
    l->at = malloc((c->n + 1) * sizeof *l->at);
    l->n = malloc((c->n + 1) * sizeof *l->n);
    if (!l->symbols || !l->at || !l->n)
        return no_room(l);
    total = 0;
    TT_TRY(grow_pairs(l));
    for (uint32_t i = 0; i < c->n; i++) {
        l->at[i] = (uint32_t)total;
        l->n[i] = c->words[i].n;
        for (uint32_t k = 0; k < l->n[i]; k++) {
            l->symbols[total++] = (uint32_t)out->vocab.byte_ids[c->words[i].s[k]];
            if (k > 0)
                TT_TRY(change(l, l->symbols[total - 2], l->symbols[total - 1], 1, i));
        }
    }
    return take_updates(l);
}

static void learner_release(learner *l)
{
    for (size_t i = 0; i < l->n_heap; i++)
        candidate_release(&l->heap[i]);
    free(l->symbols);
    free(l->at);
    free(l->n);
    free(l->pairs);
    free(l->heap);
    free(l->updates);
    free(l->seen);
}

/* ---- the vocabulary ---- */

static tt_status add_token(hf_learnt *out, const uint8_t *s, size_t n, bool spelt, tt_error *err)
{
    hf_vocab *v = &out->vocab;
    if (v->bytes.n + n > UINT32_MAX)
        return TT_FAIL(err, TT_EINVAL, "more than 4 GiB of tokens");
    v->tokens[v->n_ids] =
        (hf_token){.at = (uint32_t)v->bytes.n, .n = (uint32_t)n, .known = true, .spelt = spelt};
    TT_TRY(hf_bytes_add(&v->bytes, s, n, err));
    if (spelt)
        hf_vocab_put(v, (uint32_t)v->n_ids);
    v->n_ids++;
    return TT_OK;
}

static tt_status begin_vocab(hf_learnt *out, const tt_tokenizer_train *o, tt_error *err)
{
    const size_t n = (size_t)o->vocab_size;
    out->vocab.tokens = calloc(n, sizeof *out->vocab.tokens);
    TT_TRY(hf_vocab_room(&out->vocab, n, err));
    if (!out->vocab.tokens)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a vocabulary of %zu", n);
    for (size_t i = 0; i < o->n_special; i++)
        TT_TRY(add_token(out, (const uint8_t *)o->special[i], strlen(o->special[i]), false, err));
    for (uint32_t letter = 0x21; letter < 0x100 + 68; letter++)
        for (int b = 0; b < 256; b++)
            if (hf_byte_letter((uint8_t)b) == letter) {
                const uint8_t byte = (uint8_t)b;
                out->vocab.byte_ids[b] = (int32_t)out->vocab.n_ids;
                TT_TRY(add_token(out, &byte, 1, true, err));
            }
    return TT_OK;
}

/* No merge may spell a special token, because the two would be one token, and no longer special. */
static bool barred(const tt_tokenizer_train *o, const hf_bytes *token)
{
    for (size_t i = 0; i < o->n_special; i++)
        if (strlen(o->special[i]) == token->n && memcmp(o->special[i], token->s, token->n) == 0)
            return true;
    return false;
}

static tt_status merge_best(learner *l, hf_learnt *out, const tt_tokenizer_train *o,
                            const candidate *top, hf_bytes *token)
{
    hf_vocab *v = &out->vocab;
    const uint32_t left = (uint32_t)(top->pair >> 32), right = (uint32_t)top->pair;
    const hf_token a = v->tokens[left], b = v->tokens[right];
    token->n = 0;
    TT_TRY(hf_bytes_add(token, v->bytes.s + a.at, a.n, l->err));
    TT_TRY(hf_bytes_add(token, v->bytes.s + b.at, b.n, l->err));
    if (barred(o, token))
        return TT_OK;
    int32_t id = hf_vocab_word(v, token->s, token->n);
    if (id < 0) {
        id = (int32_t)v->n_ids;
        TT_TRY(add_token(out, token->s, token->n, true, l->err));
    }
    size_t cap = out->cap_merges;
    ROOM(l, out->left, out->n_merges, &cap);
    ROOM(l, out->right, out->n_merges, &out->cap_merges);
    out->left[out->n_merges] = left;
    out->right[out->n_merges++] = right;
    for (uint32_t i = 0; i < top->n; i++)
        TT_TRY(merge_word(l, words_of(top)[i], left, right, (uint32_t)id));
    return take_updates(l);
}

tt_status hf_learn(const hf_counts *words, const tt_tokenizer_train *o, hf_learnt *out,
                   tt_error *err)
{
    learner l = {.words = words, .err = err};
    hf_bytes token = {0};
    tt_status s = begin_vocab(out, o, err);
    if (s == TT_OK)
        s = lay_out_words(&l, out);
    while (s == TT_OK && l.n_heap && out->vocab.n_ids < (size_t)o->vocab_size) {
        const int64_t now = pair_of(&l, l.heap[0].pair)->count;
        if (now != l.heap[0].count && now > 0) {
            candidate again = l.heap[0];
            again.count = now;
            heap_sink(&l, again);
            continue;
        }
        candidate top = heap_take(&l);
        if (now > 0)
            s = merge_best(&l, out, o, &top, &token);
        candidate_release(&top);
        if (o->progress && out->n_merges % 64 == 0)
            o->progress(o->progress_arg, "tokens", (int64_t)out->vocab.n_ids, o->vocab_size);
    }
    learner_release(&l);
    free(token.s);
    return s;
}

void hf_learnt_release(hf_learnt *l)
{
    free(l->left);
    free(l->right);
    hf_vocab_release(&l->vocab);
    *l = (hf_learnt){0};
}
