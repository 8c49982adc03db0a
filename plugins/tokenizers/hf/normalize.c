/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "normalize.h"
#include <stdlib.h>
#include <string.h>

/* The steps of the normalizer, one after the other, each from one buffer into the other. A step
 * that would change nothing is left out. */

void hf_norm_room_release(hf_norm_room *r)
{
    free(r->a.s);
    free(r->b.s);
    for (size_t i = 0; i < HF_MAX_NORMS; i++)
        hf_matcher_free(r->matchers[i]);
    *r = (hf_norm_room){0};
}

void hf_norms_release(hf_tokenizer *t)
{
    for (size_t i = 0; i < t->n_norms; i++) {
        free(t->norms[i].from.s);
        free(t->norms[i].to.s);
        hf_regex_free(t->norms[i].regex);
        hf_charsmap_free(t->norms[i].map);
    }
    free(t->norms);
    t->norms = NULL;
    t->n_norms = 0;
}

static tt_status lowercase(const uint16_t *traits, const uint8_t *s, size_t n, hf_bytes *out,
                           tt_error *err)
{
    for (size_t i = 0; i < n;) {
        unsigned k;
        const uint32_t c = hf_decode(s + i, &k);
        i += k;
        TT_TRY(c == 0x130 ? hf_bytes_add(out, "i\xcc\x87", 3, err)
                          : hf_put_point(out, hf_lower(traits, c), err));
    }
    return TT_OK;
}

/* Removes code points that have the trait `gone`; those with `blank` become blanks. */
static tt_status sift(const uint16_t *traits, const uint8_t *s, size_t n, unsigned gone,
                      unsigned blank, hf_bytes *out, tt_error *err)
{
    TT_TRY(hf_bytes_room(out, n, err));
    for (size_t i = 0; i < n;) {
        unsigned k;
        const unsigned f = traits[hf_decode(s + i, &k)];
        if (f & blank) {
            out->s[out->n++] = ' ';
        } else if (!(f & gone)) {
            memcpy(out->s + out->n, s + i, k);
            out->n += k;
        }
        i += k;
    }
    return TT_OK;
}

static tt_status strip(const hf_tokenizer *t, const hf_norm *p, const uint8_t *s, size_t n,
                       hf_bytes *out, tt_error *err)
{
    size_t begin = 0, end = n;
    unsigned k;
    while (p->left && begin < end && (t->flags[hf_decode(s + begin, &k)] & HF_SPACE))
        begin += k;
    for (size_t at = end; p->right && begin < at; end = at) {
        do
            at--;
        while ((s[at] & 0xc0) == 0x80);
        if (!(t->flags[hf_decode(s + at, &k)] & HF_SPACE))
            break;
    }
    return hf_bytes_add(out, s + begin, end - begin, err);
}

static tt_status bert_chinese(const uint16_t *traits, const uint8_t *s, size_t n, hf_bytes *out,
                              tt_error *err)
{
    for (size_t i = 0; i < n;) {
        unsigned k;
        const bool pad = traits[hf_decode(s + i, &k)] & HF_CHINESE;
        if (pad)
            TT_TRY(hf_bytes_add(out, " ", 1, err));
        TT_TRY(hf_bytes_add(out, s + i, k, err));
        if (pad)
            TT_TRY(hf_bytes_add(out, " ", 1, err));
        i += k;
    }
    return TT_OK;
}

/* clean_text, handle_chinese_chars, strip_accents, lowercase, in this order. */
static tt_status bert(const hf_tokenizer *t, const hf_norm *p, const uint8_t *s, size_t n,
                      hf_bytes *out, tt_error *err)
{
    hf_bytes other = {0};
    tt_status status = hf_bytes_add(out, s, n, err);
    for (int step = 0; status == TT_OK && step < 5; step++) {
        const bool on[] = {p->clean, p->chinese, p->accents, p->accents, p->lower};
        if (!on[step] || (step > 0 && step < 4 && hf_ascii(out->s, out->n)))
            continue;
        const hf_bytes in = *out;
        *out = other;
        other = in;
        out->n = 0;
        if (step == 0)
            status = sift(t->traits, in.s, in.n, HF_BERT_GONE, HF_BERT_BLANK, out, err);
        else if (step == 1)
            status = bert_chinese(t->traits, in.s, in.n, out, err);
        else if (step == 2)
            status = hf_decompose(t, in.s, in.n, false, out, err);
        else if (step == 3)
            status = sift(t->traits, in.s, in.n, HF_BERT_ACCENT, 0, out, err);
        else
            status = lowercase(t->traits, in.s, in.n, out, err);
    }
    free(other.s);
    return status;
}

static tt_status replace_text(const hf_norm *p, const uint8_t *s, size_t n, hf_bytes *out,
                              tt_error *err)
{
    for (size_t at = 0; at < n;) {
        const uint8_t *found = p->from.n == 1 ? memchr(s + at, p->from.s[0], n - at)
                                              : memmem(s + at, n - at, p->from.s, p->from.n);
        const size_t end = found ? (size_t)(found - s) : n;
        TT_TRY(hf_bytes_add(out, s + at, end - at, err));
        if (!found)
            break;
        TT_TRY(hf_bytes_add(out, p->to.s, p->to.n, err));
        at = end + p->from.n;
    }
    return TT_OK;
}

static tt_status replace_matches(const hf_norm *p, hf_matcher *m, const uint8_t *s, size_t n,
                                 hf_bytes *out, tt_error *err)
{
    for (size_t at = 0, begin, end; at < n; at = end) {
        TT_TRY(hf_regex_find(p->regex, m, s, n, at, &begin, &end, err));
        TT_TRY(hf_bytes_add(out, s + at, begin - at, err));
        if (end > begin)
            TT_TRY(hf_bytes_add(out, p->to.s, p->to.n, err));
    }
    return TT_OK;
}

static tt_status replace(const hf_tokenizer *t, hf_norm_room *r, size_t i, const uint8_t *s,
                         size_t n, hf_bytes *out, tt_error *err)
{
    const hf_norm *p = &t->norms[i];
    if (!p->regex)
        return replace_text(p, s, n, out, err);
    if (!r->matchers[i])
        TT_TRY(hf_matcher_new(p->regex, &r->matchers[i], err));
    return replace_matches(p, r->matchers[i], s, n, out, err);
}

static tt_status compose(const hf_tokenizer *t, const uint8_t *s, size_t n, hf_bytes *out,
                         tt_error *err)
{
    hf_bytes parts = {0};
    tt_status status = hf_decompose(t, s, n, true, &parts, err);
    if (status == TT_OK)
        status = hf_nfc(t->flags, parts.s, parts.n, out, err);
    free(parts.s);
    return status;
}

/* Whether a step certainly changes nothing. */
static bool idle(const hf_tokenizer *t, const hf_norm *p, const uint8_t *s, size_t n)
{
    switch (p->kind) {
    case HF_NFC:
        return hf_nfc_stable(t->flags, s, n);
    case HF_NFD:
    case HF_NFKC:
    case HF_NFKD:
    case HF_STRIP_ACCENTS:
        return hf_ascii(s, n);
    case HF_REPLACE:
        return !p->regex && !memmem(s, n, p->from.s, p->from.n);
    case HF_PREPEND:
        return n == 0;
    case HF_PRECOMPILED:
        return !p->map;
    default:
        return false;
    }
}

static tt_status apply(const hf_tokenizer *t, hf_norm_room *r, size_t i, const uint8_t *s, size_t n,
                       hf_bytes *out, tt_error *err)
{
    const hf_norm *p = &t->norms[i];
    switch (p->kind) {
    case HF_NFC:
        return hf_nfc(t->flags, s, n, out, err);
    case HF_NFD:
    case HF_NFKD:
        return hf_decompose(t, s, n, p->kind == HF_NFKD, out, err);
    case HF_NFKC:
        return compose(t, s, n, out, err);
    case HF_LOWERCASE:
        return lowercase(t->traits, s, n, out, err);
    case HF_STRIP_ACCENTS:
        return sift(t->traits, s, n, HF_ACCENT, 0, out, err);
    case HF_STRIP:
        return strip(t, p, s, n, out, err);
    case HF_NMT:
        return sift(t->traits, s, n, HF_NMT_GONE, HF_NMT_BLANK, out, err);
    case HF_BERT:
        return bert(t, p, s, n, out, err);
    case HF_REPLACE:
        return replace(t, r, i, s, n, out, err);
    case HF_PREPEND:
        TT_TRY(hf_bytes_add(out, p->to.s, p->to.n, err));
        return hf_bytes_add(out, s, n, err);
    case HF_PRECOMPILED:
        return hf_precompiled(p, s, n, out, err);
    case HF_SENTENCEPIECE:
        return hf_sentencepiece_normalize(t, p, r->inside, s, n, out, err);
    }
    return TT_OK;
}

tt_status hf_normalize(const hf_tokenizer *t, hf_norm_room *r, const uint8_t **s, size_t *n,
                       tt_error *err)
{
    for (size_t i = 0; i < t->n_norms; i++) {
        if (idle(t, &t->norms[i], *s, *n))
            continue;
        hf_bytes *out = *s == r->a.s && r->a.s ? &r->b : &r->a;
        out->n = 0;
        TT_TRY(apply(t, r, i, *s, *n, out, err));
        *s = out->s ? out->s : (const uint8_t *)"";
        *n = out->n;
    }
    return TT_OK;
}
