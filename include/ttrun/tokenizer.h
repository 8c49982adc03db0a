/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TOKENIZER_H
#define TTRUN_TOKENIZER_H
#include <ttrun/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_tokenizer_info {
    size_t struct_size;
    int64_t vocab_size;    /* max id + 1, added tokens included */
    int32_t bos, eos, pad; /* -1 = none */
    char fingerprint[33];  /* hex, changes when any id would; keys caches and checkpoints */
} tt_tokenizer_info;

/* Growable id list, owned by the caller; grow with tt_ids_push only. */
typedef struct tt_ids {
    int32_t *ids;
    size_t n, cap;
} tt_ids;
TT_EXPORT tt_status tt_ids_push(tt_ids *list, int32_t id, tt_error *err);
TT_EXPORT void tt_ids_free(tt_ids *list);

typedef struct tt_text {
    const char *s;
    size_t n;
} tt_text;

/* What a tokenizer is learnt from, and where it goes. */
typedef struct tt_pool tt_pool; /* <ttrun/backend.h> */
typedef struct tt_tokenizer_train {
    size_t struct_size;
    const tt_text *texts; /* documents; nothing is learnt across two of them */
    size_t n_texts;
    int64_t vocab_size;         /* at most so many ids, special tokens included */
    const char *pattern;        /* how texts are cut into words: a name or an expression */
    const char *const *special; /* texts of special tokens, which get the first ids in this order */
    size_t n_special;
    const char *bos, *eos, *pad; /* among special; NULL = none */
    const char *out;             /* folder, which is there */
    tt_pool *pool;
    /* From the calling thread, now and then; may be NULL. stage: what is counted. */
    void (*progress)(void *arg, const char *stage, int64_t done, int64_t total);
    void *progress_arg;
} tt_tokenizer_train;

typedef struct tt_tokenizer_vt {
    size_t struct_size;
    tt_status (*open)(const void *config, void **self, tt_error *err); /* [setup] */
    void (*close)(void *self);
    void (*info)(void *self, tt_tokenizer_info *out);
    /* Append the ids of text; no bos/eos; special tokens in text are plain text. [any-thread] */
    tt_status (*encode)(void *self, const char *text, size_t n_bytes, tt_ids *out, tt_error *err);
    /* Bytes of one id into buf (not NUL-terminated), at most cap; returns the length, 0 for special
     * ids. [any-thread] */
    size_t (*decode)(void *self, int32_t id, char *buf, size_t cap);
    /* The next place in [from, n_bytes] at which text may be cut: the ids of the two parts, one
     * after the other, are the ids of the whole. n_bytes where there is none. NULL: nowhere.
     * [any-thread] */
    size_t (*cut)(void *self, const char *text, size_t n_bytes, size_t from);
    /* Learn a tokenizer and write the files that open reads. The same texts give the same files
     * for any number of threads. NULL: cannot be learnt. [setup] (optional) */
    tt_status (*train)(const tt_tokenizer_train *o, tt_error *err);
} tt_tokenizer_vt;

#ifdef __cplusplus
}
#endif
#endif
