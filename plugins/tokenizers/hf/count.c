/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/backend.h>

/* Counts the distinct words of the texts. Each thread counts pieces of the texts, cut where words
 * end anyway, into its own table. Then the tables are merged into one and sorted, so the result
 * depends neither on the number of threads nor on the pieces. */

typedef struct slot {
    uint64_t hash; /* 0 = empty */
    uint64_t at;
    int64_t count;
    uint32_t n;
} slot;

typedef struct table {
    slot *slots;
    size_t n, mask; /* mask + 1 slots, at most half of them in use; 0: none yet */
    hf_bytes bytes;
} table;

typedef struct counting {
    hf_tokenizer *t;
    const tt_tokenizer_train *o;
    table *tables;   /* [n_threads] */
    tt_text *pieces; /* [n_pieces] */
    size_t n_pieces;
    tt_status *status; /* [n_threads] */
    tt_error *errors;
} counting;

#define PIECE ((size_t)1 << 20) /* bytes of text that a thread counts at a time */
#define LONGEST_WORD 1024       /* longer words are counted in parts of so many bytes */

static size_t find_slot(const table *t, uint64_t hash, const uint8_t *s, size_t n)
{
    size_t i = (hash ^ hash >> 32) & t->mask;
    while (t->slots[i].hash && (t->slots[i].hash != hash || t->slots[i].n != n ||
                                memcmp(t->bytes.s + t->slots[i].at, s, n) != 0))
        i = (i + 1) & t->mask;
    return i;
}

static tt_status grow_table(table *t, tt_error *err)
{
    const size_t size = t->slots ? 2 * (t->mask + 1) : 4096;
    slot *slots = size <= SIZE_MAX / sizeof *slots ? calloc(size, sizeof *slots) : NULL;
    if (!slots)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu distinct words", t->n);
    for (size_t i = 0; t->slots && i <= t->mask; i++) {
        const slot *s = &t->slots[i];
        size_t k = (s->hash ^ s->hash >> 32) & (size - 1);
        if (!s->hash)
            continue;
        while (slots[k].hash)
            k = (k + 1) & (size - 1);
        slots[k] = *s;
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    return TT_OK;
}

static tt_status count_word(table *t, const uint8_t *s, size_t n, int64_t times, tt_error *err)
{
    const uint64_t hash = hf_hash(s, n) | 1u;
    if (!t->slots || 2 * t->n > t->mask)
        TT_TRY(grow_table(t, err));
    slot *at = &t->slots[find_slot(t, hash, s, n)];
    if (!at->hash) {
        const uint64_t place = t->bytes.n;
        TT_TRY(hf_bytes_add(&t->bytes, s, n, err));
        *at = (slot){.hash = hash, .at = place, .n = (uint32_t)n};
        t->n++;
    }
    at->count += times;
    return TT_OK;
}

/* A word of one byte has no pair. A word longer than LONGEST_WORD (a megabyte of spaces, say) is
 * counted in parts, cut between characters, to bound the cost of learning from it. */
static tt_status see_word(void *arg, const uint8_t *s, size_t n, tt_error *err)
{
    while (n > LONGEST_WORD) {
        size_t k = LONGEST_WORD;
        while ((s[k] & 0xc0) == 0x80)
            k--;
        TT_TRY(count_word(arg, s, k, 1, err));
        s += k;
        n -= k;
    }
    return n > 1 ? count_word(arg, s, n, 1, err) : TT_OK;
}

static void count_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    counting *c = arg;
    for (int64_t i = begin; i < end && c->status[thread] == TT_OK; i++)
        c->status[thread] = hf_each_word(c->t, c->pieces[i].s, c->pieces[i].n, see_word,
                                         &c->tables[thread], &c->errors[thread]);
}

static tt_status cut_texts(counting *c, tt_error *err)
{
    size_t cap = 0;
    for (size_t i = 0; i < c->o->n_texts; i++) {
        const tt_text *text = &c->o->texts[i];
        for (size_t at = 0, end; at < text->n; at = end) {
            end = text->n - at > PIECE ? hf_cut(c->t, text->s, text->n, at + PIECE) : text->n;
            if (c->n_pieces == cap) {
                cap = cap + cap / 2 + 64;
                tt_text *more = realloc(c->pieces, cap * sizeof *more);
                if (!more)
                    return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu texts", cap);
                c->pieces = more;
            }
            c->pieces[c->n_pieces++] = (tt_text){text->s + at, end - at};
        }
    }
    return TT_OK;
}

/* In portions, so that progress can be reported in between. */
static tt_status count_all(counting *c, int n_threads, tt_error *err)
{
    const int64_t n = (int64_t)c->n_pieces, portion = 16 * (int64_t)n_threads;
    counting part = *c;
    for (int64_t at = 0; at < n; at += portion) {
        part.pieces = c->pieces + at;
        tt_parallel_for(c->o->pool, n - at < portion ? n - at : portion, 1, count_pieces, &part);
        for (int i = 0; i < n_threads; i++) {
            if (c->status[i] != TT_OK) {
                if (err)
                    *err = c->errors[i];
                return c->status[i];
            }
        }
        if (c->o->progress)
            c->o->progress(c->o->progress_arg, "MiB counted", n - at < portion ? n : at + portion,
                           n);
    }
    return TT_OK;
}

/* Merges the tables of all threads into the first. */
static tt_status unite(table *tables, int n_threads, tt_error *err)
{
    for (int i = 1; i < n_threads; i++) {
        const table *t = &tables[i];
        for (size_t k = 0; t->slots && k <= t->mask; k++)
            if (t->slots[k].hash)
                TT_TRY(count_word(&tables[0], t->bytes.s + t->slots[k].at, t->slots[k].n,
                                  t->slots[k].count, err));
    }
    return TT_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const hf_word *x = a, *y = b;
    const int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sorts the words of the table by their bytes; the table's bytes move to the result. */
static tt_status sort_words(table *t, hf_counts *out, tt_error *err)
{
    hf_word *words = malloc((t->n + 1) * sizeof *words);
    size_t n = 0;
    if (!words)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu distinct words", t->n);
    for (size_t i = 0; t->slots && i <= t->mask; i++)
        if (t->slots[i].hash)
            words[n++] = (hf_word){t->bytes.s + t->slots[i].at, t->slots[i].n, t->slots[i].count};
    qsort(words, n, sizeof *words, by_bytes);
    *out = (hf_counts){t->bytes.s, words, n};
    t->bytes = (hf_bytes){0};
    return TT_OK;
}

void hf_counts_release(hf_counts *c)
{
    free(c->bytes);
    free(c->words);
    *c = (hf_counts){0};
}

tt_status hf_count_words(hf_tokenizer *t, const tt_tokenizer_train *o, hf_counts *out,
                         tt_error *err)
{
    const int n_threads = tt_pool_threads(o->pool);
    counting c = {.t = t, .o = o};
    c.tables = calloc((size_t)n_threads, sizeof *c.tables);
    c.status = calloc((size_t)n_threads, sizeof *c.status);
    c.errors = calloc((size_t)n_threads, sizeof *c.errors);
    tt_status s = c.tables && c.status && c.errors
                      ? cut_texts(&c, err)
                      : TT_FAIL(err, TT_ENOMEM, "out of memory for %d threads", n_threads);
    if (s == TT_OK)
        s = count_all(&c, n_threads, err);
    if (s == TT_OK)
        s = unite(c.tables, n_threads, err);
    if (s == TT_OK)
        s = sort_words(&c.tables[0], out, err);
    for (int i = 0; c.tables && i < n_threads; i++) {
        free(c.tables[i].slots);
        free(c.tables[i].bytes.s);
    }
    free(c.tables);
    free(c.status);
    free(c.errors);
    free(c.pieces);
    return s;
}
