/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_DATALOADER_H
#define TTRUN_DATALOADER_H
#include <ttrun/plugin.h>
#include <ttrun/tokenizer.h>

/* A dataloader gives random access to samples. The core does the order, shuffling, epochs, sharding
 * and prefetching (core/data); the whole state of the data is one integer. */

#ifdef __cplusplus
extern "C" {
#endif

/* An input of the step that a loader provides besides "ids", "labels", "pos" and "seg" (the core itself
 * provides "token_index"): models and losses read it by tt_input(b, name). */
#define TT_MAX_INPUTS 16
typedef struct tt_input_info {
    const char *name; /* of a-z, 0-9 and _; lives as long as the plugin */
    tt_dtype dtype;   /* TT_I32 or TT_F32 */
    int per_sample;   /* 0: one value per token, [tokens]; 1: one per sample, [samples] */
} tt_input_info;

/* One sample for read() to fill; the core owns the memory. Each of the four arrays is [seq_len].
 *   ids     tokens of the vocabulary
 *   labels  the token that each position predicts; -100 = not counted
 *   pos     position within the document; prefilled with 0..seq_len-1
 *   seg     >= 0, constant within a document; prefilled with 0
 *   inputs  the loader's other inputs in the order of its table, each with seq_len elements, or one
 *           if it is per sample; prefilled with zeros */
typedef struct tt_sample {
    size_t struct_size;
    int64_t seq_len;
    int32_t *ids, *labels, *pos, *seg;
    void *const *inputs;
} tt_sample;

typedef struct tt_dataloader_env {
    size_t struct_size;
    int64_t seq_len;
    int64_t vocab_size;               /* of the model; data with a token outside is an error */
    const tt_tokenizer_vt *tokenizer; /* NULL if the job has none */
    void *tokenizer_self;
    const char *job_dir; /* relative paths start here */
    /* (optional) The loader reports long work of open(); fraction in [0,1]. */
    void (*progress)(void *user, const char *what, double fraction);
    void *progress_user;
    /* The loader polls this during long work. Nonzero: a signal asks the job to stop, so open()
     * returns TT_ESIGNAL. May be NULL. */
    int (*stop)(void *user);
    void *stop_user;
    /* The tokenizer's file or folder, where its chat template may be; NULL: it has none. */
    const char *tokenizer_path;
    /* (optional) Somebody wants the documents of a loader of text, not their tokens: tt_corpus_open() passes them to
     * this function, and gives no tokens. There may be no tokenizer then. */
    tt_status (*document)(void *user, const char *text, size_t n_bytes, tt_error *err);
    void *document_user;
} tt_dataloader_env;

/* What `ttrun data` prints about a loader. The loader owns the texts, which live as long as it. */
typedef struct tt_dataloader_info {
    size_t struct_size;
    int64_t files, documents, tokens, text_bytes; /* -1 = not known */
    const char *cache; /* the cache file that holds the tokens; NULL = none */
    const char *note;  /* why there is no cache, or NULL */
    int64_t padding;   /* tokens per epoch that are padding; -1 = the samples are not packed */
} tt_dataloader_info;

typedef struct tt_dataloader_vt {
    size_t struct_size;
    /* *self is the loader's own state, which close frees; env is valid during the call only, its
     * tokenizer as long as the loader. [setup] */
    tt_status (*open)(const void *config, const tt_dataloader_env *env, void **self, tt_error *err);
    void (*close)(void *self);
    int64_t (*n_samples)(void *self); /* samples per epoch, >= 1. [any-thread] */
    /* Fills *out with sample i, 0 <= i < n_samples. The prefetch thread and others call it
     * concurrently. [any-thread] */
    tt_status (*read)(void *self, int64_t i, tt_sample *out, tt_error *err);
    int needs_tokenizer; /* 1: the files hold text; 0: they hold tokens */
    /* (optional) [any-thread] */
    void (*info)(void *self, tt_dataloader_info *out);
    /* (optional) Writes the table of the loader's other inputs, at most TT_MAX_INPUTS rows, and
     * returns their number. Equal configs give equal tables. [setup] */
    int (*inputs)(const void *config, tt_input_info *out);
    /* (optional) Nonzero: with this config every sample is one segment with the positions 0, 1, …, so
     * that attention need not look. Samples that are not are an error then. NULL = not promised.
     * [setup] */
    int (*one_segment)(const void *config);
    /* 1: samples are whole by themselves, such as conversations; 0: windows of one stream of tokens, of which
     * `ttrun eval` also counts what is left behind the last window. */
    int samples_are_whole;
    /* (optional) Where the text of each token of sample i comes from: out[seq_len], a tt_chat_origin of
     * <ttrun/chat.h>, or TT_ORIGIN_PADDING. For the colours of `ttrun data show`. [any-thread] */
    void (*origins)(void *self, int64_t i, int64_t seq_len, uint8_t *out);
} tt_dataloader_vt;
#define TT_ORIGIN_PADDING 255

#ifdef __cplusplus
}
#endif
#endif
