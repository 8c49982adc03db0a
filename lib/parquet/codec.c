/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/impl.h"
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* SNAPPY (google/snappy, format_description.txt) and LZ4_RAW (lz4/lz4, doc/lz4_Block_format.md) are decoded here: libsnappy would
 * bring the C++ runtime into a program that starts in milliseconds, for a function of a screen. */

enum { UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW };

const char *tt_pq_codec_refused(int codec)
{
    switch (codec) {
    case UNCOMPRESSED:
    case SNAPPY:
    case GZIP:
    case ZSTD:
    case LZ4_RAW:
        return NULL;
    case LZO:
        return "LZO";
    case BROTLI:
        return "BROTLI";
    case LZ4:
        return "LZ4 (the old kind)";
    default:
        return "an unknown codec";
    }
}

typedef struct
    copying { /* both formats: bytes as they are, and copies of what is already written */
    const uint8_t *at, *end;
    uint8_t *out;
    size_t n, most;
} copying;

static bool literal(copying *c, size_t n)
{
    if (n > (size_t)(c->end - c->at) || n > c->most - c->n)
        return false;
    memcpy(c->out + c->n, c->at, n);
    c->at += n;
    c->n += n;
    return true;
}

/* The copy may overlap what it writes, and repeats it then. */
static bool copy(copying *c, size_t offset, size_t n)
{
    if (offset == 0 || offset > c->n || n > c->most - c->n)
        return false;
    if (offset >= n) {
        memcpy(c->out + c->n, c->out + c->n - offset, n);
        c->n += n;
        return true;
    }
    for (const size_t end = c->n + n; c->n < end; c->n++)
        c->out[c->n] = c->out[c->n - offset];
    return true;
}

static bool little(copying *c, int bytes, size_t *out)
{
    if (c->end - c->at < bytes)
        return false;
    *out = 0;
    for (int i = 0; i < bytes; i++)
        *out |= (size_t)*c->at++ << (8 * i);
    return true;
}

static bool snappy_element(copying *c)
{
    const uint8_t tag = *c->at++;
    size_t n = tag >> 2, offset, low;
    switch (tag & 3) {
    case 0:
        if (n >= 60 && !little(c, (int)n - 59, &n))
            return false;
        return literal(c, n + 1);
    case 1:
        return little(c, 1, &low) && copy(c, (size_t)(tag >> 5) << 8 | low, (n & 7) + 4);
    case 2:
        return little(c, 2, &offset) && copy(c, offset, n + 1);
    default:
        return little(c, 4, &offset) && copy(c, offset, n + 1);
    }
}

static const char *snappy(copying c)
{
    bool good = true;
    const uint64_t size = tt_pq_varint(&c.at, c.end, &good);
    if (!good || size != c.most)
        return "its SNAPPY data has another size than its header says";
    while (c.at < c.end && good)
        good = snappy_element(&c);
    return good && c.n == c.most ? NULL : "its SNAPPY data is damaged";
}

/* A length of 4 bits goes on in bytes while it is 15, and they are 255. */
static bool long_length(copying *c, size_t *n)
{
    if (*n != 15)
        return true;
    for (size_t more = 255; more == 255; *n += more)
        if (!little(c, 1, &more))
            return false;
    return true;
}

static const char *lz4(copying c)
{
    static const char damaged[] = "its LZ4 data is damaged";
    while (c.at < c.end) {
        const uint8_t token = *c.at++;
        size_t n = token >> 4, offset;
        if (!long_length(&c, &n) || !literal(&c, n))
            return damaged;
        if (c.at == c.end) /* the last sequence has no copy */
            break;
        n = token & 15;
        if (!little(&c, 2, &offset) || !long_length(&c, &n) || !copy(&c, offset, n + 4))
            return damaged;
    }
    return c.n == c.most ? NULL : damaged;
}

static const char *gzip(const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in,
                  .avail_in = (uInt)n,
                  .next_out = out,
                  .avail_out = (uInt)out_n};
    if (inflateInit2(&z, 15 + 32) != Z_OK) /* gzip or zlib */
        return "there is no memory for zlib";
    int code = inflate(&z, Z_FINISH);
    while (code == Z_STREAM_END && z.avail_in > 0 && z.avail_out > 0) { /* several members */
        const uInt before = z.avail_in;
        if (inflateReset(&z) != Z_OK)
            break;
        code = inflate(&z, Z_FINISH);
        if (z.avail_in == before)
            break;
    }
    inflateEnd(&z);
    return code == Z_STREAM_END && z.avail_out == 0 ? NULL : "its GZIP data is damaged";
}

uint64_t tt_pq_unpacked_most(int codec, uint64_t n)
{
    switch (codec) {
    case SNAPPY: /* a copy of 64 bytes takes 3, and the first byte is part of the size */
        return 22 * n;
    case GZIP: /* a copy of 258 bytes takes 2 bits */
        return 1032 * n;
    case ZSTD: /* a block of 128 KiB takes 4 bytes */
        return n << 15;
    case LZ4_RAW: /* each further byte of a length stands for 255 */
        return 255 * n;
    default:
        return n;
    }
}

const char *tt_pq_unpack(int codec, const uint8_t *in, size_t n, uint8_t *out, size_t out_n)
{
    const copying c = {in, in + n, out, 0, out_n};
    if (codec == SNAPPY)
        return snappy(c);
    if (codec == LZ4_RAW)
        return lz4(c);
    if (codec == GZIP)
        return gzip(in, n, out, out_n);
    if (codec == ZSTD)
        return ZSTD_decompress(out, out_n, in, n) == out_n ? NULL : "its ZSTD data is damaged";
    if (n != out_n)
        return "its data has another size than its header says";
    memcpy(out, in, n);
    return NULL;
}
