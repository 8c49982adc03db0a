/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_HF_CONTEXT_H
#define TT_INTERCHANGE_HF_CONTEXT_H
#include "setup/setup.h"

/* How many tokens a text of the model of a Hugging Face config.json may have. */

/* max_position_embeddings, or the name that the family has for it; 0: config (tt_hf_text_config) does not say. */
int64_t tt_hf_positions(const tt_json *config);
/* The same with RoPE scaling; 0: not known. RoPE scaling of type
 *   linear, dynamic   multiplies them by factor, but for gemma3, whose max_position_embeddings has it already
 *   yarn              gives original_max_position_embeddings times factor
 *   llama3            is in max_position_embeddings already
 *   longrope          begins behind original_max_position_embeddings, with other numbers also for what is before: that is
 *                     the most tokens of texts whose numbers do not depend on what else the program could hold */
int64_t tt_hf_context(const tt_json *config);
/* That of FOLDER/config.json; 0: not known. */
tt_status tt_hf_context_of(const char *folder, tt_arena *a, int64_t *out, tt_error *err);

#endif
