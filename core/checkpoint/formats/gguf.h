/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECKPOINT_GGUF_H
#define TT_CHECKPOINT_GGUF_H
#include "base/base.h"
#include <ttrun/tensor.h>

/* Writing GGUF, version 3: what llama.cpp loads. Keys, then tensors, in the order they were added;
 * tensor data is made while it is written, one tensor at a time. Source: ggml docs/gguf.md. */

/* ggml's numbers */
typedef enum tt_gguf_type {
    TT_GGUF_F32 = 0,
    TT_GGUF_F16 = 1,
    TT_GGUF_Q8_0 = 8,
    TT_GGUF_BF16 = 30
} tt_gguf_type;

typedef struct tt_gguf_tensor {
    const char *name;
    int n_dims;
    int64_t shape[TT_MAX_DIMS]; /* as everywhere here, the last dim contiguous */
    tt_gguf_type type;
    void *user; /* the caller's */
} tt_gguf_tensor;

typedef struct tt_gguf { /* zero-filled, arena set */
    tt_arena *arena;
    tt_str keys; /* bytes */
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
/* A name llama.cpp has no room for, a dim below 1, or Q8_0 rows that are no multiple of 32 are
 * errors. */
tt_status tt_gguf_add(tt_gguf *g, const tt_gguf_tensor *t, tt_error *err);

/* Elements [begin, begin + n) of a tensor, whole rows. */
typedef tt_status (*tt_gguf_fill)(void *user, const tt_gguf_tensor *t, int64_t begin, int64_t n,
                                  float *out, tt_error *err);
/* path appears whole or not at all. */
tt_status tt_gguf_write(const tt_gguf *g, const char *path, tt_gguf_fill fill, void *user,
                        tt_error *err);

/* Blocks of 32: f16 d = max|x|/127, then 32 × i8 x/d to the nearest, halves away from zero; 34
 * bytes. false: an element is not finite. */
#define TT_Q8_0_BLOCK 32
#define TT_Q8_0_BYTES 34
bool tt_q8_0(uint8_t *to, const float *x, size_t n_blocks);

/* The tokenizer of a Hugging Face folder as tokenizer.ggml.*, vocab rows of it; bos, eos, pad -1:
 * none. No tokenizer.json there: "no_vocab". */
tt_status tt_gguf_vocab(tt_gguf *g, const char *folder, int64_t vocab, int32_t bos, int32_t eos,
                        int32_t pad, tt_error *err);

#endif
