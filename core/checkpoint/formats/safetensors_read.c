/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* A file is: u64 little-endian H | H bytes of JSON | data. The checks are those of the reference
 * (safetensors/src/tensor.rs), and duplicate names are refused, too. The data need not be aligned;
 * the reference does not ask for it either. */

#define MAX_HEADER 100000000u
#define MAX_ENTRY                                                                                  \
    ((size_t)1 << 20) /* JSON values of an entry: metadata have many, a tensor has ten */

typedef struct range { /* byte range of a tensor within the data */
    uint64_t begin, end;
    size_t index;
} range;

typedef struct reading {
    const char *path;
    tt_arena *arena;   /* for everything that lives as long as the file */
    tt_arena *scratch; /* while the header is read */
    const uint8_t *data;
    uint64_t data_bytes;
    range *ranges;
    bool *placed;   /* by tensor: DCP_SHARDING_INFO has it */
    bool no_places; /* DCP_SHARDING_INFO is null */
    size_t cap;     /* of the tensors and ranges */
    bool has_metadata;
    tt_map *names; /* name -> index of its tensor, plus one */
    tt_st_file *out;
    tt_error *err;
} reading;

static tt_status bad(const reading *r, const char *fmt, ...) TT_PRINTF(2, 3);
static tt_status bad(const reading *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tt_fail(r->err, TT_EFORMAT, "%s: %s", r->path, text);
}

static tt_status metadata(reading *r, const tt_json *v)
{
    if (v->type != TT_JSON_OBJECT)
        return bad(r, "__metadata__ is not an object; write the file again");
    if (r->has_metadata)
        return bad(r, "__metadata__ occurs twice");
    r->has_metadata = true;
    r->out->n_metadata = v->n;
    r->out->metadata_keys = tt_arena_array(r->arena, v->n, sizeof(char *));
    r->out->metadata_values = tt_arena_array(r->arena, v->n, sizeof(char *));
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i]->type != TT_JSON_STRING)
            return bad(r, "__metadata__: the value of '%s' is not a string", v->keys[i]);
        r->out->metadata_keys[i] = tt_arena_str(r->arena, v->keys[i]);
        r->out->metadata_values[i] = tt_arena_str(r->arena, v->items[i]->string);
    }
    return TT_OK;
}

static tt_status shape(reading *r, const char *name, const tt_json *v, tt_st_tensor *t)
{
    if (!v || v->type != TT_JSON_ARRAY)
        return bad(r, "tensor '%s': no list \"shape\"", name);
    if (v->n > TT_ST_MAX_DIMS)
        return bad(r, "tensor '%s': %zu dims; at most %d are supported", name, v->n,
                   TT_ST_MAX_DIMS);
    t->n_dims = (int)v->n;
    for (size_t d = 0; d < v->n; d++) {
        if (v->items[d]->type != TT_JSON_INT || v->items[d]->integer < 0)
            return bad(r, "tensor '%s': shape[%zu] is not an integer >= 0", name, d);
        t->shape[d] = v->items[d]->integer;
    }
    return TT_OK;
}

/* For one more tensor. */
static void more_room(reading *r)
{
    const size_t n = r->out->n_tensors;
    if (n < r->cap)
        return;
    r->cap = n ? 2 * n : 64;
    tt_st_tensor *tensors = tt_arena_array(r->scratch, r->cap, sizeof *tensors);
    range *ranges = tt_arena_array(r->scratch, r->cap, sizeof *ranges);
    if (n) {
        memcpy(tensors, r->out->tensors, n * sizeof *tensors);
        memcpy(ranges, r->ranges, n * sizeof *ranges);
    }
    r->out->tensors = tensors;
    r->ranges = ranges;
}

static tt_status tensor(reading *r, const char *name, const tt_json *v)
{
    tt_st_tensor t = {0};
    range where = {.index = r->out->n_tensors};
    if (v->type != TT_JSON_OBJECT)
        return bad(r, "tensor '%s' is not an object", name);
    if (tt_map_get(r->names, name))
        return bad(r, "two tensors are named '%s'", name);
    const tt_json *dtype = tt_json_get(v, "dtype"), *offsets = tt_json_get(v, "data_offsets");
    if (!dtype || dtype->type != TT_JSON_STRING)
        return bad(r, "tensor '%s': no string \"dtype\"", name);
    const tt_st_dtype *known = tt_st_dtype_by_name(dtype->string);
    if (!known)
        return bad(r, "tensor '%s': unknown dtype '%s'", name, dtype->string);
    TT_TRY(shape(r, name, tt_json_get(v, "shape"), &t));
    if (!offsets || offsets->type != TT_JSON_ARRAY || offsets->n != 2)
        return bad(r, "tensor '%s': \"data_offsets\" is not a list of two", name);
    for (size_t i = 0; i < 2; i++)
        if (offsets->items[i]->type != TT_JSON_INT || offsets->items[i]->integer < 0)
            return bad(r, "tensor '%s': data_offsets[%zu] is not an integer >= 0", name, i);
    where.begin = (uint64_t)offsets->items[0]->integer;
    where.end = (uint64_t)offsets->items[1]->integer;
    if (!tt_st_bytes(known, t.shape, t.n_dims, &t.bytes))
        return bad(r, "tensor '%s': its size overflows or is not a whole number of bytes", name);
    if (where.end < where.begin || where.end - where.begin != t.bytes)
        return bad(r,
                   "tensor '%s': data_offsets [%llu,%llu] do not hold the %zu bytes of its shape",
                   name, (unsigned long long)where.begin, (unsigned long long)where.end, t.bytes);
    if (where.end > r->data_bytes)
        return bad(r, "tensor '%s' ends at byte %llu of %llu: the file is cut short; copy it again",
                   name, (unsigned long long)where.end, (unsigned long long)r->data_bytes);
    t.name = tt_arena_str(r->arena, name);
    t.dtype = known->dtype;
    t.dtype_name = known->name;
    t.data = r->data + where.begin;
    more_room(r);
    r->ranges[where.index] = where;
    r->out->tensors[r->out->n_tensors++] = t;
    tt_map_set(r->names, name, (void *)(uintptr_t)r->out->n_tensors);
    return TT_OK;
}

static int by_place(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Checks that the tensors cover the data exactly: no gap, no overlap, nothing after the last. */
static tt_status places(reading *r)
{
    uint64_t at = 0;
    if (r->out->n_tensors)
        qsort(r->ranges, r->out->n_tensors, sizeof *r->ranges, by_place);
    for (size_t i = 0; i < r->out->n_tensors; i++) {
        const char *name = r->out->tensors[r->ranges[i].index].name;
        if (r->ranges[i].begin != at)
            return bad(
                r,
                "tensor '%s' begins at byte %llu of the data, %s the end of the one before at %llu",
                name, (unsigned long long)r->ranges[i].begin,
                r->ranges[i].begin > at ? "a hole after" : "an overlap with",
                (unsigned long long)at);
        at = r->ranges[i].end;
    }
    if (at != r->data_bytes)
        return bad(r, "the file has %llu bytes of data, but the header describes %llu",
                   (unsigned long long)r->data_bytes, (unsigned long long)at);
    return TT_OK;
}

static tt_status offsets_of(reading *r, tt_st_tensor *t, const tt_json *v)
{
    const tt_json *list = tt_json_get(v, "saved_offsets");
    if (!list || list->type != TT_JSON_ARRAY)
        return bad(r, "DCP_SHARDING_INFO has no saved_offsets of tensor '%s'", t->name);
    if (list->n != (size_t)t->n_dims)
        return bad(r, "DCP_SHARDING_INFO: tensor '%s' has %d dims but %zu saved_offsets", t->name,
                   t->n_dims, list->n);
    for (int d = 0; d < t->n_dims; d++) {
        int64_t end;
        if (list->items[d]->type != TT_JSON_INT || list->items[d]->integer < 0 ||
            !tt_add_i64(list->items[d]->integer, t->shape[d], &end))
            return bad(r, "DCP_SHARDING_INFO: tensor '%s': saved_offsets[%d] is not a valid offset",
                       t->name, d);
        t->offset[d] = list->items[d]->integer;
    }
    return TT_OK;
}

static tt_status sharding_member(void *reading_, const char *name, const tt_json *v, tt_error *err)
{
    reading *r = reading_;
    (void)err; /* r has it */
    if (!name) {
        r->no_places = v->type == TT_JSON_NULL;
        return r->no_places ? TT_OK : bad(r, "DCP_SHARDING_INFO is not an object");
    }
    const size_t i = (size_t)(uintptr_t)tt_map_get(r->names, name);
    if (!i) /* of another file's tensor */
        return TT_OK;
    if (r->placed[i - 1])
        return bad(r, "DCP_SHARDING_INFO has tensor '%s' twice", name);
    r->placed[i - 1] = true;
    return offsets_of(r, &r->out->tensors[i - 1], v);
}

/* Reads DCP_SHARDING_INFO: {"<name>": {"saved_offsets": [..]}} for every tensor of the file. An
 * empty text or null means that there is none. */
static tt_status sharding(reading *r)
{
    const char *text = NULL;
    for (size_t i = 0; i < r->out->n_metadata; i++)
        if (strcmp(r->out->metadata_keys[i], "DCP_SHARDING_INFO") == 0)
            text = r->out->metadata_values[i];
    if (!text || !*text)
        return TT_OK;
    const char *name =
        tt_arena_printf(r->scratch, "safetensors header: %s (DCP_SHARDING_INFO)", r->path);
    r->placed = tt_arena_array(r->scratch, r->out->n_tensors, sizeof *r->placed);
    TT_TRY(tt_json_each(name, text, strlen(text), MAX_ENTRY, sharding_member, r, r->err));
    for (size_t i = 0; !r->no_places && i < r->out->n_tensors; i++)
        if (!r->placed[i])
            return offsets_of(r, &r->out->tensors[i], NULL);
    return TT_OK;
}

/* Our JSON parser accepts comments, but the format does not allow them. */
static bool has_comment(const char *text, size_t n)
{
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] == '/')
            return true;
    }
    return false;
}

static tt_status header_member(void *reading_, const char *key, const tt_json *v, tt_error *err)
{
    reading *r = reading_;
    (void)err; /* r has it */
    return strcmp(key, "__metadata__") == 0 ? metadata(r, v) : tensor(r, key, v);
}

static tt_status header(reading *r, const char *text, size_t n)
{
    size_t valid = tt_utf8_valid(text, n);
    if (valid != n)
        return bad(r, "the header is not UTF-8 at byte %zu", valid + 8);
    if (n == 0 || text[0] != '{')
        return bad(r, "the header does not begin with '{': not a safetensors file");
    if (has_comment(text, n))
        return bad(r, "the header has a comment; JSON has none");
    r->names = tt_map_new(r->scratch);
    const char *name = tt_arena_printf(r->scratch, "safetensors header: %s", r->path);
    TT_TRY(tt_json_each(name, text, n, MAX_ENTRY, header_member, r, r->err));
    TT_TRY(places(r));
    TT_TRY(sharding(r));
    r->out->tensors =
        tt_arena_dup(r->arena, r->out->tensors, r->out->n_tensors * sizeof *r->out->tensors);
    return TT_OK;
}

tt_status tt_st_parse(const char *path, const uint8_t *bytes, size_t n, tt_arena *a,
                      tt_st_file *out, tt_error *err)
{
    tt_st_file file = {.path = tt_arena_str(a, path)};
    reading r = {.path = path, .arena = a, .out = &file, .err = err};
    uint64_t header_bytes = 0;
    if (n < 8)
        return bad(&r, "%zu bytes: too short for a safetensors file", n);
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes > MAX_HEADER)
        return bad(&r, "a header of %llu bytes; at most %u are allowed: not a safetensors file",
                   (unsigned long long)header_bytes, MAX_HEADER);
    if (header_bytes > n - 8)
        return bad(&r,
                   "the header of %llu bytes goes beyond the file's %zu: cut short; copy it again",
                   (unsigned long long)header_bytes, n);
    r.data = bytes + 8 + header_bytes;
    r.data_bytes = n - 8 - header_bytes;
    r.scratch = tt_arena_new();
    tt_status status = header(&r, (const char *)bytes + 8, (size_t)header_bytes);
    tt_arena_free(r.scratch);
    if (status == TT_OK)
        *out = file;
    return status;
}

tt_status tt_st_open(const char *path, tt_arena *a, tt_st_file *out, tt_error *err)
{
    tt_mapping map;
    TT_TRY(tt_map_file(path, &map, err));
    tt_status status = tt_st_parse(path, map.p, map.n, a, out, err);
    if (status == TT_OK)
        out->map = map;
    else
        tt_unmap_file(&map);
    return status;
}

void tt_st_close(tt_st_file *f)
{
    tt_unmap_file(&f->map);
    free(f->copies);
}

const tt_st_tensor *tt_st_find(const tt_st_file *f, const char *name)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}
