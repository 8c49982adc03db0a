/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_GGUF_H
#define TT_FORMATS_GGUF_H
#include "base/base.h"
#include <ttrun/tensor.h>
#include <ttrun/tokenizer.h>

/* Writes GGUF version 3, the format that llama.cpp loads. Keys and tensors are written in the order
 * in which they were added. A tensor's data is computed while it is written, so that memory holds a
 * part of one tensor at a time. Source: ggml docs/gguf.md. */

/* The values are ggml's. */
typedef enum tt_gguf_type {
    TT_GGUF_F32 = 0,
    TT_GGUF_F16 = 1,
    TT_GGUF_Q8_0 = 8,
    TT_GGUF_BF16 = 30
} tt_gguf_type;

typedef struct tt_gguf_tensor {
    const char *name;
    int n_dims;
    int64_t shape[TT_MAX_DIMS]; /* the last dim is contiguous, as everywhere in ttrun */
    tt_gguf_type type;
    void *user; /* for the caller's tt_gguf_fill */
} tt_gguf_tensor;

typedef struct tt_gguf { /* the caller fills it with zeros and sets arena */
    tt_arena *arena;
    tt_str keys; /* the keys as they stand in the file */
    uint64_t n_keys;
    TT_VEC(tt_gguf_tensor) tensors;
} tt_gguf;
void tt_gguf_free(tt_gguf *g);

void tt_gguf_u32(tt_gguf *g, const char *key, uint32_t v);
void tt_gguf_f32(tt_gguf *g, const char *key, float v);
void tt_gguf_bool(tt_gguf *g, const char *key, bool v);
void tt_gguf_string(tt_gguf *g, const char *key, const char *v);
void tt_gguf_strings(tt_gguf *g, const char *key, const char *const *v, size_t n);
void tt_gguf_i32s(tt_gguf *g, const char *key, const int32_t *v, size_t n);
void tt_gguf_f32s(tt_gguf *g, const char *key, const float *v, size_t n);
void tt_gguf_u8s(tt_gguf *g, const char *key, const uint8_t *v, size_t n);
/* Fails if the name is longer than ggml's field, if the tensor has no dims or more than 4, if a dim
 * is below 1, or if the rows of a Q8_0 tensor are not a multiple of 32. */
tt_status tt_gguf_add(tt_gguf *g, const tt_gguf_tensor *t, tt_error *err);

/* Writes elements [begin, begin + n) of the tensor, always whole rows, to out. */
typedef tt_status (*tt_gguf_fill)(void *user, const tt_gguf_tensor *t, int64_t begin, int64_t n,
                                  float *out, tt_error *err);
/* Writes a temporary file and renames it, so that `path` is never half a file. */
tt_status tt_gguf_write(const tt_gguf *g, const char *path, tt_gguf_fill fill, void *user,
                        tt_error *err);

/* Quantizes blocks of 32 elements to 34 bytes each: d = max|x|/127 as f16, then 32 × i8 x/d,
 * rounded to nearest with halves away from zero. Returns false if an element is not finite. */
#define TT_Q8_0_BLOCK 32
#define TT_Q8_0_BYTES 34
bool tt_q8_0(uint8_t *to, const float *x, size_t n_blocks);

typedef struct tt_gguf_tokenizer {
    const char *path;          /* the tokenizer's file or folder; NULL: it has none */
    const tt_tokenizer_vt *vt; /* NULL: it is not open, and of byte-level BPE */
    void *self;
    const tt_tokenizer_info *info; /* NULL: not known, so there are no bos, eos and pad */
} tt_gguf_tokenizer;
/* Adds the tokenizer as keys tokenizer.ggml.*, with `vocab` rows. Fails if llama.cpp would make other ids of texts. Without
 * a file, tokenizer.ggml.model is "no_vocab", and a line says so. *name: the general.name by which llama.cpp treats the
 * tokens as they are; NULL: any that has no "phi-3" and no "phi3". */
tt_status tt_gguf_vocab(tt_gguf *g, const tt_gguf_tokenizer *t, int64_t vocab, const char **name,
                        tt_error *err);

#endif
