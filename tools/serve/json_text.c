/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/json_text.h"
#include <string.h>
#include <ttrun/option.h>

enum {
    BEGIN, /* the object that the text is */
    VALUE,
    FIRST_VALUE, /* of an array, or its end */
    FIRST_KEY,   /* of an object, or its end */
    KEY,
    COLON,
    AFTER, /* a value: "," or the end of the container */
    WHOLE,
    STRING,
    ESCAPE,
    HEX,      /* the first digit of \u */
    HEX_LOW,  /* the second after d: below 8, or it would be a surrogate */
    HEX_REST, /* left more */
    UTF8,     /* left more bytes of a character, the next of low … high */
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER,
    WORD
};

static const char *const words[] = {"true", "false", "null"};

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(unsigned char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool to(tt_json_text *t, int mode)
{
    t->mode = (uint8_t)mode;
    return true;
}

static bool open_container(tt_json_text *t, bool object)
{
    if (t->depth == 64)
        return false;
    t->objects |= (uint64_t)object << t->depth++;
    return to(t, object ? FIRST_KEY : FIRST_VALUE);
}

static bool close_container(tt_json_text *t, unsigned char c)
{
    const uint64_t bit = (uint64_t)1 << (t->depth - 1);
    if (c != ((t->objects & bit) ? '}' : ']'))
        return false;
    t->objects &= ~bit;
    return to(t, --t->depth ? AFTER : WHOLE);
}

static bool begin_value(tt_json_text *t, unsigned char c)
{
    if (c == '{' || c == '[')
        return open_container(t, c == '{');
    if (c == '"') {
        t->key = 0;
        return to(t, STRING);
    }
    if (c == '-')
        return to(t, MINUS);
    if (is_digit(c))
        return to(t, c == '0' ? ZERO : INTEGER);
    for (size_t i = 0; i < TT_COUNT(words); i++)
        if (c == (unsigned char)words[i][0]) {
            t->low = (uint8_t)i;
            t->left = (uint8_t)(strlen(words[i]) - 1);
            return to(t, WORD);
        }
    return false;
}

static bool begin_key(tt_json_text *t, unsigned char c)
{
    t->key = 1;
    return c == '"' && to(t, STRING);
}

static bool after_value(tt_json_text *t, unsigned char c)
{
    if (c != ',')
        return close_container(t, c);
    return to(t, (t->objects >> (t->depth - 1) & 1) ? KEY : VALUE);
}

/* The first byte of a character of several (RFC 3629). */
static bool begin_character(tt_json_text *t, unsigned char c)
{
    if (c < 0xc2 || c > 0xf4)
        return false;
    t->left = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    t->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    t->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    return to(t, UTF8);
}

static bool go_on_character(tt_json_text *t, unsigned char c)
{
    if (c < t->low || c > t->high)
        return false;
    t->low = 0x80;
    t->high = 0xbf;
    if (--t->left)
        return true;
    t->low = t->high = 0;
    return to(t, STRING);
}

static bool go_on_string(tt_json_text *t, unsigned char c)
{
    if (c == '"') {
        const int next = t->key ? COLON : AFTER;
        t->key = 0;
        return to(t, next);
    }
    if (c == '\\')
        return to(t, ESCAPE);
    return c >= 0x80 ? begin_character(t, c) : c >= 0x20;
}

static bool go_on_escape(tt_json_text *t, unsigned char c)
{
    switch (t->mode) {
    case ESCAPE:
        return c == 'u' ? to(t, HEX) : c && strchr("\"\\/bfnrt", c) && to(t, STRING);
    case HEX:
        t->left = 3;
        return is_hex(c) && to(t, c == 'd' || c == 'D' ? HEX_LOW : HEX_REST);
    case HEX_LOW:
        t->left = 2;
        return c >= '0' && c <= '7' && to(t, HEX_REST);
    default:
        return is_hex(c) && (--t->left || to(t, STRING));
    }
}

/* A number has no end of its own: what cannot be a part of it comes after it. */
static bool go_on_number(tt_json_text *t, unsigned char c)
{
    switch (t->mode) {
    case MINUS:
        return is_digit(c) && to(t, c == '0' ? ZERO : INTEGER);
    case POINT:
        return is_digit(c) && to(t, FRACTION);
    case EXPONENT:
        return c == '+' || c == '-' ? to(t, SIGN) : is_digit(c) && to(t, POWER);
    case SIGN:
        return is_digit(c) && to(t, POWER);
    default:
        break;
    }
    if (is_digit(c) && t->mode != ZERO)
        return true;
    if (c == '.' && t->mode != FRACTION && t->mode != POWER)
        return to(t, POINT);
    if ((c == 'e' || c == 'E') && t->mode != POWER)
        return to(t, EXPONENT);
    to(t, AFTER);
    return tt_json_text_next(t, c);
}

static bool go_on_word(tt_json_text *t, unsigned char c)
{
    const char *word = words[t->low];
    if (c != (unsigned char)word[strlen(word) - t->left])
        return false;
    if (--t->left)
        return true;
    t->low = 0;
    return to(t, AFTER);
}

bool tt_json_text_next(tt_json_text *t, unsigned char c)
{
    if (t->mode < WHOLE && (c == ' ' || c == '\t' || c == '\n' || c == '\r'))
        return ++t->blanks <= TT_JSON_MOST_BLANKS;
    t->blanks = 0;
    switch (t->mode) {
    case BEGIN:
        return c == '{' && open_container(t, true);
    case VALUE:
        return begin_value(t, c);
    case FIRST_VALUE:
        return c == ']' ? close_container(t, c) : begin_value(t, c);
    case FIRST_KEY:
        return c == '}' ? close_container(t, c) : begin_key(t, c);
    case KEY:
        return begin_key(t, c);
    case COLON:
        return c == ':' && to(t, VALUE);
    case AFTER:
        return after_value(t, c);
    case WHOLE:
        return false;
    case STRING:
        return go_on_string(t, c);
    case UTF8:
        return go_on_character(t, c);
    case WORD:
        return go_on_word(t, c);
    default:
        return t->mode < MINUS ? go_on_escape(t, c) : go_on_number(t, c);
    }
}

bool tt_json_text_is_whole(const tt_json_text *t)
{
    return t->mode == WHOLE;
}
