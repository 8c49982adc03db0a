/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VALUES                                                                                \
    ((size_t)1 << 24) /* 260,000 tokens and 500,000 merges as pairs have two million */

/* Parses a tokenizer's JSON as Python writes it, where jansson rejects a whole file: for one integer
 * beyond 64 bits (transformers writes "model_max_length": 1000000000000000019884624838656 if a
 * tokenizer has no maximum), and for one key with the character U+0000. Such numbers are turned into
 * reals, U+0000 of keys into a character that the file does not have, and the file is parsed again. */

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

/* ---- U+0000 in keys ---- */

#define N_STAND_INS 32 /* U+FDD0 … U+FDEF are no characters; in UTF-8 ef b7 90 … ef b7 af */
#define FIRST_STAND_IN 0xfdd0u

/* A code point that the text has neither as it is nor as an escape; 0: it has all of them. */
static unsigned free_stand_in(const char *text, size_t n)
{
    bool used[N_STAND_INS] = {false};
    for (size_t i = 0; i + 6 <= n; i++) {
        const uint8_t *s = (const uint8_t *)text + i;
        char digits[5] = {0};
        unsigned c = 0;
        if (s[0] == 0xef && s[1] == 0xb7) {
            c = 0xfdc0u + (s[2] & 0x3fu);
        } else if (s[0] == '\\' && s[1] == 'u') {
            memcpy(digits, s + 2, 4);
            c = (unsigned)strtoul(digits, NULL, 16);
        }
        if (c >= FIRST_STAND_IN && c < FIRST_STAND_IN + N_STAND_INS)
            used[c - FIRST_STAND_IN] = true;
    }
    for (unsigned i = 0; i < N_STAND_INS; i++)
        if (!used[i])
            return FIRST_STAND_IN + i;
    return 0;
}

/* Writes the stand-in for each \u0000 of the keys; both have six characters. */
static void hide_nuls(char *text, size_t n, unsigned stand_in)
{
    const char *end = text + n;
    for (char *p = text; p < end;) {
        if (*p != '"') {
            p++;
            continue;
        }
        char *stop = text + (end_of_string(p, end) - text);
        const bool key = stop[strspn(stop, " \t\r\n")] == ':'; /* the text ends in a NUL */
        for (char *q = p; key && q + 6 <= stop; q += 1 + (*q == '\\'))
            if (strncmp(q, "\\u0000", 6) == 0) {
                char escape[8];
                snprintf(escape, sizeof escape, "\\u%04x", stand_in);
                memcpy(q, escape, 6);
            }
        p = stop;
    }
}

/* The key with U+0000 for the stand-in, in out; returns its bytes, 0: the key has none. */
static size_t shown_key(const char *key, size_t n, unsigned stand_in, char *out)
{
    const char mark[3] = {(char)0xef, (char)0xb7, (char)(0x80u | (stand_in & 0x3fu))};
    size_t m = 0;
    bool any = false;
    for (size_t i = 0; i < n; m++) {
        const bool here = i + 3 <= n && memcmp(key + i, mark, 3) == 0;
        out[m] = here ? '\0' : key[i];
        i += here ? 3 : 1;
        any = any || here;
    }
    return any ? m : 0;
}

/* depth is jansson's, which parses at most 2048 levels. */
static tt_status show_nuls(json_t *v, unsigned stand_in, tt_error *err)
{
    const char *key;
    json_t *item;
    void *next;
    size_t i, n;
    json_array_foreach(v, i, item) TT_TRY(show_nuls(item, stand_in, err));
    json_object_keylen_foreach_safe(v, next, key, n, item)
    {
        TT_TRY(show_nuls(item, stand_in, err));
        char *real = malloc(n + 1);
        const size_t m = real ? shown_key(key, n, stand_in, real) : 0;
        const bool failed = !real || (m && json_object_setn(v, real, m, item) != 0);
        if (m && !failed)
            json_object_deln(v, key, n);
        free(real);
        if (failed)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a key with U+0000");
    }
    return TT_OK;
}

#define FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

/* Parses the text again with what jansson rejects mended; *out stays NULL where it fails still. */
static tt_status read_mended(const char *text, size_t n, json_t **out, json_error_t *why,
                             tt_error *err)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return TT_OK; /* report the error of the first parse */
    memcpy(copy, text, n);
    copy[n] = '\0';
    const unsigned stand_in = free_stand_in(copy, n);
    tame_numbers(copy, n);
    if (stand_in)
        hide_nuls(copy, n, stand_in);
    json_t *root = json_loadb(copy, n, FLAGS, why);
    free(copy);
    const tt_status s = root && stand_in ? show_nuls(root, stand_in, err) : TT_OK;
    if (s != TT_OK)
        json_decref(root);
    else
        *out = root;
    return s;
}

/* A value of two bytes takes about 50 of a tree: each value but the first has one of these before it. */
static tt_status check_values(const char *name, const char *text, size_t n, tt_error *err)
{
    size_t values = 1;
    for (size_t i = 0; i < n; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values <= MOST_VALUES
               ? TT_OK
               : TT_FAIL(err, TT_EFORMAT, "%s: %zu values are too many for a tokenizer", name,
                         values);
}

tt_status hf_read_json(const char *name, const char *text, size_t n, json_t **out, tt_error *err)
{
    TT_TRY(check_values(name, text, n, err));
    json_error_t why;
    json_t *root = json_loadb(text, n, FLAGS, &why);
    if (!root && (json_error_code(&why) == json_error_numeric_overflow ||
                  json_error_code(&why) == json_error_null_byte_in_key))
        TT_TRY(read_mended(text, n, &root, &why, err));
    if (!root)
        return TT_FAIL(err, TT_EFORMAT, "%s:%d:%d: %s", name, why.line, why.column, why.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return TT_FAIL(err, TT_EFORMAT, "%s: expected an object", name);
    }
    *out = root;
    return TT_OK;
}
