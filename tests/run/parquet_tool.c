/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <ttrun/parquet.h>

/* parquet_tool FILE [COLUMN…]: prints the rows of a Parquet file as JSON lines. */
int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_parquet *p;
    const char *json;
    size_t n;
    if (argc < 2)
        return fprintf(stderr, "usage: parquet_tool FILE [COLUMN…]\n"), 2;
    tt_status s = tt_parquet_open(argv[1], argc > 2 ? (const char *const *)argv + 2 : NULL,
                                  (size_t)argc - 2, &p, &err);
    if (s == TT_OK) {
        while ((s = tt_parquet_next(p, &json, &n, &err)) == TT_OK && json) {
            fwrite(json, 1, n, stdout);
            putchar('\n');
        }
        tt_parquet_close(p);
    }
    if (s != TT_OK)
        fprintf(stderr, "%s\n", err.text);
    return s == TT_OK ? 0 : 1;
}
