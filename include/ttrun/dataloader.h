/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_DATALOADER_H
#define TTRUN_DATALOADER_H
#include <ttrun/plugin.h>
#include <ttrun/tokenizer.h>

/* A dataloader: random access to samples. Order, shuffling, epochs, sharding and prefetch are the
 * core's (core/data): its state is one integer. */

#ifdef __cplusplus
extern "C" {
#endif

/* An input of the step that a loader gives beside "ids", "labels", "pos" and "seg": models and losses
 * read it by tt_input(b, name). */
#define TT_MAX_INPUTS 16
typedef struct tt_input_info {
    const char *name; /* of a-z, 0-9 and _; lives as long as the plugin */
    tt_dtype dtype;   /* TT_I32 or TT_F32 */
    int per_sample;   /* 0: a value per token, [tokens]; 1: one per sample, [samples] */
} tt_input_info;

/* One sample to fill. ids and labels [seq_len]; pos and seg come prefilled with 0..seq_len-1 and 0.
 */
typedef struct tt_sample {
    size_t struct_size;
    int64_t seq_len;
    int32_t *ids, *labels, *pos,
        *seg; /* labels -100 = not counted; seg >= 0, constant within a document */
    /* The loader's own inputs, in the order of its table: seq_len elements, or one where it is per
     * sample. They come prefilled with zeros. */
    void *const *inputs;
} tt_sample;

typedef struct tt_dataloader_env {
    size_t struct_size;
    int64_t seq_len;
    int64_t vocab_size;               /* of the model: a token outside is an error of the data */
    const tt_tokenizer_vt *tokenizer; /* NULL where the job has none */
    void *tokenizer_self;
    const char *job_dir;                                             /* relative paths start here */
    void (*progress)(void *user, const char *what, double fraction); /* (optional) */
    void *progress_user;
    int (*stop)(
        void *user); /* nonzero: a signal asks to stop, give up with TT_ESIGNAL; may be NULL */
    void *stop_user;
} tt_dataloader_env;

/* What `ttrun data` prints of a loader. Texts are the loader's and live as long as it does. */
typedef struct tt_dataloader_info {
    size_t struct_size;
    int64_t files, documents, tokens, text_bytes; /* -1 = not known */
    const char *cache; /* the file of ours that holds the tokens; NULL = none */
    const char *note;  /* why there is none, or NULL */
    int64_t padding;   /* tokens of an epoch that are padding; -1 = its samples are not packed */
} tt_dataloader_info;

typedef struct tt_dataloader_vt {
    size_t struct_size;
    tt_status (*open)(const void *config, const tt_dataloader_env *env, void **self,
                      tt_error *err); /* [setup] */
    void (*close)(void *self);
    int64_t (*n_samples)(void *self); /* of one epoch, >= 1 */
    /* Sample i of an epoch, 0 <= i < n_samples. Called from the prefetch thread and others at once.
     * [any-thread] */
    tt_status (*read)(void *self, int64_t i, tt_sample *out, tt_error *err);
    int needs_tokenizer;                               /* 1: text; 0: tokens */
    void (*info)(void *self, tt_dataloader_info *out); /* [any-thread] (optional) */
    /* The table of inputs of its own: writes at most TT_MAX_INPUTS rows, returns how many. The same
     * for equal configs. [setup] (optional) */
    int (*inputs)(const void *config, tt_input_info *out);
} tt_dataloader_vt;

#ifdef __cplusplus
}
#endif
#endif
