/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_BIN_FORMAT_H
#define TT_DATALOADERS_BIN_FORMAT_H
#include "bin_megatron.h"

/* What a file of tokens is, judging by its first bytes. Sources: llm.c dataloader.h,
 * data_common.py, llmc_py; Megatron-LM indexed_dataset.py; modalities create_packed_data.py. All
 * little-endian. */

static bool bin_begins(const unsigned char *p, size_t n, const char *with, size_t k)
{
    return n >= k && memcmp(p, with, k) == 0;
}

/* u64 bytes of tokens, u32 token size, the tokens, then a pickle. */
static bool bin_pbin(const bin_file *f, bin_layout *out)
{
    unsigned char mark = 0;
    if (f->n < 13)
        return false;
    const uint64_t data = bin_u64(f->head);
    const uint32_t size = bin_u32(f->head + 8);
    const bool is = (size == 1 || size == 2 || size == 4) && data < f->n - 12 && data % size == 0 &&
                    pread(f->fd, &mark, 1, (off_t)(12 + data)) == 1 && mark == 0x80;
    if (is)
        *out = (bin_layout){(int)size, 12, (int64_t)(data / size), BIN_PBIN};
    return is;
}

/* The name of another known format that the first bytes belong to; NULL: none. */
static const char *bin_other(const unsigned char *p, size_t n)
{
    static const struct {
        uint32_t magic;
        const char *what;
    } llmc[] = {
        {20240326,   "a model of llm.c, not tokens"           },
        {20240327,   "a debug state of llm.c, not tokens"     },
        {20240328,   "a tokenizer of llm.c, not tokens"       },
        {20240522,   "an evaluation set of llm.c, not tokens" },
        {20240527,   "an optimizer state of llm.c, not tokens"},
        {20240803,   "a model of llm.c, not tokens"           },
        {0x88d83401, "an llm.c file of a big-endian machine"  },
        {0xa1d93401, "an llm.c file of a big-endian machine"  },
    };
    static const struct {
        const char *magic;
        size_t n;
        const char *what;
    } known[] = {
        {"MMIDIDX\0",        9, "the .idx of a Megatron data set; name its .bin"            },
        {"\x93NUMPY",        6, "a NumPy file; write its numbers alone, with ndarray.tofile"},
        {"PAR1",             4, "a Parquet file, which the loader jsonl reads"              },
        {"\x1f\x8b\x08",     3, "a gzip file; unpack it, the loader maps tokens"            },
        {"\x28\xb5\x2f\xfd", 4, "a zstd file; unpack it, the loader maps tokens"            },
        {"PK\x03\x04",       4, "a zip file, not tokens"                                    },
    };
    for (size_t i = 0; n >= 4 && i < sizeof llmc / sizeof *llmc; i++)
        if (bin_u32(p) == llmc[i].magic)
            return llmc[i].what;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (bin_begins(p, n, known[i].magic, known[i].n))
            return known[i].what;
    return NULL;
}

static int bin_llmc_width(const unsigned char *p, size_t n)
{
    const uint32_t magic = n >= 4 ? bin_u32(p) : 0;
    return magic == 20240520 ? 2 : magic == 20240801 ? 4 : 0;
}

/* Checks a header of llm.c against the file's size. */
static tt_status bin_llmc(const bin_file *f, bin_layout *out, tt_error *err)
{
    const char *path = f->path;
    const unsigned char *p = f->head;
    const size_t n = f->n;
    const int width = bin_llmc_width(p, n), version = width == 2 ? 1 : 7;
    const char *whose = width == 2 ? "GPT-2" : "Llama-3";
    if (n < LLMC_HEADER)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s: %zu bytes, cut off in the 1024 of llm.c's header",
                       path, n);
    if (bin_u32(p + 4) != (uint32_t)version)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s: version %lld of llm.c's %s tokens; only %d is known",
                       path, (long long)(int32_t)bin_u32(p + 4), whose, version);
    const int64_t count = (int32_t)bin_u32(p + 8);
    if (count < 0)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s: its header counts %lld tokens", path,
                       (long long)count);
    if ((int64_t)n != LLMC_HEADER + count * width)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s: %zu bytes, and its header's %lld tokens take %lld; it "
                       "is cut off or damaged",
                       path, n, (long long)count, (long long)(LLMC_HEADER + count * width));
    *out = (bin_layout){width, LLMC_HEADER, count, BIN_FLAT};
    return TT_OK;
}

static tt_status bin_raw(const bin_file *f, int width, bin_layout *out, tt_error *err)
{
    const char *path = f->path;
    const unsigned char *p = f->head;
    const size_t n = f->n;
    const bool headed = n >= LLMC_HEADER && bin_llmc_width(p, n) > 0 && bin_u32(p + 4) < 16;
    if (headed)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.path: %s has a header of llm.c; leave dataloader.format out",
                       path);
    if (n % (size_t)width != 0)
        return TT_FAIL(
            err, TT_EINVAL,
            "dataloader.path: %s: %zu bytes are not a whole number of %d-byte tokens; it is "
            "cut off or of another dataloader.format",
            path, n, width);
    *out = (bin_layout){width, 0, (int64_t)(n / (size_t)width), BIN_FLAT};
    return TT_OK;
}

/* raw_width: bytes per token of a file without a header; 0: the header decides. */
static tt_status bin_layout_of(const bin_file *f, int raw_width, bin_layout *out, tt_error *err)
{
    const char *path = f->path;
    const unsigned char *p = f->head;
    const size_t n = f->n_head;
    const char *other = bin_other(p, n);
    bool found = false;
    if (f->n == 0)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is empty", path);
    if (raw_width == 0)
        TT_TRY(bin_by_index(f, out, &found, err));
    if (found || (raw_width == 0 && bin_pbin(f, out)))
        return TT_OK;
    if (raw_width == 0 && bin_llmc_width(p, n) > 0)
        return bin_llmc(f, out, err);
    /* raw tokens may happen to begin with the bytes of a short mark, so only the longer marks
     * count */
    if (other &&
        (raw_width == 0 || bin_begins(p, n, "MMIDIDX\0", 9) || bin_begins(p, n, "\x93NUMPY", 6)))
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is %s", path, other);
    if (raw_width > 0)
        return bin_raw(f, raw_width, out, err);
    return TT_FAIL(err, TT_EINVAL,
                   "dataloader.path: %s has no header that is known; if it is tokens and nothing "
                   "else, set dataloader.format to \"uint16\" or \"uint32\"",
                   path);
}

#endif
