/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TOKENIZER_HF_SENTENCEPIECE_H
#define TT_TOKENIZER_HF_SENTENCEPIECE_H
#include "load.h"

/* What tokenizer.model of sentencepiece says (sentencepiece.c). Texts lie in the file's bytes. */

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum model_type { UNIGRAM = 1, BPE };
#define MOST_PIECES ((size_t)1 << 22)

typedef struct sp_piece {
    const uint8_t *s;
    size_t n;
    float score;
    unsigned type;
} sp_piece;

typedef struct sp_text {
    const uint8_t *s;
    size_t n;
} sp_text;

typedef struct sp_model {
    sp_piece *pieces;     /* the caller of hf_read_sentencepiece frees them */
    size_t n, cap, n_ids; /* n_ids: added tokens included */
    uint64_t model_type;
    bool byte_fallback, suffix, dummy_prefix, trim_blanks, escape, denormalizer;
    bool first_only; /* the dummy prefix is put before the text, not after an added token too */
    sp_text charsmap, unk_surface, bos, eos, pad;
} sp_model;

tt_status hf_read_sentencepiece(sp_model *sp, const hf_file *f, const char *text, size_t n);

#endif
