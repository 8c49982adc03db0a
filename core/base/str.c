/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "base/shown.h"
#include "internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void reserve(tt_str *s, size_t more)
{
    if (more > SIZE_MAX / 2 - s->n - 1)
        tt_out_of_memory(more, "tt_str");
    size_t need = s->n + more + 1;
    if (need <= s->cap)
        return;
    size_t cap = TT_MAXV(need, TT_MAXV(s->cap * 2, (size_t)64));
    char *p = tt_reserve_realloc(s->s, cap);
    if (!p)
        tt_out_of_memory(cap, "tt_str");
    s->s = p;
    s->cap = cap;
}

void tt_str_free(tt_str *s)
{
    free(s->s);
    *s = (tt_str){0};
}

void tt_str_clear(tt_str *s)
{
    s->n = 0;
    if (s->s)
        s->s[0] = '\0';
}

void tt_str_addn(tt_str *s, const char *text, size_t n)
{
    reserve(s, n);
    if (n)
        memcpy(s->s + s->n, text, n);
    s->n += n;
    s->s[s->n] = '\0';
}

void tt_str_add(tt_str *s, const char *text)
{
    tt_str_addn(s, text, strlen(text));
}

void tt_str_addc(tt_str *s, char c)
{
    tt_str_addn(s, &c, 1);
}

void tt_str_printf(tt_str *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const size_t room = s->cap - s->n;
    const int n = vsnprintf(room ? s->s + s->n : NULL, room, fmt, ap);
    TT_ASSERT(n >= 0);
    if ((size_t)n >= room) {
        reserve(s, (size_t)n);
        vsnprintf(s->s + s->n, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    va_end(ap);
    s->n += (size_t)n;
}

const char *tt_i64_text(int64_t number, char text[TT_I64_TEXT])
{
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char *p = text + TT_I64_TEXT - 1;
    *p = '\0';
    do
        *--p = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (number < 0)
        *--p = '-';
    return p;
}

const char *tt_str_get(const tt_str *s)
{
    return s->s ? s->s : "";
}

void tt_str_json_byte(tt_str *s, char c)
{
    static const char letters[] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\t'] = 't',
                                   ['\n'] = 'n', ['\f'] = 'f',  ['\r'] = 'r'};
    const unsigned char u = (unsigned char)c;
    if (u < sizeof letters && letters[u])
        tt_str_printf(s, "\\%c", letters[u]);
    else
        tt_str_printf(s, "\\u%04x", u);
}

size_t tt_control_bytes(const char *p, size_t n)
{
    const unsigned char c = n ? (unsigned char)p[0] : ' ', next = n > 1 ? (unsigned char)p[1] : 0;
    return c < 0x20 || c == 0x7f ? 1 : c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0;
}

void tt_str_escaped(tt_str *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tt_str_printf(s, "\\x%02x", (unsigned)(unsigned char)p[i]);
}

void tt_str_shown(tt_str *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t k = text[i] == '\t' ? 0 : tt_control_bytes(text + i, n - i);
        tt_str_escaped(s, text + i, k);
        if (!k)
            tt_str_addc(s, text[i]);
        i += k ? k : 1;
    }
}

void tt_str_json(tt_str *s, const char *text)
{
    size_t n = strlen(text), valid = tt_utf8_valid(text, n);
    tt_str_addc(s, '"');
    for (size_t i = 0; i < n;) {
        if (i == valid) { /* JSON is UTF-8, so an invalid byte becomes U+FFFD */
            tt_str_add(s, "\xef\xbf\xbd");
            i++;
            valid = i + tt_utf8_valid(text + i, n - i);
            continue;
        }
        size_t plain = i;
        while (plain < valid && (unsigned char)text[plain] >= 0x20 && text[plain] != '"' &&
               text[plain] != '\\' && text[plain] != 0x7f)
            plain++;
        tt_str_addn(s, text + i, plain - i);
        if (plain < valid)
            tt_str_json_byte(s, text[plain++]);
        i = plain;
    }
    tt_str_addc(s, '"');
}

void tt_str_json_number(tt_str *s, double v)
{
    if (!isfinite(v)) {
        tt_str_add(s, "null");
        return;
    }
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (memcmp(&back, &v, sizeof v) == 0)
            break;
    }
    /* 1e+02 is shorter than 100 but harder to read: write whole numbers out up to some size */
    if (strchr(text, 'e') && v == floor(v) && fabs(v) < 1e15)
        snprintf(text, sizeof text, "%.0f", v);
    tt_str_add(s, text);
}

#define LONGEST_WORD 128

/* Edit distance with transpositions of neighbours (optimal string alignment), lengths <=
 * LONGEST_WORD. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][LONGEST_WORD + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = TT_MIN(best, TT_MIN(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = TT_MIN(best, before[j - 2] + 1);
            row[j] = best;
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

/* The only candidate that begins with the word, of 3 characters or more. */
static const char *only_longer(const char *word, size_t length, const char *const *candidates,
                               size_t n)
{
    const char *found = NULL;
    for (size_t i = 0; length >= 3 && i < n; i++) {
        if (!candidates[i] || strncmp(word, candidates[i], length) != 0)
            continue;
        if (found && strcmp(found, candidates[i]) != 0)
            return NULL;
        found = candidates[i];
    }
    return found;
}

const char *tt_nearest(const char *word, const char *const *candidates, size_t n)
{
    size_t length = strlen(word), limit = TT_MAXV((size_t)1, length / 3), best = limit + 1;
    const char *nearest = NULL;
    if (length > LONGEST_WORD)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = candidates[i] ? strlen(candidates[i]) : SIZE_MAX;
        if (m > LONGEST_WORD)
            continue;
        if (!strcasecmp(word, candidates[i]) && strcmp(word, candidates[i]) != 0)
            return candidates[i];
        size_t d = edit_distance(word, length, candidates[i], m);
        if (d < best && d < TT_MAXV(length, m)) { /* the words must share a character */
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest ? nearest : only_longer(word, length, candidates, n);
}

bool tt_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}
