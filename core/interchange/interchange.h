/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_INTERCHANGE_H
#define TT_INTERCHANGE_H
#include "checkpoint/formats/gguf.h"
#include "checkpoint/formats/hf.h"
#include "setup/setup.h"

/* core/interchange: a model to and from other programs' folders, by the names its plugin gives. */

/* What the graph's parameters are in files, and the folder of the tokenizer's (NULL: the job names
 * none). */
tt_hf_param *tt_setup_hf_params(const tt_setup *s, tt_arena *a, size_t *n);
const char *tt_setup_assets(const tt_setup *s, tt_arena *a);
/* The weights of a step folder as a Hugging Face folder, config.json and tokenizer with them;
 * replaces what is in `folder`. tokenizer: NULL = none. */
tt_status tt_setup_write_hf(const tt_setup *s, const tt_tokenizer_info *tokenizer,
                            const char *step_folder, const char *folder, tt_error *err);
/* gguf.c: the same as a GGUF file, matrices in `type`. */
tt_status tt_setup_write_gguf(const tt_setup *s, const tt_tokenizer_info *tokenizer,
                              const char *step_folder, tt_gguf_type type, const char *path,
                              tt_error *err);
/* Pieces of parameters from a Hugging Face folder; report: log the tensors there that are not
 * used. */
tt_status tt_setup_load_hf(const tt_setup *s, const char *folder, const tt_ckpt_piece *pieces,
                           size_t n, bool report, tt_error *err);

#endif
