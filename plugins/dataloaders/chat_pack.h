/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_PACK_H
#define TT_DATALOADERS_CHAT_PACK_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <ttrun/status.h>

/* Best fit of documents, the longest first. The bins with r places left are a list, lists[r]; a tree of bits over r
 * finds the least r that is large enough. */

typedef struct chat_doc { /* a conversation: n tokens from `at` on */
    int64_t at;
    int32_t n;
} chat_doc;

typedef struct packer {
    int64_t *heads,
        *next; /* [seq_len + 1] the first bin with so much room, or -1; [n] the one behind a bin */
    int64_t *sorted; /* [n] documents, the longest first */
    int64_t *bin_of; /* [n] by document */
    int64_t *begin;  /* [n + 1] */
    uint64_t *bits;
    int64_t words;
} packer;

static void set_bit(packer *p, int64_t r, bool on)
{
    const uint64_t b = (uint64_t)1 << (r % 64);
    p->bits[r / 64] = on ? p->bits[r / 64] | b : p->bits[r / 64] & ~b;
}

/* The least room of at least r; -1: no bin has it. */
static int64_t room_of(const packer *p, int64_t r)
{
    int64_t w = r / 64;
    uint64_t bits = w < p->words ? p->bits[w] & ~(uint64_t)0 << (r % 64) : 0;
    while (!bits && ++w < p->words)
        bits = p->bits[w];
    return bits ? 64 * w + __builtin_ctzll(bits) : -1;
}

static void put_bin(packer *p, int64_t bin, int64_t room)
{
    p->next[bin] = p->heads[room];
    p->heads[room] = bin;
    set_bit(p, room, true);
}

static int64_t take_bin(packer *p, int64_t room)
{
    const int64_t bin = p->heads[room];
    p->heads[room] = p->next[bin];
    if (p->heads[room] < 0)
        set_bit(p, room, false);
    return bin;
}

/* Counting sort, stable: the longest first. */
static void sort_docs(packer *p, const chat_doc *docs, int64_t n, int64_t seq_len, int64_t *count)
{
    for (int64_t i = 0; i < n; i++)
        count[seq_len - docs[i].n]++;
    int64_t sum = 0;
    for (int64_t k = 0; k <= seq_len; k++) {
        const int64_t c = count[k];
        count[k] = sum;
        sum += c;
    }
    for (int64_t i = 0; i < n; i++)
        p->sorted[count[seq_len - docs[i].n]++] = i;
}

static int64_t fill_bins(packer *p, const chat_doc *docs, int64_t n, int64_t seq_len)
{
    int64_t bins = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = p->sorted[k], need = docs[i].n, room = room_of(p, need),
                      bin = room < 0 ? bins++ : take_bin(p, room);
        p->bin_of[i] = bin;
        put_bin(p, bin, (room < 0 ? seq_len : room) - need);
    }
    return bins;
}

static void free_packer(packer *p)
{
    free(p->heads);
    free(p->next);
    free(p->sorted);
    free(p->bin_of);
    free(p->bits);
}

/* Puts documents of 1 to seq_len places each into bins of seq_len. order: the documents bin by bin; bins[b]: where
 * bin b begins in it, [n_bins + 1]. Both from malloc. */
static tt_status chat_pack(const chat_doc *docs, int64_t n, int64_t seq_len, int64_t **order,
                           int64_t **bins, int64_t *n_bins, tt_error *err)
{
    const size_t k = (size_t)n + 2, r = (size_t)seq_len + 2;
    packer p = {.heads = malloc(r * sizeof *p.heads),
                .next = malloc(k * sizeof *p.next),
                .sorted = malloc(k * sizeof *p.sorted),
                .bin_of = malloc(k * sizeof *p.bin_of),
                .bits = calloc(r / 64 + 1, sizeof *p.bits),
                .words = (int64_t)(r / 64 + 1)};
    int64_t *count = calloc(r, sizeof *count), *out = malloc(k * sizeof *out),
            *begin = calloc(k, sizeof *begin);
    if (!p.heads || !p.next || !p.sorted || !p.bin_of || !p.bits || !count || !out || !begin) {
        free_packer(&p);
        free(count);
        free(out);
        free(begin);
        return TT_FAIL(err, TT_ENOMEM, "out of memory to pack %lld conversations", (long long)n);
    }
    for (size_t i = 0; i < r; i++)
        p.heads[i] = -1;
    sort_docs(&p, docs, n, seq_len, count);
    *n_bins = fill_bins(&p, docs, n, seq_len);
    for (int64_t i = 0; i < n; i++)
        begin[p.bin_of[i] + 1]++;
    for (int64_t b = 0; b < *n_bins; b++)
        begin[b + 1] += begin[b];
    for (int64_t i = 0; i < n; i++) /* within a bin in the order of the data */
        out[begin[p.bin_of[i]]++] = i;
    for (int64_t b = *n_bins; b > 0; b--)
        begin[b] = begin[b - 1];
    begin[0] = 0;
    free_packer(&p);
    free(count);
    *order = out;
    *bins = begin;
    return TT_OK;
}

#endif
