/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CORPUS_CACHE_H
#define TT_CORPUS_CACHE_H
#include "corpus/tokens.h"

/* The parts of a corpus, which is text tokenised once and cached:
 *   key.c        the cache's key: text, reader and tokenizer; stat(2) finds a known key again
 *   encode.c     blocks of documents → tokens, on all cores, passed on in order
 *   store.c      the file under construction, which a later run continues
 *   published.c  the finished file
 *   corpus.c     uses all of these: finds a cache, waits for it, builds it, or works in memory */

/* The progress of a build: everything before this point is stored. */
typedef struct tt_build_point {
    int64_t n_tokens, n_documents, n_empty, text_bytes;
    int64_t file, document; /* the current file and the number of its documents, empty ones too */
    int64_t part; /* bytes of the document after these that are stored: a long one is split */
} tt_build_point;

/* ---- key.c ---- */
typedef struct tt_text_id { /* a file's identity by stat(2) */
    int64_t bytes, mtime_ns, ctime_ns;
    uint64_t inode, device;
} tt_text_id;
typedef struct tt_text_key {
    const tt_corpus_opts *o;
    const tt_tokenizer_info *info;
    tt_text_id *ids; /* [o->files->n] */
    int64_t text_bytes;
    char by_stat[33], by_content[33]; /* "" = not known yet */
} tt_text_key;
/* Fills ids and text_bytes from stat(2), and the key by_stat. Owner: the caller, by
 * tt_text_key_free. */
tt_status tt_text_key_stat(const tt_corpus_opts *o, const tt_tokenizer_info *info, tt_text_key *out,
                           tt_error *err);
/* Reads all files and fills the key by_content. */
tt_status tt_text_key_read(tt_text_key *k, int threads, tt_error *err);
/* Fails if stat(2) says that a file has changed since; the error names the file. */
tt_status tt_text_key_same(const tt_text_key *k, tt_error *err);
/* The cache folder notes which by_content belongs to a by_stat. recall fills by_content from the
 * note and returns false if there is none; note writes it. */
bool tt_text_key_recall(tt_text_key *k, const char *folder);
void tt_text_key_note(const tt_text_key *k, const char *folder, int64_t began_ns);
void tt_text_key_free(tt_text_key *k);
/* Fails with TT_ESIGNAL if a signal asks the job to stop. */
tt_status tt_text_stopped(const tt_dataloader_env *env, tt_error *err);
void tt_text_progress(const tt_dataloader_env *env, const char *what, int64_t done, int64_t all);

/* ---- encode.c ---- */
typedef struct tt_text_part { /* of a document; of most it is the whole */
    size_t end;               /* in the block's text */
    int64_t file, number;     /* the document's number in its file, from 1 */
    bool first, last;         /* part of its document: gets bos, eos */
} tt_text_part;
typedef struct tt_text_block { /* parts of documents, then their tokens */
    char *text;
    size_t n_text, cap_text;
    tt_text_part *parts; /* [n_parts] */
    size_t n_parts, cap_parts;
    tt_build_point at;     /* file, document, part after the block; n_empty in the block */
    unsigned char *tokens; /* [n_tokens] of `width` bytes */
    int64_t *starts;       /* [n_starts] of the documents that begin here, index in its tokens */
    size_t n_starts;
    int64_t n_tokens;
    size_t cap_tokens, cap_starts;
    tt_ids ids;
    int state;
    tt_error err; /* code TT_OK = none */
} tt_text_block;

typedef struct tt_encoder_opts {
    const tt_tokenizer_vt *tokenizer;
    void *tokenizer_self;
    tt_tokenizer_info info;
    const tt_files *files; /* for errors */
    int width;             /* bytes per token in the output */
    int threads;           /* 0 = only the caller's */
    /* Gets the blocks in order, one call at a time, from any thread. */
    tt_status (*write)(void *user, const tt_text_block *b, tt_error *err);
    void *user;
} tt_encoder_opts;
typedef struct tt_encoder tt_encoder;
tt_status tt_encoder_new(const tt_encoder_opts *o, tt_encoder **out, tt_error *err);
/* Waits for a free block and gives it to the caller to fill. Fails if an earlier block has failed:
 * the caller must then stop. */
tt_status tt_encoder_block(tt_encoder *e, tt_text_block **out, tt_error *err);
/* Adds a part of a document to the block that the caller fills. part->end is set here. */
tt_status tt_text_block_add(tt_text_block *b, const char *text, size_t n, const tt_text_part *part,
                            tt_error *err);
tt_status tt_encoder_submit(tt_encoder *e, tt_error *err);
/* Waits for all submitted blocks, frees the encoder and returns the first error in order. */
tt_status tt_encoder_finish(tt_encoder *e, tt_error *err);

/* ---- store.c ---- */
typedef struct tt_id_buffer {
    unsigned char *p;
    size_t cap;
} tt_id_buffer;
typedef struct tt_store {
    char *path; /* the file under construction, NULL = in memory */
    char *documents_path;
    int fd, documents_fd;           /* tokens from byte TT_TOKENS_AT on; int64_t starts */
    tt_id_buffer tokens, documents; /* the same in memory, if there is no file */
    int width;
    tt_build_point at, committed;
    int64_t committed_ns, journal; /* time of the last commit, and number of commits */
    char key[33];
} tt_store;
enum { TT_TOKENS_AT = 4096 };
void tt_store_memory(int width, tt_store *out);
/* Opens the file under construction and continues where an earlier process stopped. Waits while
 * another process builds it; if that one finishes, *published is true and *out is not open. */
tt_status tt_store_file(const char *folder, const char *key, int width, const tt_text_key *k,
                        bool *published, tt_store *out, tt_error *err);
/* Writes a block; for tt_encoder_opts.write. */
tt_status tt_store_write(void *store, const tt_text_block *b, tt_error *err);
/* Makes sure that everything written so far survives a crash. */
tt_status tt_store_commit(tt_store *s, tt_error *err);
/* Moves the tokens into memory because writing the file failed, and logs the reason `why`. */
tt_status tt_store_to_memory(tt_store *s, const tt_error *why, tt_error *err);
/* The beginning of the note if a cache was wanted but could not be written. */
#define TT_NOTE_UNWRITTEN "not written: "
#define TT_KEPT_IN_MEMORY "%s; tokens are kept in memory, for this run only"
/* Passes the memory to *out, whose spans has room for one, and closes the store. */
void tt_store_release(tt_store *s, tt_tokens *out);
void tt_store_close(tt_store *s);
/* Gives up a build: keeps its files only if a later run can continue from them. */
void tt_store_abandon(tt_store *s);
/* Removes from a cache folder what killed processes left and no run continues from. */
void tt_store_clear(const char *folder);
tt_status tt_write_at(int fd, const char *path, int64_t at, const void *bytes, size_t n,
                      tt_error *err);

/* ---- published.c ---- */
/* Completes the file and renames it to its final name. The store stays open. */
tt_status tt_store_publish(tt_store *s, const char *folder, int64_t n_files, tt_error *err);
/* Opens a finished file. index: also check the index of documents.
 *   Errors: TT_ENOTFOUND: there is none; TT_EFORMAT: it is damaged. */
tt_status tt_store_find(const char *folder, const char *key, bool index, tt_tokens *out,
                        tt_error *err);

#endif
