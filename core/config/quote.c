/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Formats texts of a job for error messages. */

#define QUOTE_BYTES 60 /* the most bytes of a value that an error shows */

/* The length of the longest prefix of text that fits and does not split a character. */
static size_t quote_length(const char *text)
{
    size_t n = strlen(text);
    if (n <= QUOTE_BYTES)
        return n;
    for (n = QUOTE_BYTES; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

void tt_config_quote(const char *text, tt_str *out)
{
    size_t n = quote_length(text);
    char start[QUOTE_BYTES + 1];
    memcpy(start, text, n);
    start[n] = '\0';
    tt_str_json(out, start);
    if (text[n])
        tt_str_add(out, "…");
}

const char *tt_config_key(tt_arena *a, const char *key)
{
    size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$");
    if (n && !key[n] && n <= QUOTE_BYTES)
        return key;
    tt_str text = {0};
    tt_config_quote(key, &text);
    const char *quoted = tt_arena_str(a, text.s);
    tt_str_free(&text);
    return quoted;
}
