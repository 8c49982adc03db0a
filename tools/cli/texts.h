/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_TEXTS_H
#define TT_CLI_TEXTS_H
#include "cli/prompts.h"
#include "infer/decoder.h"
#include "infer/generate.h"

/* Prints generated texts in the order of their prompts. A single text is printed token by token; of
 * several, each is printed when it and all before it are done. With --json, one object per line. */

typedef struct tt_texts {
    const tt_cli *cli;
    const tt_prompts *prompts;
    const tt_sequence *s;
    size_t n, each;     /* number of sequences; sequences per prompt */
    size_t printed;     /* sequences that are printed completely */
    tt_decoder decoder; /* at the beginning of a text; its vt NULL: only the ids are known */
    tt_decoder single;  /* of the single text */
    tt_str pending;     /* bytes of a character that is not complete yet */
    bool begun;         /* the prompt of the single text is printed */
} tt_texts;

void tt_texts_token(void *texts, size_t sequence, int32_t id);
void tt_texts_end(void *texts, size_t sequence);
void tt_texts_close(tt_texts *t); /* prints pending bytes, and texts that were interrupted */

#endif
