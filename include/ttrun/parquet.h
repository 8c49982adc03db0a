/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PARQUET_H
#define TTRUN_PARQUET_H
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* Rows of an Apache Parquet file (github.com/apache/parquet-format) as JSON objects, for dataloaders: a loader of JSON lines
 * reads Parquet by the same code.
 *
 * Read are: data pages of versions 1 and 2, dictionaries, all encodings but BIT_PACKED, pages that are not compressed or by
 * SNAPPY, GZIP, ZSTD or LZ4_RAW, and any nesting. Refused by a line: encrypted files, LZO, BROTLI and the old LZ4, INT96
 * and INTERVAL.
 *
 * A row is {"column": value, …} in the file's order: a struct is an object, LIST and a repeated column are an array, MAP is an
 * object (its keys as strings), null is null, a boolean is true or false, numbers are numbers (NaN and infinity are null), a
 * byte array is a string and must be UTF-8, a UUID its usual text, dates and times the integers that are stored. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_parquet tt_parquet;
/* 1: the file begins as a Parquet file does. A file that cannot be read is none. */
TT_EXPORT int tt_parquet_is(const char *path);
/* Opens a file; it is read, not mapped, a page of each column at a time.
 *   columns  names of the top-level columns to read, of which those that the file lacks are left out; NULL: all
 *   Errors name the file; TT_EINVAL: it is no Parquet, is damaged, or holds what is refused above in a column that is read.
 *   Owner: the caller, by tt_parquet_close. One thread at a time uses it.   [setup] */
TT_EXPORT tt_status tt_parquet_open(const char *path, const char *const *columns, size_t n_columns,
                                    tt_parquet **out, tt_error *err);
TT_EXPORT void tt_parquet_close(tt_parquet *p); /* NULL is fine */
TT_EXPORT int64_t tt_parquet_rows(const tt_parquet *p);
/* How many bytes of the file the rows so far are, in proportion. */
TT_EXPORT int64_t tt_parquet_taken(const tt_parquet *p);
/* The next row: n bytes of JSON, which stay until the next call; *json is NULL after the last.
 *   Errors name the file, the row and the column. */
TT_EXPORT tt_status tt_parquet_next(tt_parquet *p, const char **json, size_t *n, tt_error *err);

#ifdef __cplusplus
}
#endif
#endif
