/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/folder.h"
#include "interchange/formats/dcp.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* Writes __0_0.distcp item by item, each a zip file as torch.save makes it, and then .metadata. Pickles are
 * of protocol 2 and without a memo: every object is written out where it is. */

struct tt_dcp_writer {
    tt_arena *arena;
    const char *path; /* of the file of items */
    const char *folder;
    int fd;
    int64_t at;                    /* bytes written */
    tt_str names, places, planner; /* items of the dicts of .metadata */
    tt_map *seen;
};

#define ITEMS "__0_0.distcp"
#define META "ctorch.distributed.checkpoint.metadata\n"
enum { ALIGNMENT = 64, ZIP_LOCAL = 30, ZIP_ENTRY = 46 };

/* ---- pickle ---- */

static void add_number(tt_str *s, uint64_t x, int width)
{
    for (int i = 0; i < width; i++)
        tt_str_addc(s, (char)(uint8_t)(x >> 8 * i));
}

static void add_text(tt_str *s, const char *text)
{
    tt_str_addc(s, 'X');
    add_number(s, strlen(text), 4);
    tt_str_add(s, text);
}

static void add_int(tt_str *s, int64_t x)
{
    if (x >= 0 && x < 256) {
        tt_str_addc(s, 'K');
        add_number(s, (uint64_t)x, 1);
        return;
    }
    tt_str_add(s, "\x8a\x08"); /* LONG1 of 8 bytes */
    add_number(s, (uint64_t)x, 8);
}

static void add_real(tt_str *s, double x)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    tt_str_addc(s, 'G');
    for (int i = 7; i >= 0; i--)
        tt_str_addc(s, (char)(uint8_t)(bits >> 8 * i));
}

static void add_ints(tt_str *s, const int64_t *x, int n)
{
    tt_str_addc(s, '(');
    for (int i = 0; i < n; i++)
        add_int(s, x[i]);
    tt_str_addc(s, 't');
}

/* torch.Size((…,)) */
static void add_size(tt_str *s, const int64_t *x, int n)
{
    tt_str_add(s, "ctorch\nSize\n");
    add_ints(s, x, n);
    tt_str_add(s, "\x85R");
}

/* An object of a class of torch.distributed.checkpoint, whose state follows. */
static void add_object(tt_str *s, const char *class)
{
    tt_str_printf(s, "%s)\x81", class);
}

/* ---- zip ---- */

typedef struct zip {
    tt_str head, directory; /* head: the bytes of the file before the next entry's data */
    uint64_t n, at;         /* entries; bytes before head */
} zip;

static uint32_t narrow(uint64_t x)
{
    return x < UINT32_MAX ? (uint32_t)x : UINT32_MAX;
}

/* Adds the header of an entry, padded so that its data begin at a multiple of 64 bytes; the caller adds
 * the data. */
static void add_entry(zip *z, const char *name, const void *data, uint64_t bytes)
{
    const uint64_t at = z->at + z->head.n, n_name = strlen(name);
    const bool wide = bytes >= UINT32_MAX;
    const uint32_t crc = (uint32_t)crc32_z(0, bytes ? data : (const void *)"", (z_size_t)bytes);
    const uint64_t fixed = ZIP_LOCAL + n_name + (wide ? 20 : 0) + 4;
    const uint64_t pad = (ALIGNMENT - (at + fixed) % ALIGNMENT) % ALIGNMENT;
    tt_str *const both[] = {&z->head, &z->directory};
    for (int k = 0; k < 2; k++) {
        const bool far = k == 1 && at >= UINT32_MAX;
        const uint64_t extra = (wide || far) ? 4 + (wide ? 16u : 0u) + (far ? 8u : 0u) : 0;
        add_number(both[k], k ? 0x02014b50u : 0x04034b50u, 4);
        add_number(both[k], k ? 0x002d0000u : 0x002du, k ? 4 : 2); /* version 4.5 */
        add_number(both[k], 0x0800, 2);                            /* names are UTF-8 */
        add_number(both[k], 0, 6);                                 /* stored; no time */
        add_number(both[k], crc, 4);
        add_number(both[k], wide ? UINT32_MAX : bytes, 4);
        add_number(both[k], wide ? UINT32_MAX : bytes, 4);
        add_number(both[k], n_name, 2);
        add_number(both[k], extra + (k ? 0 : 4 + pad), 2);
        if (k) {
            add_number(both[k], 0, 8); /* no comment, disk 0, no attributes */
            add_number(both[k], 0, 2);
            add_number(both[k], narrow(at), 4);
        }
        tt_str_add(both[k], name);
        if (extra) {
            add_number(both[k], 1, 2); /* zip64 */
            add_number(both[k], extra - 4, 2);
            if (wide)
                add_number(both[k], bytes, 8);
            if (wide)
                add_number(both[k], bytes, 8);
            if (far)
                add_number(both[k], at, 8);
        }
    }
    add_number(&z->head, 0x4246, 2); /* "FB", torch's field of padding */
    add_number(&z->head, pad, 2);
    for (uint64_t i = 0; i < pad; i++)
        tt_str_addc(&z->head, 'Z');
    z->n++;
}

static void add_small(zip *z, const char *name, const void *data, size_t n)
{
    add_entry(z, name, data, n);
    tt_str_addn(&z->head, data, n);
}

/* The directory and the end records. */
static void end_zip(zip *z)
{
    const uint64_t at = z->at + z->head.n, bytes = z->directory.n, end = at + bytes;
    tt_str_addn(&z->head, tt_str_get(&z->directory), z->directory.n);
    if (at >= UINT32_MAX) {
        add_number(&z->head, 0x06064b50u, 4);
        add_number(&z->head, 44, 8);
        add_number(&z->head, 0x002d002du, 4);
        add_number(&z->head, 0, 8);
        add_number(&z->head, z->n, 8);
        add_number(&z->head, z->n, 8);
        add_number(&z->head, bytes, 8);
        add_number(&z->head, at, 8);
        add_number(&z->head, 0x07064b50u, 4);
        add_number(&z->head, 0, 4);
        add_number(&z->head, end, 8);
        add_number(&z->head, 1, 4);
    }
    add_number(&z->head, 0x06054b50u, 4);
    add_number(&z->head, 0, 4);
    add_number(&z->head, z->n, 2);
    add_number(&z->head, z->n, 2);
    add_number(&z->head, bytes, 4);
    add_number(&z->head, narrow(at), 4);
    add_number(&z->head, 0, 2);
}

/* ---- items ---- */

static tt_status dcp_put(tt_dcp_writer *w, const void *p, size_t n, tt_error *err)
{
    if (!tt_write_all(w->fd, p, n))
        return tt_fail_system(err, errno, "write", w->path);
    w->at += (int64_t)n;
    return TT_OK;
}

static tt_status dcp_put_text(tt_dcp_writer *w, tt_str *s, tt_error *err)
{
    const tt_status st = dcp_put(w, tt_str_get(s), s->n, err);
    s->n = 0;
    return st;
}

/* Writes one item: a pickle and, of a tensor, its data. */
static tt_status put_item(tt_dcp_writer *w, const tt_str *pickle, const void *data, size_t bytes,
                          bool is_tensor, tt_error *err)
{
    zip z = {0};
    add_small(&z, "archive/data.pkl", pickle->s, pickle->n);
    add_small(&z, "archive/byteorder", "little", 6);
    tt_status s = TT_OK;
    if (is_tensor) {
        add_entry(&z, "archive/data/0", data, bytes);
        z.at = z.head.n + bytes;
        s = dcp_put_text(w, &z.head, err);
        if (s == TT_OK)
            s = dcp_put(w, data, bytes, err);
    }
    add_small(&z, "archive/version", "3\n", 2);
    end_zip(&z);
    if (s == TT_OK)
        s = dcp_put_text(w, &z.head, err);
    tt_str_free(&z.head);
    tt_str_free(&z.directory);
    return s;
}

/* The entry of planner_data: "optimizer.a.b" is at the path ("optimizer", "a.b"), as of a dict that has a
 * flat dict for each of its parts; a parameter is at the top. */
static void add_planner(tt_dcp_writer *w, const char *name)
{
    static const char *const parts[] = {"optimizer.", "train_state.", "lr_scheduler."};
    add_text(&w->planner, name);
    for (size_t i = 0; i < TT_COUNT(parts); i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(name, parts[i], n) != 0)
            continue;
        add_text(&w->planner, tt_arena_strn(w->arena, name, n - 1));
        add_text(&w->planner, name + n);
        tt_str_add(&w->planner, "\x86");
        return;
    }
    add_text(&w->planner, name);
    tt_str_add(&w->planner, "\x85");
}

/* The entry of storage_data. n_dims -1: a value, which has no offset. */
static void add_place(tt_dcp_writer *w, const char *name, int n_dims, int64_t at)
{
    static const int64_t zeros[TT_MAX_DIMS] = {0};
    tt_str *s = &w->places;
    add_object(s, META "MetadataIndex\n");
    tt_str_add(s, "}(");
    add_text(s, "fqn");
    add_text(s, name);
    add_text(s, "offset");
    if (n_dims < 0)
        tt_str_addc(s, 'N');
    else
        add_size(s, zeros, n_dims);
    add_text(s, "index");
    if (n_dims < 0)
        tt_str_addc(s, 'N');
    else
        add_int(s, 0);
    tt_str_add(s, "ub");
    add_object(s, "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n");
    tt_str_add(s, "}(");
    add_text(s, "relative_path");
    add_text(s, ITEMS);
    add_text(s, "offset");
    add_int(s, at);
    add_text(s, "length");
    add_int(s, w->at - at);
    tt_str_add(s, "ub");
}

static tt_status dcp_check_name(tt_dcp_writer *w, const char *name, tt_error *err)
{
    if (tt_map_get(w->seen, name))
        return TT_FAIL(err, TT_EINVAL, "%s: '%s' is written twice", w->folder, name);
    tt_map_set(w->seen, tt_arena_str(w->arena, name), w);
    return TT_OK;
}

typedef struct torch_dtype {
    tt_dtype dtype;
    const char *name, *storage;
} torch_dtype;

static const torch_dtype *dtype_of(tt_dtype dtype)
{
    static const torch_dtype all[] = {
        {TT_F32,    "float32",       "FloatStorage"   },
        {TT_BF16,   "bfloat16",      "BFloat16Storage"},
        {TT_F16,    "float16",       "HalfStorage"    },
        {TT_F64,    "float64",       "DoubleStorage"  },
        {TT_I64,    "int64",         "LongStorage"    },
        {TT_I32,    "int32",         "IntStorage"     },
        {TT_U8,     "uint8",         "ByteStorage"    },
        {TT_BOOL,   "bool",          "BoolStorage"    },
        {TT_F8E4M3, "float8_e4m3fn", NULL             },
        {TT_F8E5M2, "float8_e5m2",   NULL             }
    };
    for (size_t i = 0; i < TT_COUNT(all); i++)
        if (all[i].dtype == dtype)
            return &all[i];
    return NULL;
}

static void strides_of(const tt_dcp_tensor *t, int64_t out[TT_MAX_DIMS], int64_t *numel)
{
    *numel = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        out[d] = *numel;
        *numel *= t->shape[d];
    }
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()), or _v3 with the dtype at
 * its end for dtypes without a class of storage. */
static void add_tensor(tt_str *s, const tt_dcp_tensor *t, const torch_dtype *d)
{
    int64_t stride[TT_MAX_DIMS] = {0}, numel = 0;
    strides_of(t, stride, &numel);
    tt_str_printf(s, "ctorch._utils\n_rebuild_tensor_v%d\n((", d->storage ? 2 : 3);
    add_text(s, "storage");
    if (d->storage)
        tt_str_printf(s, "ctorch\n%s\n", d->storage);
    else
        tt_str_add(s, "ctorch.storage\nUntypedStorage\n");
    add_text(s, "0");
    add_text(s, "cpu");
    add_int(s, numel); /* of an untyped storage: its bytes, which are as many */
    tt_str_add(s, "tQK");
    tt_str_addc(s, 0);
    add_ints(s, t->shape, t->n_dims);
    add_ints(s, stride, t->n_dims);
    tt_str_add(s, "\x89"
                  "ccollections\nOrderedDict\n)R");
    if (!d->storage)
        tt_str_printf(s, "ctorch\n%s\n", d->name);
    tt_str_add(s, "tR.");
}

/* The entry of state_dict_metadata: one chunk, which is all of the tensor. */
static void add_metadata(tt_str *s, const tt_dcp_tensor *t, const torch_dtype *d)
{
    static const int64_t zeros[TT_MAX_DIMS] = {0};
    int64_t stride[TT_MAX_DIMS] = {0}, numel = 0;
    strides_of(t, stride, &numel);
    add_text(s, t->name);
    add_object(s, META "TensorStorageMetadata\n");
    tt_str_add(s, "}(");
    add_text(s, "properties");
    add_object(s, META "TensorProperties\n");
    tt_str_printf(s, "(ctorch\n%s\nctorch.serialization\n_get_layout\n", d->name);
    add_text(s, "torch.strided");
    tt_str_add(s, "\x85R\x89" META "_MEM_FORMAT_ENCODING\nK");
    tt_str_addc(s, 0);
    tt_str_add(s, "\x85R\x89");
    add_ints(s, stride, t->n_dims);
    tt_str_add(s, "tb");
    add_text(s, "size");
    add_size(s, t->shape, t->n_dims);
    add_text(s, "chunks");
    tt_str_addc(s, ']');
    add_object(s, META "ChunkStorageMetadata\n");
    tt_str_add(s, "}(");
    add_text(s, "offsets");
    add_size(s, zeros, t->n_dims);
    add_text(s, "sizes");
    add_size(s, t->shape, t->n_dims);
    tt_str_add(s, "ubaub");
}

tt_status tt_dcp_put_tensor(tt_dcp_writer *w, const tt_dcp_tensor *t, tt_error *err)
{
    const torch_dtype *d = dtype_of(t->dtype);
    int64_t stride[TT_MAX_DIMS], numel = 0;
    if (!d)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: '%s' is of a dtype that PyTorch has not",
                       w->folder, t->name);
    TT_TRY(dcp_check_name(w, t->name, err));
    tt_str pickle = {0};
    const int64_t at = w->at;
    strides_of(t, stride, &numel);
    tt_str_addn(&pickle, "\x80\x02", 2);
    add_tensor(&pickle, t, d);
    const tt_status s =
        put_item(w, &pickle, t->data, (size_t)numel * tt_dtype_size(t->dtype), true, err);
    tt_str_free(&pickle);
    TT_TRY(s);
    add_metadata(&w->names, t, d);
    add_place(w, t->name, t->n_dims, at);
    add_planner(w, t->name);
    return TT_OK;
}

tt_status tt_dcp_put_value(tt_dcp_writer *w, const char *name, const tt_dcp_value *v, tt_error *err)
{
    tt_str pickle = {0};
    const int64_t at = w->at;
    TT_TRY(dcp_check_name(w, name, err));
    tt_str_addn(&pickle, "\x80\x02", 2);
    if (v->kind == TT_DCP_INT)
        add_int(&pickle, v->integer);
    else if (v->kind == TT_DCP_BOOL)
        tt_str_addc(&pickle, v->integer ? '\x88' : '\x89');
    else if (v->kind == TT_DCP_NONE)
        tt_str_addc(&pickle, 'N');
    else
        add_real(&pickle, v->real[0]);
    if (v->kind == TT_DCP_PAIR) {
        add_real(&pickle, v->real[1]);
        tt_str_addc(&pickle, '\x86');
    }
    tt_str_addc(&pickle, '.');
    const tt_status s = put_item(w, &pickle, NULL, 0, false, err);
    tt_str_free(&pickle);
    TT_TRY(s);
    add_text(&w->names, name);
    add_object(&w->names, META "BytesStorageMetadata\n");
    tt_str_add(&w->names, "}b");
    add_place(w, name, -1, at);
    add_planner(w, name);
    return TT_OK;
}

/* ---- the folder ---- */

tt_status tt_dcp_create(const char *folder, tt_dcp_writer **out, tt_error *err)
{
    TT_TRY(tt_mkdirs(folder, err));
    tt_arena *a = tt_arena_new();
    tt_dcp_writer *w = tt_arena_alloc(a, sizeof *w);
    w->arena = a;
    w->folder = tt_arena_str(a, folder);
    w->path = tt_path_join(a, folder, ITEMS);
    w->seen = tt_map_new(a);
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        const tt_status s = tt_fail_system(err, errno, "create", w->path);
        tt_arena_free(a);
        return s;
    }
    *out = w;
    return TT_OK;
}

static tt_status write_metadata(const tt_dcp_writer *w, tt_error *err)
{
    tt_str s = {0};
    const char *path = tt_path_join(w->arena, w->folder, TT_DCP_METADATA);
    tt_str_addn(&s, "\x80\x02", 2);
    add_object(&s, META "Metadata\n");
    tt_str_add(&s, "}(");
    add_text(&s, "state_dict_metadata");
    tt_str_add(&s, "}(");
    tt_str_addn(&s, tt_str_get(&w->names), w->names.n);
    tt_str_addc(&s, 'u');
    add_text(&s, "planner_data");
    tt_str_add(&s, "}(");
    tt_str_addn(&s, tt_str_get(&w->planner), w->planner.n);
    tt_str_addc(&s, 'u');
    add_text(&s, "storage_data");
    tt_str_add(&s, "}(");
    tt_str_addn(&s, tt_str_get(&w->places), w->places.n);
    tt_str_addc(&s, 'u');
    add_text(&s, "storage_meta");
    tt_str_addc(&s, 'N');
    add_text(&s, "version");
    add_text(&s, "1.0.0");
    tt_str_add(&s, "ub.");
    const tt_status st = tt_write_file_atomic(path, s.s, s.n, err);
    tt_str_free(&s);
    return st;
}

tt_status tt_dcp_finish(tt_dcp_writer *w, tt_error *err)
{
    if (fsync(w->fd) != 0)
        return tt_fail_system(err, errno, "fsync", w->path);
    return write_metadata(w, err);
}

void tt_dcp_close(tt_dcp_writer *w)
{
    if (!w)
        return;
    close(w->fd);
    tt_str_free(&w->names);
    tt_str_free(&w->places);
    tt_str_free(&w->planner);
    tt_arena_free(w->arena);
}
