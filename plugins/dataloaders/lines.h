/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_LINES_H
#define TT_DATALOADERS_LINES_H
#include "unpack.h"
#include <stdio.h>

/* The rows of a file of JSON, which may be compressed: its lines or, where the file begins with [, the items of that
 * list, wherever their lines end. A row is in memory, a file never is. */

enum { LINE_BLOCK = 1 << 18 }; /* bytes read at a time */
/* a longer row means that the file is not of this form */
static const size_t max_row = (size_t)256 << 20;

typedef struct {
    char *bytes; /* kept from file to file */
    size_t cap, begin, end;
    size_t scanned; /* bytes from begin on that are known to hold no end of the row */
    bool last;      /* the file is read to its end */
    enum { ROWS_UNKNOWN, ROWS_LINES, ROWS_LIST, ROWS_ENDED } form;
    int64_t depth;      /* of a list's item: brackets that are open at `scanned` */
    bool text, escaped; /* whether `scanned` is in a string, and after a backslash */
    int64_t number;     /* of items: the row's, from 1 */
    int64_t line, next; /* where the row begins, from 1; where the one after it does */
} row_buffer;

static void row_begin(row_buffer *b)
{
    *b = (row_buffer){.bytes = b->bytes, .cap = b->cap, .next = 1};
}

/* Reads more of the file behind what is there. */
static tt_status row_more(row_buffer *b, unpack *u, tt_error *err)
{
    const size_t have = b->end - b->begin;
    if (have > max_row)
        return TT_FAIL(err, TT_EINVAL, "a %s of more than 256 MiB; split the document",
                       b->form == ROWS_LIST ? "row" : "line");
    if (b->begin > 0)
        memmove(b->bytes, b->bytes + b->begin, have);
    b->begin = 0;
    b->end = have;
    if (b->cap - have < LINE_BLOCK) {
        const size_t cap = 2 * b->cap + LINE_BLOCK;
        char *grown = realloc(b->bytes, cap);
        if (!grown)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %zu bytes", have);
        b->bytes = grown;
        b->cap = cap;
    }
    size_t got = 0;
    TT_TRY(unpack_read(u, b->bytes + have, b->cap - have, &got, err));
    b->end += got;
    b->last = got == 0;
    return TT_OK;
}

/* Steps over blanks and empty lines. *c: the byte behind them, 0 at the file's end. */
static tt_status row_blanks(row_buffer *b, unpack *u, char *c, tt_error *err)
{
    for (;; b->begin++) {
        while (b->begin == b->end && !b->last)
            TT_TRY(row_more(b, u, err));
        *c = b->begin < b->end ? b->bytes[b->begin] : 0;
        if (b->begin == b->end || !strchr(" \t\r\n", *c) || !*c)
            return TT_OK;
        b->next += *c == '\n';
    }
}

/* Finds out what the rows are, behind the byte order mark that Windows editors write. */
static tt_status row_form(row_buffer *b, unpack *u, tt_error *err)
{
    char c;
    while (b->end < 3 && !b->last)
        TT_TRY(row_more(b, u, err));
    if (b->end >= 3 && !memcmp(b->bytes, "\xef\xbb\xbf", 3))
        b->begin = 3;
    TT_TRY(row_blanks(b, u, &c, err));
    b->form = c == '[' ? ROWS_LIST : ROWS_LINES;
    b->begin += c == '[';
    while (c != '[' && b->begin > 0 && strchr(" \t\r", b->bytes[b->begin - 1]))
        b->begin--; /* blanks of this line, so that its bytes have their numbers */
    return TT_OK;
}

static tt_status next_line(row_buffer *b, unpack *u, const char **row, size_t *n, tt_error *err)
{
    for (;;) {
        const char *from = b->bytes + b->begin;
        const size_t have = b->end - b->begin;
        const char *stop =
            have > b->scanned ? memchr(from + b->scanned, '\n', have - b->scanned) : NULL;
        if (stop || b->last) {
            *row = stop || have > 0 ? from : NULL;
            *n = stop ? (size_t)(stop - from) : have;
            b->begin += *n + (stop != NULL);
            b->next++;
            b->scanned = 0;
            return TT_OK;
        }
        b->scanned = have;
        TT_TRY(row_more(b, u, err));
    }
}

/* Whether the item ends at byte c. Brackets are only counted: whoever reads the item checks them. */
static bool ends_item(row_buffer *b, char c)
{
    b->next += c == '\n';
    if (b->text) {
        b->text = b->escaped || c != '"';
        b->escaped = !b->escaped && c == '\\';
        return false;
    }
    if (b->depth == 0 && (c == ',' || c == ']'))
        return true;
    b->text = c == '"';
    b->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    return false;
}

/* Behind the last item. */
static tt_status end_list(row_buffer *b, unpack *u, tt_error *err)
{
    char c;
    b->form = ROWS_ENDED;
    b->begin++;
    TT_TRY(row_blanks(b, u, &c, err));
    b->line = b->next;
    return b->begin == b->end ? TT_OK : TT_FAIL(err, TT_EINVAL, "more text after the list's end");
}

static tt_status next_item(row_buffer *b, unpack *u, const char **row, size_t *n, tt_error *err)
{
    char c;
    TT_TRY(row_blanks(b, u, &c, err));
    b->number++;
    b->line = b->next;
    if (c == ']' && b->number == 1) {
        *row = NULL;
        return end_list(b, u, err);
    }
    for (size_t i = 0;; i++) {
        while (b->begin + i == b->end && !b->last)
            TT_TRY(row_more(b, u, err));
        if (b->begin + i == b->end)
            return TT_FAIL(err, TT_EINVAL, "the list has no end; is the file cut off?");
        if (!ends_item(b, b->bytes[b->begin + i]))
            continue;
        *row = b->bytes + b->begin;
        *n = i;
        b->begin += i;
        if (i == 0)
            return TT_FAIL(err, TT_EINVAL, "an item of the list is missing before '%c'", **row);
        b->scanned = 1; /* the comma or bracket, which the next call looks at */
        return TT_OK;
    }
}

/* The next row, without its newline or comma; *row is NULL after the last. */
static tt_status next_row(row_buffer *b, unpack *u, const char **row, size_t *n, tt_error *err)
{
    if (b->form == ROWS_UNKNOWN)
        TT_TRY(row_form(b, u, err));
    if (b->form == ROWS_LIST && b->scanned) {
        b->scanned = 0;
        if (b->bytes[b->begin] == ']')
            TT_TRY(end_list(b, u, err));
        else
            b->begin++;
    }
    *row = NULL;
    if (b->form == ROWS_ENDED)
        return TT_OK;
    if (b->form == ROWS_LIST)
        return next_item(b, u, row, n, err);
    b->line = b->next;
    return next_line(b, u, row, n, err);
}

/* Puts the place of the row in front of an error. */
static void row_context(const row_buffer *b, const unpack *u, tt_error *err)
{
    if (b->form == ROWS_LIST)
        tt_error_context(err, "dataloader.path: %s:%lld: row %lld", u->in.path, (long long)b->line,
                         (long long)b->number);
    else
        tt_error_context(err, "dataloader.path: %s:%lld", u->in.path, (long long)b->line);
}

static bool blank(const char *s, size_t n)
{
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        n--;
    return n == 0;
}

#endif
