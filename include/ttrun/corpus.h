/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CORPUS_H
#define TTRUN_CORPUS_H
#include <ttrun/dataloader.h>

/* What loaders share. A loader of text is a function that gives the documents of a file: the core
 * tokenises them once, on every core, into a file it finds again. A loader of tokens says where
 * they lie. Either way they become one stream of tokens, tt_tokens, whose functions are the rest of
 * a loader's vtable. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files by name and pattern ---- */
typedef struct tt_files {
    char **items; /* [n] paths */
    size_t n, cap;
} tt_files;
/* The files of a list of paths and globs (*, ?, [a-z]; ** crosses folders), in the list's order,
 * those of a glob bytewise.
 *   job_dir  relative paths start there
 *   example  a path such a list may hold, for the error of an empty one
 * Free with tt_files_free. [setup] */
TT_EXPORT tt_status tt_files_find(const tt_strings *path, const char *job_dir, const char *example,
                                  tt_files *out, tt_error *err);
TT_EXPORT void tt_files_free(tt_files *f);

/* ---- a stream of tokens ----
 * Sample i is tokens [i*seq_len, i*seq_len + seq_len]: inputs all but the last, labels all but the
 * first; one epoch is floor((n-1)/seq_len) samples. A sample is one read of its file, so a file
 * that shrinks under a run is an error that names it. */
typedef struct tt_tokens tt_tokens;

typedef struct tt_token_file {
    size_t struct_size;
    const char *path;
    int width;          /* bytes a token, unsigned and little-endian: 1, 2, 4 or 8 */
    int64_t first_byte; /* of the first token */
    int64_t n;          /* tokens */
} tt_token_file;

typedef struct tt_tokens_opts {
    size_t struct_size;
    const tt_dataloader_env *env; /* seq_len, vocab_size */
    const tt_token_file *files;   /* joined in this order */
    size_t n_files, file_size;    /* count and stride */
    int document_mask;            /* pos restarts and seg grows where a document begins */
    int32_t bos_id, eos_id;       /* what begins and ends one; -1 = none */
    const int64_t *documents;     /* instead: [n_documents] first tokens in the stream, ascending */
    size_t n_documents;
    const char *packing; /* the option's value; "best_fit" needs `documents`; NULL = "none" */
} tt_tokens_opts;
/* Errors: a file that is not there or too short; tokens outside the vocabulary among the first of a
 * file (all others are checked as they are read); less than one sample. [setup] */
TT_EXPORT tt_status tt_tokens_open(const tt_tokens_opts *o, tt_tokens **out, tt_error *err);
/* For the vtable of a loader whose self is a tt_tokens. */
TT_EXPORT void tt_tokens_close(void *self);
TT_EXPORT int64_t tt_tokens_samples(void *self);
TT_EXPORT tt_status tt_tokens_read(void *self, int64_t i, tt_sample *out, tt_error *err);
TT_EXPORT void tt_tokens_info(void *self, tt_dataloader_info *out);

/* ---- text, tokenised once ---- */
typedef struct tt_documents tt_documents;
/* Within a reader: the next document of its file, copied; an empty one is counted and left out.
 *   at  bytes of the file behind it, for the progress bar
 * A failure is to be returned at once. */
TT_EXPORT tt_status tt_documents_add(tt_documents *to, const char *text, size_t n_bytes, int64_t at,
                                     tt_error *err);

typedef struct tt_corpus_opts {
    size_t struct_size;
    const tt_dataloader_env *env;
    const tt_files *files;
    /* Give every document of a file, the same at each call. Files come in order. */
    tt_status (*read)(void *user, const char *path, tt_documents *to, tt_error *err);
    void *user;
    const char *reader; /* its name, version and what of its options changes documents: keys the
                           cache */
    const char *cache;  /* the option's value: "auto", "off" or a folder */
    int document_mask;
    const char *packing; /* the option's value; NULL = "none" */
} tt_corpus_opts;
/* The documents of files as one stream, each with the tokenizer's bos before it and eos behind it;
 * where both are one token (GPT-2's <|endoftext|>) it stands behind it only. Tokens are kept in a
 * file found again by the text's content, the tokenizer and the reader; see the row
 * TT_CORPUS_OPTION_CACHE.
 *   Errors: the reader's and the tokenizer's, the first in order; less than one sample. [setup] */
TT_EXPORT tt_status tt_corpus_open(const tt_corpus_opts *o, tt_tokens **out, tt_error *err);

/* The row of a loader's table whose value is tt_corpus_opts.cache. */
#define TT_CORPUS_OPTION_CACHE(config_)                                                            \
    TT_OPTION(config_, cache, TT_OPT_STRING, "\"auto\"", 0, 0,                                     \
              "where tokens of text are kept: a folder; auto: $XDG_CACHE_HOME/ttrun, from 1 MiB "  \
              "of text on; off: in memory, anew at each start")

/* The row whose value is `packing` of the opts above. */
#define TT_CORPUS_OPTION_PACKING(config_)                                                          \
    TT_OPTION_MORE(config_, packing, TT_OPT_ENUM, "\"none\"", 0, 0, "none|best_fit", 0, NULL,      \
                   "best_fit: samples of whole documents, kept apart, filled up with padding; "    \
                   "only those longer than seq_len are cut; none: documents one after the other")

#ifdef __cplusplus
}
#endif
#endif
