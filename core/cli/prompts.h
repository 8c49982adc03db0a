/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_PROMPTS_H
#define TT_CLI_PROMPTS_H
#include "cli/cli.h"
#include <ttrun/tokenizer.h>

/* What generate goes on from: --prompt TEXT, again and again, then --prompts FILE. */

typedef struct tt_prompt {
    const char *text; /* NULL: ids as given */
    size_t n_bytes;
    tt_ids ids;
} tt_prompt;

typedef struct tt_prompts {
    tt_prompt *items;
    size_t n;
    bool text; /* one of them is text: a tokenizer is needed */
} tt_prompts;

/* FILE: a prompt a line; in a .jsonl file an object a line, {"prompt": "text"} or {"ids": [1, 2]}.
 * None given: a newline. */
tt_status tt_prompts_read(const tt_cli *cli, tt_prompts *out, tt_error *err);
/* Texts to ids; bos < 0: none before them. */
tt_status tt_prompts_encode(tt_prompts *p, const tt_tokenizer_vt *vt, void *tokenizer, int32_t bos,
                            tt_error *err);
void tt_prompts_free(tt_prompts *p);

#endif
