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
} tt_tokenizer_vt;

#ifdef __cplusplus
}
#endif
#endif
