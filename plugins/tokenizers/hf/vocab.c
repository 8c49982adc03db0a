/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdlib.h>
#include <string.h>

/* Tokens by id and by bytes, merges by pair: open addressing, at most half full. */

uint64_t hf_hash(const void *s, size_t n)
{
    const uint8_t *p = s;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    word = 0;
    if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, p, 4);
        memcpy(&last, p + n - 4, 4);
        word = (uint64_t)first << 32 | last;
    } else if (n) {
        word = (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
    }
    h = (h ^ word) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

tt_status hf_vocab_room(hf_vocab *v, size_t n, tt_error *err)
{
    const size_t size = table_size(n);
    v->words = calloc(size, sizeof *v->words);
    if (!v->words)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a vocabulary of %zu", n);
    v->words_mask = size - 1;
    return TT_OK;
}

void hf_vocab_put(hf_vocab *v, uint32_t id)
{
    const hf_token *t = &v->tokens[id];
    size_t i = hf_hash(v->bytes.s + t->at, t->n) & v->words_mask;
    while (v->words[i])
        i = (i + 1) & v->words_mask;
    v->words[i] = id + 1;
}

tt_status hf_vocab_index(hf_vocab *v, tt_error *err)
{
    TT_TRY(hf_vocab_room(v, v->n_ids, err));
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *t = &v->tokens[id];
        if (t->spelt && hf_vocab_word(v, v->bytes.s + t->at, t->n) < 0)
            hf_vocab_put(v, (uint32_t)id);
    }
    return TT_OK;
}

int32_t hf_vocab_word(const hf_vocab *v, const uint8_t *s, size_t n)
{
    for (size_t i = hf_hash(s, n) & v->words_mask; v->words[i]; i = (i + 1) & v->words_mask) {
        const hf_token *t = &v->tokens[v->words[i] - 1];
        if (t->n == n && memcmp(v->bytes.s + t->at, s, n) == 0)
            return (int32_t)(v->words[i] - 1);
    }
    return -1;
}

tt_status hf_merges_new(hf_vocab *v, size_t n, tt_error *err)
{
    const size_t size = table_size(n);
    v->merges = malloc(size * sizeof *v->merges);
    if (!v->merges)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu merges", n);
    memset(v->merges, 0xff, size * sizeof *v->merges);
    v->merges_mask = size - 1;
    return TT_OK;
}

static hf_slot *slot_of(const hf_vocab *v, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    for (size_t i = (h ^ h >> 32) & v->merges_mask;; i = (i + 1) & v->merges_mask) {
        hf_slot *s = &v->merges[i];
        if ((s->left == left && s->right == right) || s->rank == UINT32_MAX)
            return s;
    }
}

void hf_merges_set(hf_vocab *v, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    *slot_of(v, left, right) = (hf_slot){left, right, rank, id};
    v->n_ranks = rank >= v->n_ranks ? rank + 1 : v->n_ranks;
}

void hf_merges_finish(hf_vocab *v)
{
    for (size_t i = 0; i <= v->merges_mask; i++)
        if (v->merges[i].rank != UINT32_MAX)
            v->tokens[v->merges[i].id].merged = true;
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *t = &v->tokens[id];
        for (uint32_t k = 1; t->merged && k < t->n; k++) {
            const uint8_t *b = v->bytes.s + t->at + k;
            v->beside[b[-1]][b[0] / 8] |= (uint8_t)(1u << b[0] % 8);
        }
    }
}

const hf_slot *hf_merges_get(const hf_vocab *v, uint32_t left, uint32_t right)
{
    const hf_slot *s = slot_of(v, left, right);
    return s->rank == UINT32_MAX ? NULL : s;
}

void hf_vocab_release(hf_vocab *v)
{
    free(v->tokens);
    free(v->bytes.s);
    free(v->words);
    free(v->merges);
    *v = (hf_vocab){0};
}

/* The byte alphabet: printing bytes stand for themselves; the other 68 are U+0100 … in order. */
static int byte_of(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff))
        return (int)c;
    if (c < 0x100 || c >= 0x100 + 68)
        return -1;
    c -= 0x100;
    if (c < 0x21)
        return (int)c;
    return (int)(c < 0x21 + 34 ? c - 0x21 + 0x7f : 0xad);
}

uint32_t hf_byte_letter(uint8_t b)
{
    if (byte_of(b) == b)
        return b;
    return 0x100u + (b < 0x21 ? b : b < 0xa1 ? b - 0x7fu + 0x21 : 67u);
}

bool hf_spell_bytes(const char *text, size_t n, uint8_t *out, size_t *n_out)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        unsigned k;
        const int b = byte_of(hf_decode(s + i, &k));
        if (b < 0)
            return false;
        out[m++] = (uint8_t)b;
        i += k;
    }
    *n_out = m;
    return true;
}
