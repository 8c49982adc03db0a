/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/convert.h"
#include "checkpoint/reader.h"
#include "interchange/formats/dcp.h"
#include "interchange/formats/torch_file.h"
#include <math.h>
#include <string.h>

/* Opens a folder of torch.distributed.checkpoint's own format: every chunk becomes a shard of a tensor.
 * Values that are no tensors are read when they are asked for. */

typedef struct value { /* a file of torch.save in memory, of what is no tensor */
    const char *path;
    const uint8_t *bytes;
    size_t n;
} value;

/* The file of an item, mapped once. r->files has room for all. */
static tt_status file_of(tt_ckpt_reader *r, tt_map *seen, const tt_dcp_item *item,
                         const tt_st_file **out, tt_error *err)
{
    tt_st_file *f = tt_map_get(seen, item->file);
    if (!f) {
        const char *path = tt_path_join(r->arena, r->path, item->file);
        f = &r->files[r->n_files];
        *f = (tt_st_file){.path = path};
        if (!tt_path_exists(path))
            return TT_FAIL(err, TT_ENOTFOUND,
                           "%s: not there, but " TT_DCP_METADATA
                           " says that it holds '%s'; copy the folder again",
                           path, item->name);
        TT_TRY(tt_map_file(path, &f->map, err));
        r->n_files++;
        tt_map_set(seen, item->file, f);
    }
    if (item->at > (int64_t)f->map.n || item->bytes > (int64_t)f->map.n - item->at)
        return TT_FAIL(
            err, TT_EFORMAT,
            "%s: '%s' is at byte %lld, +%lld, of a file of %zu bytes: cut short; copy it "
            "again",
            f->path, item->name, (long long)item->at, (long long)item->bytes, f->map.n);
    *out = f;
    return TT_OK;
}

/* Reads the item of a chunk and checks that it is what .metadata says. */
static tt_status open_chunk(tt_ckpt_reader *r, const tt_dcp_item *item, const tt_st_file *in,
                            const tt_map *tensors, tt_error *err)
{
    tt_st_file *f = &r->files[r->n_files];
    const tt_ckpt_tensor *whole = tt_map_get(tensors, item->name);
    TT_TRY(tt_torch_parse_tensor(in->path, item->name,
                                 (const uint8_t *)in->map.p + (size_t)item->at, (size_t)item->bytes,
                                 r->arena, f, err));
    r->n_files++;
    tt_st_tensor *t = f->tensors;
    bool fits = t->n_dims == item->n_dims;
    for (int d = 0; d < t->n_dims && fits; d++)
        fits = t->shape[d] == item->size[d];
    if (!fits || strcmp(t->dtype_name, whole->dtype_name) != 0)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: the chunk of '%s' at byte %lld has another %s than " TT_DCP_METADATA
                       " says",
                       in->path, item->name, (long long)item->at, fits ? "dtype" : "shape");
    memcpy(t->offset, item->begin, sizeof t->offset);
    return tt_ckpt_add_shard(r, f, t, err);
}

tt_status tt_dcp_fill(tt_ckpt_reader *r, const void *unused, tt_error *err)
{
    (void)unused;
    tt_arena *a = r->arena;
    const char *path = tt_path_join(a, r->path, TT_DCP_METADATA);
    tt_mapping map;
    tt_dcp dcp = {0};
    TT_TRY(tt_map_file(path, &map, err));
    const tt_status s = tt_dcp_parse(path, map.p, map.n, a, &dcp, err);
    tt_unmap_file(&map);
    TT_TRY(s);
    tt_map *seen = tt_map_new(a), *tensors = tt_map_new(a);
    r->files = tt_arena_array(a, 2 * dcp.items.n + 1, sizeof *r->files);
    r->values = tt_map_new(a);
    r->shapes_in = TT_DCP_METADATA;
    size_t items = 0, files = 0; /* bytes */
    for (size_t i = 0; i < dcp.tensors.n; i++) {
        tt_map_set(tensors, dcp.tensors.items[i].name, &dcp.tensors.items[i]);
        tt_vec_push(a, &r->manifest.tensors, dcp.tensors.items[i]);
    }
    for (size_t i = 0; i < dcp.items.n; i++) {
        const tt_dcp_item *item = &dcp.items.items[i];
        const tt_st_file *f = NULL;
        const size_t n_files = r->n_files;
        TT_TRY(file_of(r, seen, item, &f, err));
        files += r->n_files > n_files ? f->map.n : 0;
        items += (size_t)item->bytes;
        if (!item->is_value) {
            TT_TRY(open_chunk(r, item, f, tensors, err));
            continue;
        }
        const value v = {f->path, (const uint8_t *)f->map.p + (size_t)item->at,
                         (size_t)item->bytes};
        tt_map_set(r->values, item->name, tt_arena_dup(a, &v, sizeof v));
    }
    if (items > files) /* such a folder could ask for any amount of work */
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: its items have more bytes than their files: they overlap", path);
    return TT_OK;
}

/* ---- numbers ---- */

static tt_status number_of_tensor(const tt_ckpt_reader *r, const tt_entry *e, double *out,
                                  tt_error *err)
{
    const tt_st_tensor *t = e->shards.n == 1 ? e->shards.items[0].tensor : NULL;
    int32_t i32;
    int64_t i64, numel = 1;
    for (int d = 0; d < e->n_dims; d++)
        numel *= e->global[d] == 1 ? 1 : 0;
    if (!t || numel != 1)
        return TT_FAIL(err, TT_EFORMAT, "%s: '%s' is not one number", r->path, e->name);
    if (t->dtype == TT_I32) {
        memcpy(&i32, t->data, sizeof i32);
        *out = i32;
    } else if (t->dtype == TT_I64) {
        memcpy(&i64, t->data, sizeof i64);
        *out = (double)i64;
    } else if (tt_can_convert(TT_F64, t->dtype)) {
        tt_convert(out, TT_F64, t->data, t->dtype, 1);
    } else {
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: '%s' is a number of dtype %s", r->path, e->name,
                       t->dtype_name);
    }
    return TT_OK;
}

tt_status tt_dcp_number(const tt_ckpt_reader *r, const char *name, double *out, bool *found,
                        tt_error *err)
{
    const tt_entry *e = tt_map_get(r->entries, name);
    const value *v = r->values ? tt_map_get(r->values, name) : NULL;
    const tt_pickle_value *x = NULL;
    *found = e || v;
    if (!*found)
        return TT_OK;
    if (e)
        return number_of_tensor(r, e, out, err);
    tt_arena *a = tt_arena_new();
    tt_status s = tt_torch_parse_value(v->path, v->bytes, v->n, a, &x, err);
    if (s == TT_OK && x->kind == TT_PICKLE_FLOAT)
        *out = x->real;
    else if (s == TT_OK && x->kind == TT_PICKLE_INT)
        *out = (double)x->integer;
    else if (s == TT_OK)
        s = TT_FAIL(err, TT_EFORMAT, "%s: '%s' is %s, not a number", v->path, name,
                    tt_pickle_kind_name(x));
    tt_arena_free(a);
    return s;
}
