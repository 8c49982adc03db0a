/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* The bytes equal those of the reference's writer: metadata first, tensors by dtype (in the reverse
 * of the reference's order of dtypes), then by name, JSON without blanks, the header padded with
 * blanks to a multiple of 8. The reference writes several metadata keys in the order of a hash map,
 * which varies; here they keep the caller's order. */

#define MAX_HEADER 100000000u

typedef struct item {
    const tt_st_tensor *tensor;
    const tt_st_dtype *dtype;
} item;

static int by_dtype_then_name(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->tensor->name, y->tensor->name);
}

/* Adds a JSON string as serde_json writes it, which escapes only what JSON requires. text is UTF-8.
 */
static void add_string(tt_str *s, const char *text)
{
    tt_str_addc(s, '"');
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\')
            tt_str_json_byte(s, *p);
        else
            tt_str_addc(s, *p);
    tt_str_addc(s, '"');
}

static bool is_utf8(const char *text)
{
    size_t n = strlen(text);
    return tt_utf8_valid(text, n) == n;
}

static tt_status check(const char *path, const tt_st_tensor *t, tt_map *names, item *out,
                       tt_error *err)
{
    size_t bytes;
    if (!is_utf8(t->name) || strcmp(t->name, "__metadata__") == 0)
        return TT_FAIL(err, TT_EINVAL, "%s: '%s' cannot be the name of a tensor", path, t->name);
    if (tt_map_get(names, t->name))
        return TT_FAIL(err, TT_EINVAL, "%s: two tensors are named '%s'", path, t->name);
    const tt_st_dtype *dtype = t->dtype < TT_N_DTYPES ? tt_st_dtype_of(t->dtype)
                               : t->dtype_name        ? tt_st_dtype_by_name(t->dtype_name)
                                                      : NULL;
    if (!dtype)
        return TT_FAIL(err, TT_EINVAL, "%s: tensor '%s' has no dtype that safetensors knows", path,
                       t->name);
    if (t->n_dims < 0 || t->n_dims > TT_ST_MAX_DIMS ||
        !tt_st_bytes(dtype, t->shape, t->n_dims, &bytes) || bytes != t->bytes)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: tensor '%s': its data has %zu bytes, which is not what its shape needs",
                       path, t->name, t->bytes);
    tt_map_set(names, t->name, (void *)t);
    *out = (item){t, dtype};
    return TT_OK;
}

static void add_pair(tt_str *s, const char *key, const char *value)
{
    if (s->s[s->n - 1] != '{')
        tt_str_addc(s, ',');
    add_string(s, key);
    tt_str_addc(s, ':');
    add_string(s, value);
}

/* Adds it as PyTorch's json.dumps writes it: {"w": {"saved_offsets": [0, 4]}}. */
static void add_sharding(tt_str *s, const item *items, size_t n)
{
    tt_str info = {0};
    tt_str_addc(&info, '{');
    for (size_t i = 0; i < n; i++) {
        const tt_st_tensor *t = items[i].tensor;
        tt_str_add(&info, i ? ", " : "");
        tt_str_json(&info, t->name);
        tt_str_add(&info, ": {\"saved_offsets\": [");
        for (int d = 0; d < t->n_dims; d++)
            tt_str_printf(&info, "%s%lld", d ? ", " : "", (long long)t->offset[d]);
        tt_str_add(&info, "]}");
    }
    tt_str_addc(&info, '}');
    add_pair(s, "DCP_SHARDING_INFO", info.s);
    add_pair(s, "DCP_VERSION", "1.0");
    add_pair(s, "format", "pt");
    tt_str_free(&info);
}

static void add_tensors(tt_str *s, const item *items, size_t n)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_st_tensor *t = items[i].tensor;
        if (s->n > 1)
            tt_str_addc(s, ',');
        add_string(s, t->name);
        tt_str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", items[i].dtype->name);
        for (int d = 0; d < t->n_dims; d++)
            tt_str_printf(s, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        tt_str_printf(s, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                      (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
}

static tt_status write_out(const char *path, const tt_str *head, const item *items, size_t n,
                           char *hash, tt_arena *scratch, tt_error *err)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)head->n >> (8 * i));
    tt_file_part *parts = tt_arena_array(scratch, n + 2, sizeof *parts);
    parts[0] = (tt_file_part){length, sizeof length};
    parts[1] = (tt_file_part){head->s, head->n};
    for (size_t i = 0; i < n; i++)
        parts[i + 2] = (tt_file_part){items[i].tensor->data, items[i].tensor->bytes};
    return tt_write_parts(path, parts, n + 2, hash, err);
}

/* The data of a large shard begins at a multiple of a page, so that it can be written from memory that
 * is laid out likewise (write_file.c); of other files at a multiple of 8, as the reference has it. */
static size_t header_multiple(const item *items, size_t n, bool with_offsets)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += items[i].tensor->bytes;
    return with_offsets && bytes >= TT_LARGE_FILE ? TT_FILE_ALIGNMENT : 8;
}

static tt_status check_metadata(const char *path, const char *const *keys,
                                const char *const *values, size_t n, bool with_offsets,
                                tt_map *seen, tt_error *err)
{
    static const char *const ours[] = {"DCP_SHARDING_INFO", "DCP_VERSION", "format"};
    for (size_t i = 0; with_offsets && i < 3; i++)
        tt_map_set(seen, ours[i], (void *)ours[i]);
    for (size_t i = 0; i < n; i++) {
        if (!is_utf8(keys[i]) || !is_utf8(values[i]))
            return TT_FAIL(err, TT_EINVAL, "%s: metadata '%s' is not UTF-8", path, keys[i]);
        if (tt_map_get(seen, keys[i]))
            return TT_FAIL(err, TT_EINVAL, "%s: metadata '%s' is given twice", path, keys[i]);
        tt_map_set(seen, keys[i], (void *)keys[i]);
    }
    return TT_OK;
}

tt_status tt_st_write(const char *path, const tt_st_tensor *tensors, size_t n, bool with_offsets,
                      const char *const *metadata_keys, const char *const *metadata_values,
                      size_t n_metadata, char *hash, tt_error *err)
{
    tt_arena *scratch = tt_arena_new();
    tt_str head = {0};
    item *items = tt_arena_array(scratch, n, sizeof *items);
    tt_map *names = tt_map_new(scratch);
    tt_status status = check_metadata(path, metadata_keys, metadata_values, n_metadata,
                                      with_offsets, tt_map_new(scratch), err);
    for (size_t i = 0; i < n && status == TT_OK; i++)
        status = check(path, &tensors[i], names, &items[i], err);
    if (status != TT_OK)
        goto done;
    if (n)
        qsort(items, n, sizeof *items, by_dtype_then_name);
    tt_str_addc(&head, '{');
    if (with_offsets || n_metadata) {
        tt_str_add(&head, "\"__metadata__\":{");
        if (with_offsets)
            add_sharding(&head, items, n);
        for (size_t i = 0; i < n_metadata; i++)
            add_pair(&head, metadata_keys[i], metadata_values[i]);
        tt_str_addc(&head, '}');
    }
    add_tensors(&head, items, n);
    tt_str_addc(&head, '}');
    const size_t multiple = header_multiple(items, n, with_offsets);
    while ((8 + head.n) % multiple)
        tt_str_addc(&head, ' ');
    if (head.n > MAX_HEADER)
        status =
            TT_FAIL(err, TT_EINVAL, "%s: a header of %zu bytes, more than the %u of the format",
                    path, head.n, MAX_HEADER);
    else
        status = write_out(path, &head, items, n, hash, scratch, err);
done:
    tt_str_free(&head);
    tt_arena_free(scratch);
    return status;
}
