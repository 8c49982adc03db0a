/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/torch_file.h"
#include "checkpoint/convert.h"
#include "interchange/formats/pickle.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

/* The pickle of torch.save is a dict from names to calls that rebuild tensors:
 *   torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
 *   storage: the persistent id ("storage", torch.FloatStorage, key, place, n_elements)
 * The bytes of a storage are the entry <folder>/data/<key>. Tensors may share a storage. */

/* ids: a tensor's rebuilding call; a storage's class, which tells the dtype; a dtype */
enum { IS_DICT, IS_TENSOR, IS_TENSOR_V3, IS_PARAMETER, IS_UNTYPED, IS_DTYPE, IS_ENCODED };

static const tt_pickle_global globals[] = {
    {"collections",   "OrderedDict",                   IS_DICT,      true },
    {"_codecs",       "encode",                        IS_ENCODED,   false},
    {"torch._utils",  "_rebuild_tensor",               IS_TENSOR,    false},
    {"torch._utils",  "_rebuild_tensor_v2",            IS_TENSOR,    false},
    {"torch._utils",  "_rebuild_tensor_v3",            IS_TENSOR_V3, false},
    {"torch._utils",  "_rebuild_parameter",            IS_PARAMETER, false},
    {"torch._utils",  "_rebuild_parameter_with_state", IS_PARAMETER, false},
    {"torch.storage", "UntypedStorage",                IS_UNTYPED,   false},
    {"torch",         "UntypedStorage",                IS_UNTYPED,   false},
    {"torch",         "DoubleStorage",                 IS_DTYPE,     false},
    {"torch",         "FloatStorage",                  IS_DTYPE,     false},
    {"torch",         "HalfStorage",                   IS_DTYPE,     false},
    {"torch",         "BFloat16Storage",               IS_DTYPE,     false},
    {"torch",         "LongStorage",                   IS_DTYPE,     false},
    {"torch",         "IntStorage",                    IS_DTYPE,     false},
    {"torch",         "ShortStorage",                  IS_DTYPE,     false},
    {"torch",         "CharStorage",                   IS_DTYPE,     false},
    {"torch",         "ByteStorage",                   IS_DTYPE,     false},
    {"torch",         "BoolStorage",                   IS_DTYPE,     false},
    {"torch",         "ComplexFloatStorage",           IS_DTYPE,     false},
    {"torch",         "uint16",                        IS_DTYPE,     false},
    {"torch",         "uint32",                        IS_DTYPE,     false},
    {"torch",         "uint64",                        IS_DTYPE,     false},
    {"torch",         "float8_e4m3fn",                 IS_DTYPE,     false},
    {"torch",         "float8_e5m2",                   IS_DTYPE,     false},
    {"torch",         "float8_e8m0fnu",                IS_DTYPE,     false},
    {"torch",         "float8_e4m3fnuz",               IS_DTYPE,     false},
    {"torch",         "float8_e5m2fnuz",               IS_DTYPE,     false},
    {NULL,            NULL,                            0,            false},
};

/* Of the globals that tell a dtype: safetensors' name of it. */
static const struct {
    const char *global, *dtype;
} dtypes[] = {
    {"DoubleStorage",       "F64"        },
    {"float64",             "F64"        },
    {"float32",             "F32"        },
    {"float16",             "F16"        },
    {"bfloat16",            "BF16"       },
    {"int64",               "I64"        },
    {"int32",               "I32"        },
    {"int16",               "I16"        },
    {"int8",                "I8"         },
    {"uint8",               "U8"         },
    {"bool",                "BOOL"       },
    {"complex64",           "C64"        },
    {"FloatStorage",        "F32"        },
    {"HalfStorage",         "F16"        },
    {"BFloat16Storage",     "BF16"       },
    {"LongStorage",         "I64"        },
    {"IntStorage",          "I32"        },
    {"ShortStorage",        "I16"        },
    {"CharStorage",         "I8"         },
    {"ByteStorage",         "U8"         },
    {"BoolStorage",         "BOOL"       },
    {"ComplexFloatStorage", "C64"        },
    {"uint16",              "U16"        },
    {"uint32",              "U32"        },
    {"uint64",              "U64"        },
    {"float8_e4m3fn",       "F8_E4M3"    },
    {"float8_e5m2",         "F8_E5M2"    },
    {"float8_e8m0fnu",      "F8_E8M0"    },
    {"float8_e4m3fnuz",     "F8_E4M3FNUZ"},
    {"float8_e5m2fnuz",     "F8_E5M2FNUZ"},
};

typedef struct reading {
    const char *path;
    tt_arena *arena;
    tt_map *entries; /* name → tt_zip_entry, without the archive's folder */
    size_t n;        /* bytes of the file */
    tt_error *err;
} reading;

/* A tensor's elements: strides in elements; where it is in the storage. */
typedef struct view {
    int64_t stride[TT_ST_MAX_DIMS];
    const uint8_t *storage; /* from the tensor's first element on */
    size_t size;            /* bytes per element */
} view;

/* name: of the tensor; NULL: the file as a whole */
static tt_status torch_bad(const reading *r, const char *name, const char *fmt, ...)
    TT_PRINTF(3, 4);
static tt_status torch_bad(const reading *r, const char *name, const char *fmt, ...)
{
    char shown[220];
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tt_plain_text(text);
    snprintf(shown, sizeof shown, "%.200s", name ? name : "");
    tt_plain_text(shown);
    return name ? tt_fail(r->err, TT_EFORMAT, "%s: '%s': %s", r->path, shown, text)
                : tt_fail(r->err, TT_EFORMAT, "%s: %s", r->path, text);
}

const char *tt_torch_dtype_name(const char *global)
{
    for (size_t i = 0; i < TT_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].global, global))
            return dtypes[i].dtype;
    return NULL;
}

static const tt_st_dtype *dtype_of(const tt_pickle_value *v)
{
    const char *name = v->kind == TT_PICKLE_GLOBAL ? tt_torch_dtype_name(v->global->name) : NULL;
    return name ? tt_st_dtype_by_name(name) : NULL;
}

/* Reads a tuple of integers, at least 0, and at most as many as a tensor may have dims. */
static tt_status integers(const reading *r, const char *name, const char *what,
                          const tt_pickle_value *v, int64_t *out, int *n)
{
    if (v->kind != TT_PICKLE_TUPLE || v->n > TT_ST_MAX_DIMS)
        return torch_bad(r, name, "its %s is %s, not a tuple of at most %d ints", what,
                         tt_pickle_kind_name(v), TT_ST_MAX_DIMS);
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i]->kind != TT_PICKLE_INT || v->items[i]->integer < 0)
            return torch_bad(r, name, "its %s has an item that is not an int >= 0", what);
        out[i] = v->items[i]->integer;
    }
    *n = (int)v->n;
    return TT_OK;
}

/* The entry of a storage, and the dtype that its class tells; NULL: an untyped one. */
static tt_status storage_of(const reading *r, const char *name, const tt_pickle_value *v,
                            const tt_zip_entry **entry, const tt_st_dtype **dtype)
{
    const tt_pickle_value *id = v->kind == TT_PICKLE_PERSISTENT ? v->items[0] : NULL;
    if (!id || id->kind != TT_PICKLE_TUPLE || id->n != 5 || id->items[0]->kind != TT_PICKLE_TEXT ||
        strcmp(id->items[0]->text, "storage") != 0 || id->items[2]->kind != TT_PICKLE_TEXT)
        return torch_bad(r, name, "it has no storage as torch.save names them");
    const tt_pickle_value *class = id->items[1];
    *dtype = dtype_of(class);
    if (!*dtype && !(class->kind == TT_PICKLE_GLOBAL && class->global->id == IS_UNTYPED))
        return torch_bad(r, name, "the class of its storage is %s", tt_pickle_kind_name(class));
    const char *key = tt_arena_printf(r->arena, "data/%s", id->items[2]->text);
    *entry = tt_map_get(r->entries, key);
    if (!*entry)
        return torch_bad(r, name, "the file has no entry %.100s, its storage", key);
    return TT_OK;
}

/* The elements from the first to the last that the tensor has: [offset, offset + *reach). */
static bool reach_of(const tt_st_tensor *t, const view *v, int64_t *reach)
{
    *reach = 1;
    for (int d = 0; d < t->n_dims; d++) {
        int64_t more = 0;
        if (!tt_mul_i64(t->shape[d] - 1, v->stride[d], &more) || !tt_add_i64(*reach, more, reach))
            return false;
    }
    return true;
}

/* args: storage, offset, size, stride, … */
static tt_status torch_place(const reading *r, const tt_pickle_value *args, const tt_st_dtype *as,
                             tt_st_tensor *t, view *v)
{
    const tt_zip_entry *entry = NULL;
    const tt_st_dtype *dtype = NULL;
    int n_strides = 0;
    int64_t reach = 0, end = 0;
    TT_TRY(storage_of(r, t->name, args->items[0], &entry, &dtype));
    dtype = as ? as : dtype;
    if (!dtype)
        return torch_bad(r, t->name, "its storage has no dtype");
    TT_TRY(integers(r, t->name, "size", args->items[2], t->shape, &t->n_dims));
    TT_TRY(integers(r, t->name, "stride", args->items[3], v->stride, &n_strides));
    const tt_pickle_value *offset = args->items[1];
    if (n_strides != t->n_dims || offset->kind != TT_PICKLE_INT || offset->integer < 0)
        return torch_bad(r, t->name, "its size, stride and offset do not fit each other");
    if (!tt_st_bytes(dtype, t->shape, t->n_dims, &t->bytes))
        return torch_bad(r, t->name, "its size overflows");
    for (int d = 0; d < t->n_dims; d++)
        if (t->shape[d] == 1)
            v->stride[d] = 0; /* it may be any number */
    t->dtype = dtype->dtype;
    t->dtype_name = dtype->name;
    v->size = (size_t)dtype->bits / 8;
    v->storage = entry->data;
    if (t->bytes == 0)
        return TT_OK;
    if (!reach_of(t, v, &reach) || !tt_add_i64(reach, offset->integer, &end) ||
        (uint64_t)end > entry->bytes / v->size)
        return torch_bad(r, t->name, "it reaches beyond the %zu bytes of its storage %.100s",
                         entry->bytes, entry->name);
    v->storage += (size_t)offset->integer * v->size;
    return TT_OK;
}

/* The call that makes a tensor, out of one that makes a parameter. */
static tt_status read_tensor(const reading *r, const tt_pickle_value *v, tt_st_tensor *t, view *at)
{
    const tt_st_dtype *dtype = NULL;
    if (v->kind == TT_PICKLE_CALL && v->global->id == IS_PARAMETER && v->items[0]->n > 0)
        v = v->items[0]->items[0];
    const bool is_v3 = v->kind == TT_PICKLE_CALL && v->global->id == IS_TENSOR_V3;
    if (v->kind != TT_PICKLE_CALL || (v->global->id != IS_TENSOR && !is_v3))
        return torch_bad(r, t->name, "it is %s, not a tensor; save the model's state_dict alone",
                         tt_pickle_kind_name(v));
    const tt_pickle_value *args = v->items[0];
    if (args->n < (is_v3 ? 7u : 4u))
        return torch_bad(r, t->name, "%s has only %zu arguments", v->global->name, args->n);
    if (is_v3) {
        dtype = dtype_of(args->items[6]);
        if (!dtype)
            return torch_bad(r, t->name, "its dtype is %s", tt_pickle_kind_name(args->items[6]));
    }
    return torch_place(r, args, dtype, t, at);
}

static bool is_contiguous(const tt_st_tensor *t, const view *v)
{
    int64_t want = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && v->stride[d] != want)
            return false;
        want *= t->shape[d]; /* at most t->bytes */
    }
    return true;
}

/* Writes the elements in order. */
static void copy_view(const tt_st_tensor *t, const view *v, uint8_t *to)
{
    int64_t index[TT_ST_MAX_DIMS] = {0};
    const size_t n = t->bytes / v->size;
    int64_t at = 0;
    for (size_t i = 0; i < n; i++, to += v->size) {
        memcpy(to, v->storage + (size_t)at * v->size, v->size);
        for (int d = t->n_dims - 1; d >= 0; d--) {
            at += v->stride[d];
            if (++index[d] < t->shape[d])
                break;
            at -= v->stride[d] * t->shape[d];
            index[d] = 0;
        }
    }
}

/* Tensors whose elements do not follow each other in their storage are copied into one block. A file cannot
 * ask for more than its own size: expanded tensors could have any. */
static tt_status settle(const reading *r, tt_st_file *f, const view *views)
{
    size_t total = 0;
    for (size_t i = 0; i < f->n_tensors; i++) {
        tt_st_tensor *t = &f->tensors[i];
        t->data = views[i].storage;
        if (t->bytes == 0 || is_contiguous(t, &views[i]))
            continue;
        if (t->bytes > r->n - total)
            return torch_bad(
                r, t->name,
                "the tensors that are not contiguous have more bytes than the file; save "
                "them contiguous");
        total += t->bytes;
    }
    uint8_t *to = total ? malloc(total) : NULL;
    if (total && !to)
        return TT_FAIL(r->err, TT_ENOMEM, "%s: no memory for %zu bytes of tensors", r->path, total);
    f->copies = to;
    for (size_t i = 0; i < f->n_tensors; i++) {
        tt_st_tensor *t = &f->tensors[i];
        if (t->bytes == 0 || is_contiguous(t, &views[i]))
            continue;
        copy_view(t, &views[i], to);
        t->data = to;
        to += t->bytes;
    }
    return TT_OK;
}

static tt_status read_dict(const reading *r, const tt_pickle_value *dict, tt_st_file *f)
{
    if (dict->kind != TT_PICKLE_DICT)
        return torch_bad(r, NULL,
                         "it holds %s, not a dict of tensors; save the model's state_dict alone",
                         tt_pickle_kind_name(dict));
    const size_t n = dict->n / 2;
    tt_map *names = tt_map_new(r->arena);
    view *views = tt_arena_array(r->arena, n + 1, sizeof *views);
    f->tensors = tt_arena_array(r->arena, n + 1, sizeof *f->tensors);
    for (size_t i = 0; i < n; i++) {
        const tt_pickle_value *key = dict->items[2 * i];
        tt_st_tensor *t = &f->tensors[i];
        if (key->kind != TT_PICKLE_TEXT || strlen(key->text) != key->n)
            return torch_bad(r, NULL, "a key of its dict is %s, not a name",
                             tt_pickle_kind_name(key));
        t->name = key->text;
        if (tt_map_get(names, t->name))
            return torch_bad(r, t->name, "there are two of this name");
        tt_map_set(names, t->name, t);
        TT_TRY(read_tensor(r, dict->items[2 * i + 1], t, &views[i]));
    }
    f->n_tensors = n;
    return settle(r, f, views);
}

/* The entries by their names in the archive's folder, which is that of data.pkl. */
static tt_status find_entries(reading *r, const tt_zip_entry *entries, size_t n,
                              const tt_zip_entry **pickle)
{
    static const char pkl[] = "/data.pkl";
    size_t folder = 0;
    for (size_t i = 0; i < n; i++) {
        const char *slash = strchr(entries[i].name, '/');
        if (!slash || strcmp(slash, pkl) != 0)
            continue;
        if (*pickle)
            return torch_bad(r, NULL, "two entries are a data.pkl");
        *pickle = &entries[i];
        folder = (size_t)(slash - entries[i].name) + 1;
    }
    if (!*pickle)
        return torch_bad(r, NULL, "a zip file without data.pkl: not torch.save's");
    for (size_t i = 0; i < n; i++)
        if (!strncmp(entries[i].name, (*pickle)->name, folder))
            tt_map_set(r->entries, entries[i].name + folder, (void *)(uintptr_t)&entries[i]);
    const tt_zip_entry *order = tt_map_get(r->entries, "byteorder");
    if (order && (order->bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return torch_bad(r, NULL,
                         "its bytes are big-endian; save it again on a little-endian machine");
    return TT_OK;
}

/* torch.save's formats before PyTorch 1.6: a row of pickles, or a tar file. */
static tt_status not_a_zip(const reading *r, const uint8_t *bytes, size_t n)
{
    static const uint8_t magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                    0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    const bool old = n >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
    return tt_fail(
        r->err, TT_EFORMAT,
        old ? "%s: torch.save's format before PyTorch 1.6, which is not read; write it again: "
              "python3 -c \"import torch; f='%s'; torch.save(torch.load(f, weights_only=True, "
              "map_location='cpu'), f)\""
            : "%s: not a zip file, so not what torch.save writes%.0s",
        r->path, r->path);
}

/* The value that the file's pickle gives. */
static tt_status read_root(reading *r, const uint8_t *bytes, size_t n, const tt_pickle_value **root)
{
    tt_zip_entry *entries = NULL;
    const tt_zip_entry *pickle = NULL;
    size_t n_entries = 0;
    if (n < 4 || memcmp(bytes, "PK", 2) != 0)
        return not_a_zip(r, bytes, n);
    TT_TRY(tt_zip_parse(r->path, bytes, n, r->arena, &entries, &n_entries, r->err));
    TT_TRY(find_entries(r, entries, n_entries, &pickle));
    return tt_pickle_read(r->path, pickle->data, pickle->bytes, globals, r->arena, root, r->err);
}

tt_status tt_torch_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                         tt_st_file *out, tt_error *err)
{
    reading r = {.path = path, .arena = a, .entries = tt_map_new(a), .n = n, .err = err};
    tt_st_file file = {.path = tt_arena_str(a, path)};
    const tt_pickle_value *root = NULL;
    TT_TRY(read_root(&r, bytes, n, &root));
    TT_TRY(read_dict(&r, root, &file));
    *out = file;
    return TT_OK;
}

tt_status tt_torch_parse_tensor(const char *path, const char *name, const uint8_t *bytes, size_t n,
                                tt_arena *a, tt_st_file *out, tt_error *err)
{
    reading r = {.path = path, .arena = a, .entries = tt_map_new(a), .n = n, .err = err};
    tt_st_file file = {.path = path, .n_tensors = 1};
    const tt_pickle_value *root = NULL;
    view at = {0};
    TT_TRY(read_root(&r, bytes, n, &root));
    file.tensors = tt_arena_alloc(a, sizeof *file.tensors);
    file.tensors->name = name;
    TT_TRY(read_tensor(&r, root, file.tensors, &at));
    TT_TRY(settle(&r, &file, &at));
    *out = file;
    return TT_OK;
}

tt_status tt_torch_parse_value(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                               const tt_pickle_value **out, tt_error *err)
{
    reading r = {.path = path, .arena = a, .entries = tt_map_new(a), .n = n, .err = err};
    return read_root(&r, bytes, n, out);
}

tt_status tt_torch_open(const char *path, tt_arena *a, tt_st_file *out, tt_error *err)
{
    tt_mapping map;
    TT_TRY(tt_map_file(path, &map, err));
    const tt_status status = tt_torch_parse(path, map.p, map.n, a, out, err);
    if (status == TT_OK)
        out->map = map;
    else
        tt_unmap_file(&map);
    return status;
}
