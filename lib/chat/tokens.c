/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/parse.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tokens within {{ }} and {% %}. */

void tt_jparse_open(tt_jparser *p)
{
    p->at += 2;
    p->at += p->at < p->end && (*p->at == '-' || *p->at == '+');
    p->in_tag = true;
    p->brackets = 0;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void number_token(tt_jparser *p)
{
    const char *from = p->at;
    char digits[64];
    bool real = false;
    const bool item = from > p->begin && from[-1] == '.'; /* the 1 and the 0 of x.1.0 */
    while (p->at < p->end &&
           (is_digit(*p->at) || *p->at == '_' ||
            (*p->at == '.' && p->at + 1 < p->end && is_digit(p->at[1]) && !real && !item))) {
        real = real || *p->at == '.';
        p->at++;
    }
    if (!item && p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        const char *after = p->at + 1;
        after += after < p->end && (*after == '-' || *after == '+');
        if (after < p->end && is_digit(*after)) {
            real = true;
            while (after < p->end && is_digit(*after))
                after++;
            p->at = after;
        }
    }
    size_t n = 0;
    for (const char *c = from; c < p->at && n + 1 < sizeof digits; c++)
        if (*c != '_')
            digits[n++] = *c;
    digits[n] = '\0';
    errno = 0;
    p->token.kind = real ? TT_JT_FLOAT : TT_JT_INT;
    p->token.real = strtod(digits, NULL);
    p->token.integer = real ? 0 : strtoll(digits, NULL, 10);
    if (errno == ERANGE || n + 1 == sizeof digits)
        tt_jparse_fail(p, "a number that is too large");
}

static size_t put_escape(char *out, const char **at, const char *end)
{
    static const char from[] = "ntrbfav\\'\"", to[] = "\n\t\r\b\f\a\v\\'\"";
    const char c = **at, *known = c ? strchr(from, c) : NULL;
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    int k = 0;
    if (known) {
        (*at)++;
        out[0] = to[known - from];
        return 1;
    }
    for (; k < digits && *at + 1 + k < end && strchr("0123456789abcdefABCDEF", (*at)[1 + k]); k++)
        code = code * 16 + (uint32_t)((*at)[1 + k] <= '9' ? (*at)[1 + k] - '0'
                                                          : ((*at)[1 + k] | 32) - 'a' + 10);
    if (!digits || k < digits || code > 0x10ffff) { /* as Python: the backslash stays */
        out[0] = '\\';
        return 1;
    }
    *at += 1 + digits;
    size_t n = 0;
    if (code < 0x80) {
        out[n++] = (char)code;
    } else {
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
        out[n++] = (char)(heads[more] | code >> (6 * more));
        for (int i = more - 1; i >= 0; i--)
            out[n++] = (char)(0x80 | (code >> (6 * i) & 0x3f));
    }
    return n;
}

static void string_token(tt_jparser *p)
{
    const char quote = *p->at++;
    const char *from = p->at;
    while (p->at < p->end && *p->at != quote)
        p->at += 1 + (*p->at == '\\' && p->at + 1 < p->end);
    if (p->at >= p->end) {
        tt_jparse_fail(p, "a string without an end");
        return;
    }
    char *s = tt_arena_alloc(p->arena, (size_t)(p->at - from) + 8);
    size_t n = 0;
    for (const char *c = from; c < p->at;) {
        p->line += *c == '\n';
        if (*c == '\\' && c + 1 < p->at) {
            c++;
            n += put_escape(s + n, &c, p->at);
        } else {
            s[n++] = *c++;
        }
    }
    p->at++;
    p->token.kind = TT_JT_STRING;
    p->token.s = s;
    p->token.n = n;
}

/* %} and }}, with their marks. */
static bool end_token(tt_jparser *p)
{
    const char *c = p->at + (*p->at == '-' || *p->at == '+');
    if (p->end - c < 2 || c[1] != '}' || (c[0] != '%' && (c[0] != '}' || p->brackets > 0)))
        return false;
    p->token.kind = c[0] == '%' ? TT_JT_BLOCK_END : TT_JT_OUTPUT_END;
    p->token.trims = *p->at == '-';
    p->token.keeps = *p->at == '+';
    p->at = c + 2;
    return true;
}

static void sign_token(tt_jparser *p)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    p->token.kind = TT_JT_SIGN;
    p->token.s = p->at;
    p->token.n = 1;
    for (size_t i = 0; i < TT_COUNT(two); i++)
        if (p->end - p->at >= 2 && !memcmp(p->at, two[i], 2))
            p->token.n = 2;
    if (p->token.n == 1 && !strchr("+-*/%~()[]{},.:|=<>", *p->at)) {
        tt_jparse_fail(p, "a character that no expression has");
        return;
    }
    p->brackets += strchr("([{", *p->at) != NULL;
    p->brackets -= strchr(")]}", *p->at) != NULL;
    p->at += p->token.n;
}

void tt_jparse_next(tt_jparser *p)
{
    p->token = (tt_jtoken){.kind = TT_JT_END};
    while (!p->failed && p->at < p->end && strchr(" \t\r\n", *p->at) && *p->at)
        p->line += *p->at++ == '\n';
    if (p->failed)
        return;
    if (p->at == p->end) {
        tt_jparse_fail(p, "it ends within {{ or {%");
        return;
    }
    if (end_token(p))
        return;
    if (*p->at == '\'' || *p->at == '"') {
        string_token(p);
    } else if (is_digit(*p->at)) {
        number_token(p);
    } else if (is_letter(*p->at)) {
        p->token.kind = TT_JT_NAME;
        p->token.s = p->at;
        while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at)))
            p->at++;
        p->token.n = (size_t)(p->at - p->token.s);
    } else {
        sign_token(p);
    }
}

bool tt_jparse_is(const tt_jparser *p, const char *sign)
{
    const bool is_word = is_letter(*sign);
    return p->token.kind == (is_word ? TT_JT_NAME : TT_JT_SIGN) && p->token.n == strlen(sign) &&
           !memcmp(p->token.s, sign, p->token.n);
}

bool tt_jparse_take(tt_jparser *p, const char *sign)
{
    if (!tt_jparse_is(p, sign))
        return false;
    tt_jparse_next(p);
    return true;
}
