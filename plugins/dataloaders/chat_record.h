/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_RECORD_H
#define TT_DATALOADERS_CHAT_RECORD_H
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/status.h>

/* JSON by jansson, whose integers have 64 bits and whose reals are finite. A longer number, and NaN and Infinity as Python
 * writes them, are held as a text with a mark before it, and written as what they were. */

#define CHAT_MARK "\1#"                       /* of a number that is held as a text */
#define CHAT_HELD "\"\\u0001#"                /* the begin of such a text in JSON */
#define CHAT_NUMBER "0123456789+-.eENaInfity" /* what a held number is made of */
enum { CHAT_HELD_LENGTH = sizeof CHAT_HELD - 1, CHAT_LONGEST = 18 /* digits that always fit */ };

/* Whether a word of Python's for a float is at s; what it is called in JSON is nothing else. */
static size_t float_word(const char *s, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(end - s) >= n && !memcmp(s, words[i], n))
            return n;
    }
    return 0;
}

/* The end of the number at s, and whether jansson cannot hold it. */
static const char *number_end(const char *s, const char *end, bool *held)
{
    const char *p = s + (*s == '-'), *first = p;
    const size_t word = float_word(p, end);
    *held = word > 0;
    if (word)
        return p + word;
    bool whole = true;
    for (; p < end && *p && strchr("0123456789+-.eE", *p); p++)
        whole = whole && *p >= '0' && *p <= '9';
    const bool plain = first < p && *first >= '1' && *first <= '9';
    *held = plain && whole && p - first > CHAT_LONGEST;
    if (plain && !whole && p - s < 60) {
        char text[64] = {0}, *after;
        memcpy(text, s, (size_t)(p - s));
        const double x = strtod(text, &after);
        *held = !*after && isinf(x);
    }
    return p;
}

/* Copies JSON, with numbers that jansson cannot hold as texts; out NULL: counts them. Returns their number; *n: bytes
 * of the copy. */
static size_t hold_numbers(const char *s, size_t length, char *out, size_t *n)
{
    const char *end = s + length;
    size_t held = 0, at = 0;
    for (bool text = false; s < end;) {
        const char *from = s;
        bool holds = false;
        if (!text && *s && strchr("-0123456789NI", *s)) {
            s = number_end(s, end, &holds);
            s += s == from; /* an N or I that begins no number */
        } else {
            s += text && *s == '\\' && s + 1 < end ? 2 : 1;
            text = *from == '"' ? !text : text;
        }
        if (out && holds)
            memcpy(out + at, CHAT_HELD, CHAT_HELD_LENGTH);
        at += holds ? CHAT_HELD_LENGTH : 0;
        if (out)
            memcpy(out + at, from, (size_t)(s - from));
        at += (size_t)(s - from);
        if (out && holds)
            out[at] = '"';
        at += holds;
        held += holds;
    }
    *n = at;
    return held;
}

/* A new value; NULL: it is no JSON. */
static json_t *chat_parse(const char *s, size_t n, json_error_t *why)
{
    size_t bytes;
    if (!hold_numbers(s, n, NULL, &bytes))
        return json_loadb(s, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, why);
    char *copy = malloc(bytes + 1);
    if (!copy)
        return NULL;
    hold_numbers(s, n, copy, &bytes);
    json_t *v = json_loadb(copy, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, why);
    free(copy);
    return v;
}

/* JSON text of a value, from malloc; NULL: out of memory. */
static char *chat_dump(const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY), *to = text;
    for (const char *s = text; s && *s;) {
        const size_t digits =
            strncmp(s, CHAT_HELD, CHAT_HELD_LENGTH) ? 0 : strspn(s + CHAT_HELD_LENGTH, CHAT_NUMBER);
        if (digits && s[CHAT_HELD_LENGTH + digits] == '"') {
            memmove(to, s + CHAT_HELD_LENGTH, digits);
            to += digits;
            s += CHAT_HELD_LENGTH + digits + 1;
        } else {
            *to++ = *s++;
        }
    }
    if (to)
        *to = '\0';
    return text;
}

/* The number that a text holds; NULL: none, or it is no text. */
static const char *held_number(const json_t *v)
{
    const char *s = json_string_value(v);
    if (!s || strncmp(s, CHAT_MARK, sizeof CHAT_MARK - 1) != 0)
        return NULL;
    s += sizeof CHAT_MARK - 1;
    return *s && !s[strspn(s, CHAT_NUMBER)] ? s : NULL;
}

/* A text, and no number that is held as one. */
static const char *text_of(const json_t *v)
{
    return held_number(v) ? NULL : json_string_value(v);
}

/* Columns of a record that are NaN, which pandas writes where a row has no value. */
static void drop_nan(json_t *record)
{
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(record, next, key, v)
    {
        const char *number = held_number(v);
        if (number && !strcmp(number, "NaN"))
            json_object_del(record, key);
    }
}

/* Members of structs that a row of a table has no value for: a struct has all its members in each row. */
static void drop_nulls(json_t *v)
{
    const char *key;
    json_t *of;
    size_t i;
    void *next;
    json_object_foreach_safe(v, next, key, of)
    {
        if (json_is_null(of))
            json_object_del(v, key);
        else
            drop_nulls(of);
    }
    json_array_foreach(v, i, of) drop_nulls(of);
}

/* Whether a turn is learned. */
static void copy_weight(const json_t *from, json_t *to)
{
    static const char *const keys[] = {"weight", "train"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(from, keys[i]))
            json_object_set(to, keys[i], json_object_get(from, keys[i]));
}

/* *some: whether a message says that it is not to be learned: "weight": 0 or "train": false. */
static tt_status read_weights(const json_t *messages, bool *some, tt_error *err)
{
    const json_t *m;
    size_t i;
    *some = false;
    json_array_foreach(messages, i, m)
    {
        const json_t *weight = json_object_get(m, "weight");
        const double w = json_number_value(weight);     /* 0 of what is no number */
        if (json_is_number(weight) && w != 0 && w != 1) /* lint: exact */
            return TT_FAIL(err, TT_EINVAL,
                           "message %zu has the weight %g; a message is learned (1) or not (0)", i,
                           w);
        *some = *some || (json_is_number(weight) && w < 1) ||
                json_is_false(json_object_get(m, "train"));
    }
    return TT_OK;
}

#endif
