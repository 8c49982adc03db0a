/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "parquet/impl.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A Parquet file: what is read are objects of JSON, at most as many as the file says, and an error is a line. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { ROWS = 2000, ROW_BYTES = 1 << 18, ALL_BYTES = 1 << 21 };

/* jansson knows no key with a zero byte. */
static void check_row(const char *row, size_t n)
{
    json_error_t why;
    json_t *v = json_loadb(row, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    TT_ASSERT(v || strstr(row, "\\u0000"));
    TT_ASSERT(!v || json_is_object(v));
    json_decref(v);
}

static void read_rows(tt_parquet *p, tt_error *err)
{
    const int64_t most = tt_parquet_rows(p);
    const char *row;
    size_t n, all = 0;
    tt_pq_longest_row = ROW_BYTES;
    for (int64_t i = 0; i < ROWS && all < ALL_BYTES; i++, all += n) {
        const tt_status s = tt_parquet_next(p, &row, &n, err);
        TT_ASSERT(s == TT_OK || (err->text[0] && !strchr(err->text, '\n')));
        if (s != TT_OK || !row)
            return;
        TT_ASSERT(i < most);
        check_row(row, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char path[64];
    tt_error err = {0};
    tt_parquet *p = NULL;
    const int fd = memfd_create("fuzz.parquet", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    tt_parquet_is(path);
    if (tt_parquet_open(path, NULL, 0, &p, &err) == TT_OK)
        read_rows(p, &err);
    else
        TT_ASSERT(err.text[0] && !strchr(err.text, '\n'));
    tt_parquet_close(p);
    close(fd);
    return 0;
}
