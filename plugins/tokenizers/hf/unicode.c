/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include "normalize.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Flags of code points, UTF-8, normalization form C. */

static uint16_t category_flags(unsigned category)
{
    switch (category) {
    case HF_LU:
    case HF_LT:
        return HF_LETTER | HF_UPPER;
    case HF_LL:
        return HF_LETTER | HF_LOWER;
    case HF_LM:
    case HF_LO:
        return HF_LETTER | HF_UPPER | HF_LOWER;
    case HF_MN:
    case HF_MC:
    case HF_ME:
        return HF_MARK | HF_UPPER | HF_LOWER;
    case HF_ND:
    case HF_NL:
    case HF_NO:
        return HF_NUMBER;
    default:
        return category >= HF_PC && category <= HF_SO ? HF_SYMBOL : 0;
    }
}

static void set(uint16_t *flags, uint32_t first, uint32_t last, uint16_t bits)
{
    for (uint32_t c = first; c <= last; c++)
        flags[c] |= bits;
}

/* Canonical decompositions as of Unicode 9, beyond the basic plane, where there are few. */
static bool may_decompose(int32_t c)
{
    return c < 0x10000 || (c >= 0x1109a && c <= 0x1112f) || (c >= 0x1134b && c <= 0x1134c) ||
           (c >= 0x114bb && c <= 0x115bb) || (c >= 0x1d15e && c <= 0x1d1c0) || c >= 0x2f800;
}

/* A code point is unstable if it has a combining class, if NFC replaces it, or if it can join the
 * one before it (it ends a canonical decomposition, or is a Hangul vowel or final). Hugging Face
 * tokenizers uses the NFC of Unicode 9, and ids must agree, so newer code points are left as they
 * are. */
static void mark_unstable(uint16_t *flags)
{
    set(flags, 0x1161, 0x1175, HF_UNSTABLE);
    set(flags, 0x11a8, 0x11c2, HF_UNSTABLE);
    for (size_t i = 0; i + 1 < hf_n_combining_runs; i += 2)
        set(flags, hf_combining_runs[i], hf_combining_runs[i + 1], HF_UNSTABLE);
    for (int32_t c = 0xa0; c < 0x30000; c++) {
        utf8proc_int32_t parts[32];
        int last_class = 0;
        if ((c >= 0xac00 && c < 0xe000) || !may_decompose(c)) /* Hangul syllables are stable */
            continue;
        utf8proc_ssize_t n = utf8proc_decompose_char(
            c, parts, 32, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
        if (n < 1 || n > 32 || (n == 1 && parts[0] == c))
            continue;
        for (utf8proc_ssize_t i = 1; i < n; i++)
            flags[parts[i]] |= HF_UNSTABLE;
        n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (n != 1 || parts[0] != c)
            flags[c] |= HF_UNSTABLE;
    }
}

tt_status hf_unicode_new(bool nfc, uint16_t **out, tt_error *err)
{
    uint16_t *flags = calloc(HF_CODE_POINTS, sizeof *flags);
    if (!flags)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for the table of code points");
    for (size_t i = 0; i < hf_n_category_runs; i++) {
        const uint32_t first = hf_category_runs[i] >> 5;
        const uint32_t end =
            i + 1 < hf_n_category_runs ? hf_category_runs[i + 1] >> 5 : HF_CODE_POINTS;
        set(flags, first, end - 1, category_flags(hf_category_runs[i] & 31u));
    }
    static const uint32_t spaces[][2] = {
        {0x09,   0x0d  },
        {0x20,   0x20  },
        {0x85,   0x85  },
        {0xa0,   0xa0  },
        {0x1680, 0x1680},
        {0x2000, 0x200a},
        {0x2028, 0x2029},
        {0x202f, 0x202f},
        {0x205f, 0x205f},
        {0x3000, 0x3000}
    };
    for (size_t i = 0; i < TT_COUNT(spaces); i++)
        set(flags, spaces[i][0], spaces[i][1], HF_SPACE);
    flags['\n'] |= HF_NEWLINE;
    flags['\r'] |= HF_NEWLINE;
    set(flags, 0x4e00, 0x9fa5, HF_CJK);
    set(flags, 0x3040, 0x30ff, HF_CJK);
    for (size_t i = 0; i + 1 < hf_n_word_runs; i += 2)
        set(flags, hf_word_runs[i], hf_word_runs[i + 1], HF_WORD);
    for (size_t i = 0; i + 1 < hf_n_han_runs; i += 2)
        set(flags, hf_han_runs[i], hf_han_runs[i + 1], HF_HAN);
    if (nfc)
        mark_unstable(flags);
    *out = flags;
    return TT_OK;
}

size_t hf_utf8_valid(const uint8_t *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        while (n - i >= sizeof word) { /* eight ASCII bytes at once */
            memcpy(&word, s + i, sizeof word);
            if (word & 0x8080808080808080u)
                break;
            i += sizeof word;
        }
        if (i == n)
            break;
        utf8proc_int32_t c;
        const size_t left = n - i;
        const utf8proc_ssize_t k =
            utf8proc_iterate(s + i, left < 4 ? (utf8proc_ssize_t)left : 4, &c);
        if (k < 1)
            break;
        i += (size_t)k;
    }
    return i;
}

tt_status hf_bytes_room(hf_bytes *b, size_t more, tt_error *err)
{
    if (b->s && more <= b->cap - b->n)
        return TT_OK;
    const size_t want = b->n + more;
    const size_t cap = want < b->cap + b->cap / 2 ? b->cap + b->cap / 2 : want + 64;
    uint8_t *s = want >= more && cap >= want ? realloc(b->s, cap) : NULL;
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %zu more bytes after %zu", more, b->n);
    b->s = s;
    b->cap = cap;
    return TT_OK;
}

tt_status hf_bytes_add(hf_bytes *b, const void *s, size_t n, tt_error *err)
{
    TT_TRY(hf_bytes_room(b, n, err));
    if (n)
        memcpy(b->s + b->n, s, n);
    b->n += n;
    return TT_OK;
}

bool hf_nfc_stable(const uint16_t *flags, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (s[i] < 0x80) {
            i++;
            continue;
        }
        unsigned k;
        if (flags[hf_decode(s + i, &k)] & HF_UNSTABLE)
            return false;
        i += k;
    }
    return true;
}

/* 0 for code points that Unicode 9 does not have. */
int hf_class_of(const uint16_t *flags, uint32_t c)
{
    return flags[c] & HF_UNSTABLE ? utf8proc_get_property((utf8proc_int32_t)c)->combining_class : 0;
}

/* Canonical order: a stable sort of each run of combining marks by class. It is a counting sort, so
 * that even a text made only of marks takes linear time. */
static void order_marks(const uint16_t *flags, utf8proc_int32_t *c, utf8proc_int32_t *spare,
                        size_t n)
{
    size_t count[257] = {0};
    for (size_t i = 0; i < n; i++)
        count[hf_class_of(flags, (uint32_t)c[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        count[i] += count[i - 1];
    for (size_t i = 0; i < n; i++)
        spare[count[hf_class_of(flags, (uint32_t)c[i])]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

static void order_all(const uint16_t *flags, utf8proc_int32_t *c, utf8proc_int32_t *spare, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = i;
        bool sorted = true;
        int before = 0;
        for (; k < n && hf_class_of(flags, (uint32_t)c[k]); k++) {
            sorted = sorted && before <= hf_class_of(flags, (uint32_t)c[k]);
            before = hf_class_of(flags, (uint32_t)c[k]);
        }
        if (!sorted)
            order_marks(flags, c + i, spare, k - i);
        i = k > i ? k : i + 1;
    }
}

/* Normalizes the text from one stable code point to the next. */
static tt_status normalize(const uint16_t *flags, const uint8_t *s, size_t n, hf_bytes *out,
                           tt_error *err)
{
    enum { SMALL = 256, LONGEST = 4 /* code points of one, decomposed; 18 with compatibility */ };
    utf8proc_int32_t small[2 * SMALL], *c = small;
    const size_t room = n * LONGEST; /* n bytes hold at most n code points */
    size_t m = 0;
    int last_class = 0;
    tt_status status = TT_OK;
    if (room > SMALL &&
        !(c = room / LONGEST == n && room < SIZE_MAX / 16 ? malloc(2 * room * sizeof *c) : NULL))
        return TT_FAIL(err, TT_ENOMEM, "out of memory to normalize %zu bytes of text", n);
    utf8proc_int32_t *spare = c + (c == small ? (size_t)SMALL : room);
    for (size_t i = 0; i < n;) {
        unsigned k;
        const uint32_t point = hf_decode(s + i, &k);
        m += (size_t)utf8proc_decompose_char((utf8proc_int32_t)point, c + m,
                                             (utf8proc_ssize_t)(room - m),
                                             UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
        i += k;
    }
    order_all(flags, c, spare, m);
    m = (size_t)utf8proc_normalize_utf32(c, (utf8proc_ssize_t)m,
                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    status = hf_bytes_room(out, 4 * m, err);
    for (size_t i = 0; status == TT_OK && i < m; i++)
        out->n += (size_t)utf8proc_encode_char(c[i], out->s + out->n);
    if (c != small)
        free(c);
    return status;
}

tt_status hf_nfc(const uint16_t *flags, const uint8_t *s, size_t n, hf_bytes *out, tt_error *err)
{
    size_t done = 0, last = 0; /* s[0, done) is written; last: the newest stable code point */
    for (size_t i = 0; i < n;) {
        unsigned k;
        if (!(flags[hf_decode(s + i, &k)] & HF_UNSTABLE)) {
            last = i;
            i += k;
            continue;
        }
        size_t end = i + k;
        while (end < n && (flags[hf_decode(s + end, &k)] & HF_UNSTABLE))
            end += k;
        TT_TRY(hf_bytes_add(out, s + done, last - done, err));
        TT_TRY(normalize(flags, s + last, end - last, out, err));
        done = last = i = end;
    }
    return hf_bytes_add(out, s + done, n - done, err);
}
