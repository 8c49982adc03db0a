/* SPDX-License-Identifier: Apache-2.0 */
#include "../checkpoint/torch_writer.h"
#include "checkpoint/internal.h"
#include "interchange/formats/torch_file.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The reader of torch.save's files. Input that begins with "PK" is a file; anything else is a pickle, which
 * gets a zip file around it with storages: so mutations need not find their way through a zip. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static tt_str file_of(const uint8_t *bytes, size_t n)
{
    uint8_t storage[96];
    zip z = {.wide = n % 2};
    for (size_t i = 0; i < sizeof storage; i++)
        storage[i] = (uint8_t)(i * 7);
    zip_add(&z, "a/data.pkl", n ? (const void *)bytes : "", n);
    zip_add(&z, "a/byteorder", "little", 6);
    for (int i = 0; i < 16; i++) {
        char name[24];
        snprintf(name, sizeof name, "a/data/%d", i);
        zip_add(&z, name, storage, sizeof storage);
    }
    zip_end(&z);
    return z.file;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const bool whole = n > 1 && bytes[0] == 'P' && bytes[1] == 'K';
    tt_str made = {0};
    if (!whole)
        made = file_of(bytes, n);
    const size_t n_file = whole ? n : made.n;
    uint8_t *exact = malloc(n_file ? n_file : 1); /* its end is the end of the memory */
    if (exact)
        memcpy(exact, whole ? (const void *)bytes : made.s, n_file);
    tt_arena *a = tt_arena_new();
    tt_st_file st;
    tt_error err = {0};
    unsigned sum = 0;
    if (exact && tt_torch_parse("fuzz", exact, n_file, a, &st, &err) == TT_OK) {
        for (size_t i = 0; i < st.n_tensors; i++) {
            TT_ASSERT(st.tensors[i].bytes <= n_file);
            for (size_t k = 0; k < st.tensors[i].bytes; k++)
                sum += ((const uint8_t *)st.tensors[i].data)[k];
        }
        tt_st_close(&st);
    } else {
        TT_ASSERT(!exact || (err.text[0] && !strchr(err.text, '\n')));
    }
    tt_arena_free(a);
    tt_str_free(&made);
    free(exact);
    return sum > UINT_MAX / 2 && n_file == 0; /* 0; the sum keeps the reads */
}
