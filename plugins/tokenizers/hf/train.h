/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_TRAIN_H
#define TT_TOKENIZER_HF_TRAIN_H
#include "hf.h"

/* Learning a tokenizer: count.c counts words, learn.c learns merges, train.c writes the files. */

typedef struct hf_word {
    const uint8_t *s;
    uint32_t n;
    int64_t count;
} hf_word;

typedef struct hf_counts { /* distinct words, sorted by their bytes, and how often each was seen */
    uint8_t *bytes;
    hf_word *words;
    size_t n;
} hf_counts;
void hf_counts_release(hf_counts *c);
tt_status hf_count_words(hf_tokenizer *t, const tt_tokenizer_train *o, hf_counts *out,
                         tt_error *err);

typedef struct hf_learnt {
    uint32_t *left, *right; /* [n_merges] */
    size_t n_merges, cap_merges;
    hf_vocab vocab; /* tokens, bytes, words; no merges */
} hf_learnt;
void hf_learnt_release(hf_learnt *l);
/* Merges pairs until there are o->vocab_size tokens. The first ids are o->special's, then the 256
 * bytes in the order of their alphabet, then the merged tokens. */
tt_status hf_learn(const hf_counts *words, const tt_tokenizer_train *o, hf_learnt *out,
                   tt_error *err);

#endif
