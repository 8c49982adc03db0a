/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HF_SOURCES_H
#define TT_HF_SOURCES_H

/* The hf tokenizer as one translation unit, for tests of its internals. */
#include "../../plugins/tokenizers/hf/added.c"
#include "../../plugins/tokenizers/hf/bpe.c"
#include "../../plugins/tokenizers/hf/bpe_long.c"
#include "../../plugins/tokenizers/hf/count.c"
#include "../../plugins/tokenizers/hf/family.c"
#include "../../plugins/tokenizers/hf/hf.c"
#include "../../plugins/tokenizers/hf/learn.c"
#include "../../plugins/tokenizers/hf/load.c"
#include "../../plugins/tokenizers/hf/load_json.c"
#include "../../plugins/tokenizers/hf/load_model.c"
#include "../../plugins/tokenizers/hf/load_splits.c"
#include "../../plugins/tokenizers/hf/load_tiktoken.c"
#include "../../plugins/tokenizers/hf/regex.c"
#include "../../plugins/tokenizers/hf/scan.c"
#include "../../plugins/tokenizers/hf/train.c"
#include "../../plugins/tokenizers/hf/unicode.c"
#include "../../plugins/tokenizers/hf/unicode_table.c"
#include "../../plugins/tokenizers/hf/vocab.c"

#endif
