/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_NORMALIZE_H
#define TT_TOKENIZER_HF_NORMALIZE_H
#include "hf.h"

/* Normalizers: what is done to a text before it is split into words. */

/* ---- tables (normal_table.c): first and last code point of each run ---- */

extern const uint32_t hf_accent_runs[], hf_bert_accent_runs[], hf_bert_gone_runs[],
    hf_bert_blank_runs[], hf_chinese_runs[], hf_nmt_gone_runs[], hf_nmt_blank_runs[],
    hf_canonical_runs[], hf_compatible_runs[], hf_punctuation_runs[], hf_bert_mark_runs[],
    hf_digit_runs[], hf_word_runs[];
extern const size_t hf_n_accent_runs, hf_n_bert_accent_runs, hf_n_bert_gone_runs,
    hf_n_bert_blank_runs, hf_n_chinese_runs, hf_n_nmt_gone_runs, hf_n_nmt_blank_runs,
    hf_n_canonical_runs, hf_n_compatible_runs, hf_n_punctuation_runs, hf_n_bert_mark_runs,
    hf_n_digit_runs, hf_n_word_runs;
extern const int32_t hf_lower_runs[]; /* first, last, step, what is added */
extern const size_t hf_n_lower_runs;

/* The traits of a code point: bits of hf_tokenizer.traits. */
#define HF_ACCENT 1u     /* StripAccents removes it                */
#define HF_BERT_GONE 2u  /* BertNormalizer's clean_text removes it */
#define HF_BERT_BLANK 4u /* … makes it a blank                     */
#define HF_CHINESE 8u
#define HF_NMT_GONE 16u
#define HF_NMT_BLANK 32u
#define HF_CANONICAL 64u   /* NFD changes it                         */
#define HF_COMPATIBLE 128u /* NFKD changes it                        */
#define HF_PUNCTUATION 256u
#define HF_BERT_MARK 512u /* BertPreTokenizer's punctuation         */
#define HF_DIGIT 1024u
#define HF_WORD_CHAR 2048u    /* \w of the pre-tokenizer Whitespace     */
#define HF_WHITE 4096u        /* White_Space                            */
#define HF_CASED 8192u        /* Lowercase changes it                   */
#define HF_BERT_ACCENT 16384u /* BertNormalizer's strip_accents removes it */
/* [HF_CODE_POINTS]; flags: hf_unicode_new's. The caller frees it. */
tt_status hf_traits_new(const uint16_t *flags, uint16_t **out, tt_error *err);

/* ---- the precompiled map of SentencePiece (charsmap.c) ---- */

typedef struct hf_charsmap {
    uint32_t *units; /* a double array, as darts-clone has them */
    size_t n_units;
    char *text; /* replacements, each ended by a NUL */
    size_t n_text;
} hf_charsmap;
tt_status hf_charsmap_new(const uint8_t *blob, size_t n, hf_charsmap **out, tt_error *err);
void hf_charsmap_free(hf_charsmap *m);
/* The replacement of a prefix of s[0, n): *used bytes of it, the longest that the map has, or the
 * shortest. NULL: the map has no prefix of it. */
const char *hf_charsmap_find(const hf_charsmap *m, const uint8_t *s, size_t n, bool longest,
                             size_t *used);

/* ---- steps (normalize.c, normal_forms.c) ---- */

typedef enum hf_norm_kind {
    HF_NFC,
    HF_NFD,
    HF_NFKC,
    HF_NFKD,
    HF_LOWERCASE,
    HF_STRIP_ACCENTS,
    HF_STRIP,
    HF_NMT,
    HF_BERT,
    HF_REPLACE,
    HF_PREPEND,
    HF_PRECOMPILED,
    HF_SENTENCEPIECE,
} hf_norm_kind;

struct hf_norm {
    hf_norm_kind kind;
    hf_bytes from, to; /* Replace: a text, and what takes its place; Prepend: to */
    hf_regex *regex;   /* Replace: instead of from */
    bool blanks;       /* … which is " {2,}" */
    bool left, right;  /* Strip */
    bool clean, chinese, accents, lower;            /* BertNormalizer */
    bool dummy_prefix, trim_blanks, escape, suffix; /* SentencePiece */
    bool first_only;  /* … the dummy prefix belongs to the beginning of the text alone */
    hf_charsmap *map; /* Precompiled, SentencePiece; or NULL */
};
void hf_norms_release(hf_tokenizer *t);

struct hf_norm_room { /* what one call needs */
    hf_bytes a, b;
    bool inside; /* the piece does not begin the text */
    hf_matcher *matchers[HF_MAX_NORMS];
};
void hf_norm_room_release(hf_norm_room *r);

/* Normalizes *s, *n bytes of UTF-8; they then lie in the room, or where they were if nothing
 * changed. */
tt_status hf_normalize(const hf_tokenizer *t, hf_norm_room *r, const uint8_t **s, size_t *n,
                       tt_error *err);

bool hf_ascii(const uint8_t *s, size_t n);
tt_status hf_put_point(hf_bytes *out, uint32_t c, tt_error *err);
uint32_t hf_lower(const uint16_t *traits, uint32_t c); /* U+0130 is the caller's */
/* NFD or NFKD, appended to out. */
tt_status hf_decompose(const hf_tokenizer *t, const uint8_t *s, size_t n, bool compatible,
                       hf_bytes *out, tt_error *err);
tt_status hf_precompiled(const hf_norm *p, const uint8_t *s, size_t n, hf_bytes *out,
                         tt_error *err);
/* SentencePiece's own normalizer, which leaves user-defined symbols alone. inside: s does not begin
 * the text. */
tt_status hf_sentencepiece_normalize(const hf_tokenizer *t, const hf_norm *p, bool inside,
                                     const uint8_t *s, size_t n, hf_bytes *out, tt_error *err);

#endif
