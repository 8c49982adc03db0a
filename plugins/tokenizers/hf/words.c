/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"
#include <string.h>

/* Words to ids: by the cache, or by the model. */

static tt_status encode_uncached(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    const hf_subword *m = t->subword;
    const bool whole_first = t->vocab.ignore_merges && (!m || n <= m->longest);
    const int32_t whole = whole_first ? hf_vocab_word(&t->vocab, s, n) : -1;
    if (whole >= 0)
        return hf_put(w, whole);
    if (!m)
        return hf_bpe(&t->vocab, &w->room, s, n, w->out, w->err);
    if (m->kind == HF_UNIGRAM)
        return hf_unigram(t, &w->nodes, s, n, w->out, w->err);
    return m->kind == HF_CHARS ? hf_chars(t, &w->room, s, n, w->out, w->err)
                               : hf_wordpiece(t, s, n, w->out, w->err);
}

static tt_status encode_cached(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    if (n > sizeof w->cache->bytes)
        return encode_uncached(t, w, s, n);
    const uint64_t h = hf_hash(s, n);
    const uint32_t tag = (uint32_t)(h >> 32) | 1u;
    hf_entry *e = &w->cache[h & (HF_CACHE_WORDS - 1)];
    if (e->hash == tag && e->n_bytes == n && memcmp(e->bytes, s, n) == 0) {
        for (unsigned i = 0; i < e->n_ids; i++)
            TT_TRY(hf_put(w, e->ids[i]));
        return TT_OK;
    }
    const size_t before = w->out->n;
    TT_TRY(encode_uncached(t, w, s, n));
    const size_t m = w->out->n - before;
    if (m <= TT_COUNT(e->ids)) {
        e->hash = tag;
        e->n_bytes = (uint8_t)n;
        e->n_ids = (uint8_t)m;
        memcpy(e->bytes, s, n);
        if (m) /* of a text that gives no id at all, ids is NULL */
            memcpy(e->ids, w->out->ids + before, m * sizeof *e->ids);
    }
    return TT_OK;
}

/* A long word of BPE over code points: part by part. Two unks side by side may be one. */
static tt_status encode_parts(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    const hf_subword *m = t->subword;
    const size_t first = w->out->n;
    for (size_t at = 0, length; at < n; at += length) {
        const size_t before = w->out->n;
        int32_t id;
        length = hf_chars_part(t, s + at, n - at, &id);
        TT_TRY(id >= 0 ? hf_put(w, id)
               : t->vocab.ignore_merges
                   ? hf_chars(t, &w->room, s + at, length, w->out, w->err) /* a part is no word */
                   : encode_cached(t, w, s + at, length));
        int32_t *ids = w->out->ids;
        if (m->fuse_unk && !m->whole && m->unk >= 0 && before > first && w->out->n > before &&
            ids[before - 1] == m->unk && ids[before] == m->unk) {
            memmove(ids + before, ids + before + 1, (w->out->n - before - 1) * sizeof *ids);
            w->out->n--;
        }
    }
    return TT_OK;
}

tt_status hf_encode_word(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    const hf_subword *m = t->subword;
    if (w->each)
        return w->each(w->each_arg, s, n, w->err);
    if (!m)
        return encode_cached(t, w, s, n);
    if (m->kind == HF_CHARS && (n > sizeof w->cache->bytes || m->user_symbols.n_nodes)) {
        const int32_t whole =
            t->vocab.ignore_merges && n <= m->longest ? hf_vocab_word(&t->vocab, s, n) : -1;
        return whole >= 0 ? hf_put(w, whole) : encode_parts(t, w, s, n);
    }
    /* the sums of sentencepiece depend on what came before, so its words are not cached */
    return m->sentencepiece && m->kind == HF_UNIGRAM ? encode_uncached(t, w, s, n)
                                                     : encode_cached(t, w, s, n);
}
