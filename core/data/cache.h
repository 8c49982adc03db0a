/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_CACHE_H
#define TT_DATA_CACHE_H
#include "data/tokens.h"

/* Inside of a corpus, text tokenised once:
 *   key.c     which text by which tokenizer: a content key, found again by what stat(2) says
 *   encode.c  blocks of documents → tokens, on every core, handed on in order
 *   store.c   the file that takes them: resumed where it was left
 *   published.c   the finished file
 *   corpus.c  all of it: finds, waits, builds, or keeps tokens in memory */

/* How far a build is: all before it is stored. */
typedef struct tt_build_point {
    int64_t n_tokens, n_documents, n_empty, text_bytes;
    int64_t file, document; /* documents given of that file, empty ones too */
} tt_build_point;

/* ---- key.c ---- */
typedef struct tt_text_id { /* what stat(2) says of a file */
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
/* Sizes and identities of the files, and the key by them. */
tt_status tt_text_key_stat(const tt_corpus_opts *o, const tt_tokenizer_info *info, tt_text_key *out,
                           tt_error *err);
/* Reads all files for the key by content. */
tt_status tt_text_key_read(tt_text_key *k, int threads, tt_error *err);
/* Does stat(2) still say the same? An error names the file that changed. */
tt_status tt_text_key_same(const tt_text_key *k, tt_error *err);
/* The folder's note of which content a key by stat is; false: none. */
bool tt_text_key_recall(tt_text_key *k, const char *folder);
void tt_text_key_note(const tt_text_key *k, const char *folder, int64_t began_ns);
void tt_text_key_free(tt_text_key *k);
/* Nonzero where a signal asks to stop; raises. */
tt_status tt_text_stopped(const tt_dataloader_env *env, tt_error *err);
void tt_text_progress(const tt_dataloader_env *env, const char *what, int64_t done, int64_t all);

/* ---- encode.c ---- */
typedef struct tt_text_place {
    size_t end;           /* in the block's text */
    int64_t file, number; /* from 1 within its file */
} tt_text_place;
typedef struct tt_text_block { /* documents, then their tokens */
    char *text;
    size_t n_text, cap_text;
    tt_text_place *documents; /* [n_documents] */
    size_t n_documents, cap_documents;
    tt_build_point at;     /* file and document behind it; n_empty of it */
    unsigned char *tokens; /* [n_tokens] of `width` bytes */
    int64_t *starts;       /* [n_documents] first token of each within the block */
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
    int width;             /* bytes a token is written in */
    int threads;           /* 0 = the caller's own */
    /* Each block in order, one at a time, from any thread. */
    tt_status (*write)(void *user, const tt_text_block *b, tt_error *err);
    void *user;
} tt_encoder_opts;
typedef struct tt_encoder tt_encoder;
tt_status tt_encoder_new(const tt_encoder_opts *o, tt_encoder **out, tt_error *err);
/* The block to fill next; waits for one. Fails once a block before it has: stop giving. */
tt_status tt_encoder_block(tt_encoder *e, tt_text_block **out, tt_error *err);
/* A document into a block that is to be filled. */
tt_status tt_text_block_add(tt_text_block *b, const char *text, size_t n, int64_t file,
                            int64_t number, tt_error *err);
tt_status tt_encoder_submit(tt_encoder *e, tt_error *err);
/* Waits for all that was submitted; the first error in order. Then the encoder is gone. */
tt_status tt_encoder_finish(tt_encoder *e, tt_error *err);

/* ---- store.c ---- */
typedef struct tt_id_buffer {
    unsigned char *p;
    size_t cap;
} tt_id_buffer;
typedef struct tt_store {
    char *path; /* the file being built, NULL = memory */
    char *documents_path;
    int fd, documents_fd;           /* tokens from byte TT_TOKENS_AT on; int64_t starts */
    tt_id_buffer tokens, documents; /* the same, where there is no file */
    int width;
    tt_build_point at, committed;
    int64_t committed_ns, journal; /* when, and how often */
    char key[33];
} tt_store;
enum { TT_TOKENS_AT = 4096 };
void tt_store_memory(int width, tt_store *out);
/* Goes on where an earlier process was; waits while another one builds. *published: that one has
 * finished meanwhile, and out is not open. */
tt_status tt_store_file(const char *folder, const char *key, int width, const tt_text_key *k,
                        bool *published, tt_store *out, tt_error *err);
tt_status tt_store_write(void *store, const tt_text_block *b,
                         tt_error *err); /* a block's; see above */
/* What was written is there after a crash. */
tt_status tt_store_commit(tt_store *s, tt_error *err);
/* Moves what is there into memory, where the disk takes no more, and says so with the reason. */
tt_status tt_store_to_memory(tt_store *s, const tt_error *why, tt_error *err);
/* How the note of a cache begins that was wanted and could not be written. */
#define TT_NOTE_UNWRITTEN "not written: "
#define TT_KEPT_IN_MEMORY "%s; tokens are kept in memory, for this start alone"
/* Hands what is in memory over; out->spans has room for one. Closes the store. */
void tt_store_release(tt_store *s, tt_tokens *out);
void tt_store_close(tt_store *s);
tt_status tt_write_at(int fd, const char *path, int64_t at, const void *bytes, size_t n,
                      tt_error *err);

/* ---- published.c ---- */
/* Gives a file, all written, its name. The store stays open. */
tt_status tt_store_publish(tt_store *s, const char *folder, int64_t n_files, tt_error *err);
/* A finished file. TT_ENOTFOUND: none; TT_EFORMAT: damaged. index: check the documents too. */
tt_status tt_store_find(const char *folder, const char *key, bool index, tt_tokens *out,
                        tt_error *err);

#endif
