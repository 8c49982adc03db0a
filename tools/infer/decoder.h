/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INFER_DECODER_H
#define TT_INFER_DECODER_H
#include "base/base.h"
#include <ttrun/tokenizer.h>

/* Turns the ids of a text into its bytes, one after the other. Many tokenizers put a blank before a text and drop it when
 * they decode, so what an id decodes to depends on whether the text before it has a byte: the answer to a prompt has to be
 * decoded behind the prompt. Then the prompt's bytes and the answer's are those of all ids together. For one thread. */

typedef struct tt_decoder {
    const tt_tokenizer_vt *vt; /* NULL: ids have no text */
    void *tokenizer;
    int64_t vocab;    /* ids from here on have no text */
    bool trims_begin; /* tt_tokenizer_info's */
    bool begun;       /* the text has a byte, or its first blank has been dropped */
} tt_decoder;

/* A decoder at the beginning of a text; info: vt's. It owns nothing. */
tt_decoder tt_decoder_of(const tt_tokenizer_vt *vt, void *tokenizer, const tt_tokenizer_info *info);
/* Goes past the n ids of a prompt. */
void tt_decoder_pass(tt_decoder *d, const int32_t *ids, size_t n);
/* Appends the bytes of the id that comes next; nothing for a special one. */
void tt_decoder_add(tt_decoder *d, int32_t id, tt_str *out);
/* The same for an id that might come next: the decoder stays where it is. */
void tt_decoder_show(const tt_decoder *d, int32_t id, tt_str *out);

#endif
