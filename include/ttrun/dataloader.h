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

/* One sample to fill. ids and labels [seq_len]; pos and seg come prefilled with 0..seq_len-1 and 0.
 */
typedef struct tt_sample {
    size_t struct_size;
    int64_t seq_len;
    int32_t *ids, *labels, *pos,
        *seg; /* labels -100 = not counted; seg >= 0, constant within a document */
} tt_sample;

typedef struct tt_dataloader_env {
    size_t struct_size;
    int64_t seq_len;
    int64_t vocab_size;               /* of the model: a token outside is an error of the data */
    const tt_tokenizer_vt *tokenizer; /* NULL where the job has none */
    void *tokenizer_self;
    const char *job_dir;                                             /* relative paths start here */
    void (*progress)(void *user, const char *what, double fraction); /* may be NULL */
    void *progress_user;
} tt_dataloader_env;

typedef struct tt_dataloader_vt {
    size_t struct_size;
    tt_status (*open)(const void *config, const tt_dataloader_env *env, void **self,
                      tt_error *err); /* [setup] */
    void (*close)(void *self);
    int64_t (*n_samples)(void *self); /* of one epoch, >= 1 */
    /* Sample i of an epoch, 0 <= i < n_samples. Called from the prefetch thread and others at once.
     * [any-thread] */
    tt_status (*read)(void *self, int64_t i, tt_sample *out, tt_error *err);
    int needs_tokenizer; /* 1: text; 0: tokens */
} tt_dataloader_vt;

#ifdef __cplusplus
}
#endif
#endif
