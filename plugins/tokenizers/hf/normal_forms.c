/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The traits of code points, and the normalization forms D and KD, as of the version of Unicode
 * that Hugging Face tokenizers knows: utf8proc decomposes a code point only where the tables say
 * that tokenizers does. */

static void set_runs(uint16_t *traits, const uint32_t *runs, size_t n, unsigned bit)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        for (uint32_t c = runs[i]; c <= runs[i + 1]; c++)
            traits[c] |= (uint16_t)bit;
}

tt_status hf_traits_new(const uint16_t *flags, uint16_t **out, tt_error *err)
{
    const struct {
        const uint32_t *runs;
        size_t n;
        unsigned bit;
    } sets[] = {
        {hf_accent_runs,      hf_n_accent_runs,      HF_ACCENT     },
        {hf_bert_accent_runs, hf_n_bert_accent_runs, HF_BERT_ACCENT},
        {hf_bert_gone_runs,   hf_n_bert_gone_runs,   HF_BERT_GONE  },
        {hf_bert_blank_runs,  hf_n_bert_blank_runs,  HF_BERT_BLANK },
        {hf_chinese_runs,     hf_n_chinese_runs,     HF_CHINESE    },
        {hf_nmt_gone_runs,    hf_n_nmt_gone_runs,    HF_NMT_GONE   },
        {hf_nmt_blank_runs,   hf_n_nmt_blank_runs,   HF_NMT_BLANK  },
        {hf_canonical_runs,   hf_n_canonical_runs,   HF_CANONICAL  },
        {hf_compatible_runs,  hf_n_compatible_runs,  HF_COMPATIBLE },
        {hf_punctuation_runs, hf_n_punctuation_runs, HF_PUNCTUATION},
        {hf_bert_mark_runs,   hf_n_bert_mark_runs,   HF_BERT_MARK  },
        {hf_digit_runs,       hf_n_digit_runs,       HF_DIGIT      },
        {hf_word_runs,        hf_n_word_runs,        HF_WORD_CHAR  },
    };
    uint16_t *traits = calloc(HF_CODE_POINTS, sizeof *traits);
    if (!traits)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for the table of code points");
    for (size_t i = 0; i < TT_COUNT(sets); i++)
        set_runs(traits, sets[i].runs, sets[i].n, sets[i].bit);
    for (size_t i = 0; i + 3 < hf_n_lower_runs; i += 4)
        for (int32_t c = hf_lower_runs[i]; c <= hf_lower_runs[i + 1]; c += hf_lower_runs[i + 2])
            traits[c] |= HF_CASED;
    traits[0x130] |= HF_CASED;
    for (size_t c = 0; c < 0x3001; c++)
        if (flags[c] & HF_SPACE)
            traits[c] |= HF_WHITE;
    *out = traits;
    return TT_OK;
}

uint32_t hf_lower(const uint16_t *traits, uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (!(traits[c] & HF_CASED))
        return c;
    size_t low = 0, high = hf_n_lower_runs / 4; /* the last run that begins at or before c */
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if ((uint32_t)hf_lower_runs[4 * middle] <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)((int32_t)c + hf_lower_runs[4 * low + 3]);
}

bool hf_ascii(const uint8_t *s, size_t n)
{
    uint64_t word;
    size_t i = 0;
    for (; n - i >= sizeof word; i += sizeof word) {
        memcpy(&word, s + i, sizeof word);
        if (word & 0x8080808080808080u)
            return false;
    }
    for (; i < n; i++)
        if (s[i] >= 0x80)
            return false;
    return true;
}

tt_status hf_put_point(hf_bytes *out, uint32_t c, tt_error *err)
{
    TT_TRY(hf_bytes_room(out, 4, err));
    out->n += (size_t)utf8proc_encode_char((utf8proc_int32_t)c, out->s + out->n);
    return TT_OK;
}

/* Code points that wait for their order: those of one run with a combining class. */
typedef struct waiting {
    uint32_t *c;
    size_t n, cap;
    bool sorted;
} waiting;

static tt_status wait_for_order(const hf_tokenizer *t, waiting *w, uint32_t c, tt_error *err)
{
    if (w->n == w->cap) {
        const size_t cap = 2 * w->cap + 32;
        uint32_t *more = realloc(w->c, cap * sizeof *more);
        if (!more)
            return TT_FAIL(err, TT_ENOMEM, "out of memory to normalize a text");
        w->c = more;
        w->cap = cap;
    }
    w->sorted = w->sorted &&
                (w->n == 0 || hf_class_of(t->flags, w->c[w->n - 1]) <= hf_class_of(t->flags, c));
    w->c[w->n++] = c;
    return TT_OK;
}

/* Writes the waiting code points in canonical order: a stable sort by class, in linear time. */
static tt_status put_in_order(const hf_tokenizer *t, waiting *w, hf_bytes *out, tt_error *err)
{
    for (int class = 0, more = -1; !w->sorted && class < 256 && more != 0; class ++) {
        more = 0;
        for (size_t i = 0; i < w->n; i++) {
            const int own = hf_class_of(t->flags, w->c[i]);
            more |= own > class;
            if (own == class)
                TT_TRY(hf_put_point(out, w->c[i], err));
        }
    }
    for (size_t i = 0; w->sorted && i < w->n; i++)
        TT_TRY(hf_put_point(out, w->c[i], err));
    w->n = 0;
    w->sorted = true;
    return TT_OK;
}

tt_status hf_decompose(const hf_tokenizer *t, const uint8_t *s, size_t n, bool compatible,
                       hf_bytes *out, tt_error *err)
{
    const unsigned bit = compatible ? HF_COMPATIBLE : HF_CANONICAL;
    const utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                  (compatible ? UTF8PROC_COMPAT : (utf8proc_option_t)0);
    waiting w = {.sorted = true};
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && i < n;) {
        unsigned k;
        utf8proc_int32_t parts[32];
        utf8proc_ssize_t m = 1;
        int last_class = 0;
        parts[0] = (utf8proc_int32_t)hf_decode(s + i, &k);
        i += k;
        if (t->traits[parts[0]] & bit)
            m = utf8proc_decompose_char(parts[0], parts, 32, how, &last_class);
        for (utf8proc_ssize_t j = 0; status == TT_OK && j < m && j < 32; j++) {
            const uint32_t c = (uint32_t)parts[j];
            if (hf_class_of(t->flags, c)) {
                status = wait_for_order(t, &w, c, err);
                continue;
            }
            status = w.n ? put_in_order(t, &w, out, err) : TT_OK;
            if (status == TT_OK)
                status = hf_put_point(out, c, err);
        }
    }
    if (status == TT_OK)
        status = put_in_order(t, &w, out, err);
    free(w.c);
    return status;
}
