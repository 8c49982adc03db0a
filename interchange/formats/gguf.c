/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "interchange/formats/gguf.h"
#include "checkpoint/convert.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A GGUF file is, in this order: "GGUF", the version, the counts of tensors and of keys, the keys,
 * the tensor infos, zeros up to a multiple of 32, and the data, in which each tensor begins at a
 * multiple of 32. Numbers are little-endian, as they are on every machine that ttrun is built for.
 */

#define ALIGNMENT ((int64_t)32)
#define NAME_BYTES 64 /* the size of ggml's name field, NUL included */

enum {
    KEY_U8 = 0,
    KEY_U32 = 4,
    KEY_I32 = 5,
    KEY_F32 = 6,
    KEY_BOOL = 7,
    KEY_STRING = 8,
    KEY_ARRAY = 9
};

void tt_gguf_free(tt_gguf *g)
{
    tt_str_free(&g->keys);
}

static void gguf_put(tt_str *s, const void *p, size_t n)
{
    tt_str_addn(s, p, n);
}

static void put_u32(tt_str *s, uint32_t v)
{
    gguf_put(s, &v, sizeof v);
}

static void put_u64(tt_str *s, uint64_t v)
{
    gguf_put(s, &v, sizeof v);
}

/* The bytes c0 80 are U+0000 (tt_json_parse_tokens); texts of GGUF have lengths. */
static void put_text(tt_str *s, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = text; (p = strstr(p, "\xc0\x80")); p += 2)
        n--;
    put_u64(s, n);
    for (const char *end; (end = strstr(text, "\xc0\x80")); text = end + 2) {
        gguf_put(s, text, (size_t)(end - text));
        gguf_put(s, "", 1);
    }
    gguf_put(s, text, strlen(text));
}

static void put_key(tt_gguf *g, const char *key, uint32_t type)
{
    put_text(&g->keys, key);
    put_u32(&g->keys, type);
    g->n_keys++;
}

static void put_array(tt_gguf *g, const char *key, uint32_t type, size_t n)
{
    put_key(g, key, KEY_ARRAY);
    put_u32(&g->keys, type);
    put_u64(&g->keys, n);
}

void tt_gguf_u32(tt_gguf *g, const char *key, uint32_t v)
{
    put_key(g, key, KEY_U32);
    put_u32(&g->keys, v);
}

void tt_gguf_f32(tt_gguf *g, const char *key, float v)
{
    put_key(g, key, KEY_F32);
    gguf_put(&g->keys, &v, sizeof v);
}

void tt_gguf_bool(tt_gguf *g, const char *key, bool v)
{
    const uint8_t byte = v;
    put_key(g, key, KEY_BOOL);
    gguf_put(&g->keys, &byte, 1);
}

void tt_gguf_string(tt_gguf *g, const char *key, const char *v)
{
    put_key(g, key, KEY_STRING);
    put_text(&g->keys, v);
}

void tt_gguf_strings(tt_gguf *g, const char *key, const char *const *v, size_t n)
{
    put_array(g, key, KEY_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_text(&g->keys, v[i]);
}

void tt_gguf_i32s(tt_gguf *g, const char *key, const int32_t *v, size_t n)
{
    put_array(g, key, KEY_I32, n);
    gguf_put(&g->keys, v, n * sizeof *v);
}

void tt_gguf_f32s(tt_gguf *g, const char *key, const float *v, size_t n)
{
    put_array(g, key, KEY_F32, n);
    gguf_put(&g->keys, v, n * sizeof *v);
}

void tt_gguf_u8s(tt_gguf *g, const char *key, const uint8_t *v, size_t n)
{
    put_array(g, key, KEY_U8, n);
    gguf_put(&g->keys, v, n);
}

static int64_t row_of(const tt_gguf_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}

/* The bytes of n elements, which are whole rows of a tensor that tt_gguf_add accepted. */
static int64_t gguf_bytes(tt_gguf_type type, int64_t n)
{
    switch (type) {
    case TT_GGUF_F32:
        return 4 * n;
    case TT_GGUF_Q8_0:
        return n / TT_Q8_0_BLOCK * TT_Q8_0_BYTES;
    case TT_GGUF_F16:
    case TT_GGUF_BF16:
        break;
    }
    return 2 * n;
}

static int64_t numel(const tt_gguf_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

tt_status tt_gguf_add(tt_gguf *g, const tt_gguf_tensor *t, tt_error *err)
{
    int64_t bytes = 4;
    if (strlen(t->name) >= NAME_BYTES)
        return TT_FAIL(err, TT_EUNSUPPORTED, "GGUF: tensor name '%s' is longer than %d bytes",
                       t->name, NAME_BYTES - 1);
    if (t->n_dims < 1 || t->n_dims > 4)
        return TT_FAIL(err, TT_EUNSUPPORTED, "GGUF: tensor '%s' has %d dims, not 1 to 4", t->name,
                       t->n_dims);
    for (int d = 0; d < t->n_dims; d++)
        if (t->shape[d] < 1 || !tt_mul_i64(bytes, t->shape[d], &bytes))
            return TT_FAIL(err, TT_EINVAL, "GGUF: tensor '%s': dim %d is %lld", t->name, d,
                           (long long)t->shape[d]);
    if (t->type == TT_GGUF_Q8_0 && row_of(t) % TT_Q8_0_BLOCK != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "GGUF: tensor '%s': rows of %lld elements are not a multiple of %d", t->name,
                       (long long)row_of(t), TT_Q8_0_BLOCK);
    tt_gguf_tensor own = *t;
    own.name = tt_arena_str(g->arena, t->name);
    tt_vec_push(g->arena, &g->tensors, own);
    return TT_OK;
}

bool tt_q8_0(uint8_t *to, const float *x, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, to += TT_Q8_0_BYTES, x += TT_Q8_0_BLOCK) {
        float most = 0.0f;
        for (int i = 0; i < TT_Q8_0_BLOCK; i++) {
            if (!isfinite(x[i]))
                return false;
            most = TT_MAXV(most, fabsf(x[i]));
        }
        const float d = most / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
        tt_convert(to, TT_F16, &d, TT_F32, 1);
        for (int i = 0; i < TT_Q8_0_BLOCK; i++) {
            /* 1 / d is infinite if d is very small: the block is then written as zeros */
            const float q = isfinite(inverse) ? roundf(x[i] * inverse) : 0.0f;
            to[2 + i] = (uint8_t)(int8_t)q;
        }
    }
    return true;
}

static tt_status convert(const tt_gguf_tensor *t, const float *x, int64_t n, uint8_t *to,
                         tt_error *err)
{
    static const tt_dtype dtypes[] = {
        [TT_GGUF_F32] = TT_F32, [TT_GGUF_F16] = TT_F16, [TT_GGUF_BF16] = TT_BF16};
    if (t->type != TT_GGUF_Q8_0)
        tt_convert(to, dtypes[t->type], x, TT_F32, (size_t)n);
    else if (!tt_q8_0(to, x, (size_t)(n / TT_Q8_0_BLOCK)))
        return TT_FAIL(err, TT_ENUMERIC,
                       "tensor '%s' has values that are not finite, which Q8_0 cannot hold",
                       t->name);
    return TT_OK;
}

static tt_status gguf_write(int fd, const char *path, const void *p, size_t n, tt_error *err)
{
    return tt_write_all(fd, p, n) ? TT_OK : tt_fail_system(err, errno, "write", path);
}

#define CHUNK_BYTES ((int64_t)16 << 20) /* f32 values are converted this many bytes at a time */

static tt_status write_tensor(int fd, const char *path, const tt_gguf_tensor *t, tt_gguf_fill fill,
                              void *user, float *x, uint8_t *bytes, int64_t cap, tt_error *err)
{
    static const uint8_t zeros[32] = {0};
    const int64_t all = numel(t), row = row_of(t), step = TT_MAXV(cap / row, (int64_t)1) * row;
    for (int64_t begin = 0; begin < all; begin += step) {
        const int64_t n = TT_MIN(step, all - begin);
        TT_TRY(fill(user, t, begin, n, x, err));
        TT_TRY(convert(t, x, n, bytes, err));
        TT_TRY(gguf_write(fd, path, bytes, (size_t)gguf_bytes(t->type, n), err));
    }
    const int64_t size = gguf_bytes(t->type, all);
    return gguf_write(fd, path, zeros, (size_t)(padded(size) - size), err);
}

static void put_header(const tt_gguf *g, tt_str *s)
{
    int64_t offset = 0;
    gguf_put(s, "GGUF", 4);
    put_u32(s, 3);
    put_u64(s, g->tensors.n);
    put_u64(s, g->n_keys);
    gguf_put(s, g->keys.s, g->keys.n);
    for (size_t i = 0; i < g->tensors.n; i++) {
        const tt_gguf_tensor *t = &g->tensors.items[i];
        put_text(s, t->name);
        put_u32(s, (uint32_t)t->n_dims);
        for (int d = t->n_dims - 1; d >= 0; d--) /* GGUF lists the innermost dim first */
            put_u64(s, (uint64_t)t->shape[d]);
        put_u32(s, t->type);
        put_u64(s, (uint64_t)offset);
        offset += padded(gguf_bytes(t->type, numel(t)));
    }
    while (s->n % (size_t)ALIGNMENT)
        tt_str_addc(s, '\0');
}

tt_status tt_gguf_write(const tt_gguf *g, const char *path, tt_gguf_fill fill, void *user,
                        tt_error *err)
{
    tt_str header = {0};
    int64_t cap = CHUNK_BYTES / 4;
    char *tmp = tt_arena_printf(g->arena, "%s.tmp", path);
    for (size_t i = 0; i < g->tensors.n; i++)
        cap = TT_MAXV(cap, row_of(&g->tensors.items[i]));
    float *x = malloc((size_t)cap * sizeof *x);
    uint8_t *bytes = malloc((size_t)cap * sizeof *x);
    int fd;
    tt_status s = tt_open_own(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666, &fd, err);
    if (s == TT_OK && (!x || !bytes))
        s = TT_FAIL(err, TT_ENOMEM, "no memory for a row of %lld elements", (long long)cap);
    put_header(g, &header);
    if (s == TT_OK)
        s = gguf_write(fd, tmp, header.s, header.n, err);
    for (size_t i = 0; i < g->tensors.n && s == TT_OK; i++)
        s = write_tensor(fd, tmp, &g->tensors.items[i], fill, user, x, bytes, cap, err);
    if (s == TT_OK && fsync(fd) != 0)
        s = tt_fail_system(err, errno, "write", tmp);
    if (fd >= 0 && close(fd) != 0 && s == TT_OK)
        s = tt_fail_system(err, errno, "write", tmp);
    if (s == TT_OK && rename(tmp, path) != 0)
        s = tt_fail_system(err, errno, "rename", tmp);
    if (s != TT_OK && fd >= 0)
        (void)unlink(tmp);
    free(x);
    free(bytes);
    tt_str_free(&header);
    return s;
}
