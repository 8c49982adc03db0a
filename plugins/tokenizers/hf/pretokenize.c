/* SPDX-License-Identifier: Apache-2.0 */
#include "normalize.h"

/* The scanners of the pre-tokenizers that tokenizer.json calls by name. Each returns the bytes of
 * the match that begins at s, or 0. */

static unsigned traits_at(const uint16_t *traits, const uint8_t *s, unsigned *n)
{
    return traits[hf_decode(s, n)];
}

size_t hf_scan_white(const uint16_t *traits, const uint8_t *s, const uint8_t *end)
{
    unsigned n;
    const uint8_t *p = s;
    while (p < end && (traits_at(traits, p, &n) & HF_WHITE))
        p += n;
    return (size_t)(p - s);
}

/* \w+|[^\w\s]+ */
size_t hf_scan_word(const uint16_t *traits, const uint8_t *s, const uint8_t *end)
{
    unsigned n;
    const unsigned both = HF_WHITE | HF_WORD_CHAR, kind = traits_at(traits, s, &n) & both;
    const uint8_t *p = s;
    if (kind & HF_WHITE)
        return 0;
    while (p < end && (traits_at(traits, p, &n) & both) == kind)
        p += n;
    return (size_t)(p - s);
}

static size_t one_of(const uint16_t *traits, const uint8_t *s, unsigned bit)
{
    unsigned n;
    return traits_at(traits, s, &n) & bit ? n : 0;
}

size_t hf_scan_punctuation(const uint16_t *traits, const uint8_t *s, const uint8_t *end)
{
    (void)end;
    return one_of(traits, s, HF_PUNCTUATION);
}

size_t hf_scan_bert_mark(const uint16_t *traits, const uint8_t *s, const uint8_t *end)
{
    (void)end;
    return one_of(traits, s, HF_BERT_MARK);
}

size_t hf_scan_digit(const uint16_t *traits, const uint8_t *s, const uint8_t *end)
{
    (void)end;
    return one_of(traits, s, HF_DIGIT);
}
