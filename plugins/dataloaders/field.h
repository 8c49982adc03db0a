/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_FIELD_H
#define TT_DATALOADERS_FIELD_H
#include "json_line.h"
#include "rows.h"
#include <stdlib.h>
#include <ttrun/corpus.h>

/* The document of a row of JSON, or of a row of Parquet: the string of one key. */

typedef struct {
    const char *field;
    char *text, *scratch; /* [cap] each */
    size_t cap;
} field_reader;

static void field_free(field_reader *f)
{
    free(f->text);
    free(f->scratch);
    f->text = f->scratch = NULL;
    f->cap = 0;
}

static tt_status field_room(field_reader *f, size_t n, tt_error *err)
{
    if (n <= f->cap)
        return TT_OK;
    const size_t cap = n + n / 2;
    char *text = realloc(f->text, cap);
    if (text)
        f->text = text;
    char *scratch = text ? realloc(f->scratch, cap) : NULL;
    if (!scratch)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a line of %zu bytes", n);
    f->scratch = scratch;
    f->cap = cap;
    return TT_OK;
}

/* at: bytes of the file up to the line. */
static tt_status field_add(field_reader *f, const char *line, size_t n, int64_t at,
                           tt_documents *to, tt_error *err)
{
    const unsigned char *s = (const unsigned char *)line;
    json_reader r = {s, s, s + n, NULL};
    size_t text_n = 0;
    bool found, is_string;
    TT_TRY(field_room(f, n, err));
    if (!json_field(&r, f->field, f->text, &text_n, f->scratch, &found, &is_string))
        return TT_FAIL(err, TT_EINVAL, "%s, at byte %lld of the row", r.fault,
                       (long long)(r.at - r.s) + 1);
    if (!found)
        return TT_FAIL(err, TT_EINVAL,
                       "no field \"%s\"; dataloader.field names the one that is the document",
                       f->field);
    if (!is_string)
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a string", f->field);
    return tt_documents_add(to, f->text, text_n, at, err);
}

typedef struct {
    field_reader *f;
    tt_documents *to;
} field_target;

static tt_status field_add_row(const void *user, const char *row, size_t n, int64_t number,
                               int64_t taken, tt_error *err)
{
    const field_target *t = user;
    (void)number;
    return field_add(t->f, row, n, taken, t->to, err);
}

/* The documents of a Parquet file. */
static tt_status field_read_parquet(field_reader *f, const char *path, tt_documents *to,
                                    tt_error *err)
{
    const field_target t = {f, to};
    int64_t bytes;
    return read_file_rows(path, &f->field, 1, field_add_row, &t, &bytes, err);
}

#endif
