/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONFIG_RESERVED_H
#define TT_CONFIG_RESERVED_H
#include "base/base.h"

/* Names of other trainers (torchtitan of 2025 and of today, Hugging Face's Trainer, Megatron-LM,
 * nanoGPT, nanochat, llm.c) that are no keys of ttrun, with an answer for each: the "keys" of
 * share/dialects. A key that ttrun has always wins: the table is asked only about unknown ones, aliases
 * apart. */

typedef enum tt_reserved_kind {
    TT_RESERVED_MOVED,  /* an error; text: ttrun's key with this meaning */
    TT_RESERVED_SAME,   /* an error; text: "training.steps (Hugging Face's name)" */
    TT_RESERVED_ANSWER, /* an error; text: the answer */
    TT_RESERVED_ALIAS,  /* accepted with a notice; text: ttrun's key, which gets the value */
    TT_RESERVED_IDLE,   /* accepted with a notice, because ttrun does without; text: why */
} tt_reserved_kind;

typedef struct tt_reserved {
    const char *key; /* "training.gc_freq"; "compile.*": any key of that section */
    tt_reserved_kind kind;
    const char *text;
    const char *values;    /* IDLE: the values that are accepted, "false|null"; NULL = all */
    const char *otherwise; /* IDLE with values: the answer to any other value */
} tt_reserved;

/* The row of a key or, if it has none, of its whole section; NULL = nobody's name. [any-thread] */
const tt_reserved *tt_reserved_find(const char *key);
/* What an error says about a row. Owner: the arena. */
const char *tt_reserved_answer(tt_arena *a, const tt_reserved *r);
const tt_reserved *tt_reserved_table(size_t *n); /* sorted by key */

#endif
