/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/tokens.h"
#include <stdlib.h>
#include <string.h>

/* Packs whole documents into samples by best-fit decreasing: pieces from the longest on, each into
 * the fullest sample that has room for it. Room is an integer up to seq_len, so there is a stack of
 * samples per room, and a bit tree finds the next stack that is not empty: n documents take
 * O(n log seq_len). It needs at most 11/9 of the least number of samples, plus 1 (Johnson 1973). */

enum { LEVELS = 6 }; /* 64^6 > 2^31 */

typedef struct { /* which rooms have samples: one bit per room, then one bit per word below */
    uint64_t *words[LEVELS];
    int n_levels;
} rooms;

typedef struct {
    int64_t seq_len, n_pieces, n_bins;
    int64_t *sorted;      /* [n_pieces] longest first, equal ones in the stream's order */
    int64_t *bin;         /* [n_pieces] the sample of each piece */
    int64_t *top, *below; /* stacks: [seq_len + 1] top sample per room; [n_pieces] the next below */
    rooms free;
} fitter;

static int64_t words_of(int64_t n)
{
    return (n + 63) / 64;
}

static bool rooms_new(rooms *r, int64_t n)
{
    do {
        n = words_of(n);
        r->words[r->n_levels] = calloc((size_t)n, 8);
        if (!r->words[r->n_levels++])
            return false;
    } while (n > 1);
    return true;
}

static void rooms_set(rooms *r, int64_t i)
{
    for (int k = 0; k < r->n_levels; k++, i >>= 6)
        r->words[k][i >> 6] |= (uint64_t)1 << (i & 63);
}

static void rooms_clear(rooms *r, int64_t i)
{
    for (int k = 0; k < r->n_levels; k++, i >>= 6) {
        r->words[k][i >> 6] &= ~((uint64_t)1 << (i & 63));
        if (r->words[k][i >> 6])
            return;
    }
}

/* The first set bit from i on, of n; -1 = none. */
static int64_t rooms_next(const rooms *r, int64_t i, int64_t n)
{
    for (int k = 0; k < r->n_levels; k++) {
        const uint64_t here = i < n ? r->words[k][i >> 6] >> (i & 63) : 0;
        if (here) {
            i += __builtin_ctzll(here);
            while (k-- > 0)
                i = (i << 6) + __builtin_ctzll(r->words[k][i]);
            return i;
        }
        i = (i >> 6) + 1;
        n = words_of(n);
    }
    return -1;
}

static void sort_by_length(const tt_piece *pieces, fitter *f)
{
    int64_t at = 0;
    memset(f->top, 0, (size_t)(f->seq_len + 1) * 8); /* counts, then positions */
    for (int64_t i = 0; i < f->n_pieces; i++)
        f->top[pieces[i].n]++;
    for (int64_t n = f->seq_len; n >= 0; n--) {
        const int64_t count = f->top[n];
        f->top[n] = at;
        at += count;
    }
    for (int64_t i = 0; i < f->n_pieces; i++)
        f->sorted[f->top[pieces[i].n]++] = i;
}

static void fit(const tt_piece *pieces, fitter *f)
{
    for (int64_t i = 0; i <= f->seq_len; i++)
        f->top[i] = -1;
    for (int64_t k = 0; k < f->n_pieces; k++) {
        const int64_t i = f->sorted[k], n = pieces[i].n;
        int64_t room = rooms_next(&f->free, n, f->seq_len + 1), bin;
        if (room < 0) {
            bin = f->n_bins++;
            room = f->seq_len;
        } else {
            bin = f->top[room];
            f->top[room] = f->below[bin];
            if (f->top[room] < 0)
                rooms_clear(&f->free, room);
        }
        room -= n;
        f->bin[i] = bin;
        f->below[bin] = f->top[room];
        f->top[room] = bin;
        if (room > 0)
            rooms_set(&f->free, room);
    }
}

/* Orders samples by their first documents, and documents within a sample as in the stream. So data
 * that is not shuffled keeps its order, except documents that moved forward to fill a sample. */
static tt_status lay_out(const tt_piece *pieces, fitter *f, tt_packing *p, tt_error *err)
{
    int64_t n = 0;
    int64_t *number = f->below; /* the stacks are no longer needed */
    p->bins = calloc((size_t)f->n_bins + 1, 8);
    p->pieces = malloc((size_t)f->n_pieces * sizeof *p->pieces);
    if (!p->bins || !p->pieces)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %lld packed documents",
                       (long long)f->n_pieces);
    for (int64_t b = 0; b < f->n_bins; b++)
        number[b] = -1;
    for (int64_t i = 0; i < f->n_pieces; i++) {
        if (number[f->bin[i]] < 0)
            number[f->bin[i]] = n++;
        f->bin[i] = number[f->bin[i]];
        p->bins[f->bin[i] + 1]++;
    }
    for (int64_t b = 0; b < f->n_bins; b++) {
        p->bins[b + 1] += p->bins[b];
        f->sorted[b] = p->bins[b];
    }
    for (int64_t i = 0; i < f->n_pieces; i++)
        p->pieces[f->sorted[f->bin[i]]++] = pieces[i];
    p->n_bins = f->n_bins;
    p->n_pieces = f->n_pieces;
    return TT_OK;
}

tt_status tt_pack(const tt_piece *pieces, int64_t n, int64_t seq_len, tt_packing *out,
                  tt_error *err)
{
    fitter f = {.seq_len = seq_len, .n_pieces = n};
    TT_ASSERT(n >= 1 && seq_len >= 1 && seq_len <= INT32_MAX && n < INT64_MAX / 64);
    f.sorted = malloc((size_t)n * 8);
    f.bin = malloc((size_t)n * 8);
    f.below = malloc((size_t)n * 8);
    f.top = malloc((size_t)(seq_len + 1) * 8);
    tt_status s = TT_OK;
    if (!f.sorted || !f.bin || !f.below || !f.top || !rooms_new(&f.free, seq_len + 1)) {
        s = TT_FAIL(err, TT_ENOMEM, "out of memory packing %lld documents into samples of %lld",
                    (long long)n, (long long)seq_len);
    } else {
        sort_by_length(pieces, &f);
        fit(pieces, &f);
        s = lay_out(pieces, &f, out, err);
    }
    for (int i = 0; i < f.free.n_levels; i++)
        free(f.free.words[i]);
    free(f.sorted);
    free(f.bin);
    free(f.below);
    free(f.top);
    return s;
}

/* ---- documents of a stream ---- */

typedef struct {
    tt_piece *items;
    int64_t n, cap;
} piece_list;

/* Cuts a document into pieces of seq_len; the last one may be shorter. */
static tt_status add_document(piece_list *l, int64_t at, int64_t end, int64_t seq_len,
                              tt_error *err)
{
    for (; at < end; at += seq_len) {
        const int64_t n = TT_MIN(seq_len, end - at);
        if (l->n == l->cap) {
            const int64_t cap = l->cap + l->cap / 2 + 1024;
            tt_piece *grown = realloc(l->items, (size_t)cap * sizeof *grown);
            if (!grown)
                return TT_FAIL(err, TT_ENOMEM, "out of memory for %lld documents", (long long)cap);
            l->items = grown;
            l->cap = cap;
        }
        l->items[l->n++] = (tt_piece){at, (int32_t)n, end - at > n};
        if (end - at <= seq_len)
            break; /* here at + seq_len may exceed 2^63 */
    }
    return TT_OK;
}

static tt_status add_all(const tt_tokens *t, piece_list *l, tt_error *err)
{
    int64_t starts[512], at = 0; /* tokens before the first start are a document, too */
    for (int64_t d = 0; d < t->documents.n;) {
        const int64_t n = TT_MIN(t->documents.n - d, (int64_t)TT_COUNT(starts));
        TT_TRY(tt_document_starts(t, d, n, starts, err));
        for (int64_t i = 0; i < n; i++) {
            if (starts[i] < at || starts[i] > t->n_tokens)
                return TT_FAIL(err, TT_EFORMAT,
                               "dataloader.path: the list of documents is damaged: document %lld "
                               "begins at token %lld, after token %lld of %lld",
                               (long long)(d + i), (long long)starts[i], (long long)at,
                               (long long)t->n_tokens);
            TT_TRY(add_document(l, at, starts[i], t->seq_len, err));
            at = starts[i];
        }
        d += n;
    }
    return add_document(l, at, t->n_tokens, t->seq_len, err);
}

tt_status tt_tokens_pack(tt_tokens *t, int32_t pad, tt_error *err)
{
    piece_list l = {0};
    tt_packing *p = &t->packing;
    const int64_t t0 = tt_now_ns();
    tt_status s = add_all(t, &l, err);
    if (s == TT_OK && l.n > 0)
        s = tt_pack(l.items, l.n, t->seq_len, p, err);
    free(l.items);
    TT_TRY(s);
    if (p->n_bins < 1)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: no document has tokens");
    int64_t all = 0;
    if (!tt_mul_i64(p->n_bins, t->seq_len, &all))
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: more tokens than 2^63");
    p->pad = pad;
    p->padding = all - t->n_tokens;
    t->n_samples = p->n_bins;
    tt_log(TT_INFO, "data",
           "%lld document%s, in %lld piece%s, packed into %lld sample%s of %lld within %.2f s; "
           "%.2f %% padding",
           (long long)t->documents.n, t->documents.n == 1 ? "" : "s", (long long)p->n_pieces,
           p->n_pieces == 1 ? "" : "s", (long long)p->n_bins, p->n_bins == 1 ? "" : "s",
           (long long)t->seq_len, 1e-9 * (double)(tt_now_ns() - t0),
           100 * (double)p->padding / (double)all);
    return TT_OK;
}

void tt_packing_free(tt_packing *p)
{
    free(p->bins);
    free(p->pieces);
    *p = (tt_packing){0};
}

/* A label is the document's next token, even if that is in another sample; the document's last
 * token has none. */
tt_status tt_packed_read(const tt_tokens *t, int64_t i, tt_sample *out, tt_error *err)
{
    const tt_packing *p = &t->packing;
    int64_t at = 0;
    int32_t seg = 0;
    for (int64_t k = p->bins[i]; k < p->bins[i + 1]; k++, seg++) {
        const tt_piece *d = &p->pieces[k];
        int32_t *labels = out->labels + at;
        TT_TRY(tt_tokens_fetch(t, d->at, d->n, out->ids + at, err));
        memcpy(labels, out->ids + at, (size_t)d->n * sizeof *labels);
        memmove(labels, labels + 1, (size_t)(d->n - 1) * sizeof *labels);
        labels[d->n - 1] = -100;
        if (d->goes_on)
            TT_TRY(tt_tokens_fetch(t, d->at + d->n, 1, &labels[d->n - 1], err));
        for (int32_t j = 0; j < d->n; j++) {
            out->pos[at + j] = j;
            out->seg[at + j] = seg;
        }
        at += d->n;
    }
    for (int32_t j = 0; at < t->seq_len; at++, j++) {
        out->ids[at] = p->pad;
        out->labels[at] = -100;
        out->pos[at] = j;
        out->seg[at] = seg;
    }
    return TT_OK;
}
