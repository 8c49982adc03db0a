/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_PROMPTS_H
#define TT_CLI_PROMPTS_H
#include "cli/cli.h"
#include <ttrun/tokenizer.h>

/* The prompts of generate: every --prompt TEXT, then those of --prompts FILE. */

typedef struct tt_prompt {
    const char *text; /* NULL: the prompt was given as ids */
    size_t n_bytes;
    tt_ids ids;
} tt_prompt;

typedef struct tt_prompts {
    tt_prompt *items;
    size_t n;
    bool text; /* some prompt is text, so a tokenizer is needed */
} tt_prompts;

/* FILE has one prompt per line; a .jsonl file one object per line, {"prompt": "text"} or
 * {"ids": [1, 2]}. If no prompt is given, it is a newline. */
tt_status tt_prompts_read(const tt_cli *cli, tt_prompts *out, tt_error *err);
/* Encodes the texts, each with what begins one; info: the tokenizer's. */
tt_status tt_prompts_encode(tt_prompts *p, const tt_tokenizer_vt *vt, void *tokenizer,
                            const tt_tokenizer_info *info, tt_error *err);
void tt_prompts_free(tt_prompts *p);

#endif
