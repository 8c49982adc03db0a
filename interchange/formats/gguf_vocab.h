/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FORMATS_GGUF_VOCAB_H
#define TT_FORMATS_GGUF_VOCAB_H
#include "config/config.h"
#include "interchange/formats/gguf.h"

/* Shared by gguf_vocab.c, gguf_pre.c and gguf_pieces.c: the tokenizer's keys. */

typedef struct tt_gguf_tokens { /* one of each for every row of the model's embedding */
    const char **texts;
    int32_t *kinds; /* tt_piece_kind */
    float *scores;
    int64_t n;
} tt_gguf_tokens;
/* Makes n tokens that nothing uses. */
tt_gguf_tokens tt_gguf_tokens_new(tt_arena *a, int64_t n);

/* A text, or "" if v is none. */
const char *tt_gguf_text(const tt_json *v);

/* gguf_pre.c: llama.cpp's name of a pre_tokenizer; NULL: it has none. whole: model.ignore_merges. */
const char *tt_gguf_pre(const tt_json *pre_tokenizer, bool whole);
void tt_gguf_pre_names(tt_str *out); /* all of them, for a message */
/* gguf_pieces.c: writes the tokens of a tokenizer that is SentencePiece's BPE or Unigram. */
tt_status tt_gguf_pieces(tt_gguf *g, const tt_gguf_tokenizer *t, const tt_pieces *form,
                         int64_t n_vocab, tt_error *err);

#endif
