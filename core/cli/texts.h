/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_TEXTS_H
#define TT_CLI_TEXTS_H
#include "cli/prompts.h"
#include "infer/generate.h"

/* Generated texts to stdout, in the order of their prompts: a single one as it comes, several each
 * when it and all before it are done; with --json an object a line. */

typedef struct tt_texts {
    const tt_cli *cli;
    const tt_prompts *prompts;
    const tt_sequence *s;
    size_t n, each;            /* sequences; how many a prompt */
    size_t printed;            /* sequences all printed */
    const tt_tokenizer_vt *vt; /* NULL: ids alone are known */
    void *tokenizer;
    tt_str pending; /* bytes of a character that is not whole yet */
    bool begun;     /* the single text's prompt is out */
} tt_texts;

void tt_texts_token(void *texts, size_t sequence, int32_t id);
void tt_texts_end(void *texts, size_t sequence);
void tt_texts_close(tt_texts *t); /* what is pending; texts that were cut off */

/* Bytes at the front of s that are whole characters, or can be part of none. */
size_t tt_texts_whole(const char *s, size_t n);

#endif
