/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/dcp.h"
#include "interchange/formats/pickle.h"
#include "interchange/formats/torch_file.h"
#include <stdio.h>
#include <string.h>

/* The pickle of .metadata gives an object Metadata with
 *   state_dict_metadata   name → TensorStorageMetadata {properties, size, chunks: [{offsets, sizes}]}
 *                                or BytesStorageMetadata {}
 *   storage_data          MetadataIndex {fqn, offset, index} → _StorageInfo {relative_path, offset,
 *                                length, transform_descriptors}
 * and more that is not needed here. Objects are calls with a dict as state. */

enum {
    DCP_METADATA,
    DCP_TENSOR,
    DCP_BYTES,
    DCP_PROPERTIES,
    DCP_CHUNK,
    DCP_INDEX,
    DCP_INFO,
    DCP_SIZE,
    DCP_DTYPE,
    DCP_OTHER
};

#define META "torch.distributed.checkpoint.metadata"
#define SHARD_META "torch.distributed._shard.sharded_tensor.metadata"
static const tt_pickle_global globals[] = {
    {META,                                      "Metadata",              DCP_METADATA,   false},
    {META,                                      "TensorStorageMetadata", DCP_TENSOR,     false},
    {META,                                      "BytesStorageMetadata",  DCP_BYTES,      false},
    {META,                                      "TensorProperties",      DCP_PROPERTIES, false},
    {META,                                      "ChunkStorageMetadata",  DCP_CHUNK,      false},
    {META,                                      "MetadataIndex",         DCP_INDEX,      false},
    {META,                                      "StorageMeta",           DCP_OTHER,      false},
    {META,                                      "_MEM_FORMAT_ENCODING",  DCP_OTHER,      false},
    {SHARD_META,                                "TensorProperties",      DCP_PROPERTIES, false},
    {SHARD_META,                                "MEM_FORMAT_ENCODING",   DCP_OTHER,      false},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo",          DCP_INFO,       false},
    {"torch",                                   "Size",                  DCP_SIZE,       false},
    {"torch.serialization",                     "_get_layout",           DCP_OTHER,      false},
    {"pathlib",                                 "PosixPath",             DCP_OTHER,      false},
    {"pathlib._local",                          "PosixPath",             DCP_OTHER,      false},
    {"collections",                             "OrderedDict",           DCP_OTHER,      true },
    {"torch",                                   "float64",               DCP_DTYPE,      false},
    {"torch",                                   "float32",               DCP_DTYPE,      false},
    {"torch",                                   "float16",               DCP_DTYPE,      false},
    {"torch",                                   "bfloat16",              DCP_DTYPE,      false},
    {"torch",                                   "int64",                 DCP_DTYPE,      false},
    {"torch",                                   "int32",                 DCP_DTYPE,      false},
    {"torch",                                   "int16",                 DCP_DTYPE,      false},
    {"torch",                                   "int8",                  DCP_DTYPE,      false},
    {"torch",                                   "uint8",                 DCP_DTYPE,      false},
    {"torch",                                   "uint16",                DCP_DTYPE,      false},
    {"torch",                                   "uint32",                DCP_DTYPE,      false},
    {"torch",                                   "uint64",                DCP_DTYPE,      false},
    {"torch",                                   "bool",                  DCP_DTYPE,      false},
    {"torch",                                   "complex64",             DCP_DTYPE,      false},
    {"torch",                                   "float8_e4m3fn",         DCP_DTYPE,      false},
    {"torch",                                   "float8_e5m2",           DCP_DTYPE,      false},
    {"torch",                                   "float8_e8m0fnu",        DCP_DTYPE,      false},
    {"torch",                                   "float8_e4m3fnuz",       DCP_DTYPE,      false},
    {"torch",                                   "float8_e5m2fnuz",       DCP_DTYPE,      false},
    {NULL,                                      NULL,                    0,              false},
};

/* A tensor of state_dict_metadata. */
typedef struct listed {
    tt_ckpt_tensor *tensor; /* NULL: a value */
    size_t number;
} listed;

typedef struct reading {
    const char *path;
    size_t n; /* bytes of the file */
    tt_arena *arena;
    tt_map *names;  /* name → listed */
    tt_map *chunks; /* "number:offset,offset" → the sizes of the chunk */
    size_t n_chunks;
    tt_error *err;
} reading;

/* name: of the tensor; NULL: the file as a whole */
static tt_status dcp_bad(const reading *r, const char *name, const char *fmt, ...) TT_PRINTF(3, 4);
static tt_status dcp_bad(const reading *r, const char *name, const char *fmt, ...)
{
    char text[400], shown[220];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tt_plain_text(text);
    snprintf(shown, sizeof shown, "'%.200s': ", name ? name : "");
    tt_plain_text(shown);
    return tt_fail(r->err, TT_EFORMAT, "%s: %s%s", r->path, name ? shown : "", text);
}

static bool is_a(const tt_pickle_value *v, int id)
{
    return v && v->kind == TT_PICKLE_CALL && v->global->id == id;
}

/* A value of a dict by its key; NULL: the dict has none. */
static const tt_pickle_value *member(const tt_pickle_value *dict, const char *key)
{
    for (size_t i = 0; dict && dict->kind == TT_PICKLE_DICT && i + 1 < dict->n; i += 2)
        if (dict->items[i]->kind == TT_PICKLE_TEXT && !strcmp(dict->items[i]->text, key))
            return dict->items[i + 1];
    return NULL;
}

/* A field of an object. */
static const tt_pickle_value *field(const tt_pickle_value *object, const char *key)
{
    return member(object->state, key);
}

static const char *name_of(const tt_pickle_value *v)
{
    return v && v->kind == TT_PICKLE_TEXT && strlen(v->text) == v->n ? v->text : NULL;
}

/* Reads a torch.Size. */
static tt_status sizes(const reading *r, const char *name, const char *what,
                       const tt_pickle_value *v, int64_t *out, int *n)
{
    if (is_a(v, DCP_SIZE) && v->items[0]->n == 1)
        v = v->items[0]->items[0];
    else if (is_a(v, DCP_SIZE) && v->items[0]->n == 0) {
        *n = 0;
        return TT_OK;
    }
    if (!v || (v->kind != TT_PICKLE_TUPLE && v->kind != TT_PICKLE_LIST) || v->n > TT_ST_MAX_DIMS)
        return dcp_bad(r, name, "its %s is %s, not a torch.Size of at most %d dims", what,
                       tt_pickle_kind_name(v), TT_ST_MAX_DIMS);
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i]->kind != TT_PICKLE_INT || v->items[i]->integer < 0)
            return dcp_bad(r, name, "its %s has an item that is not an int >= 0", what);
        out[i] = v->items[i]->integer;
    }
    *n = (int)v->n;
    return TT_OK;
}

/* The key of a chunk in r->chunks. */
static const char *chunk_key(char out[TT_ST_MAX_DIMS * 21 + 24], size_t number,
                             const int64_t *begin, int n_dims)
{
    size_t at = (size_t)snprintf(out, 24, "%zu:", number);
    for (int d = 0; d < n_dims; d++)
        at += (size_t)snprintf(out + at, 21, "%lld,", (long long)begin[d]);
    return out;
}

/* ---- state_dict_metadata ---- */

static tt_status add_chunk(reading *r, const listed *l, const tt_pickle_value *v)
{
    const tt_ckpt_tensor *t = l->tensor;
    int64_t begin[TT_ST_MAX_DIMS] = {0},
            *size = tt_arena_array(r->arena, TT_ST_MAX_DIMS, sizeof *size);
    int n_begin = 0, n_size = 0;
    char key[TT_ST_MAX_DIMS * 21 + 24];
    if (!is_a(v, DCP_CHUNK))
        return dcp_bad(r, t->name, "a chunk of it is %s", tt_pickle_kind_name(v));
    TT_TRY(sizes(r, t->name, "chunk's offsets", field(v, "offsets"), begin, &n_begin));
    TT_TRY(sizes(r, t->name, "chunk's sizes", field(v, "sizes"), size, &n_size));
    bool fits = n_begin == t->n_dims && n_size == t->n_dims;
    for (int d = 0; d < t->n_dims && fits; d++)
        fits = begin[d] <= t->shape[d] && size[d] <= t->shape[d] - begin[d];
    if (!fits)
        return dcp_bad(r, t->name, "a chunk of it lies outside its size");
    chunk_key(key, l->number, begin, t->n_dims);
    tt_map_set(r->chunks, tt_arena_str(r->arena, key), size);
    return TT_OK;
}

/* The dtype is the first of the properties' state, a tuple. */
static tt_status dtype_of_properties(const reading *r, const char *name, const tt_pickle_value *v,
                                     const char **dtype)
{
    const tt_pickle_value *state = is_a(v, DCP_PROPERTIES) ? v->state : NULL;
    const tt_pickle_value *first = state && state->kind == TT_PICKLE_TUPLE && state->n
                                       ? state->items[0]
                                       : member(state, "dtype");
    *dtype = first && first->kind == TT_PICKLE_GLOBAL && first->global->id == DCP_DTYPE
                 ? tt_torch_dtype_name(first->global->name)
                 : NULL;
    return *dtype ? TT_OK
                  : dcp_bad(r, name, "its properties have no dtype, but %s",
                            tt_pickle_kind_name(first));
}

static tt_status add_tensor(reading *r, const char *name, const tt_pickle_value *v, listed *l,
                            tt_dcp *out)
{
    tt_ckpt_tensor t = {.name = name};
    int64_t shape[TT_ST_MAX_DIMS] = {0};
    const tt_pickle_value *chunks = field(v, "chunks");
    TT_TRY(dtype_of_properties(r, name, field(v, "properties"), &t.dtype_name));
    TT_TRY(sizes(r, name, "size", field(v, "size"), shape, &t.n_dims));
    if (t.n_dims > TT_MAX_DIMS)
        return tt_fail(r->err, TT_EUNSUPPORTED,
                       "%s: '%.200s' has %d dims; at most %d are supported", r->path, name,
                       t.n_dims, TT_MAX_DIMS);
    memcpy(t.shape, shape, sizeof(int64_t) * (size_t)t.n_dims);
    l->tensor = tt_arena_dup(r->arena, &t, sizeof t);
    tt_vec_push(r->arena, &out->tensors, t);
    if (!chunks || chunks->kind != TT_PICKLE_LIST)
        return dcp_bad(r, name, "its chunks are %s, not a list", tt_pickle_kind_name(chunks));
    /* values may be shared: a small file could list any number of chunks */
    r->n_chunks += chunks->n;
    if (r->n_chunks > r->n)
        return dcp_bad(r, name, "the chunks are more than the file has bytes");
    for (size_t i = 0; i < chunks->n; i++)
        TT_TRY(add_chunk(r, l, chunks->items[i]));
    return TT_OK;
}

static tt_status read_tensors(reading *r, const tt_pickle_value *dict, tt_dcp *out)
{
    if (!dict || dict->kind != TT_PICKLE_DICT)
        return dcp_bad(r, NULL, "its state_dict_metadata is %s, not a dict",
                       tt_pickle_kind_name(dict));
    for (size_t i = 0; i + 1 < dict->n; i += 2) {
        const char *name = name_of(dict->items[i]);
        const tt_pickle_value *v = dict->items[i + 1];
        if (!name)
            return dcp_bad(r, NULL, "a key of its state_dict_metadata is %s, not a name",
                           tt_pickle_kind_name(dict->items[i]));
        if (tt_map_get(r->names, name))
            return dcp_bad(r, name, "there are two of this name");
        listed *l = tt_arena_alloc(r->arena, sizeof *l);
        l->number = i / 2;
        tt_map_set(r->names, name, l);
        if (is_a(v, DCP_TENSOR))
            TT_TRY(add_tensor(r, name, v, l, out));
        else if (!is_a(v, DCP_BYTES))
            return dcp_bad(r, name, "it is %s, neither a tensor nor bytes", tt_pickle_kind_name(v));
    }
    return TT_OK;
}

/* ---- storage_data ---- */

/* torch's extensions, such as "stream.zstd", change the bytes of an item. */
static tt_status check_transforms(const reading *r, const char *name, const tt_pickle_value *v)
{
    if (!v || v->kind == TT_PICKLE_NONE ||
        ((v->kind == TT_PICKLE_LIST || v->kind == TT_PICKLE_TUPLE) && v->n == 0))
        return TT_OK;
    const char *first =
        v->kind == TT_PICKLE_LIST || v->kind == TT_PICKLE_TUPLE ? name_of(v->items[0]) : NULL;
    return dcp_bad(r, name,
                   "it was written through the transform %.60s, which is not read; save it again "
                   "without _extensions",
                   first ? first : "of an unknown kind");
}

static bool is_plain_file(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static tt_status read_place(const reading *r, const tt_pickle_value *info, tt_dcp_item *item)
{
    const char *name = item->name;
    if (!is_a(info, DCP_INFO))
        return dcp_bad(r, name, "its place is %s", tt_pickle_kind_name(info));
    const tt_pickle_value *at = field(info, "offset"), *bytes = field(info, "length");
    item->file = name_of(field(info, "relative_path"));
    if (!is_plain_file(item->file))
        return dcp_bad(r, name, "its file '%.100s' is not the name of a file in this folder",
                       item->file ? item->file : "");
    if (!at || at->kind != TT_PICKLE_INT || at->integer < 0 || !bytes ||
        bytes->kind != TT_PICKLE_INT || bytes->integer < 0)
        return dcp_bad(r, name, "its offset and length are not ints >= 0");
    item->at = at->integer;
    item->bytes = bytes->integer;
    return check_transforms(r, name, field(info, "transform_descriptors"));
}

static tt_status add_item(reading *r, const tt_pickle_value *index, const tt_pickle_value *info,
                          tt_dcp *out)
{
    char key[TT_ST_MAX_DIMS * 21 + 24];
    tt_dcp_item item = {0};
    if (!is_a(index, DCP_INDEX) || !name_of(field(index, "fqn")))
        return dcp_bad(r, NULL, "a key of its storage_data is %s, not a MetadataIndex with a name",
                       tt_pickle_kind_name(index));
    item.name = name_of(field(index, "fqn"));
    const tt_pickle_value *offset = field(index, "offset");
    const listed *l = tt_map_get(r->names, item.name);
    if (!l)
        return dcp_bad(r, item.name, "it has bytes, but no size");
    TT_TRY(read_place(r, info, &item));
    item.is_value = l->tensor == NULL;
    if (l->tensor && (!offset || offset->kind == TT_PICKLE_NONE))
        return dcp_bad(r, item.name, "an item of it has no offset in the tensor");
    if (l->tensor) {
        TT_TRY(sizes(r, item.name, "item's offset", offset, item.begin, &item.n_dims));
        const int64_t *size =
            item.n_dims == l->tensor->n_dims
                ? tt_map_get(r->chunks, chunk_key(key, l->number, item.begin, item.n_dims))
                : NULL;
        if (!size)
            return dcp_bad(r, item.name, "an item of it is none of its chunks");
        memcpy(item.size, size, sizeof item.size);
    }
    tt_vec_push(r->arena, &out->items, item);
    return TT_OK;
}

tt_status tt_dcp_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a, tt_dcp *out,
                       tt_error *err)
{
    reading r = {.path = path,
                 .n = n,
                 .arena = a,
                 .names = tt_map_new(a),
                 .chunks = tt_map_new(a),
                 .err = err};
    const tt_pickle_value *root = NULL;
    tt_dcp found = {0};
    TT_TRY(tt_pickle_read(path, bytes, n, globals, a, &root, err));
    if (!is_a(root, DCP_METADATA))
        return dcp_bad(&r, NULL, "it holds %s, not torch.distributed.checkpoint's Metadata",
                       tt_pickle_kind_name(root));
    TT_TRY(read_tensors(&r, field(root, "state_dict_metadata"), &found));
    const tt_pickle_value *places = field(root, "storage_data");
    if (!places || places->kind != TT_PICKLE_DICT)
        return dcp_bad(&r, NULL, "its storage_data is %s, not a dict", tt_pickle_kind_name(places));
    for (size_t i = 0; i + 1 < places->n; i += 2)
        TT_TRY(add_item(&r, places->items[i], places->items[i + 1], &found));
    *out = found;
    return TT_OK;
}
