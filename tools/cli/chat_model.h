/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_CHAT_MODEL_H
#define TT_CLI_CHAT_MODEL_H
#include "cli/from_checkpoint.h"
#include <ttrun/chat.h>

/* A model with what talking to it needs: tokenizer, chat template, and what ends texts and answers. */

typedef struct tt_chat_model {
    tt_loaded_model model;
    tt_chat_template *template; /* NULL: it has none */
    const char *template_text;  /* NULL: not known */
    tt_ids text_stops; /* ids that end a text: the model's own list, or the tokenizer's eos */
    tt_ids stops; /* … and an answer: also what the template puts behind an assistant's turn */
} tt_chat_model;

/* Opens --checkpoint, its tokenizer and its template or --template. talks: both must be there; else what is missing
 * stays NULL, but a --template that is given must open. tt_chat_model_close() must be called whatever this returns. */
tt_status tt_chat_model_open(const tt_cli *cli, bool talks, tt_chat_model *out, tt_error *err);
void tt_chat_model_close(tt_chat_model *m);
const tt_tokenizer_vt *tt_chat_model_tokenizer(const tt_chat_model *m);

#endif
