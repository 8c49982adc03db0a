/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHAT_H
#define TT_CHAT_H
#include "chat/jinja.h"
#include <ttrun/chat.h>

struct tt_chat_template {
    tt_arena *arena;
    const char *name;
    const tt_jnode *tree;
    tt_jvalue *constants; /* a dict: bos_token, eos_token, … */
};

/* A text of the template, and what the loss counts. */
typedef struct tt_chat_text {
    tt_jtext text;
    uint8_t *learned; /* [n] of an assistant's turn */
} tt_chat_text;

/* render.c: renders a conversation and finds the turns. special: tells whether a special token begins at a byte of
 * a text, and its length; NULL: none is known. */
typedef size_t (*tt_chat_special_fn)(const void *user, const char *s, size_t n);
tt_status tt_chat_turns(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                        tt_chat_special_fn special, const void *user, tt_chat_text *out,
                        tt_error *err);

#endif
