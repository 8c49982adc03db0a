/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_JSON_STRING_H
#define TT_DATALOADERS_JSON_STRING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* JSON strings, strictly by RFC 8259, with UTF-8 checked. */

typedef struct {
    const unsigned char *s, *at, *end;
    const char *fault; /* NULL: no error so far */
} json_reader;

static bool json_fail(json_reader *r, const char *fault)
{
    if (!r->fault)
        r->fault = fault;
    return false;
}

static void json_space(json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n'))
        r->at++;
}

static bool json_take(json_reader *r, unsigned char c)
{
    json_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool json_four_hex(json_reader *r, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const unsigned c = r->at < r->end ? *r->at : 0, low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (low - 'a' + 10);
        else
            return json_fail(r, "\\u without four hexadecimal digits");
    }
    *out = v;
    return true;
}

static char *json_put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            *out++ = (char)(0xe0 | c >> 12);
        } else {
            *out++ = (char)(0xf0 | c >> 18);
            *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* Reads an escape after its backslash. */
static bool json_escape(json_reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = r->at < r->end ? *r->at++ : 0;
    const char *plain = c ? strchr(from, c) : NULL;
    if (plain) {
        *(*out)++ = to[plain - from];
        return true;
    }
    uint32_t unit, second;
    if (c != 'u')
        return json_fail(r, "an escape that JSON does not have");
    if (!json_four_hex(r, &unit))
        return false;
    if (unit >= 0xd800 && unit <= 0xdfff) {
        if (unit >= 0xdc00 || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return json_fail(r, "half a surrogate pair");
        r->at += 2;
        if (!json_four_hex(r, &second))
            return false;
        if (second < 0xdc00 || second > 0xdfff)
            return json_fail(r, "half a surrogate pair");
        unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
    }
    *out = json_put_utf8(*out, unit);
    return true;
}

/* The length of the multi-byte sequence here, 0 if it is not one. */
static size_t json_utf8(const unsigned char *s, const unsigned char *end)
{
    const unsigned char c = s[0];
    const size_t n = c >= 0xc2 && c < 0xe0   ? 2
                     : c >= 0xe0 && c < 0xf0 ? 3
                     : c >= 0xf0 && c < 0xf5 ? 4
                                             : 0;
    if (n == 0 || (size_t)(end - s) < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    const bool wrong = (c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) ||
                       (c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f);
    return wrong ? 0 : n;
}

/* Reads a string after its opening quote. out needs no more room than the rest of the line, because
 * decoding never makes a string longer. */
static bool json_quoted(json_reader *r, char *out, size_t *n)
{
    char *const begin = out;
    while (r->at < r->end) {
        const unsigned char c = *r->at;
        if (c == '"') {
            r->at++;
            *n = (size_t)(out - begin);
            return true;
        }
        if (c == '\\') {
            r->at++;
            if (!json_escape(r, &out))
                return false;
        } else if (c < 0x20) {
            return json_fail(r, "a control character in a string");
        } else if (c < 0x80) {
            *out++ = (char)c;
            r->at++;
        } else {
            const size_t k = json_utf8(r->at, r->end);
            if (k == 0)
                return json_fail(r, "invalid UTF-8");
            memcpy(out, r->at, k);
            out += k;
            r->at += k;
        }
    }
    return json_fail(r, "a string without an end");
}

#endif
