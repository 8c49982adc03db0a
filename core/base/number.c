/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include <string.h>

bool tt_read_whole(const char *text, size_t n, int64_t least, int64_t most, int64_t *out)
{
    const bool negative = n > 0 && text[0] == '-';
    int64_t v = 0; /* counted below 0, where there is one number more */
    if (n == (size_t)negative)
        return false;
    for (size_t i = negative; i < n; i++) {
        const int digit = text[i] - '0';
        if (digit < 0 || digit > 9)
            return false;
        if (v < (INT64_MIN + digit) / 10) /* 10 v - digit would be below INT64_MIN */
            return false;
        v = 10 * v - digit;
    }
    if (!negative && v == INT64_MIN)
        return false;
    v = negative ? v : -v;
    if (v < least || v > most)
        return false;
    *out = v;
    return true;
}

bool tt_read_range(const char *text, int limit, int *most, int *least)
{
    const size_t n = strcspn(text, ":");
    const bool range = text[n] == ':';
    const char *last = range ? text + n + 1 : text;
    int64_t from = 0, to = 0;
    if (!tt_read_whole(text, n, 1, limit, &from) ||
        !tt_read_whole(last, strlen(last), from, limit, &to))
        return false;
    *most = (int)to;
    *least = range ? (int)from : 0;
    return true;
}
