/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_BIN_INDEX_H
#define TT_DATALOADERS_BIN_INDEX_H
#include "bin_format.h"

/* Where documents begin according to Megatron's .idx or the pickle of a .pbin, as token numbers in
 * their own file. Both are read once, in order, and only if the job keeps documents apart. Sources:
 * Megatron-LM megatron/core/datasets/indexed_dataset.py; modalities
 * dataloader/create_packed_data.py. */

/* Reads a file's bytes in order, up to `end`. */
typedef struct {
    int fd;
    int64_t at, end;
    size_t have, used;
    unsigned char piece[8192];
} bin_bytes;

/* Reads n bytes, at most 16; false at the end. */
static bool bin_take(bin_bytes *b, unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (b->used == b->have) {
            const int64_t left = b->end - b->at;
            const size_t want = left < (int64_t)sizeof b->piece ? (size_t)left : sizeof b->piece;
            const ssize_t k = want > 0 ? pread(b->fd, b->piece, want, (off_t)b->at) : 0;
            if (k <= 0)
                return false;
            b->at += k;
            b->have = (size_t)k;
            b->used = 0;
        }
        out[i] = b->piece[b->used++];
    }
    return true;
}

/* A growing list, malloc'd. */
typedef struct {
    int64_t *items;
    size_t n, cap;
} bin_starts;

static tt_status bin_starts_add(bin_starts *s, int64_t at, tt_error *err)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap + s->cap / 2 + 1024;
        int64_t *items = realloc(s->items, cap * sizeof *items);
        if (!items)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for the starts of %zu documents", s->n);
        s->items = items;
        s->cap = cap;
    }
    s->items[s->n++] = at;
    return TT_OK;
}

static tt_status bin_index_damaged(const char *path, const char *what, int64_t i, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s: %s, at its entry %lld; it is damaged",
                   path, what, (long long)i);
}

/* The first sequence of the next document; these numbers never decrease. */
static tt_status bin_next_document(const char *idx, bin_bytes *b, int64_t n, int64_t *first,
                                   int64_t number, tt_error *err)
{
    unsigned char p[8];
    if (!bin_take(b, p, 8))
        return bin_index_damaged(idx, "its documents are cut off", number, err);
    const int64_t at = (int64_t)bin_u64(p);
    if (at < *first || at > n || (number == 0 && at != 0))
        return bin_index_damaged(idx, "documents out of order", number, err);
    *first = at;
    return TT_OK;
}

/* Checks that the sequences follow one another through the whole .bin, and that documents are whole
 * sequences. */
static tt_status bin_megatron_documents(const char *idx, int fd, const bin_megatron *m,
                                        int64_t base, bin_starts *out, tt_error *err)
{
    bin_bytes lengths = {.fd = fd, .at = MMIDIDX_HEADER, .end = MMIDIDX_HEADER + 4 * m->n};
    bin_bytes offsets = {.fd = fd, .at = lengths.end, .end = lengths.end + 8 * m->n};
    bin_bytes documents = {.fd = fd, .at = offsets.end, .end = offsets.end + 8 * m->n_documents};
    int64_t first = 0, read = 1, bytes = 0;
    unsigned char p[8];
    TT_TRY(bin_next_document(idx, &documents, m->n, &first, 0, err));
    for (int64_t i = 0; i < m->n; i++) {
        if (first == i)
            TT_TRY(bin_starts_add(out, base + bytes / m->width, err));
        for (; first == i && read < m->n_documents; read++)
            TT_TRY(bin_next_document(idx, &documents, m->n, &first, read, err));
        if (!bin_take(&lengths, p, 4) || (int32_t)bin_u32(p) < 0)
            return bin_index_damaged(idx, "a length below zero", i, err);
        const int64_t n = (int32_t)bin_u32(p);
        if (!bin_take(&offsets, p, 8) || (int64_t)bin_u64(p) != bytes)
            return bin_index_damaged(
                idx, "a sequence that does not begin at the end of the previous one", i, err);
        bytes += n * m->width;
        if (bytes > m->bin_bytes)
            return bin_index_damaged(idx, "a sequence beyond the end of its .bin", i, err);
    }
    for (; read < m->n_documents; read++)
        TT_TRY(bin_next_document(idx, &documents, m->n, &first, read, err));
    if (first != m->n || bytes != m->bin_bytes)
        return bin_index_damaged(idx, "sequences that no document has", first, err);
    return TT_OK;
}

/* ---- .pbin: a pickled list of (offset, length), in bytes of its tokens ---- */

/* Reads one integer of the pickle, if `op` begins one; false: damaged. */
static bool bin_pickled_int(bin_bytes *b, unsigned char op, int64_t *out)
{
    unsigned char p[16];
    size_t n = op == 'K' ? 1 : op == 'M' ? 2 : op == 'J' ? 4 : 0;
    const bool is_signed = op == 'J' || op == 0x8a;
    /* LONG1: its length, then that many bytes; the top bit of the last one is the sign */
    if (op == 0x8a) {
        if (!bin_take(b, p, 1) || p[0] > 8)
            return false;
        n = p[0];
    }
    uint64_t v = 0;
    if (!bin_take(b, p, n))
        return false;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    if (is_signed && n > 0 && p[n - 1] & 0x80) /* an offset or a length is never negative */
        return false;
    *out = (int64_t)v;
    return v <= INT64_MAX;
}

/* Skips the data of operations that change nothing here. */
static int bin_pickle_skip(unsigned char op)
{
    switch (op) {
    case 0x80: /* PROTO */
    case 'q':  /* BINPUT */
        return 1;
    case 'r': /* LONG_BINPUT */
        return 4;
    case 0x95: /* FRAME */
        return 8;
    case 0x94: /* MEMOIZE */
    case ']':  /* EMPTY_LIST */
    case '(':  /* MARK */
    case 'a':  /* APPEND */
    case 'e':  /* APPENDS */
        return 0;
    default:
        return -1;
    }
}

/* Reads the pickle without executing it: it accepts only integers, pairs of them, and the
 * operations that build one list of them. */
static tt_status bin_pbin_documents(const char *path, int fd, const bin_layout *at, int64_t n_file,
                                    int64_t base, bin_starts *out, tt_error *err)
{
    bin_bytes b = {.fd = fd, .at = at->first + at->n * at->width, .end = n_file};
    int64_t pair[2], end = 0, v = 0;
    int have = 0;
    int64_t number = 0;
    unsigned char op = 0, passed[8];
    while (bin_take(&b, &op, 1) && op != '.') {
        const int skip = bin_pickle_skip(op);
        if (skip >= 0) {
            if (!bin_take(&b, passed, (size_t)skip))
                return bin_index_damaged(path, "its list of documents is cut off", number, err);
        } else if (op == 0x86) { /* TUPLE2 */
            if (have != 2 || pair[0] != end || pair[1] % at->width != 0 ||
                pair[1] > at->n * at->width - end)
                return bin_index_damaged(
                    path, "a document that does not begin at the end of the previous one", number,
                    err);
            TT_TRY(bin_starts_add(out, base + end / at->width, err));
            end += pair[1];
            have = 0;
            number++;
        } else if (have == 2 || !strchr("KMJ\x8a", op) || !bin_pickled_int(&b, op, &v)) {
            return bin_index_damaged(path, "a list of documents that is not a list of pairs",
                                     number, err);
        } else {
            pair[have++] = v;
        }
    }
    if (op != '.' || have != 0 || end != at->n * at->width)
        return bin_index_damaged(path, "its list of documents is cut off", number, err);
    return TT_OK;
}

#endif
