/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_TOKENS_H
#define TT_DATA_TOKENS_H
#include "base/base.h"
#include <ttrun/corpus.h>

/* Inside of a stream of tokens: files, and where documents begin. Nothing is mapped: a file cut off
 * under a mapping is SIGBUS, under pread an error. */

typedef struct tt_token_span {
    char *path;
    unsigned char *memory; /* the bytes, where they are in no file */
    int fd;                /* -1 = opened for each read: there are too many */
    int width;             /* bytes a token */
    int64_t first;         /* byte of the first token */
    int64_t n;             /* tokens */
    int64_t start;         /* of its tokens in the stream */
} tt_token_span;

/* int64_t first token of each document, ascending. */
typedef struct tt_document_index {
    int fd; /* -1 = in no file */
    unsigned char *memory;
    int64_t first, n;
} tt_document_index;

/* A document, or what is left of one cut into pieces of seq_len. */
typedef struct tt_piece {
    int64_t at;   /* first token in the stream */
    int32_t n;    /* tokens, 1 … seq_len */
    bool goes_on; /* the next token is of the same document */
} tt_piece;

/* dataloader.packing: which pieces a sample is made of. */
typedef struct tt_packing {
    int64_t n_bins, n_pieces;
    int64_t *bins; /* [n_bins + 1] first piece of each sample; NULL = not packed */
    tt_piece *pieces;
    int64_t padding; /* tokens of it in an epoch */
    int32_t pad;     /* their id */
} tt_packing;

struct tt_tokens {
    tt_token_span *spans;
    size_t n_spans;
    int64_t n_tokens, seq_len, n_samples;
    bool document_mask;
    int32_t bos_id, eos_id; /* where there is no index */
    tt_document_index documents;
    tt_packing packing;
    /* what it came from */
    int64_t n_files, n_documents, n_empty, text_bytes;
    char *cache, *note;
};

/* n tokens from `at` on. */
tt_status tt_tokens_fetch(const tt_tokens *t, int64_t at, int64_t n, int32_t *out, tt_error *err);
/* Fixes n_samples, and packs documents where packing is "best_fit" (NULL = "none"), padded as the
 * tokenizer of env has it; what: "have" or such, before their number of tokens in the error. */
tt_status tt_tokens_ready(tt_tokens *t, const tt_dataloader_env *env, const char *packing,
                          const char *what, tt_error *err);
/* n starts of documents from the i-th on. */
tt_status tt_document_starts(const tt_tokens *t, int64_t i, int64_t n, int64_t *out, tt_error *err);
/* n bytes at an offset of a file, all of them. */
tt_status tt_read_at(int fd, const char *path, int64_t at, void *out, size_t n, tt_error *err);

/* ---- packing.c ---- */
/* Every piece into one sample, as few as best-fit decreasing finds. n >= 1, lengths 1 … seq_len.
 * Free with tt_packing_free. */
tt_status tt_pack(const tt_piece *pieces, int64_t n, int64_t seq_len, tt_packing *out,
                  tt_error *err);
void tt_packing_free(tt_packing *p);
/* Packs the documents of a stream whose seq_len is set; fixes n_samples and says how well. */
tt_status tt_tokens_pack(tt_tokens *t, int32_t pad, tt_error *err);
tt_status tt_packed_read(const tt_tokens *t, int64_t i, tt_sample *out, tt_error *err);

#endif
