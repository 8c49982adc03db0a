/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/option.h>

/* For test_ckpt_convert.sh and test_titan.sh: tensor_tool FILE, or tensor_tool FOLDER [swap]: one of
 * torch.distributed.checkpoint or a step, its tensors of 1 to 4 dims in f32; swap: with the last two dims swapped.
 * Prints a line for each tensor of a safetensors or GGUF file: name, dims as they are in the file,
 * hash of the bytes. Its GGUF reader is independent of ttrun's code. */

typedef struct cursor {
    const uint8_t *p;
    size_t n, at;
} cursor;

static uint64_t take(cursor *c, size_t bytes)
{
    uint64_t v = 0;
    if (bytes > c->n - c->at)
        return 0;
    memcpy(&v, c->p + c->at, bytes);
    c->at += bytes;
    return v;
}

static const char *take_text(cursor *c, tt_arena *a)
{
    const uint64_t n = take(c, 8);
    if (n > c->n - c->at)
        return "";
    const char *s = tt_arena_strn(a, (const char *)c->p + c->at, (size_t)n);
    c->at += (size_t)n;
    return s;
}

static void skip_value(cursor *c, tt_arena *a, uint64_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        (void)take_text(c, a);
    } else if (type == 9) {
        const uint64_t of = take(c, 4), n = take(c, 8);
        for (uint64_t i = 0; i < n && c->at < c->n; i++)
            skip_value(c, a, of);
    } else if (type < TT_COUNT(sizes)) {
        (void)take(c, sizes[type]);
    }
}

static void print_line(const char *name, const int64_t *dims, int n, const void *p, size_t bytes)
{
    char hash[33];
    tt_hash128_hex(p, bytes, hash);
    printf("%s ", name);
    for (int d = 0; d < n; d++)
        printf("%s%lld", d ? "," : "", (long long)dims[d]);
    printf(" %s\n", hash);
}

/* Reads F32 files only, which is enough for these comparisons. */
static int print_gguf(cursor *c, tt_arena *a)
{
    struct {
        const char *name;
        int n;
        int64_t dims[4];
        uint64_t offset, type;
    } t[512];
    c->at = 8;
    const uint64_t n = take(c, 8), n_keys = take(c, 8);
    for (uint64_t i = 0; i < n_keys; i++) {
        (void)take_text(c, a);
        skip_value(c, a, take(c, 4));
    }
    for (uint64_t i = 0; i < n && i < TT_COUNT(t); i++) {
        t[i].name = take_text(c, a);
        t[i].n = (int)take(c, 4);
        for (int d = 0; d < t[i].n && d < 4; d++)
            t[i].dims[d] = (int64_t)take(c, 8);
        t[i].type = take(c, 4);
        t[i].offset = take(c, 8);
    }
    const size_t data = (c->at + 31) / 32 * 32;
    for (uint64_t i = 0; i < n && i < TT_COUNT(t); i++) {
        size_t bytes = 4;
        for (int d = 0; d < t[i].n; d++)
            bytes *= (size_t)t[i].dims[d];
        if (t[i].type != 0 || data + t[i].offset + bytes > c->n)
            return 1;
        print_line(t[i].name, t[i].dims, t[i].n, c->p + data + t[i].offset, bytes);
    }
    return 0;
}

static int print_tensor(tt_ckpt_reader *r, const tt_ckpt_tensor *t, bool swap)
{
    tt_error err = {0};
    tt_ckpt_piece p = {.name = t->name, .dtype = TT_F32, .n_dims = t->n_dims};
    int64_t n = 1, dims[TT_MAX_DIMS] = {0};
    for (int d = 0; d < t->n_dims; d++) {
        dims[d] = p.global[d] = p.box.end[d] = t->shape[d];
        n *= t->shape[d];
    }
    float *x = calloc((size_t)n + 1, sizeof *x), *y = calloc((size_t)n + 1, sizeof *y);
    p.data = x;
    const int rc = x && y && tt_ckpt_load(r, &p, 1, &err) == TT_OK ? 0 : 1;
    if (!rc && swap && t->n_dims >= 2) {
        const int64_t rows = dims[t->n_dims - 2], cols = dims[t->n_dims - 1];
        for (int64_t i = 0; i < n; i++)
            y[i / (rows * cols) * rows * cols + i % cols * rows + i / cols % rows] = x[i];
        dims[t->n_dims - 2] = cols;
        dims[t->n_dims - 1] = rows;
        print_line(t->name, dims, t->n_dims, y, (size_t)n * sizeof *y);
    } else if (!rc) {
        print_line(t->name, dims, t->n_dims, x, (size_t)n * sizeof *x);
    }
    free(x);
    free(y);
    return rc;
}

static int print_folder(const char *folder, bool swap)
{
    tt_ckpt_reader *r = NULL;
    tt_error err = {0};
    int rc = tt_ckpt_open(folder, &r, &err) == TT_OK ? 0 : 2;
    for (size_t i = 0; !rc && i < tt_ckpt_n_tensors(r); i++) {
        const tt_ckpt_tensor t = tt_ckpt_tensor_at(r, i);
        if (t.n_dims >= 1 && t.n_dims <= 4)
            rc = print_tensor(r, &t, swap);
    }
    tt_ckpt_close(r);
    return rc;
}

int main(int argc, char **argv)
{
    struct stat st;
    if (argc >= 2 && stat(argv[1], &st) == 0 && S_ISDIR(st.st_mode))
        return print_folder(argv[1], argc == 3);
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    tt_mapping map = {0};
    tt_st_file file = {0};
    int rc = 1;
    if (argc != 2 || tt_map_file(argv[1], &map, &err) != TT_OK)
        return 2;
    if (map.n > 24 && memcmp(map.p, "GGUF", 4) == 0) {
        cursor c = {map.p, map.n, 0};
        rc = print_gguf(&c, a);
    } else if (tt_st_parse(argv[1], map.p, map.n, a, &file, &err) == TT_OK) {
        for (size_t i = 0; i < file.n_tensors; i++)
            print_line(file.tensors[i].name, file.tensors[i].shape, file.tensors[i].n_dims,
                       file.tensors[i].data, file.tensors[i].bytes);
        rc = 0;
    }
    tt_unmap_file(&map);
    tt_arena_free(a);
    return rc;
}
