/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_JSON_LINE_H
#define TT_DATALOADERS_JSON_LINE_H
#include "json_string.h"

/* Finds one string in the JSON object on a line; the rest is checked and skipped. Numbers are never
 * converted, so none is too large. */

enum { JSON_DEPTH = 512 };

static bool json_digits(json_reader *r)
{
    const unsigned char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > begin || json_fail(r, "not a number");
}

static bool json_number(json_reader *r)
{
    if (*r->at == '-')
        r->at++;
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else if (!json_digits(r))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!json_digits(r))
            return false;
    }
    if (r->at < r->end && (*r->at | 0x20) == 'e') {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        return json_digits(r);
    }
    return true;
}

static bool json_word(json_reader *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return json_fail(r, "not JSON");
    r->at += n;
    return true;
}

/* A value that begins with c and has no parts; also what Python writes for floats that are not finite. */
static bool json_plain(json_reader *r, unsigned char c)
{
    if (c == '-' && r->end - r->at > 1 && r->at[1] == 'I')
        return json_word(r, "-Infinity");
    return c == 't'                             ? json_word(r, "true")
           : c == 'f'                           ? json_word(r, "false")
           : c == 'n'                           ? json_word(r, "null")
           : c == 'N'                           ? json_word(r, "NaN")
           : c == 'I'                           ? json_word(r, "Infinity")
           : c == '-' || (c >= '0' && c <= '9') ? json_number(r)
                                                : json_fail(r, "not JSON");
}

/* Skips a value; scratch as in json_quoted. */
static bool json_skip(json_reader *r, int depth, char *scratch)
{
    size_t n;
    json_space(r);
    if (r->at == r->end)
        return json_fail(r, "it ends where a value should be");
    const unsigned char c = *r->at;
    if (c == '"') {
        r->at++;
        return json_quoted(r, scratch, &n);
    }
    if (c != '{' && c != '[')
        return json_plain(r, c);
    if (depth == JSON_DEPTH)
        return json_fail(r, "nested more than 512 deep");
    const unsigned char close = c == '{' ? '}' : ']';
    r->at++;
    if (json_take(r, close))
        return true;
    do {
        if (c == '{') {
            if (!json_take(r, '"'))
                return json_fail(r, "a key should be here");
            if (!json_quoted(r, scratch, &n))
                return false;
            if (!json_take(r, ':'))
                return json_fail(r, "a colon should be here");
        }
        if (!json_skip(r, depth + 1, scratch))
            return false;
    } while (json_take(r, ','));
    return json_take(r, close) || json_fail(r, "a comma or the end of a table or list is missing");
}

/* Finds the string `field` of the object s. out and scratch have room for n bytes each. If a key
 * occurs twice the last one counts, as in Python. On an error it returns false and sets fault and
 * at. If fault is NULL and *found is false, there is no such field; *found and *is_string tell the
 * rest. */
static bool json_field(json_reader *r, const char *field, char *out, size_t *out_n, char *scratch,
                       bool *found, bool *is_string)
{
    const size_t field_n = strlen(field);
    size_t n;
    *found = *is_string = false;
    if (!json_take(r, '{'))
        return json_fail(r, "not an object");
    if (!json_take(r, '}')) {
        do {
            if (!json_take(r, '"'))
                return json_fail(r, "a key should be here");
            if (!json_quoted(r, scratch, &n))
                return false;
            if (!json_take(r, ':'))
                return json_fail(r, "a colon should be here");
            if (n != field_n || memcmp(scratch, field, n) != 0) {
                if (!json_skip(r, 1, scratch))
                    return false;
                continue;
            }
            *found = true;
            *is_string = json_take(r, '"');
            if (*is_string ? !json_quoted(r, out, out_n) : !json_skip(r, 1, scratch))
                return false;
        } while (json_take(r, ','));
        if (!json_take(r, '}'))
            return json_fail(r, "a comma or the end of the object is missing");
    }
    json_space(r);
    return r->at == r->end ||
           json_fail(
               r, "more text after the object; expected one object per line, or a list of objects");
}

#endif
