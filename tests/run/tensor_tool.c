/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/safetensors.h"
#include "interchange/install.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/option.h>

/* For scripts of this folder: tensor_tool FILE, or tensor_tool FOLDER [every N FIRST] [rows UNIT BEGIN SIZE] [swap]: one of
 * torch.distributed.checkpoint or a step, its tensors of 1 to 4 dims in f32. every: each N-th element of the last dim;
 * rows: of each UNIT rows of a matrix SIZE, as [units, SIZE, columns]; then swap: the last two dims swapped.
 * Prints a line for each tensor of a safetensors or GGUF file: name, dims as they are in the file,
 * hash of the bytes; tensor_tool FILE keys: one for each key of a GGUF file, and of lists the first values.
 * Its GGUF reader is independent of ttrun's code. */

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

#define MOST_ITEMS 12 /* of a list, that are printed */

/* to: NULL: the value is read over */
static void take_value(cursor *c, tt_arena *a, uint64_t type, FILE *to)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        const char *s = take_text(c, a);
        if (to)
            fprintf(to, " %s", s);
    } else if (type == 9) {
        const uint64_t of = take(c, 4), n = take(c, 8);
        if (to)
            fprintf(to, " [%llu]", (unsigned long long)n);
        for (uint64_t i = 0; i < n && c->at < c->n; i++)
            take_value(c, a, of, i < MOST_ITEMS ? to : NULL);
    } else if (type < TT_COUNT(sizes)) {
        const uint64_t v = take(c, sizes[type]);
        const uint32_t bits = (uint32_t)v;
        float x;
        memcpy(&x, &bits, sizeof x);
        if (to && type == 6)
            fprintf(to, " %.6g", (double)x);
        else if (to)
            fprintf(to, " %lld", type == 5 ? (long long)(int32_t)bits : (long long)v);
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
static int print_gguf(cursor *c, tt_arena *a, bool keys)
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
        const char *key = take_text(c, a);
        if (keys)
            printf("%s", key);
        take_value(c, a, take(c, 4), keys ? stdout : NULL);
        if (keys)
            printf("\n");
    }
    if (keys)
        return 0;
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

typedef struct changes {
    int64_t step, first, unit, begin, size;
    float plus;
    bool swap;
} changes;

/* x [n] → y, and its dims */
static int64_t change(const changes *how, const float *x, float *y, int64_t *dims, int *n_dims)
{
    if (how->unit && *n_dims == 2) {
        dims[2] = dims[1];
        dims[0] /= how->unit;
        dims[1] = how->size;
        *n_dims = 3;
    }
    const bool rows_cut = how->unit && *n_dims == 3;
    const int64_t cols = dims[*n_dims - 1], unit = rows_cut ? how->unit : 0;
    const int64_t rows = *n_dims > 1 ? dims[*n_dims - 2] : 1, kept = cols / how->step;
    int64_t outer = 1, n = 0;
    for (int d = 0; d < *n_dims - 2; d++)
        outer *= dims[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < rows * kept; i++, n++) {
            const int64_t r = how->swap ? i % rows : i / kept, c = how->swap ? i / rows : i % kept;
            const int64_t row = rows_cut ? o * unit + how->begin + r : o * rows + r;
            y[n] = x[row * cols + how->first + c * how->step] + how->plus;
        }
    dims[*n_dims - 1] = kept;
    if (how->swap && *n_dims > 1) {
        dims[*n_dims - 2] = kept;
        dims[*n_dims - 1] = rows;
    }
    return n;
}

static int print_tensor(tt_ckpt_reader *r, const tt_ckpt_tensor *t, const changes *how)
{
    tt_error err = {0};
    tt_ckpt_piece p = {.name = t->name, .dtype = TT_F32, .n_dims = t->n_dims};
    int64_t n = 1, dims[TT_MAX_DIMS + 1] = {0};
    int n_dims = t->n_dims;
    for (int d = 0; d < t->n_dims; d++) {
        dims[d] = p.global[d] = p.box.end[d] = t->shape[d];
        n *= t->shape[d];
    }
    float *x = calloc((size_t)n + 1, sizeof *x), *y = calloc((size_t)n + 1, sizeof *y);
    p.data = x;
    const int rc = x && y && tt_ckpt_load(r, &p, 1, &err) == TT_OK ? 0 : 1;
    const bool fits = !how->unit || (n_dims == 2 && dims[0] % how->unit == 0);
    if (!rc && fits && dims[n_dims - 1] % how->step == 0) {
        n = change(how, x, y, dims, &n_dims);
        print_line(t->name, dims, n_dims, y, (size_t)n * sizeof *y);
    }
    free(x);
    free(y);
    return rc;
}

static int print_folder(const char *folder, const changes *how)
{
    tt_ckpt_reader *r = NULL;
    tt_error err = {0};
    int rc = tt_ckpt_open(folder, &r, &err) == TT_OK ? 0 : 2;
    for (size_t i = 0; !rc && i < tt_ckpt_n_tensors(r); i++) {
        const tt_ckpt_tensor t = tt_ckpt_tensor_at(r, i);
        if (t.n_dims >= 1 && t.n_dims <= 4)
            rc = print_tensor(r, &t, how);
    }
    tt_ckpt_close(r);
    return rc;
}

static changes read_changes(int argc, char **argv)
{
    changes how = {.step = 1};
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "every") && i + 2 < argc) {
            how.step = atoll(argv[i + 1]);
            how.first = atoll(argv[i + 2]);
        } else if (!strcmp(argv[i], "rows") && i + 3 < argc) {
            how.unit = atoll(argv[i + 1]);
            how.begin = atoll(argv[i + 2]);
            how.size = atoll(argv[i + 3]);
        } else if (!strcmp(argv[i], "plus") && i + 1 < argc) {
            how.plus = strtof(argv[i + 1], NULL);
        } else if (!strcmp(argv[i], "swap")) {
            how.swap = true;
        }
    }
    return how;
}

int main(int argc, char **argv)
{
    struct stat st;
    const bool keys = argc == 3 && !strcmp(argv[2], "keys");
    tt_interchange_install();
    if (argc >= 2 && stat(argv[1], &st) == 0 && S_ISDIR(st.st_mode)) {
        const changes how = read_changes(argc, argv);
        return print_folder(argv[1], &how);
    }
    tt_arena *a = tt_arena_new();
    tt_error err = {0};
    tt_mapping map = {0};
    tt_st_file file = {0};
    int rc = 1;
    if ((argc != 2 && !keys) || tt_map_file(argv[1], &map, &err) != TT_OK)
        return 2;
    if (map.n > 24 && memcmp(map.p, "GGUF", 4) == 0) {
        cursor c = {map.p, map.n, 0};
        rc = print_gguf(&c, a, keys);
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
