/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TORCH_WRITER_H
#define TT_TORCH_WRITER_H
#include "checkpoint/internal.h"
#include <string.h>

/* Writes files as torch.save does, for tests: zip files with stored entries, and pickles of dicts of
 * tensors. tt_str holds the bytes. */

static inline void put_number(tt_str *s, uint64_t x, int width)
{
    for (int i = 0; i < width; i++)
        tt_str_addc(s, (char)(uint8_t)(i < 8 ? x >> 8 * i : 0));
}

/* ---- zip ---- */
typedef struct zip {
    tt_str file, directory;
    int n;
    bool wide; /* zip64: sizes, places and the directory's by 64-bit numbers */
} zip;

static inline void zip_add(zip *z, const char *name, const void *data, size_t n)
{
    const uint64_t at = z->file.n, n_name = strlen(name);
    tt_str *const both[] = {&z->file, &z->directory};
    for (int k = 0; k < 2; k++) {
        const bool wide = z->wide && k == 1;
        put_number(both[k], k ? 0x02014b50u : 0x04034b50u, 4);
        put_number(both[k], k ? 0 : 45, k ? 4 : 2); /* versions */
        put_number(both[k], 0, 12);                 /* flags, method, time, crc */
        put_number(both[k], wide ? UINT32_MAX : n, 4);
        put_number(both[k], wide ? UINT32_MAX : n, 4);
        put_number(both[k], n_name, 2);
        put_number(both[k], wide ? 28 : 0, 2);
        if (k)
            put_number(both[k], 0, 10); /* comment, disk, attributes */
        if (k)
            put_number(both[k], wide ? UINT32_MAX : at, 4);
        tt_str_addn(both[k], name, n_name);
        if (wide) {
            put_number(both[k], 1, 2);
            put_number(both[k], 24, 2);
            put_number(both[k], n, 8);
            put_number(both[k], n, 8);
            put_number(both[k], at, 8);
        }
    }
    tt_str_addn(&z->file, data, n);
    z->n++;
}

/* Ends the file; its bytes are z->file. */
static inline void zip_end(zip *z)
{
    const uint64_t at = z->file.n, bytes = z->directory.n;
    tt_str_addn(&z->file, tt_str_get(&z->directory), z->directory.n);
    if (z->wide) {
        const uint64_t end = z->file.n;
        put_number(&z->file, 0x06064b50u, 4);
        put_number(&z->file, 44, 8);
        put_number(&z->file, 45, 2);
        put_number(&z->file, 45, 2);
        put_number(&z->file, 0, 8);
        put_number(&z->file, (uint64_t)z->n, 8);
        put_number(&z->file, (uint64_t)z->n, 8);
        put_number(&z->file, bytes, 8);
        put_number(&z->file, at, 8);
        put_number(&z->file, 0x07064b50u, 4);
        put_number(&z->file, 0, 4);
        put_number(&z->file, end, 8);
        put_number(&z->file, 1, 4);
    }
    put_number(&z->file, 0x06054b50u, 4);
    put_number(&z->file, 0, 4);
    put_number(&z->file, z->wide ? UINT16_MAX : (uint64_t)z->n, 2);
    put_number(&z->file, z->wide ? UINT16_MAX : (uint64_t)z->n, 2);
    put_number(&z->file, z->wide ? UINT32_MAX : bytes, 4);
    put_number(&z->file, z->wide ? UINT32_MAX : at, 4);
    put_number(&z->file, 0, 2);
    tt_str_free(&z->directory);
}

/* ---- pickles ---- */
static inline void put_text(tt_str *s, const char *text)
{
    tt_str_addc(s, 'X');
    put_number(s, strlen(text), 4);
    tt_str_add(s, text);
}

static inline void put_int(tt_str *s, int64_t x)
{
    tt_str_add(s, "\x8a\x08");
    put_number(s, (uint64_t)x, 8);
}

static inline void put_ints(tt_str *s, const int64_t *x, int n)
{
    tt_str_addc(s, '(');
    for (int i = 0; i < n; i++)
        put_int(s, x[i]);
    tt_str_addc(s, 't');
}

static inline void pickle_begin(tt_str *s)
{
    tt_str_addn(s, "\x80\x02}(", 4);
}

/* name: a tensor of a storage. class: "FloatStorage". */
static inline void pickle_tensor(tt_str *s, const char *name, const char *class, const char *key,
                                 int64_t n_elements, int64_t offset, const int64_t *size,
                                 const int64_t *stride, int n_dims)
{
    put_text(s, name);
    tt_str_add(s, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(s, "storage");
    tt_str_printf(s, "ctorch\n%s\n", class);
    put_text(s, key);
    put_text(s, "cpu");
    put_int(s, n_elements);
    tt_str_add(s, "tQ");
    put_int(s, offset);
    put_ints(s, size, n_dims);
    put_ints(s, stride, n_dims);
    tt_str_add(s, "\x89");
    tt_str_add(s, "ccollections\nOrderedDict\n)RtR");
}

static inline void pickle_end(tt_str *s)
{
    tt_str_add(s, "u.");
}

#endif
