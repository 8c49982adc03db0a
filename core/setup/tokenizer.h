/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_TOKENIZER_H
#define TT_SETUP_TOKENIZER_H
#include "setup/setup.h"

/* The tokenizer of a setup. */

/* The file of a folder that is a tokenizer; NULL: there is none. */
const char *tt_tokenizer_in(tt_arena *a, const char *folder);
/* Takes from model.hf_assets_path the tokenizer that the job does not set. */
tt_status tt_setup_tokenizer_part(tt_setup *s, tt_error *err);
void tt_setup_note_tokenizer(const tt_setup *s); /* warns if the tokenizer is not the folder's */
/* The file or folder that the job names for it; NULL: none. */
const char *tt_tokenizer_path(const tt_setup *s);
/* Opens it. Close it with its table. */
tt_status tt_setup_tokenizer(const tt_setup *s, void **self, tt_tokenizer_info *info,
                             tt_error *err);

#endif
