/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_UNICODE_H
#define TT_TOKENIZER_HF_UNICODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* Properties of code points: categories, flags, UTF-8. See unicode_table.c, unicode.c. */

enum hf_category { /* the order of make_unicode_table.py */
                   HF_CN,
                   HF_LU,
                   HF_LL,
                   HF_LT,
                   HF_LM,
                   HF_LO,
                   HF_MN,
                   HF_MC,
                   HF_ME,
                   HF_ND,
                   HF_NL,
                   HF_NO,
                   HF_PC,
                   HF_PD,
                   HF_PS,
                   HF_PE,
                   HF_PI,
                   HF_PF,
                   HF_PO,
                   HF_SM,
                   HF_SC,
                   HF_SK,
                   HF_SO,
                   HF_N_CATEGORIES = 30
};
extern const uint32_t hf_category_runs[];
extern const size_t hf_n_category_runs;
extern const uint32_t hf_combining_runs[]; /* first, last, first, last, … */
extern const size_t hf_n_combining_runs;
extern const uint32_t hf_han_runs[]; /* script Han: first, last, … */
extern const size_t hf_n_han_runs;

/* The flags that the scanners test. */
#define HF_LETTER 1u
#define HF_NUMBER 2u
#define HF_SPACE 4u   /* Oniguruma's \s: White_Space                                         */
#define HF_NEWLINE 8u /* \r \n                                                               */
#define HF_MARK 16u
#define HF_SYMBOL 32u /* P or S                                                              */
#define HF_UPPER 64u  /* Lu Lt Lm Lo M: what tekken takes for the head of a word             */
#define HF_LOWER 128u /* Ll Lm Lo M: … and for its tail                                      */
#define HF_CJK 256u   /* DeepSeek's [一-龥぀-ゟ゠-ヿ]   */
#define HF_WORD 512u  /* \w of added tokens with single_word                                 */
#define HF_UNSTABLE 1024u /* NFC may change it or join it to what is before                    */
#define HF_HAN 2048u      /* \p{Han}                                                           */

#define HF_CODE_POINTS 0x110000

tt_status hf_unicode_new(bool nfc, uint16_t **flags, tt_error *err); /* [HF_CODE_POINTS]; free() */
/* The code point at s, which is valid UTF-8; *n is its bytes. */
static inline uint32_t hf_decode(const uint8_t *s, unsigned *n)
{
    if (s[0] < 0x80) {
        *n = 1;
        return s[0];
    }
    if (s[0] < 0xe0) {
        *n = 2;
        return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    }
    if (s[0] < 0xf0) {
        *n = 3;
        return (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    }
    *n = 4;
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}
size_t hf_utf8_valid(const uint8_t *s, size_t n); /* bytes of the longest valid prefix */

#endif
