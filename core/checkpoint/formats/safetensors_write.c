/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The bytes equal those of the reference's writer: metadata first, tensors by dtype (in the reverse
 * of the reference's order of dtypes), then by name, JSON without blanks, the header padded with
 * blanks to a multiple of 8. The reference writes several metadata keys in the order of a hash map,
 * which varies; here they keep the caller's order. */

#define MAX_HEADER 100000000u
#define BLOCK                                                                                      \
    ((size_t)8 << 20) /* each block is hashed and then written while it is still in cache */

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
    static const char short_of[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    tt_str_addc(s, '"');
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            tt_str_printf(s, "\\%c", c);
        else if (c < sizeof short_of && short_of[c])
            tt_str_printf(s, "\\%c", short_of[c]);
        else if (c < 0x20)
            tt_str_printf(s, "\\u%04x", c);
        else
            tt_str_addc(s, *p);
    }
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

typedef struct output {
    int fd;
    const char *path;
    tt_hasher *hasher;
    tt_error *err;
} output;

static tt_status writer_put(const output *o, const void *data, size_t n)
{
    const uint8_t *p = data;
    while (n > 0) {
        const size_t block = TT_MIN(n, BLOCK);
        if (o->hasher)
            tt_hasher_update(o->hasher, p, block);
        if (!tt_write_all(o->fd, p, block))
            return tt_fail_system(o->err, errno, "write", o->path);
        p += block;
        n -= block;
    }
    return TT_OK;
}

static tt_status put_file(const output *o, const tt_str *head, const item *items, size_t n)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)head->n >> (8 * i));
    TT_TRY(writer_put(o, length, sizeof length));
    TT_TRY(writer_put(o, head->s, head->n));
    for (size_t i = 0; i < n; i++)
        TT_TRY(writer_put(o, items[i].tensor->data, items[i].tensor->bytes));
    /* EINVAL: this kind of file (/dev/stdout) cannot be synced */
    if (fsync(o->fd) != 0 && errno != EINVAL)
        return tt_fail_system(o->err, errno, "fsync", o->path);
    return TT_OK;
}

/* Removes regular files only: /dev/null stays. */
static void remove_half(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        unlink(path);
}

static tt_status write_out(const char *path, const tt_str *head, const item *items, size_t n,
                           char *hash, tt_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return tt_fail_system(err, errno, "create", path);
    output o = {fd, path, hash ? tt_hasher_new() : NULL, err};
    tt_status status = put_file(&o, head, items, n);
    if (status != TT_OK)
        remove_half(fd, path);
    if (close(fd) != 0 && status == TT_OK) {
        status = tt_fail_system(err, errno, "close", path);
        unlink(path);
    }
    if (status == TT_OK && hash)
        tt_hasher_hex(o.hasher, hash);
    tt_hasher_free(o.hasher);
    return status;
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
    while (head.n % 8)
        tt_str_addc(&head, ' ');
    if (head.n > MAX_HEADER)
        status =
            TT_FAIL(err, TT_EINVAL, "%s: a header of %zu bytes, more than the %u of the format",
                    path, head.n, MAX_HEADER);
    else
        status = write_out(path, &head, items, n, hash, err);
done:
    tt_str_free(&head);
    tt_arena_free(scratch);
    return status;
}
