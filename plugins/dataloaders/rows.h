/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_ROWS_H
#define TT_DATALOADERS_ROWS_H
#include <string.h>
#include <ttrun/parquet.h>

/* A row of a Parquet file as a JSON object, and its number, from 1. taken: bytes of the file up to it. */
typedef tt_status (*row_reader)(const void *user, const char *row, size_t n, int64_t number,
                                int64_t taken, tt_error *err);

static tt_status read_each_row(tt_parquet *p, const char *path, row_reader read, const void *user,
                               tt_error *err)
{
    const char *row;
    size_t n;
    tt_status s = tt_parquet_next(p, &row, &n, err);
    for (int64_t number = 1; s == TT_OK && row; number++) {
        s = read(user, row, n, number, tt_parquet_taken(p), err);
        if (s != TT_OK && s != TT_ESIGNAL)
            tt_error_context(err, "%s: row %lld", path, (long long)number);
        if (s == TT_OK)
            s = tt_parquet_next(p, &row, &n, err);
    }
    return s;
}

/* Passes on the rows of a file, of the named columns. *bytes: of the file, that were read. */
static tt_status read_file_rows(const char *path, const char *const *columns, size_t n_columns,
                                row_reader read, const void *user, int64_t *bytes, tt_error *err)
{
    tt_parquet *p;
    *bytes = 0;
    tt_status s = tt_parquet_open(path, columns, n_columns, &p, err);
    if (s == TT_OK) {
        s = read_each_row(p, path, read, user, err);
        *bytes = tt_parquet_taken(p);
        tt_parquet_close(p);
    }
    return s == TT_OK || s == TT_ESIGNAL ? s : tt_error_context(err, "dataloader.path");
}

#endif
