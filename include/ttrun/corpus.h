/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CORPUS_H
#define TTRUN_CORPUS_H
#include <ttrun/dataloader.h>

/* Helpers for dataloaders. A loader of text writes one function, which passes on the documents of a
 * file; the core tokenises them once, on all cores, and caches the tokens in a file. A loader of
 * tokens names the files that hold them. Both get one stream of tokens, tt_tokens, whose functions
 * fill the rest of the loader's vtable. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files by name and pattern ---- */
typedef struct tt_files {
    char **items; /* [n] paths */
    size_t n, cap;
} tt_files;
/* Finds the files of a list of paths and globs (*, ?, [a-z]; ** crosses folders). *out has them in
 * the list's order, the matches of a glob sorted bytewise.
 *   job_dir  relative paths start there
 *   example  a path that such a list may hold, shown in the error about an empty list
 *   Errors: an empty list, a path that does not exist, a glob without a match.
 *   Owner: the caller, by tt_files_free.   [setup] */
TT_EXPORT tt_status tt_files_find(const tt_strings *path, const char *job_dir, const char *example,
                                  tt_files *out, tt_error *err);
TT_EXPORT void tt_files_free(tt_files *f);

/* ---- a stream of tokens ----
 * Sample i is the seq_len + 1 tokens from i*seq_len on: the inputs are all but the last, the labels
 * all but the first. An epoch of n tokens has floor((n-1)/seq_len) samples. Each sample is read
 * from its file, so if a file shrinks during a run, the error names it. */
typedef struct tt_tokens tt_tokens;

typedef struct tt_token_file {
    size_t struct_size;
    const char *path;
    int width;          /* bytes per token, unsigned and little-endian: 1, 2, 4 or 8 */
    int64_t first_byte; /* offset of the first token */
    int64_t n;          /* number of tokens */
} tt_token_file;

typedef struct tt_tokens_opts {
    size_t struct_size;
    const tt_dataloader_env *env; /* seq_len, vocab_size */
    const tt_token_file *files;   /* joined in this order */
    size_t n_files, file_size;    /* count and stride */
    int document_mask;            /* 1: pos restarts, seg grows and labels end with each document */
    int32_t bos_id, eos_id;       /* tokens that begin and end a document; -1 = none */
    const int64_t *documents;     /* instead: ascending indices of the documents' first tokens */
    size_t n_documents;
    const char *packing; /* the option's value; "best_fit" needs `documents`; NULL = "none" */
} tt_tokens_opts;
/* Opens the stream; it keeps no pointer into *o.   Owner: the caller, by tt_tokens_close.
 *   Errors: a file that is missing or too short; a token outside the vocabulary among a file's
 *   first ones (the others are checked when they are read); less than one sample.   [setup] */
TT_EXPORT tt_status tt_tokens_open(const tt_tokens_opts *o, tt_tokens **out, tt_error *err);
/* The other functions of a loader whose self is a tt_tokens; see tt_dataloader_vt. */
TT_EXPORT void tt_tokens_close(void *self);
TT_EXPORT int64_t tt_tokens_samples(void *self);
TT_EXPORT tt_status tt_tokens_read(void *self, int64_t i, tt_sample *out, tt_error *err);
TT_EXPORT void tt_tokens_info(void *self, tt_dataloader_info *out);

/* ---- text, tokenised once ---- */
typedef struct tt_documents tt_documents;
/* A reader calls this for each document of its file, in order. The text is copied; an empty
 * document is counted and otherwise ignored.
 *   at  bytes of the file read so far, for the progress bar
 *   Errors: the reader must return them at once.   [setup] */
TT_EXPORT tt_status tt_documents_add(tt_documents *to, const char *text, size_t n_bytes, int64_t at,
                                     tt_error *err);

typedef struct tt_corpus_opts {
    size_t struct_size;
    const tt_dataloader_env *env;
    const tt_files *files;
    /* The reader: passes every document of a file to tt_documents_add, the same ones at each call.
     * It is called for one file after another, in order. */
    tt_status (*read)(void *user, const char *path, tt_documents *to, tt_error *err);
    void *user;
    /* The reader's name, version and those of its options that change documents: a cache written
     * with another text is not used. */
    const char *reader;
    const char *cache; /* the option's value: "auto", "off" or a folder */
    int document_mask;
    const char *packing; /* the option's value; NULL = "none" */
} tt_corpus_opts;
/* Opens the documents of the files as one stream, with the tokenizer's bos before and its eos after
 * each document. If both are the same token (GPT-2's <|endoftext|>), it only comes after. Tokens
 * are cached in a file keyed by the text's content, the tokenizer and the reader; see
 * TT_CORPUS_OPTION_CACHE.
 *   Errors: the first of the reader's and the tokenizer's; less than one sample.
 *   Owner: the caller, by tt_tokens_close.   [setup] */
TT_EXPORT tt_status tt_corpus_open(const tt_corpus_opts *o, tt_tokens **out, tt_error *err);

/* The option row whose value is tt_corpus_opts.cache. */
#define TT_CORPUS_OPTION_CACHE(config_)                                                            \
    TT_OPTION_MORE(                                                                                \
        config_, cache, TT_OPT_STRING, "\"auto\"", 0, 0, "auto|off", TT_OPT_PATH, NULL,            \
        "the folder that keeps the tokens of text; auto: $XDG_CACHE_HOME/ttrun, from 1 MiB "       \
        "of text on; off: in memory, anew at each start")

/* The option row whose value is `packing` in tt_corpus_opts and tt_tokens_opts. */
#define TT_CORPUS_OPTION_PACKING(config_)                                                          \
    TT_OPTION_MORE(config_, packing, TT_OPT_ENUM, "\"none\"", 0, 0, "none|best_fit", 0, NULL,      \
                   "best_fit: samples of whole documents, kept apart, filled up with padding; "    \
                   "only those longer than seq_len are cut; none: documents one after the other")

#ifdef __cplusplus
}
#endif
#endif
