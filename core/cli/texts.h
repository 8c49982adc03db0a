/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_TEXTS_H
#define TT_CLI_TEXTS_H
#include "cli/prompts.h"
#include "infer/generate.h"

/* Prints generated texts in the order of their prompts. A single text is printed token by token; of
 * several, each is printed when it and all before it are done. With --json, one object per line. */

typedef struct tt_texts {
    const tt_cli *cli;
    const tt_prompts *prompts;
    const tt_sequence *s;
    size_t n, each;            /* number of sequences; sequences per prompt */
    size_t printed;            /* sequences that are printed completely */
    const tt_tokenizer_vt *vt; /* NULL: only the ids are known */
    void *tokenizer;
    bool trims_begin; /* tt_tokenizer_info's */
    tt_str pending;   /* bytes of a character that is not complete yet */
    bool begun;       /* the prompt of the single text is printed */
    bool first;       /* the text in progress has decoded to nothing yet */
} tt_texts;

void tt_texts_token(void *texts, size_t sequence, int32_t id);
void tt_texts_end(void *texts, size_t sequence);
void tt_texts_close(tt_texts *t); /* prints pending bytes, and texts that were interrupted */

#endif
