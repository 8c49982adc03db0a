/* SPDX-License-Identifier: Apache-2.0 */
#include "subword.h"
#include <stdlib.h>
#include <string.h>

/* BPE over code points, with ids of bytes or unk for those that are no token. A whole document may
 * be one word, so it is cut between two code points that no merged token has side by side: no merge
 * crosses there. */

void hf_subword_release(hf_subword *m)
{
    if (!m)
        return;
    hf_tree_release(&m->tree);
    hf_tree_release(&m->user_symbols);
    free(m->symbols);
    free(m->pairs.others);
    free(m->scores);
    free(m->user);
    free(m->prefix.s);
    free(m);
}

static size_t pair_place(const hf_pairs *p, uint64_t key)
{
    const uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t i = (h ^ h >> 32) & p->mask;
    while (p->others[i] && p->others[i] != key)
        i = (i + 1) & p->mask;
    return i;
}

static tt_status widen_pairs(hf_pairs *p, tt_error *err)
{
    hf_pairs more = {.mask = p->others ? 2 * p->mask + 1 : 255};
    more.others = calloc(more.mask + 1, sizeof *more.others);
    if (!more.others)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu pairs of characters", p->n);
    for (size_t i = 0; p->others && i <= p->mask; i++)
        if (p->others[i])
            more.others[pair_place(&more, p->others[i])] = p->others[i];
    free(p->others);
    p->others = more.others;
    p->mask = more.mask;
    return TT_OK;
}

tt_status hf_pairs_add(hf_pairs *p, uint32_t a, uint32_t b, tt_error *err)
{
    const uint64_t key = (uint64_t)a << 32 | b;
    if (a < 128 && b < 128) {
        p->ascii[a][b / 8] |= (uint8_t)(1u << b % 8);
        return TT_OK;
    }
    if (2 * p->n + 2 > p->mask)
        TT_TRY(widen_pairs(p, err));
    const size_t i = pair_place(p, key);
    p->n += !p->others[i];
    p->others[i] = key;
    return TT_OK;
}

bool hf_apart(const hf_subword *m, uint32_t a, uint32_t b)
{
    if (a < 128 && b < 128)
        return !(m->pairs.ascii[a][b / 8] >> (b % 8) & 1);
    if (!m->pairs.others)
        return true;
    return !m->pairs.others[pair_place(&m->pairs, (uint64_t)a << 32 | b)];
}

/* Is the symbol an id whose place among its neighbours the merges must see: unk or a byte's? */
static bool stands_in(const hf_subword *m, uint32_t id)
{
    bool yes = m->unk >= 0 && id == (uint32_t)m->unk;
    for (int b = 0; m->byte_fallback && !yes && b < 256; b++)
        yes = m->fallback[b] >= 0 && (uint32_t)m->fallback[b] == id;
    return yes;
}

tt_status hf_chars_finish(hf_tokenizer *t, tt_error *err)
{
    hf_subword *m = t->subword;
    const hf_vocab *v = &t->vocab;
    bool some = false, all = true;
    for (int b = 0; b < 256; b++) {
        some = some || m->fallback[b] >= 0;
        all = all && m->fallback[b] >= 0;
    }
    /* An unk waits while bytes are put; without unk, what is not known leaves its neighbours side by
     * side. */
    m->whole = !m->sentencepiece && !(m->byte_fallback && all) &&
               (m->unk < 0 || (m->byte_fallback && some));
    for (size_t i = 0; i <= v->merges_mask; i++) {
        const hf_slot *s = &v->merges[i];
        if (s->rank == UINT32_MAX)
            continue;
        m->whole =
            m->whole || (!m->sentencepiece &&
                         (stands_in(m, s->left) || stands_in(m, s->right) || stands_in(m, s->id)));
        v->tokens[s->id].merged = true;
    }
    for (size_t id = 0; id < v->n_ids; id++) {
        const hf_token *token = &v->tokens[id];
        uint32_t before = 0;
        for (uint32_t i = 0, k = 0; token->merged && i < token->n; i += k) {
            const uint32_t c = hf_decode(v->bytes.s + token->at + i, &k);
            if (i > 0)
                TT_TRY(hf_pairs_add(&m->pairs, before, c, err));
            before = c;
        }
    }
    if (!m->sentencepiece && m->unk >= 0)
        for (size_t c = 0; c < HF_CODE_POINTS; c++)
            m->whole = m->whole || m->symbols[c] == (uint32_t)m->unk + 1;
    return TT_OK;
}

tt_status hf_put_unknown(const hf_subword *m, const uint8_t *s, size_t n, bool again, tt_ids *out,
                         tt_error *err)
{
    bool bytes = m->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++)
        bytes = m->fallback[s[i]] >= 0;
    for (size_t i = 0; bytes && i < n; i++)
        TT_TRY(tt_ids_push(out, m->fallback[s[i]], err));
    if (bytes || m->unk < 0 || (again && m->fuse_unk))
        return TT_OK;
    return tt_ids_push(out, m->unk, err);
}

/* The symbols of a part of a word; ids has room for n. An unk waits until a token follows, as in
 * tokenizers; bytes do not make it come first. */
static size_t symbols_of(const hf_subword *m, const uint8_t *s, size_t n, uint32_t *ids)
{
    size_t count = 0;
    bool waits = false;
    for (size_t i = 0; i < n;) {
        unsigned k;
        const uint32_t c = hf_decode(s + i, &k), symbol = m->symbols[c];
        bool bytes = !symbol && m->byte_fallback && !m->sentencepiece;
        for (unsigned j = 0; bytes && j < k; j++)
            bytes = m->fallback[s[i + j]] >= 0;
        if (symbol || m->sentencepiece) {
            if (waits)
                ids[count++] = (uint32_t)m->unk;
            waits = false;
            ids[count++] = symbol ? symbol - 1 : HF_NO_TOKEN | c;
        } else if (bytes) {
            for (unsigned j = 0; j < k; j++)
                ids[count++] = (uint32_t)m->fallback[s[i + j]];
        } else if (m->unk >= 0) {
            if (waits && !m->fuse_unk)
                ids[count++] = (uint32_t)m->unk;
            waits = true;
        }
        i += k;
    }
    if (waits)
        ids[count++] = (uint32_t)m->unk;
    return count;
}

static tt_status put_symbol(const hf_subword *m, uint32_t id, size_t first, tt_ids *out,
                            tt_error *err)
{
    uint8_t s[4];
    size_t n = 0;
    if (!(id & HF_NO_TOKEN))
        return tt_ids_push(out, (int32_t)id, err);
    const uint32_t c = id & ~HF_NO_TOKEN;
    if (c < 0x80) {
        s[n++] = (uint8_t)c;
    } else {
        const unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        s[n++] = (uint8_t)((0xff00u >> (more + 1) & 0xffu) | c >> 6 * more);
        for (unsigned k = more; k-- > 0;)
            s[n++] = (uint8_t)(0x80 | (c >> 6 * k & 0x3f));
    }
    const bool again = out->n > first && out->ids[out->n - 1] == m->unk;
    return hf_put_unknown(m, s, n, again, out, err);
}

tt_status hf_chars(const hf_tokenizer *t, hf_bpe_room *r, const uint8_t *s, size_t n, tt_ids *out,
                   tt_error *err)
{
    uint32_t ids[HF_SHORT_WORD];
    const hf_subword *m = t->subword;
    const size_t first = out->n;
    if (n <= HF_SHORT_WORD) {
        const size_t count = hf_bpe_short(&t->vocab, ids, symbols_of(m, s, n, ids));
        for (size_t i = 0; i < count; i++)
            TT_TRY(put_symbol(m, ids[i], first, out, err));
        return TT_OK;
    }
    TT_TRY(hf_bpe_reserve(r, n, err));
    const size_t count = symbols_of(m, s, n, r->ids);
    tt_status status = count ? hf_bpe_long(&t->vocab, r, count, err) : TT_OK;
    for (uint32_t i = 0; status == TT_OK && count && i != UINT32_MAX; i = r->next[i])
        status = put_symbol(m, r->ids[i], first, out, err);
    return status;
}

size_t hf_user_symbol(const hf_tokenizer *t, const uint8_t *s, size_t n, int32_t *id)
{
    const hf_tree *tree = &t->subword->user_symbols;
    size_t length = 0;
    uint32_t node = 0;
    if (tree->n_nodes == 0)
        return 0;
    for (size_t i = 0; i < n && (node = hf_tree_next(tree, node, s[i])) != 0; i++)
        if (tree->units[node].id >= 0) {
            length = i + 1;
            if (id)
                *id = tree->units[node].id;
        }
    return length;
}

size_t hf_chars_part(const hf_tokenizer *t, const uint8_t *s, size_t n, int32_t *id)
{
    const hf_subword *m = t->subword;
    const bool symbols = t->subword->user_symbols.n_nodes > 0;
    unsigned k;
    *id = -1;
    if (m->whole)
        return n;
    const size_t symbol = symbols ? hf_user_symbol(t, s, n, id) : 0;
    if (symbol)
        return symbol;
    uint32_t before = hf_decode(s, &k);
    for (size_t i = k; i < n; i += k) {
        const uint32_t c = hf_decode(s + i, &k);
        if (hf_apart(m, before, c) || (symbols && hf_user_symbol(t, s + i, n - i, NULL)))
            return i;
        before = c;
    }
    return n;
}
