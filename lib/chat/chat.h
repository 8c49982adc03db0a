/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHAT_H
#define TT_CHAT_H
#include "chat/jinja.h"
#include "config/config.h"
#include <ttrun/chat.h>

/* What a template is given of a message that has calls of tools and no content. */
typedef enum tt_chat_missing {
    TT_CHAT_ABSENT, /* no key */
    TT_CHAT_NONE,
    TT_CHAT_EMPTY, /* "" */
} tt_chat_missing;

/* A template and how it takes what conversations have in several forms (form.c). */
typedef struct tt_chat_form {
    const char *name;     /* in messages */
    const tt_jnode *tree; /* NULL: there is no such template */
    bool lists; /* it goes over the parts of a content that is a list; else it takes texts */
    bool text_arguments; /* it prints the arguments of a call as they are: they stay JSON text */
    tt_chat_missing missing;
} tt_chat_form;

/* The text of a template as its file has it. */
typedef struct tt_chat_source {
    const char *name, *text; /* text: NULL is none */
    size_t n;
} tt_chat_source;

struct tt_chat_template {
    tt_arena *arena;
    const char *name;
    tt_chat_form form;
    tt_chat_form with_tools; /* the template named tool_use, where there are tools */
    tt_jvalue *constants;    /* a dict: bos_token, eos_token, … */
};

/* A conversation as JSON that is read. */
typedef struct tt_chat_json {
    const tt_json *messages;
    const tt_json *variables; /* an object, or NULL */
    const tt_json *tools;     /* that go before those of the variables; NULL: there are none */
    /* bos_token, eos_token, …, in place of those that the template's folder has; NULL: none */
    const tt_jvalue *tokens;
} tt_chat_json;

/* A text of the template, and what the loss counts. */
typedef struct tt_chat_text {
    tt_jtext text;
    uint8_t *learned; /* [n] of an assistant's turn */
    bool
        open_end; /* the last turn is learned and has no special token behind it, in a template without {% generation %} */
} tt_chat_text;

/* open.c: the texts of the template that tt_chat_template_open(path) opens, whether or not they can be parsed. tools: of
 * the one for conversations with tools, without a text if there is none. */
tt_status tt_chat_template_sources(tt_arena *a, const char *path, tt_chat_source *plain,
                                   tt_chat_source *tools, tt_error *err);
/* Whether a path means the template that is built in, "chatml", and no file. */
bool tt_chat_template_is_built_in(const char *path);
/* encode.c: the special token that the template puts behind an assistant's turn, the last one of a conversation or one
 * before a user's; -1: none. */
int32_t tt_chat_turn_end(const tt_chat_template *t, const tt_tokenizer_vt *vt, void *tokenizer,
                         bool last);

/* form.c: sets lists and text_arguments of a form whose tree is there. */
void tt_chat_find_form(tt_chat_form *f, const tt_jvalue *constants);

/* messages.c: the one normalisation of conversations, for training and serving. JSON as a value whose texts have a
 * tag. */
tt_jvalue *tt_chat_value(tt_arena *a, const tt_json *j, tt_tag tag);
/* The messages as a template takes them, a list of mappings; message i has the tag i + 1. textless: see
 * tt_conversation. */
tt_status tt_chat_messages(tt_arena *a, const tt_chat_form *f, const tt_json *list,
                           int64_t *textless, tt_jvalue **out, tt_error *err);
/* The template's variables, but messages and add_generation_prompt; tools and documents are none where there are none. */
tt_jvalue *tt_chat_variables(tt_arena *a, const tt_jvalue *constants, const tt_chat_json *j);
const tt_chat_form *tt_chat_form_for(const tt_chat_template *t, const tt_chat_json *j);

/* render.c: renders a conversation and finds the turns. special: tells whether a special token begins at a byte of
 * a text, and its length; NULL: none is known. */
typedef size_t (*tt_chat_special_fn)(const void *user, const char *s, size_t n);
tt_status tt_chat_turns(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                        const tt_chat_json *j, tt_chat_special_fn special, const void *user,
                        tt_chat_text *out, tt_error *err);
/* The JSON of a conversation's texts. */
tt_status tt_chat_read(tt_arena *a, const tt_conversation *c, tt_chat_json *out, tt_error *err);
/* As tt_chat_encode and tt_chat_render, of JSON that is read: those texts of c are not looked at. */
tt_status tt_chat_encode_json(const tt_chat_template *t, const tt_conversation *c,
                              const tt_chat_json *j, const tt_tokenizer_vt *vt, void *tokenizer,
                              tt_chat_tokens *out, tt_error *err);
tt_status tt_chat_render_json(const tt_chat_template *t, const tt_conversation *c,
                              const tt_chat_json *j, char **text, uint8_t **origins, size_t *n,
                              tt_error *err);

#endif
