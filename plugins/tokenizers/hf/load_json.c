/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a tokenizer's JSON as Python writes it. Python's integers are unbounded: transformers
 * writes "model_max_length": 1000000000000000019884624838656 if a tokenizer has no maximum. jansson
 * rejects a whole file for one such number, so such numbers are turned into reals and the file is
 * parsed again. */

static const char *end_of_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\';
    return p < end ? p + 1 : end;
}

static size_t digits(const char *p, size_t n)
{
    size_t k = 0;
    while (k < n && p[k] >= '0' && p[k] <= '9')
        k++;
    return k;
}

/* Replaces a number that jansson cannot read by one of the same length, so that positions in errors
 * stay right: the last two digits of a long integer become "e2", and a number too large for a
 * double becomes 1e308. The literal ends in a NUL meanwhile. */
static void tame_number(char *literal, size_t n)
{
    char *first = literal + (*literal == '-');
    const size_t length = n - (size_t)(first - literal);
    const bool whole = digits(first, length) == length;
    char *end;
    errno = 0;
    if (whole && (strtoll(literal, NULL, 10), errno != ERANGE))
        return;
    const double value = strtod(literal, &end);
    if (*end) /* not a number: jansson reports it */
        return;
    if (!isfinite(value)) {
        memset(first, ' ', length);
        memcpy(first, "1e308", strlen("1e308")); /* the shortest such literal is 1e309 */
    } else if (whole) {
        memcpy(first + length - 2, "e2", 2);
    }
}

static void tame_numbers(char *text, size_t n)
{
    const char *end = text + n;
    for (char *p = text; p < end;) {
        if (*p == '"') {
            p = text + (end_of_string(p, end) - text);
            continue;
        }
        const size_t length = strspn(p, "+-.0123456789eE");
        if (*p == '-' || (*p >= '0' && *p <= '9')) {
            const char after = p[length]; /* the text ends in a NUL */
            p[length] = '\0';
            if (length > 4)
                tame_number(p, length);
            p[length] = after;
        }
        p += length ? length : 1;
    }
}

static json_t *read_tamed(const char *text, size_t n, json_error_t *why)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return NULL; /* report the error of the first parse */
    memcpy(copy, text, n);
    copy[n] = '\0';
    tame_numbers(copy, n);
    json_t *root = json_loadb(copy, n, JSON_REJECT_DUPLICATES, why);
    free(copy);
    return root;
}

tt_status hf_read_json(const char *name, const char *text, size_t n, json_t **out, tt_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root && json_error_code(&why) == json_error_numeric_overflow)
        root = read_tamed(text, n, &why);
    if (!root)
        return TT_FAIL(err, TT_EFORMAT, "%s:%d:%d: %s", name, why.line, why.column, why.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return TT_FAIL(err, TT_EFORMAT, "%s: expected an object", name);
    }
    *out = root;
    return TT_OK;
}
