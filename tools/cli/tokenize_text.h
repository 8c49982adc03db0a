/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_TOKENIZE_TEXT_H
#define TT_CLI_TOKENIZE_TEXT_H
#include "base/base.h"
#include <ttrun/tokenizer.h>

/* Prints the token ids of a text. It uses all cores, with the same result as on one. */

typedef struct tt_tokenize_opts {
    const tt_tokenizer_vt *vt;
    void *self;
    bool lines;    /* every line is a document and gives a line of ids; else the text is one */
    bool bos, eos; /* put around every document, if the tokenizer has them */

    int threads;
} tt_tokenize_opts;

/* put: called in order with pieces of the output. */
tt_status tt_tokenize_text(const tt_tokenize_opts *o, const char *text, size_t n,
                           void (*put)(const tt_str *piece), tt_error *err);

#endif
