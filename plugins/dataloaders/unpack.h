/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_UNPACK_H
#define TT_DATALOADERS_UNPACK_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ttrun/status.h>
#include <zlib.h>
#include <zstd.h>

/* A file's bytes in order, unpacked where it is gzip or zstd: its first bytes tell. */

typedef struct {
    const char *path, *bytes; /* the file, mapped */
    size_t n, at;             /* packed bytes, and those taken */
    enum { UNPACK_PLAIN, UNPACK_GZIP, UNPACK_ZSTD } kind;
    z_stream z;
    ZSTD_DCtx *d;
    bool inside; /* of a gzip member or zstd frame */
} unpack;

static void unpack_close(unpack *u)
{
    if (u->kind == UNPACK_GZIP)
        inflateEnd(&u->z);
    ZSTD_freeDCtx(u->d);
    if (u->bytes)
        munmap((void *)(uintptr_t)u->bytes, u->n);
    *u = (unpack){0};
}

static bool unpack_named(const char *path, const char *end)
{
    const size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

static bool unpack_begins(const unpack *u, const char *magic, size_t n)
{
    return u->n >= n && memcmp(u->bytes, magic, n) == 0;
}

/* Takes the mapping over, also on failure. */
static tt_status unpack_open(const char *path, const char *bytes, size_t n, unpack *u,
                             tt_error *err)
{
    *u = (unpack){.path = path, .bytes = bytes, .n = n};
    if (unpack_begins(u, "\x1f\x8b", 2)) {
        if (inflateInit2(&u->z, 15 + 16) != Z_OK) {
            unpack_close(u);
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zlib");
        }
        u->kind = UNPACK_GZIP;
    } else if (unpack_begins(u, "\x28\xb5\x2f\xfd", 4) ||
               (n >= 4 && (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0)) {
        u->d = ZSTD_createDCtx();
        /* 31: frames of zstd --long need a window as large as they were made with */
        if (!u->d || ZSTD_isError(ZSTD_DCtx_setParameter(u->d, ZSTD_d_windowLogMax, 31))) {
            unpack_close(u);
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zstd");
        }
        u->kind = UNPACK_ZSTD;
    } else if (n > 0 && (unpack_named(path, ".gz") || unpack_named(path, ".zst"))) {
        unpack_close(u);
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is no %s file, for all its name", path,
                       unpack_named(path, ".gz") ? "gzip" : "zstd");
    }
    return TT_OK;
}

static tt_status unpack_truncated(const unpack *u, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is cut off: its %s data has no end",
                   u->path, u->kind == UNPACK_GZIP ? "gzip" : "zstd");
}

static tt_status unpack_gzip(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    const size_t most = (size_t)1 << 30; /* zlib counts in unsigned int */
    u->z.next_out = (Bytef *)out;
    u->z.avail_out = (uInt)(cap < most ? cap : most);
    const uInt room = u->z.avail_out;
    while (u->z.avail_out == room && (u->at < u->n || u->inside)) {
        if (!u->inside && u->bytes[u->at] == 0) { /* zeros after the last member are padding */
            u->at++;
            continue;
        }
        if (!u->inside && inflateReset(&u->z) != Z_OK)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zlib");
        const uInt in = (uInt)(u->n - u->at < most ? u->n - u->at : most);
        u->inside = true;
        u->z.next_in = (z_const Bytef *)(uintptr_t)(u->bytes + u->at);
        u->z.avail_in = in;
        const int code = inflate(&u->z, Z_NO_FLUSH);
        u->at += in - u->z.avail_in;
        if (code == Z_STREAM_END)
            u->inside = false;
        else if (code == Z_BUF_ERROR)
            return unpack_truncated(u, err);
        else if (code != Z_OK)
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s: damaged gzip data before byte %zu: %s", u->path,
                           u->at, u->z.msg ? u->z.msg : "no reason given");
    }
    *got = room - u->z.avail_out;
    return TT_OK;
}

static tt_status unpack_zstd(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    ZSTD_outBuffer o = {out, cap, 0};
    while (o.pos == 0 && (u->at < u->n || u->inside)) {
        ZSTD_inBuffer in = {u->bytes, u->n, u->at};
        const size_t left = ZSTD_decompressStream(u->d, &o, &in);
        if (ZSTD_isError(left))
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s: damaged zstd data after byte %zu: %s", u->path,
                           u->at, ZSTD_getErrorName(left));
        u->inside = left != 0;
        if (u->inside && o.pos == 0 && in.pos == u->n)
            return unpack_truncated(u, err);
        u->at = in.pos;
    }
    *got = o.pos;
    return TT_OK;
}

/* Up to cap bytes; *got 0 at the end. */
static tt_status unpack_read(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    if (u->kind == UNPACK_GZIP)
        return unpack_gzip(u, out, cap, got, err);
    if (u->kind == UNPACK_ZSTD)
        return unpack_zstd(u, out, cap, got, err);
    const size_t n = u->n - u->at < cap ? u->n - u->at : cap;
    if (n > 0)
        memcpy(out, u->bytes + u->at, n);
    u->at += n;
    *got = n;
    return TT_OK;
}

#endif
