/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The precompiled map of SentencePiece: a trie of code point sequences as a double array of
 * 32-bit units, and the texts that take their place. A file may contain any units, so every step is
 * checked. Format: u32 bytes of the trie, the trie, the texts, each ended by a NUL. */

tt_status hf_charsmap_new(const uint8_t *blob, size_t n, hf_charsmap **out, tt_error *err)
{
    uint32_t bytes = 0;
    if (n >= 4)
        bytes =
            blob[0] | (uint32_t)blob[1] << 8 | (uint32_t)blob[2] << 16 | (uint32_t)blob[3] << 24;
    if (n < 8 || bytes < 4 || bytes % 4 || bytes > n - 4)
        return TT_FAIL(err, TT_EFORMAT, "precompiled_charsmap: %zu bytes are not a trie and texts",
                       n);
    const size_t n_text = n - 4 - bytes;
    if (hf_utf8_valid(blob + 4 + bytes, n_text) != n_text)
        return TT_FAIL(err, TT_EFORMAT, "precompiled_charsmap: its texts are not UTF-8");
    hf_charsmap *m = calloc(1, sizeof *m);
    if (m) {
        m->units = malloc(bytes);
        m->text = malloc(n_text + 1);
    }
    if (!m || !m->units || !m->text) {
        hf_charsmap_free(m);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a charsmap of %zu bytes", n);
    }
    m->n_units = bytes / 4;
    m->n_text = n_text;
    for (size_t i = 0; i < m->n_units; i++) {
        const uint8_t *u = blob + 4 + 4 * i;
        m->units[i] = u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    memcpy(m->text, blob + 4 + bytes, n_text);
    m->text[n_text] = '\0';
    *out = m;
    return TT_OK;
}

void hf_charsmap_free(hf_charsmap *m)
{
    if (m) {
        free(m->units);
        free(m->text);
    }
    free(m);
}

/* Whether p is within a character. What becomes of a text must be whole characters. */
static bool is_inside(const char *p)
{
    return ((unsigned char)*p & 0xc0) == 0x80;
}

/* A unit: bits 0-7 a label, 8 whether a value follows, 9 whether the offset is times 256, 10-30 the
 * offset, 31 whether the unit is a value. */
static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 512u) >> 6);
}

const char *hf_charsmap_find(const hf_charsmap *m, const uint8_t *s, size_t n, bool longest,
                             size_t *used)
{
    const char *found = NULL;
    size_t node = offset_of(m->units[0]);
    for (size_t i = 0; i < n && s[i]; i++) {
        node ^= s[i];
        if (node >= m->n_units || (m->units[node] & 0x800000ffu) != s[i])
            break;
        const uint32_t unit = m->units[node];
        node ^= offset_of(unit);
        if (node >= m->n_units)
            break;
        const uint32_t value = m->units[node] & 0x7fffffffu;
        if (unit >> 8 & 1 && value < m->n_text && !is_inside(m->text + value) &&
            (i + 1 == n || !is_inside((const char *)s + i + 1))) {
            found = m->text + value;
            *used = i + 1;
            if (!longest)
                break;
        }
    }
    return found;
}

/* Hugging Face tokenizers maps a grapheme of at most five bytes as a whole by the shortest prefix of
 * it that the map has, and otherwise each code point by itself. */
static tt_status map_grapheme(const hf_norm *p, const uint8_t *s, size_t n, hf_bytes *out,
                              tt_error *err)
{
    size_t used;
    const char *text = n < 6 ? hf_charsmap_find(p->map, s, n, false, &used) : NULL;
    if (text)
        return hf_bytes_add(out, text, strlen(text), err);
    for (size_t i = 0; i < n;) {
        unsigned k;
        hf_decode(s + i, &k);
        text = hf_charsmap_find(p->map, s + i, k, false, &used);
        TT_TRY(text ? hf_bytes_add(out, text, strlen(text), err)
                    : hf_bytes_add(out, s + i, k, err));
        i += k;
    }
    return TT_OK;
}

tt_status hf_precompiled(const hf_norm *p, const uint8_t *s, size_t n, hf_bytes *out, tt_error *err)
{
    utf8proc_int32_t state = 0;
    for (size_t at = 0, end; at < n; at = end) {
        unsigned k;
        uint32_t c = hf_decode(s + at, &k);
        end = at + k;
        /* Between two letters of ASCII there is always a border. */
        if (c < 0x80 && c != '\r' && (end == n || s[end] < 0x80)) {
            state = 0;
            TT_TRY(map_grapheme(p, s + at, k, out, err));
            continue;
        }
        state = 0;
        while (end < n) {
            const uint32_t next = hf_decode(s + end, &k);
            if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next,
                                                 &state))
                break;
            c = next;
            end += k;
        }
        TT_TRY(map_grapheme(p, s + at, end - at, out, err));
    }
    return TT_OK;
}

/* ---- SentencePiece's own normalizer ---- */

typedef struct piece_out {
    hf_bytes *out;
    const hf_norm *p;
    bool after_blank; /* blanks that follow are left out */
} piece_out;

static tt_status put_blank(piece_out *o, tt_error *err)
{
    return o->p->escape ? hf_bytes_add(o->out, "\xe2\x96\x81", 3, err)
                        : hf_bytes_add(o->out, " ", 1, err);
}

/* The text that a prefix of s[0, n) becomes; *used of its bytes, *m bytes. */
static const char *next_text(const hf_tokenizer *t, const hf_norm *p, const uint8_t *s, size_t n,
                             size_t *used, size_t *m)
{
    const size_t symbol = hf_user_symbol(t, s, n, NULL);
    unsigned k;
    const char *text = NULL;
    if (!symbol && p->map)
        text = hf_charsmap_find(p->map, s, n, true, used);
    if (text) {
        *m = strlen(text);
        return text;
    }
    hf_decode(s, &k);
    *used = *m = symbol ? symbol : k;
    return (const char *)s;
}

static tt_status charsmap_put(piece_out *o, const char *text, size_t m, tt_error *err)
{
    while (o->after_blank && m && *text == ' ') {
        text++;
        m--;
    }
    if (m == 0)
        return TT_OK;
    for (size_t i = 0; i < m; i++)
        TT_TRY(o->p->escape && text[i] == ' ' ? put_blank(o, err)
                                              : hf_bytes_add(o->out, text + i, 1, err));
    o->after_blank = o->p->trim_blanks && text[m - 1] == ' ';
    return TT_OK;
}

tt_status hf_sentencepiece_normalize(const hf_tokenizer *t, const hf_norm *p, bool inside,
                                     const uint8_t *s, size_t n, hf_bytes *out, tt_error *err)
{
    const bool prefix = p->dummy_prefix && !(p->first_only && inside);
    piece_out o = {out, p, p->trim_blanks};
    const size_t before = out->n, blank = p->escape ? 3 : 1;
    size_t at = 0, used = 0, m = 0;
    const char *text = NULL;
    while (p->trim_blanks && at < n) {
        text = next_text(t, p, s + at, n - at, &used, &m);
        if (m != 1 || *text != ' ')
            break;
        at += used;
    }
    if (at == n)
        return TT_OK;
    if (prefix && !p->suffix)
        TT_TRY(put_blank(&o, err));
    for (; at < n; at += used) {
        text = next_text(t, p, s + at, n - at, &used, &m);
        TT_TRY(charsmap_put(&o, text, m, err));
    }
    while (p->trim_blanks && out->n - before >= blank &&
           memcmp(out->s + out->n - blank, p->escape ? "\xe2\x96\x81" : " ", blank) == 0)
        out->n -= blank;
    return prefix && p->suffix ? put_blank(&o, err) : TT_OK;
}
