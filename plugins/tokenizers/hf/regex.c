/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "hf.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Patterns without a hand-written scanner. PCRE2 stands in for Oniguruma (Ruby syntax;
 * tokenizer.json) or for Rust's fancy-regex (tiktoken files). Syntax that PCRE2 reads differently
 * is rewritten or rejected. PCRE2's Unicode tables may be older. */

struct hf_regex {
    pcre2_code *code;
    bool jit;
};

struct hf_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    unsigned calls;        /* of this text */
    struct timespec began; /* CLOCK_THREAD_CPUTIME_ID */
};

/* The limit of one match does not bound the matches of a text: a pattern that looks to the text's
 * end from each byte takes hours of a megabyte. Real patterns split megabytes per second. The time is
 * the thread's own on a core, so a process that was stopped, or shares its cores, has as long. */
#ifndef HF_PATTERN_SECONDS /* tests set less */
#define HF_PATTERN_SECONDS 20.0
#define HF_PATTERN_BYTES_PER_SECOND 100000.0
#endif

static tt_status check_time(hf_matcher *m, size_t from, size_t n, tt_error *err)
{
    struct timespec now;
    if (from == 0)
        m->calls = 0;
    if (m->calls++ % 64)
        return TT_OK;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    if (m->calls == 1)
        m->began = now;
    const double seconds =
        (double)(now.tv_sec - m->began.tv_sec) + 1e-9 * (double)(now.tv_nsec - m->began.tv_nsec);
    if (seconds <= HF_PATTERN_SECONDS + (double)n / HF_PATTERN_BYTES_PER_SECOND)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL,
                   "the tokenizer's pattern takes too long: %.0f s for the first %zu bytes of a "
                   "text of %zu; split the text at a newline",
                   seconds, from, n);
}

/* White_Space, which is \s in Oniguruma; PCRE2's \s has six characters, or 26 with UCP. */
#define SPACES                                                                                     \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* \p{…} and \x{…} are copied whole, because their braces are not a repeat. */
static size_t braced(const char *p)
{
    const char *close = strchr("pPxo", p[1]) && p[1] && p[2] == '{' ? strchr(p, '}') : NULL;
    return close ? (size_t)(close + 1 - p) : 2;
}

/* Is it the name of a script? PCRE2 from 10.40 on has it as sc:NAME. */
static bool is_script(const char *name, size_t n)
{
    char text[64];
    int code = 0;
    PCRE2_SIZE where = 0;
    if (n < 3 || n > 40 || *name == '^')
        return false;
    const int length = snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)n, name);
    pcre2_code *c =
        pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)length, PCRE2_UTF, &code, &where, NULL);
    pcre2_code_free(c);
    return c;
}

/* \p{Han} at p: code points of the script, where PCRE2 from 10.40 on takes those that are used with it
 * too. */
static tt_status rewrite_property(const char *p, size_t n, hf_bytes *out, tt_error *err)
{
    if (n < 5 || p[2] != '{' || !is_script(p + 3, n - 4))
        return hf_bytes_add(out, p, n, err);
    TT_TRY(hf_bytes_add(out, p, 3, err));
    TT_TRY(hf_bytes_add(out, "sc:", 3, err));
    return hf_bytes_add(out, p + 3, n - 3, err);
}

/* Rewrites the escape at p, of `n` bytes, into out. */
static tt_status rewrite_escape(const char *p, size_t n, bool in_class, hf_bytes *out,
                                tt_error *err)
{
    static const char in[] = SPACES, yes[] = "[" SPACES "]", no[] = "[^" SPACES "]";
    switch (p[1]) {
    case 's':
        return in_class ? hf_bytes_add(out, in, sizeof in - 1, err)
                        : hf_bytes_add(out, yes, sizeof yes - 1, err);
    case 'S':
        if (in_class)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "the pattern has \\S inside [ ], which is not supported");
        return hf_bytes_add(out, no, sizeof no - 1, err);
    case 'h':
    case 'H':
    case 'R':
    case 'X':
    case 'K':
    case 'G':
    case 'O':
    case 'y':
    case 'Y':
        return TT_FAIL(err, TT_EUNSUPPORTED, "the pattern has \\%c, which is not supported", p[1]);
    case '\0':
        return TT_FAIL(err, TT_EFORMAT, "the pattern ends in a backslash");
    case 'p':
    case 'P':
        return rewrite_property(p, n, out, err);
    default:
        return hf_bytes_add(out, p, n, err);
    }
}

/* "&&[^B]]" at p, the end of a class, where B is one property \p{…}: the bytes of B; 0: not that. */
static size_t intersection(const char *p)
{
    if (strncmp(p, "&&[^\\p{", 7) != 0)
        return 0;
    const size_t n = braced(p + 4);
    return strncmp(p + 4 + n, "]]", 2) == 0 ? n : 0;
}

/* The class that begins at out->s[at] without its end, and a property of n bytes: a class of what has not
 * the property. */
static tt_status rewrite_without(hf_bytes *out, size_t at, const char *property, size_t n,
                                 tt_error *err)
{
    hf_bytes whole = {0};
    tt_status s = hf_bytes_add(&whole, "(?:(?!", 6, err);
    if (s == TT_OK)
        s = rewrite_property(property, n, &whole, err);
    if (s == TT_OK)
        s = hf_bytes_add(&whole, ")", 1, err);
    if (s == TT_OK)
        s = hf_bytes_add(&whole, out->s + at, out->n - at, err);
    if (s == TT_OK)
        s = hf_bytes_add(&whole, "])", 2, err);
    out->n = at;
    if (s == TT_OK)
        s = hf_bytes_add(out, whole.s, whole.n, err);
    free(whole.s);
    return s;
}

static tt_status rewrite(const char *pattern, hf_dialect dialect, hf_bytes *out, tt_error *err)
{
    bool in_class = false;
    size_t class_at = 0; /* where the class begins in out */
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\') {
            const size_t n = braced(p);
            TT_TRY(rewrite_escape(p, n, in_class, out, err));
            p += n - 1;
            continue;
        }
        const size_t without = in_class ? intersection(p) : 0;
        if (without) { /* [A&&[^B]] is (?:(?![B])[A]) */
            TT_TRY(rewrite_without(out, class_at, p + strlen("&&[^"), without, err));
            p += strlen("&&[^]]") + without - 1;
            in_class = false;
            continue;
        }
        if (in_class && (*p == '[' || (*p == '&' && p[1] == '&')))
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "the pattern has a set within [ ] ([ or &&), which is not supported");
        if (!in_class && *p == '}' && p[1] == '+' && dialect == HF_ONIGURUMA)
            return TT_FAIL(
                err, TT_EUNSUPPORTED,
                "the pattern has {…}+, a repeated repeat in the reference and possessive here");
        if (!in_class && *p == '[') {
            in_class = true;
            class_at = out->n;
            TT_TRY(hf_bytes_add(out, p, 1, err));
            if (p[1] == '^')
                TT_TRY(hf_bytes_add(out, ++p, 1, err));
            if (p[1] == ']')
                return TT_FAIL(err, TT_EUNSUPPORTED,
                               "the pattern has [] or [^], which is not supported");
            continue;
        }
        if (*p == ']')
            in_class = false;
        TT_TRY(hf_bytes_add(out, p, 1, err));
    }
    return TT_OK;
}

/* $ is the end of a line in Oniguruma, the end of the text in Rust's regex. */
static const uint32_t dialect_flags[] = {
    [HF_ONIGURUMA] = PCRE2_NEVER_BACKSLASH_C | PCRE2_UCP | PCRE2_MULTILINE,
    [HF_RUST] = PCRE2_NEVER_BACKSLASH_C | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY,
    [HF_LITERAL] = PCRE2_LITERAL,
};

static tt_status compile(const hf_bytes *text, hf_dialect dialect, hf_regex **out, tt_error *err)
{
    int code = 0;
    PCRE2_SIZE where = 0;
    const uint32_t flags = PCRE2_UTF | dialect_flags[dialect];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context)
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *c = pcre2_compile(text->s, text->n, flags, &code, &where, context);
    pcre2_compile_context_free(context);
    if (!c) {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return TT_FAIL(err, TT_EFORMAT, "the pattern does not compile: %s (at %zu of \"%.200s\")",
                       why, where, (const char *)text->s);
    }
    hf_regex *r = malloc(sizeof *r);
    if (!r) {
        pcre2_code_free(c);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a pattern");
    }
    r->code = c;
    r->jit = pcre2_jit_compile(c, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    return TT_OK;
}

tt_status hf_regex_new(const char *pattern, hf_dialect dialect, hf_regex **out, tt_error *err)
{
    hf_bytes text = {0};
    tt_status s = dialect == HF_LITERAL ? hf_bytes_add(&text, pattern, strlen(pattern), err)
                                        : rewrite(pattern, dialect, &text, err);
    if (s == TT_OK)
        s = hf_bytes_room(&text, 1, err);
    if (s == TT_OK) {
        text.s[text.n] = '\0';
        s = compile(&text, dialect, out, err);
    }
    free(text.s);
    return s;
}

void hf_regex_free(hf_regex *r)
{
    if (r)
        pcre2_code_free(r->code);
    free(r);
}

tt_status hf_matcher_new(const hf_regex *r, hf_matcher **out, tt_error *err)
{
    hf_matcher *m = calloc(1, sizeof *m);
    if (m) {
        m->data = pcre2_match_data_create_from_pattern(r->code, NULL);
        m->context = pcre2_match_context_create(NULL);
        m->stack = r->jit ? pcre2_jit_stack_create(32 << 10, 64 << 20, NULL) : NULL;
    }
    if (!m || !m->data || !m->context) {
        hf_matcher_free(m);
        return TT_FAIL(err, TT_ENOMEM, "out of memory to match a pattern");
    }
    if (m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    *out = m;
    return TT_OK;
}

void hf_matcher_free(hf_matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

tt_status hf_regex_find(const hf_regex *r, hf_matcher *m, const uint8_t *s, size_t n, size_t from,
                        size_t *begin, size_t *end, tt_error *err)
{
    /* The limits are linear in the length of the text: 20 MB of spaces match, and a pattern that
     * explodes still ends. */
    TT_TRY(check_time(m, from, n, err));
    const uint64_t limit = 10000000 + 64 * (uint64_t)n;
    pcre2_set_match_limit(m->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    pcre2_set_heap_limit(m->context, 4u << 20); /* KiB */
    for (size_t at = from; at < n;) {
        int rc = pcre2_match(r->code, s, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(r->code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                             m->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0) {
            char why[160];
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
            return TT_FAIL(err, TT_EINVAL,
                           "the tokenizer's pattern fails at byte %zu of a text of %zu: %s; split "
                           "the text at a newline",
                           at, n, why);
        }
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(m->data);
        if (match[1] > match[0]) {
            *begin = match[0];
            *end = match[1];
            return TT_OK;
        }
        unsigned k; /* an empty match does not split */
        at = match[0];
        if (at < n) {
            hf_decode(s + at, &k);
            at += k;
        }
    }
    *begin = *end = n;
    return TT_OK;
}
