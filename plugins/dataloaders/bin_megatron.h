/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_BIN_MEGATRON_H
#define TT_DATALOADERS_BIN_MEGATRON_H
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/status.h>
#include <unistd.h>

/* A file of tokens as the loader sees it, and Megatron's format: x.bin, tokens alone, with x.idx
 * next to it. Source: Megatron-LM megatron/core/datasets/indexed_dataset.py. Little-endian. */

/* A file: its path, size and first bytes. More is read when needed. */
typedef struct {
    const char *path;
    int fd;
    size_t n, n_head;
    unsigned char head[1024];
} bin_file;

enum { LLMC_HEADER = 1024 }; /* 256 int32: magic, version, tokens, zeros */

typedef struct {
    int width;     /* bytes per token: 2 or 4 */
    int64_t first; /* offset of the first token, in bytes */
    int64_t n;     /* number of tokens */
    enum { BIN_FLAT, BIN_PBIN, BIN_MEGATRON } kind;
} bin_layout;

static uint32_t bin_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t bin_u64(const unsigned char *p)
{
    return bin_u32(p) | (uint64_t)bin_u32(p + 4) << 32;
}

/* The path of x.idx for x.bin, malloc'd; NULL: not such a name, or out of memory. */
static char *bin_index_path(const char *path)
{
    const size_t n = strlen(path);
    char *index = n >= 4 && strcmp(path + n - 4, ".bin") == 0 ? strdup(path) : NULL;
    if (index)
        memcpy(index + n - 4, ".idx", 4);
    return index;
}

enum { MMIDIDX_HEADER = 34 }; /* magic 9, version u64, dtype u8, counts u64 of both */

/* The index of a Megatron data set. */
typedef struct {
    int width;
    /* number of sequences; number of document entries, which is one more than there are
     * documents */
    int64_t n, n_documents;
    int64_t bin_bytes;
} bin_megatron;

/* Opens x.idx if Megatron's index is next to x.bin; *fd is -1 if not. */
static void bin_open_index(const char *path, int *fd)
{
    char *index = bin_index_path(path), head[9];
    *fd = index ? open(index, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (*fd >= 0 && (pread(*fd, head, 9, 0) != 9 || memcmp(head, "MMIDIDX\0", 9) != 0)) {
        close(*fd);
        *fd = -1;
    }
    free(index);
}

static tt_status bin_megatron_fault(const bin_file *f, const char *what, int64_t v, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s: Megatron's .idx next to it %s (%lld)",
                   f->path, what, (long long)v);
}

/* Checks head and sizes; the sequences themselves are checked only when documents are asked for. */
static tt_status bin_megatron_head(const bin_file *f, int fd, bin_megatron *out, tt_error *err)
{
    /* bytes per token, by dtype code; the signed types 1 and 2 have none */
    static const int widths[] = {0, 1, 0, 0, 4, 8, 0, 0, 2};
    unsigned char p[MMIDIDX_HEADER], last[8];
    struct stat st;
    if (fstat(fd, &st) != 0 || pread(fd, p, sizeof p, 0) != (ssize_t)sizeof p)
        return bin_megatron_fault(f, "is cut off in its head of 34 bytes", 0, err);
    if (bin_u64(p + 9) != 1)
        return bin_megatron_fault(f, "is of a version that is not known", (int64_t)bin_u64(p + 9),
                                  err);
    const int code = p[17], width = code < 9 ? widths[code] : 0;
    const uint64_t n = bin_u64(p + 18), d = bin_u64(p + 26), most = (uint64_t)1 << 48;
    if (width == 0)
        return bin_megatron_fault(
            f, "has numbers of a type that no tokens are; uint8, uint16, int32, int64 are", code,
            err);
    if (n < 1 || n > most || d < 2 || d > most)
        return bin_megatron_fault(f, "counts sequences or documents that cannot be",
                                  (int64_t)(n < 1 || n > most ? n : d), err);
    const int64_t bytes = MMIDIDX_HEADER + 12 * (int64_t)n + 8 * (int64_t)d;
    /* one byte per sequence: its mode */
    if (st.st_size != bytes && st.st_size != bytes + (int64_t)n)
        return bin_megatron_fault(f, "is not as long as its counts make it", st.st_size, err);
    if (pread(fd, last, 8, (off_t)(bytes - 8)) != 8 || bin_u64(last) != n)
        return bin_megatron_fault(f, "ends its documents elsewhere than its sequences",
                                  (int64_t)bin_u64(last), err);
    if (f->n % (size_t)width != 0)
        return bin_megatron_fault(f, "has tokens whose size does not divide the file's", width,
                                  err);
    /* length and offset of the last sequence: it must end where the .bin does */
    unsigned char tail[12];
    if (pread(fd, tail, 4, (off_t)(MMIDIDX_HEADER + 4 * (int64_t)(n - 1))) != 4 ||
        pread(fd, tail + 4, 8, (off_t)(MMIDIDX_HEADER + 4 * (int64_t)n + 8 * (int64_t)(n - 1))) !=
            8)
        return bin_megatron_fault(f, "cannot be read", 0, err);
    if (bin_u64(tail + 4) + (uint64_t)bin_u32(tail) * (uint64_t)width != f->n)
        return bin_megatron_fault(
            f, "gives another length for the .bin; one of the two is cut off",
            (int64_t)(bin_u64(tail + 4) + (uint64_t)bin_u32(tail) * (uint64_t)width), err);
    *out = (bin_megatron){width, (int64_t)n, (int64_t)d, (int64_t)f->n};
    return TT_OK;
}

/* Determines the layout from the index next to the .bin, which has no header and may begin with any
 * bytes. *found is false if there is no index. */
static tt_status bin_by_index(const bin_file *f, bin_layout *out, bool *found, tt_error *err)
{
    int fd = -1;
    bin_megatron m;
    bin_open_index(f->path, &fd);
    *found = fd >= 0;
    if (!*found)
        return TT_OK;
    const tt_status s = bin_megatron_head(f, fd, &m, err);
    close(fd);
    if (s == TT_OK)
        *out = (bin_layout){m.width, 0, m.bin_bytes / m.width, BIN_MEGATRON};
    return s;
}

#endif
