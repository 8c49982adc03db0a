/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <string.h>

/* Hand-written scanners for the patterns of common models: one pass forward, no backtracking. Tests
 * compare them with PCRE2 on the same pattern. A scanner returns the bytes of the match that begins
 * at s. */

/* The flags of the code point at s; 0 at the end, which is in no class. */
static inline unsigned flags_of(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                unsigned *n)
{
    if (s >= end) {
        *n = 0;
        return 0;
    }
    if (*s < 0x80) {
        *n = 1;
        return flags[*s];
    }
    return flags[hf_decode(s, n)];
}

/* Skips the longest run of code points that have one of the flags `any`. */
static inline const uint8_t *scan_run(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                      unsigned any)
{
    unsigned n;
    while (flags_of(flags, s, end, &n) & any)
        s += n;
    return s;
}

/* [^\s\p{L}\p{N}]+, or another complement. */
static inline const uint8_t *run_not(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                     unsigned none)
{
    unsigned n;
    while (s < end && !(flags_of(flags, s, end, &n) & none))
        s += n;
    return s;
}

/* \s*[\r\n]+ where `newlines`, then \s+(?!\S), then \s+; s is at a space. */
static size_t spaces(const uint16_t *flags, const uint8_t *s, const uint8_t *end, bool newlines)
{
    const uint8_t *p = s, *last = s, *newline = NULL; /* last: the last space of the run */
    unsigned n, f;
    while ((f = flags_of(flags, p, end, &n)) & HF_SPACE) {
        last = p;
        p += n;
        if (f & HF_NEWLINE)
            newline = p;
    }
    if (newlines && newline)
        return (size_t)(newline - s);
    if (p < end && last > s) /* the word that follows takes the last space */
        p = last;
    return (size_t)(p - s);
}

/* 's 't 're 've 'm 'll 'd at s, which is at the apostrophe; 0: none. Case is folded, and ſ is an
 * s. */
static size_t contraction(const uint8_t *s, const uint8_t *end, bool fold)
{
    if (end - s < 2)
        return 0;
    const uint8_t bit = fold ? 0x20 : 0, a = s[1] | bit;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - s < 3)
        return 0;
    const uint8_t b = s[2] | bit;
    if ((a == 'l' && b == 'l') || ((a == 'v' || a == 'r') && b == 'e'))
        return 3;
    return fold && s[1] == 0xc5 && s[2] == 0xbf ? 3 : 0;
}

#define NOT_OTHER (HF_SPACE | HF_LETTER | HF_NUMBER)

static size_t scan_gpt2(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    unsigned n;
    const uint8_t *p = s;
    if (*s == '\'') {
        const size_t k = contraction(s, end, false);
        if (k)
            return k;
    }
    unsigned f = flags_of(flags, p, end, &n);
    if (*s == ' ' && s + 1 < end && !((f = flags_of(flags, s + 1, end, &n)) & HF_SPACE))
        p++;
    else
        f = flags_of(flags, s, end, &n);
    if (f & HF_SPACE)
        return spaces(flags, s, end, false);
    p += n;
    if (f & HF_LETTER)
        return (size_t)(scan_run(flags, p, end, HF_LETTER) - s);
    if (f & HF_NUMBER)
        return (size_t)(scan_run(flags, p, end, HF_NUMBER) - s);
    return (size_t)(run_not(flags, p, end, NOT_OTHER) - s);
}

/* \p{N}{1,most} */
static size_t numbers(const uint16_t *flags, const uint8_t *s, const uint8_t *end, unsigned most)
{
    const uint8_t *p = s;
    unsigned n;
    for (unsigned i = 0; i < most && (flags_of(flags, p, end, &n) & HF_NUMBER); i++)
        p += n;
    return (size_t)(p - s);
}

/* The part Llama-3's family shares, for an s that begins no word: numbers, `
 * ?[^\s\p{L}\p{N}]+[\r\n]*`, spaces. slash: [\r\n/]* after the symbols. */
static inline size_t rest(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                          unsigned most, bool slash)
{
    unsigned n;
    const unsigned f = flags_of(flags, s, end, &n);
    const uint8_t *p = s + (*s == ' ');
    if (f & HF_NUMBER)
        return numbers(flags, s, end, most);
    if (p < end && !(flags_of(flags, p, end, &n) & NOT_OTHER)) {
        p = run_not(flags, p, end, NOT_OTHER);
        while (p < end && (*p == '\r' || *p == '\n' || (slash && *p == '/')))
            p++;
        return (size_t)(p - s);
    }
    return spaces(flags, s, end, true);
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ at s; 0 = none. */
static inline size_t word(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    unsigned n, n_next;
    const unsigned f = flags_of(flags, s, end, &n);
    if (f & HF_LETTER)
        return (size_t)(scan_run(flags, s + n, end, HF_LETTER) - s);
    if ((f & (HF_NEWLINE | HF_NUMBER)) || !(flags_of(flags, s + n, end, &n_next) & HF_LETTER))
        return 0;
    return (size_t)(scan_run(flags, s + n + n_next, end, HF_LETTER) - s);
}

static inline size_t llama3_like(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                 unsigned most)
{
    size_t k = *s == '\'' ? contraction(s, end, true) : 0;
    if (!k)
        k = word(flags, s, end);
    return k ? k : rest(flags, s, end, most, false);
}

static size_t scan_llama3(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return llama3_like(flags, s, end, 3);
}

static size_t scan_qwen2(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return llama3_like(flags, s, end, 1);
}

static size_t scan_nanochat(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return llama3_like(flags, s, end, 2);
}

/* Qwen3.5: marks count as letters. */
static size_t scan_qwen35(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    const unsigned letter = HF_LETTER | HF_MARK;
    size_t k = *s == '\'' ? contraction(s, end, true) : 0;
    if (k)
        return k;
    unsigned n, n_next;
    const unsigned f = flags_of(flags, s, end, &n);
    if (!(f & (HF_NEWLINE | HF_NUMBER | HF_LETTER)) &&
        (flags_of(flags, s + n, end, &n_next) & letter))
        return (size_t)(scan_run(flags, s + n + n_next, end, letter) - s);
    if (f & letter)
        return (size_t)(scan_run(flags, s + n, end, letter) - s);
    if (f & HF_NUMBER)
        return n;
    const uint8_t *p = s + (*s == ' ');
    if (p < end && !(flags_of(flags, p, end, &n) & (NOT_OTHER | HF_MARK))) {
        p = run_not(flags, p, end, NOT_OTHER | HF_MARK);
        return (size_t)(scan_run(flags, p, end, HF_NEWLINE) - s);
    }
    return spaces(flags, s, end, true);
}

/* As flags_of, but a code point that has one of the flags `none` is neither UPPER nor LOWER. */
static inline unsigned cased(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                             unsigned none, unsigned *n)
{
    const unsigned f = flags_of(flags, s, end, n);
    return f & none ? f & ~(HF_UPPER | HF_LOWER) : f;
}

static inline const uint8_t *cased_run(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                       unsigned none, unsigned any)
{
    unsigned n;
    while (cased(flags, s, end, none, &n) & any)
        s += n;
    return s;
}

/* [UPPER]*[LOWER]+ at s, 0: none. A code point may be in both classes: then the head gives back
 * code points down to the last such one. */
static inline size_t tekken_tail(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                 unsigned none)
{
    const uint8_t *p = s, *both_end = NULL;
    unsigned n, f;
    while ((f = cased(flags, p, end, none, &n)) & HF_UPPER) {
        p += n;
        if (f & HF_LOWER)
            both_end = p;
    }
    if (f & HF_LOWER)
        return (size_t)(cased_run(flags, p, end, none, HF_LOWER) - s);
    return both_end ? (size_t)(both_end - s) : 0;
}

/* Without the tail: [UPPER]+[LOWER]*, used when tekken_tail found nothing, so no LOWER follows. */
static inline size_t tekken_head(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                 unsigned none)
{
    return (size_t)(cased_run(flags, s, end, none, HF_UPPER) - s);
}

static inline size_t tekken_word(const uint16_t *flags, const uint8_t *s, const uint8_t *end,
                                 unsigned none)
{
    unsigned n;
    const unsigned f = flags_of(flags, s, end, &n);
    size_t k = 0;
    /* each alternative with the character before it, then without it */
    for (int head = 0; head < 2; head++) {
        size_t (*const part)(const uint16_t *, const uint8_t *, const uint8_t *, unsigned) =
            head ? tekken_head : tekken_tail;
        if (!(f & (HF_NEWLINE | HF_LETTER | HF_NUMBER)) && (k = part(flags, s + n, end, none)))
            return n + k;
        if ((k = part(flags, s, end, none)))
            return k;
    }
    return 0;
}

static size_t scan_tekken(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    const size_t k = tekken_word(flags, s, end, 0);
    return k ? k : rest(flags, s, end, 1, true);
}

/* As tekken, but a word may end in a contraction, and up to three digits form a word. */
static size_t scan_o200k(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    const size_t k = tekken_word(flags, s, end, 0);
    if (k)
        return k + (s + k < end && s[k] == '\'' ? contraction(s + k, end, true) : 0);
    return rest(flags, s, end, 3, true);
}

/* As o200k, but Chinese characters are words of their own, and no / ends a run of symbols. */
static size_t scan_kimi(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    const uint8_t *p = scan_run(flags, s, end, HF_HAN);
    if (p > s)
        return (size_t)(p - s);
    const size_t k = tekken_word(flags, s, end, HF_HAN);
    if (k)
        return k + (s + k < end && s[k] == '\'' ? contraction(s + k, end, true) : 0);
    return rest(flags, s, end, 3, false);
}

/* As llama3, but spaces at the end of the text are one word. */
static size_t scan_cl100k(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    unsigned n;
    if (flags_of(flags, s, end, &n) & HF_SPACE) {
        const uint8_t *p = scan_run(flags, s, end, HF_SPACE);
        if (p == end)
            return (size_t)(p - s);
    }
    return llama3_like(flags, s, end, 3);
}

/* DeepSeek-V3 has three splits; text that no alternative matches is a word too (a gap). */
static size_t scan_numbers3(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return numbers(flags, s, end, 3);
}

static size_t scan_number(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return numbers(flags, s, end, 1);
}

static size_t scan_cjk(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    return (size_t)(scan_run(flags, s, end, HF_CJK) - s);
}

static bool ascii_letter(uint8_t c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static size_t scan_deepseek3(const uint16_t *flags, const uint8_t *s, const uint8_t *end)
{
    const unsigned letter = HF_LETTER | HF_MARK;
    unsigned n, n_next;
    const unsigned f = flags_of(flags, s, end, &n);
    const uint8_t *p = s + n;
    if (*s < 0x80 && (f & HF_SYMBOL) && p < end && ascii_letter(*p)) {
        while (p < end && ascii_letter(*p))
            p++;
        return (size_t)(p - s);
    }
    if (!(f & (HF_NEWLINE | HF_LETTER | HF_SYMBOL)) && (flags_of(flags, p, end, &n_next) & letter))
        return (size_t)(scan_run(flags, p + n_next, end, letter) - s);
    if (f & letter)
        return (size_t)(scan_run(flags, p, end, letter) - s);
    p = s + (*s == ' ');
    if (flags_of(flags, p, end, &n) & HF_SYMBOL) {
        p = scan_run(flags, p, end, HF_SYMBOL);
        return (size_t)(scan_run(flags, p, end, HF_NEWLINE) - s);
    }
    return f & HF_SPACE ? spaces(flags, s, end, true) : 0;
}

#define BLANKS "|\\s+(?!\\S)|\\s+"
#define LLAMA3(numbers_)                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers_                         \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_NOT_HAN "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_NOT_HAN "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"

const hf_pattern hf_patterns[] = {
    {"gpt2",      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" BLANKS,    scan_gpt2,
     HF_ONIGURUMA                                                                                                           },
    {"llama3",    LLAMA3("\\p{N}{1,3}"),                                                         scan_llama3,   HF_ONIGURUMA},
    {"qwen2",     LLAMA3("\\p{N}"),                                                              scan_qwen2,    HF_ONIGURUMA},
    {"deepseek3",
     "[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+" BLANKS,
     scan_deepseek3,                                                                                            HF_ONIGURUMA},
    {"tekken",
     BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER
                  "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+" BLANKS,
     scan_tekken,                                                                                               HF_ONIGURUMA},
    {"nanochat",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
     "|\\s*[\\r\\n]" BLANKS,
     scan_nanochat,                                                                                             HF_ONIGURUMA},
    {"qwen35",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
     "?[^\\s\\p{L}\\p{M}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+" BLANKS,
     scan_qwen35,                                                                                               HF_ONIGURUMA},
    {"o200k",
     BEFORE UPPER "*" LOWER "+" SUFFIX "|" BEFORE UPPER "+" LOWER "*" SUFFIX
                  "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+" BLANKS,
     scan_o200k,                                                                                                HF_ONIGURUMA},
    {"r50k",
     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", scan_gpt2,     HF_RUST     },
    {"cl100k",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",                      scan_cl100k,   HF_RUST     },
    {"kimi",
     "[\\p{Han}]+|" BEFORE UPPER_NOT_HAN "*" LOWER_NOT_HAN "+" SUFFIX "|" BEFORE UPPER_NOT_HAN
     "+" LOWER_NOT_HAN "*" SUFFIX
     "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" BLANKS,
     scan_kimi,                                                                                                 HF_RUST     },
    {"numbers3",  "\\p{N}{1,3}",                                                                 scan_numbers3, HF_ONIGURUMA},
    {"number",    "\\p{N}",                                                                      scan_number,   HF_ONIGURUMA},
    {"cjk",       "[一-龥぀-ゟ゠-ヿ]+",                                                    scan_cjk,      HF_ONIGURUMA},
};
const size_t hf_n_patterns = TT_COUNT(hf_patterns);

/* The character at *p, of a regex: the escapes \r, \n and \t are the characters that they stand
 * for, so that both ways to write an expression are equal. Other escapes stay escapes. */
static int regex_char(const char **p)
{
    const char c = *(*p)++;
    if (c != '\\')
        return c;
    const char e = **p;
    *p += e != '\0';
    return e == 'r' ? '\r' : e == 'n' ? '\n' : e == 't' ? '\t' : 256 + (unsigned char)e;
}

static bool same_regex(const char *a, const char *b)
{
    while (*a && *b)
        if (regex_char(&a) != regex_char(&b))
            return false;
    return *a == *b;
}

const hf_pattern *hf_pattern_find(const char *regex)
{
    for (size_t i = 0; i < hf_n_patterns; i++)
        if (same_regex(regex, hf_patterns[i].regex))
            return &hf_patterns[i];
    return NULL;
}
