/* SPDX-License-Identifier: Apache-2.0 */
#include "work.h"
#include <stdlib.h>
#include <string.h>

/* From a text to its words: added tokens, the normalizer, and the splits of the pre-tokenizer. */

/* Finds the next match of a split in s[from, n): *begin == n if there is none. */
static tt_status hf_find_match(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s,
                               size_t n, size_t from, size_t *begin, size_t *end)
{
    const hf_split *split = &t->splits[k];
    if (split->regex)
        return hf_regex_find(split->regex, w->matchers[k], s, n, from, begin, end, w->err);
    const uint16_t *bits = split->traits ? t->traits : t->flags;
    for (size_t i = from; i < n;) {
        unsigned bytes = 0;
        size_t m;
        if (split->scan) {
            m = split->scan(bits, s + i, s + n);
        } else {
            const bool equal = hf_decode(s + i, &bytes) == split->point;
            m = equal ? bytes : 0;
        }
        if (m) {
            *begin = i;
            *end = i + m;
            return TT_OK;
        }
        if (!bytes)
            hf_decode(s + i, &bytes);
        i += bytes;
    }
    *begin = *end = n;
    return TT_OK;
}

/* add_prefix_space: puts a space before a piece that does not begin with one. */
static tt_status split_prefixed(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s,
                                size_t n)
{
    hf_bytes copy = {0};
    tt_status status = hf_bytes_add(&copy, " ", 1, w->err);
    if (status == TT_OK)
        status = hf_bytes_add(&copy, s, n, w->err);
    if (status == TT_OK)
        status = hf_split_piece(t, w, k, copy.s, copy.n, true);
    free(copy.s);
    return status;
}

/* Matches that join their neighbours: the gap after them, the one before them, or each other. */
static tt_status split_merged(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s,
                              size_t n)
{
    const hf_merging how = t->splits[k].merging;
    size_t begin, end; /* the next match */
    TT_TRY(hf_find_match(t, w, k, s, n, 0, &begin, &end));
    for (size_t at = 0, stop; at < n; at = stop) {
        const bool gap = begin > at;
        stop = !gap || (how == HF_WITH_PREVIOUS && begin < n) ? end : begin;
        while (stop == end && stop < n) { /* the match is used: find the one after it */
            TT_TRY(hf_find_match(t, w, k, s, n, stop, &begin, &end));
            if (gap || how != HF_CONTIGUOUS || begin > stop)
                break;
            stop = end;
        }
        if (!gap && how == HF_WITH_NEXT && stop < n)
            stop = begin;
        TT_TRY(hf_split_piece(t, w, k + 1, s + at, stop - at, false));
    }
    return TT_OK;
}

/* Metaspace: blanks become ▁, which is put before the piece too; then it is split before each ▁. */
static tt_status split_metaspace(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s,
                                 size_t n)
{
    const hf_split *split = &t->splits[k];
    const size_t m = strlen(split->metaspace);
    hf_bytes *out = &w->pieces[k];
    out->n = 0;
    const bool there = (n >= m && memcmp(s, split->metaspace, m) == 0) || s[0] == ' ';
    if (!there && (split->prepend == 'a' || (split->prepend == 'f' && w->begins)))
        TT_TRY(hf_bytes_add(out, split->metaspace, m, w->err));
    for (size_t at = 0; at < n;) {
        const uint8_t *blank = memchr(s + at, ' ', n - at);
        const size_t end = blank ? (size_t)(blank - s) : n;
        TT_TRY(hf_bytes_add(out, s + at, end - at, w->err));
        if (blank)
            TT_TRY(hf_bytes_add(out, split->metaspace, m, w->err));
        at = end + 1;
    }
    const uint8_t *p = out->s;
    const size_t length = out->n;
    if (split->whole)
        return hf_split_piece(t, w, k + 1, p, length, false);
    for (size_t at = 0, end; at < length; at = end) {
        const bool mark = length - at >= m && memcmp(p + at, split->metaspace, m) == 0;
        for (end = at + (mark ? m : 1); end < length; end++) {
            const uint8_t *next = memchr(p + end, split->metaspace[0], length - end);
            end = next ? (size_t)(next - p) : length;
            if (end == length || (length - end >= m && memcmp(p + end, split->metaspace, m) == 0))
                break;
        }
        TT_TRY(hf_split_piece(t, w, k + 1, p + at, end - at, false));
    }
    return TT_OK;
}

/* The last split of a byte-level model, by a scanner: most words end here, in one loop. */
static tt_status split_words(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s,
                             size_t n)
{
    const hf_split *split = &t->splits[k];
    const uint16_t *bits = split->traits ? t->traits : t->flags;
    for (size_t at = 0; at < n;) {
        size_t begin = at, end = at + split->scan(bits, s + at, s + n);
        if (end == at)
            TT_TRY(hf_find_match(t, w, k, s, n, at, &begin, &end));
        if (begin > at && split->keep_gaps)
            TT_TRY(hf_encode_cached(t, w, s + at, begin - at));
        if (end > begin && split->keep_matches)
            TT_TRY(hf_encode_cached(t, w, s + begin, end - begin));
        at = end;
    }
    return TT_OK;
}

/* Applies split k and those after it, then the model. The recursion is n_splits deep. */
tt_status hf_split_piece(const hf_tokenizer *t, hf_work *w, size_t k, const uint8_t *s, size_t n,
                         bool prefixed)
{
    const bool prefix = k < t->n_splits ? t->splits[k].prefix_space : t->prefix_space;
    if (n == 0)
        return TT_OK;
    if (prefix && !prefixed && s[0] != ' ')
        return split_prefixed(t, w, k, s, n);
    if (k == t->n_splits)
        return hf_encode_word(t, w, s, n);
    if (t->splits[k].metaspace[0])
        return split_metaspace(t, w, k, s, n);
    if (t->splits[k].merging)
        return split_merged(t, w, k, s, n);
    const bool last = k + 1 == t->n_splits && !t->prefix_space;
    if (last && t->splits[k].scan && !t->subword && !w->each)
        return split_words(t, w, k, s, n);
    for (size_t at = 0; at < n;) {
        size_t begin, end;
        TT_TRY(hf_find_match(t, w, k, s, n, at, &begin, &end));
        if (begin > at && t->splits[k].keep_gaps)
            TT_TRY(hf_split_piece(t, w, k + 1, s + at, begin - at, false));
        if (end > begin && t->splits[k].keep_matches)
            TT_TRY(last ? hf_encode_word(t, w, s + begin, end - begin)
                        : hf_split_piece(t, w, k + 1, s + begin, end - begin, false));
        at = end;
    }
    return TT_OK;
}

/* Handles the text between added tokens of the second kind: it is normalized. */
static tt_status encode_normal(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n,
                               bool begins)
{
    size_t search = 0, begin, end;
    int32_t which;
    for (size_t at = 0;; at = end) {
        hf_added_find(t, &t->normalized, s, n, at, &search, &begin, &end, &which);
        w->begins = begins && at == 0;
        if (begin > at)
            TT_TRY(hf_split_piece(t, w, 0, s + at, begin - at, false));
        if (which < 0)
            return TT_OK;
        TT_TRY(hf_put(w, t->added[which].id));
    }
}

static tt_status encode_piece(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n,
                              bool begins)
{
    if (t->n_norms) {
        w->norms.inside = !begins;
        TT_TRY(hf_normalize(t, &w->norms, &s, &n, w->err));
        return encode_normal(t, w, s, n, begins);
    }
    if (!t->nfc || hf_nfc_stable(t->flags, s, n))
        return encode_normal(t, w, s, n, begins);
    w->text.n = 0;
    TT_TRY(hf_nfc(t->flags, s, n, &w->text, w->err));
    return encode_normal(t, w, w->text.s, w->text.n, begins);
}

/* Encodes valid UTF-8, which may contain added tokens. */
tt_status hf_encode_text(const hf_tokenizer *t, hf_work *w, const uint8_t *s, size_t n)
{
    size_t search = 0, begin, end;
    int32_t which;
    for (size_t at = 0;; at = end) {
        hf_added_find(t, &t->raw, s, n, at, &search, &begin, &end, &which);
        if (begin > at)
            TT_TRY(encode_piece(t, w, s + at, begin - at, at == 0 && !w->after));
        if (which < 0)
            return TT_OK;
        TT_TRY(hf_put(w, t->added[which].id));
    }
}
