/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_WORK_H
#define TT_TOKENIZER_HF_WORK_H
#include "normalize.h"
#include "subword.h"
#include <string.h>

/* What one call of encode writes to. */

/* A word encoded before: one cache line. */
typedef struct hf_entry {
    uint32_t hash; /* never 0 in a used entry */
    uint8_t n_bytes, n_ids;
    uint8_t bytes[26];
    int32_t ids[8];
} hf_entry;
#define HF_CACHE_WORDS ((size_t)1 << 15) /* 2 MiB */

typedef struct hf_work {
    hf_entry *cache;
    hf_bpe_room room;
    hf_subword_room nodes;
    hf_norm_room norms;
    hf_bytes text;                  /* normalized, or without bytes that are not UTF-8 */
    hf_bytes pieces[HF_MAX_SPLITS]; /* what a split changes before it splits */
    hf_matcher *matchers[HF_MAX_SPLITS];
    tt_ids *out;
    bool begins;     /* the piece in progress begins the text */
    bool after;      /* the text follows a special token */
    hf_word_fn each; /* if set, it is called with each word, and nothing is encoded */
    void *each_arg;
    tt_error *err;
} hf_work;

static inline tt_status hf_put(hf_work *w, int32_t id)
{
    if (w->out->n < w->out->cap) {
        w->out->ids[w->out->n++] = id;
        return TT_OK;
    }
    return tt_ids_push(w->out, id, w->err);
}

tt_status hf_encode_text(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n);
tt_status hf_encode_word(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n);
/* As hf_encode_word of a model whose words are cached; a word that the cache has is put here. */
static inline tt_status hf_encode_cached(const hf_tokenizer *t, hf_work *w, const uint8_t *s,
                                         size_t n)
{
    if (n > sizeof w->cache->bytes)
        return hf_encode_word(t, w, s, n);
    const uint64_t h = hf_hash(s, n);
    const hf_entry *e = &w->cache[h & (HF_CACHE_WORDS - 1)];
    if (e->hash != ((uint32_t)(h >> 32) | 1u) || e->n_bytes != n || memcmp(e->bytes, s, n) != 0)
        return hf_encode_word(t, w, s, n);
    for (unsigned i = 0; i < e->n_ids; i++)
        TT_TRY(hf_put(w, e->ids[i]));
    return TT_OK;
}
/* Splits a piece by split k and those after it, and encodes the words. */
tt_status hf_split_piece(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s, size_t n,
                         bool prefixed);

#endif
