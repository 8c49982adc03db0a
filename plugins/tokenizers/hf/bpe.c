/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"

/* Merging: repeatedly merges the pair of lowest rank, the leftmost one among equals. Short words
 * are done by scanning all pairs; long ones (a megabyte of spaces is one word) by bpe_long.c. */

uint32_t hf_rank_of(const hf_vocab *v, uint32_t left, uint32_t right, uint32_t *id)
{
    const hf_slot *s = hf_merges_get(v, left, right);
    *id = s ? s->id : 0;
    return s ? s->rank : UINT32_MAX;
}

/* Does no token have the bytes a and b next to each other? Then no merge crosses from a to b. */
static bool apart(const hf_vocab *v, uint8_t a, uint8_t b)
{
    return !(v->beside[a][b / 8] >> (b % 8) & 1);
}

static tt_status long_word(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n,
                           tt_ids *out, tt_error *err)
{
    TT_TRY(hf_bpe_reserve(r, n, err));
    for (size_t i = 0; i < n; i++)
        r->ids[i] = (uint32_t)v->byte_ids[s[i]];
    tt_status status = hf_bpe_long(v, r, n, err);
    for (uint32_t i = 0; status == TT_OK && i != UINT32_MAX; i = r->next[i])
        status = tt_ids_push(out, (int32_t)r->ids[i], err);
    return status;
}

static bool has_gap(const hf_vocab *v, const uint8_t *s, size_t n)
{
    for (size_t i = 0; v->gaps && i < n; i++)
        if (v->byte_ids[s[i]] < 0)
            return true;
    return false;
}

/* A word with bytes that are no tokens, as in Hugging Face tokenizers: what is left out lets its
 * neighbours merge. */
static tt_status word_with_gaps(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n,
                                tt_ids *out, tt_error *err)
{
    size_t m = 0;
    bool after_unk = false;
    TT_TRY(hf_bpe_reserve(r, n, err));
    for (size_t i = 0; i < n; i++) {
        const bool unk = v->byte_ids[s[i]] < 0;
        if (!unk)
            r->ids[m++] = (uint32_t)v->byte_ids[s[i]];
        else if (v->unk >= 0 && !(after_unk && v->fuse_unk))
            r->ids[m++] = (uint32_t)v->unk;
        after_unk = unk;
    }
    tt_status status = m ? hf_bpe_long(v, r, m, err) : TT_OK;
    for (uint32_t i = 0; m && status == TT_OK && i != UINT32_MAX; i = r->next[i])
        status = tt_ids_push(out, (int32_t)r->ids[i], err);
    return status;
}

tt_status hf_bpe(const hf_vocab *v, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                 tt_error *err)
{
    uint32_t ids[HF_SHORT_WORD];
    if (has_gap(v, s, n))
        return word_with_gaps(v, r, s, n, out, err);
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && !apart(v, s[end - 1], s[end]);)
            end++;
        if (end - at > HF_SHORT_WORD) {
            TT_TRY(long_word(v, r, s + at, end - at, out, err));
            continue;
        }
        for (size_t i = at; i < end; i++)
            ids[i - at] = (uint32_t)v->byte_ids[s[i]];
        const size_t m = hf_bpe_short(v, ids, end - at);
        for (size_t i = 0; i < m; i++)
            TT_TRY(tt_ids_push(out, (int32_t)ids[i], err));
    }
    return TT_OK;
}

size_t hf_bpe_short(const hf_vocab *v, uint32_t *ids, size_t n)
{
    /* ranks[i]: of the pair that begins at i */
    uint32_t ranks[HF_SHORT_WORD], merged[HF_SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = hf_rank_of(v, ids[i], ids[i + 1], &merged[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == UINT32_MAX)
            break;
        ids[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        if (best > 0)
            ranks[best - 1] = hf_rank_of(v, ids[best - 1], ids[best], &merged[best - 1]);
        if (best + 1 < n)
            ranks[best] = hf_rank_of(v, ids[best], ids[best + 1], &merged[best]);
    }
    return n;
}
