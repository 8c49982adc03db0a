/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The parser of safetensors files. Input that begins with '{' is a header as text, up to the first
 * newline, and then the data: so seeds are text files and mutations reach beyond the length.
 * Anything else is a file as it is. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static uint8_t *file_of(const uint8_t *bytes, size_t n, size_t *n_file)
{
    const uint8_t *newline = n ? memchr(bytes, '\n', n) : NULL;
    size_t header = newline ? (size_t)(newline - bytes) : n, data = newline ? n - header - 1 : 0;
    uint8_t *file = malloc(8 + n);
    if (!file)
        return NULL;
    if (n == 0 || bytes[0] != '{') {
        *n_file = n;
        if (n)
            memcpy(file, bytes, n);
        return file;
    }
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(file + 8, bytes, header);
    if (data)
        memcpy(file + 8 + header, newline + 1, data);
    *n_file = 8 + header + data;
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    size_t n_file = 0, total = 0;
    uint8_t *file = file_of(bytes, n, &n_file);
    if (!file)
        return 0;
    uint8_t *exact = malloc(n_file ? n_file : 1); /* its end is the end of the memory */
    tt_arena *a = tt_arena_new();
    tt_st_file st;
    tt_error err = {0};
    unsigned sum = 0;
    if (exact && n_file)
        memcpy(exact, file, n_file);
    if (exact && tt_st_parse("fuzz", exact, n_file, a, &st, &err) == TT_OK) {
        for (size_t i = 0; i < st.n_tensors; i++) {
            const tt_st_tensor *t = &st.tensors[i];
            for (size_t k = 0; k < t->bytes; k++)
                sum += ((const uint8_t *)t->data)[k];
            total += t->bytes;
            TT_ASSERT(tt_st_find(&st, t->name) == t);
        }
        TT_ASSERT(total <= n_file - 8);
    } else {
        TT_ASSERT(!exact || err.text[0]);
    }
    tt_arena_free(a);
    free(exact);
    free(file);
    return sum > UINT_MAX / 2 && n_file == 0; /* 0; the sum keeps the reads */
}
