/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_UNPACK_H
#define TT_DATALOADERS_UNPACK_H
#include "source.h"
#include <stdbool.h>
#include <ttrun/dataloader.h>
#include <zlib.h>
#include <zstd.h>

/* Reads a file's bytes in order and decompresses them if its first bytes are those of gzip or
 * zstd. Each read asks whether a signal stops the job: a small file may unpack to any length. */

enum { UNPACK_INPUT = 1 << 17 }; /* compressed bytes read at a time */

typedef struct {
    source in;
    const tt_dataloader_env *env;
    unsigned char *packed; /* [UNPACK_INPUT] read from the file */
    size_t have, at;       /* compressed bytes in the buffer, and how many of them are consumed */
    enum { UNPACK_PLAIN, UNPACK_GZIP, UNPACK_ZSTD } kind;
    z_stream z;
    ZSTD_DCtx *d;
    bool inside; /* inside a gzip member or zstd frame */
    bool end;    /* the file is read to its end */
} unpack;

static void unpack_close(unpack *u)
{
    if (u->kind == UNPACK_GZIP)
        inflateEnd(&u->z);
    ZSTD_freeDCtx(u->d);
    free(u->packed);
    source_close(&u->in);
    *u = (unpack){.in.fd = -1};
}

static bool unpack_named(const char *path, const char *end)
{
    const size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

static bool unpack_begins(const unpack *u, const char *magic, size_t n)
{
    return u->have >= n && memcmp(u->packed, magic, n) == 0;
}

/* Refills the buffer once everything in it is consumed. */
static tt_status unpack_more(unpack *u, tt_error *err)
{
    if (u->at < u->have || u->end)
        return TT_OK;
    u->at = u->have = 0;
    TT_TRY(source_read(&u->in, u->packed, UNPACK_INPUT, &u->have, err));
    u->end = u->have == 0;
    return TT_OK;
}

static tt_status unpack_begin(unpack *u, tt_error *err)
{
    const char *path = u->in.path;
    u->packed = malloc(UNPACK_INPUT);
    if (!u->packed)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %d bytes of %s", UNPACK_INPUT, path);
    TT_TRY(unpack_more(u, err));
    if (unpack_begins(u, "\x1f\x8b", 2)) {
        if (inflateInit2(&u->z, 15 + 16) != Z_OK)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zlib");
        u->kind = UNPACK_GZIP;
    } else if (unpack_begins(u, "\x28\xb5\x2f\xfd", 4) ||
               (u->have >= 4 && (u->packed[0] & 0xf0) == 0x50 &&
                memcmp(u->packed + 1, "\x2a\x4d\x18", 3) == 0)) {
        u->d = ZSTD_createDCtx();
        /* 31: frames made with zstd --long need a window as large as when they were made */
        if (!u->d || ZSTD_isError(ZSTD_DCtx_setParameter(u->d, ZSTD_d_windowLogMax, 31)))
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zstd");
        u->kind = UNPACK_ZSTD;
    } else if (u->have > 0 && (unpack_named(path, ".gz") || unpack_named(path, ".zst"))) {
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s is not a %s file, although its name says so", path,
                       unpack_named(path, ".gz") ? "gzip" : "zstd");
    }
    return TT_OK;
}

static tt_status unpack_open(const char *path, const tt_dataloader_env *env, unpack *u,
                             tt_error *err)
{
    *u = (unpack){.in.fd = -1, .env = env};
    TT_TRY(source_open(path, &u->in, err));
    const tt_status s = unpack_begin(u, err);
    if (s != TT_OK)
        unpack_close(u);
    return s;
}

static tt_status unpack_truncated(const unpack *u, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is cut off: its %s data has no end",
                   u->in.path, u->kind == UNPACK_GZIP ? "gzip" : "zstd");
}

/* How many bytes of the file are consumed. */
static int64_t unpack_taken(const unpack *u)
{
    return u->in.at - (int64_t)(u->have - u->at);
}

static tt_status unpack_gzip(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    const size_t most = (size_t)1 << 30; /* zlib counts in unsigned int */
    u->z.next_out = (Bytef *)out;
    u->z.avail_out = (uInt)(cap < most ? cap : most);
    const uInt room = u->z.avail_out;
    while (u->z.avail_out == room) {
        TT_TRY(unpack_more(u, err));
        if (u->end && !u->inside)
            break;
        if (u->end)
            return unpack_truncated(u, err);
        if (!u->inside && u->packed[u->at] == 0) { /* zeros after the last member are padding */
            u->at++;
            continue;
        }
        if (!u->inside && inflateReset(&u->z) != Z_OK)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for zlib");
        u->inside = true;
        u->z.next_in = u->packed + u->at;
        u->z.avail_in = (uInt)(u->have - u->at);
        const int code = inflate(&u->z, Z_NO_FLUSH);
        u->at = u->have - u->z.avail_in;
        if (code == Z_STREAM_END)
            u->inside = false;
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return TT_FAIL(
                err, TT_EINVAL, "dataloader.path: %s: damaged gzip data before byte %lld: %s",
                u->in.path, (long long)unpack_taken(u), u->z.msg ? u->z.msg : "no reason given");
    }
    *got = room - u->z.avail_out;
    return TT_OK;
}

static tt_status unpack_zstd(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    ZSTD_outBuffer o = {out, cap, 0};
    while (o.pos == 0) {
        TT_TRY(unpack_more(u, err));
        if (u->end && !u->inside)
            break;
        ZSTD_inBuffer in = {u->packed, u->have, u->at};
        const size_t left = ZSTD_decompressStream(u->d, &o, &in);
        if (ZSTD_isError(left))
            return TT_FAIL(err, TT_EINVAL,
                           "dataloader.path: %s: damaged zstd data after byte %lld: %s", u->in.path,
                           (long long)unpack_taken(u), ZSTD_getErrorName(left));
        u->inside = left != 0;
        u->at = in.pos;
        if (u->end && u->inside && o.pos == 0) /* and zstd holds no output back either */
            return unpack_truncated(u, err);
    }
    *got = o.pos;
    return TT_OK;
}

/* Reads up to cap bytes; *got is 0 at the end. */
static tt_status unpack_read(unpack *u, char *out, size_t cap, size_t *got, tt_error *err)
{
    if (u->env->stop && u->env->stop(u->env->stop_user))
        return TT_FAIL(err, TT_ESIGNAL, "stopped");
    if (u->kind == UNPACK_GZIP)
        return unpack_gzip(u, out, cap, got, err);
    if (u->kind == UNPACK_ZSTD)
        return unpack_zstd(u, out, cap, got, err);
    TT_TRY(unpack_more(u, err));
    const size_t n = u->have - u->at < cap ? u->have - u->at : cap;
    memcpy(out, u->packed + u->at, n);
    u->at += n;
    *got = n;
    return TT_OK;
}

#endif
