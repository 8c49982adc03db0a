/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"
#include <string.h>

/* Length of the UTF-8 sequence at s[n], 0 if it is not valid. Ranges: Unicode 15, table 3-7. */
static size_t sequence(const unsigned char *s, size_t n)
{
    unsigned char c = s[0], low = 0x80, high = 0xbf;
    size_t length;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf) {
        length = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        length = 3;
        low = c == 0xe0 ? 0xa0 : low;   /* no overlong form */
        high = c == 0xed ? 0x9f : high; /* no surrogate */
    } else if (c >= 0xf0 && c <= 0xf4) {
        length = 4;
        low = c == 0xf0 ? 0x90 : low;
        high = c == 0xf4 ? 0x8f : high; /* at most U+10FFFF */
    } else {
        return 0;
    }
    if (length > n || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return length;
}

size_t tt_utf8_valid(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        while (n - i >= sizeof word) { /* eight ASCII bytes at once */
            memcpy(&word, p + i, sizeof word);
            if (word & 0x8080808080808080u)
                break;
            i += sizeof word;
        }
        if (i == n)
            break;
        size_t length = sequence(p + i, n - i);
        if (!length)
            break;
        i += length;
    }
    return i;
}

size_t tt_utf8_whole(const char *s, size_t n)
{
    size_t at = 0;
    for (;;) {
        at += tt_utf8_valid(s + at, n - at);
        if (at == n)
            return n;
        const unsigned char c = (unsigned char)s[at];
        const size_t length = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        size_t have = 1;
        while (have < length && at + have < n && ((unsigned char)s[at + have] & 0xc0) == 0x80)
            have++;
        if (c < 0xf5 && have < length && at + have == n)
            return at; /* the missing bytes may follow */
        at += have;    /* these bytes are not part of a character */
    }
}
