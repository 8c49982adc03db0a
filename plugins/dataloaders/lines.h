/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_LINES_H
#define TT_DATALOADERS_LINES_H
#include "unpack.h"

/* The lines of a file, which may be compressed. */

enum { LINE_BLOCK = 1 << 18 }; /* bytes read at a time */
/* a longer line means that the file is not JSON lines */
static const size_t max_line = (size_t)256 << 20;

typedef struct {
    char *bytes;
    size_t cap, begin, end;
    size_t scanned; /* bytes from begin on that are known to hold no end of line */
    bool last;      /* the file is read to its end */
} line_buffer;

/* The next line without its newline; *line is NULL after the last. */
static tt_status next_line(line_buffer *b, unpack *u, const char **line, size_t *n, tt_error *err)
{
    for (;;) {
        const char *from = b->bytes ? b->bytes + b->begin : "";
        const size_t have = b->end - b->begin;
        const char *stop =
            have > b->scanned ? memchr(from + b->scanned, '\n', have - b->scanned) : NULL;
        if (stop || b->last) {
            *line = stop || have > 0 ? from : NULL;
            *n = stop ? (size_t)(stop - from) : have;
            b->begin += *n + (stop != NULL);
            b->scanned = 0;
            return TT_OK;
        }
        b->scanned = have;
        if (have > max_line)
            return TT_FAIL(err, TT_EINVAL, "a line of more than 256 MiB; split the document");
        if (b->begin > 0)
            memmove(b->bytes, from, have);
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
    }
}

static bool blank(const char *s, size_t n)
{
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
        n--;
    return n == 0;
}

#endif
