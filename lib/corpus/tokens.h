/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CORPUS_TOKENS_H
#define TT_CORPUS_TOKENS_H
#include "base/base.h"
#include <ttrun/corpus.h>

/* The parts of a stream of tokens: its files and where documents begin. Files are read by pread,
 * not mapped: if someone truncates a file, pread gives an error and a mapping a SIGBUS. */

typedef struct tt_token_span {
    char *path;
    unsigned char *memory; /* the bytes, if they are not in a file */
    int fd;                /* -1 = opened for each read, because there are too many files */
    int width;             /* bytes per token */
    int64_t first;         /* byte offset of the first token */
    int64_t n;             /* number of tokens */
    int64_t start;         /* index of its first token in the stream */
} tt_token_span;

/* The index of each document's first token, as int64_t, ascending. */
typedef struct tt_document_index {
    int fd; /* -1 = in memory */
    unsigned char *memory;
    int64_t first, n;
} tt_document_index;

/* A document, or a part of one that is longer than seq_len. */
typedef struct tt_piece {
    int64_t at;   /* first token in the stream */
    int32_t n;    /* tokens, 1 … seq_len */
    bool goes_on; /* the document continues after the piece */
} tt_piece;

/* dataloader.packing: which pieces a sample is made of. */
typedef struct tt_packing {
    int64_t n_bins, n_pieces;
    int64_t *bins; /* [n_bins + 1] first piece of each sample; NULL = not packed */
    tt_piece *pieces;
    int64_t padding; /* padding tokens per epoch */
    int32_t pad;     /* the padding token */
} tt_packing;

struct tt_tokens {
    tt_token_span *spans;
    size_t n_spans;
    int64_t n_tokens, seq_len, n_samples;
    bool document_mask;
    int32_t bos_id, eos_id; /* they mark documents if there is no index */
    tt_document_index documents;
    tt_packing packing;
    /* for tt_dataloader_info: the source of the tokens */
    int64_t n_files, n_documents, n_empty, text_bytes;
    char *cache, *note;
};

/* Reads the n tokens from index `at` on. */
tt_status tt_tokens_fetch(const tt_tokens *t, int64_t at, int64_t n, int32_t *out, tt_error *err);
/* Sets n_samples. If packing is "best_fit" (NULL = "none"), packs documents into samples, padded by
 * the pad token of env's tokenizer. */
tt_status tt_tokens_ready(tt_tokens *t, const tt_dataloader_env *env, const char *packing,
                          tt_error *err);
/* Reads the starts of n documents from the i-th on. */
tt_status tt_document_starts(const tt_tokens *t, int64_t i, int64_t n, int64_t *out, tt_error *err);
/* Reads exactly n bytes at an offset of a file. */
tt_status tt_read_at(int fd, const char *path, int64_t at, void *out, size_t n, tt_error *err);

/* ---- packing.c ---- */
/* Puts every piece into a sample, into as few samples as best-fit decreasing finds. n >= 1, lengths
 * 1 … seq_len. Owner: the caller, by tt_packing_free. */
tt_status tt_pack(const tt_piece *pieces, int64_t n, int64_t seq_len, tt_packing *out,
                  tt_error *err);
void tt_packing_free(tt_packing *p);
/* Packs the documents of a stream whose seq_len is set; sets n_samples and logs the padding. */
tt_status tt_tokens_pack(tt_tokens *t, int32_t pad, tt_error *err);
tt_status tt_packed_read(const tt_tokens *t, int64_t i, tt_sample *out, tt_error *err);

#endif
