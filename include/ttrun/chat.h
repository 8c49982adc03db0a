/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_CHAT_H
#define TTRUN_CHAT_H
#include <ttrun/tokenizer.h>

/* Conversations as tokens. A chat template (transformers' chat_template.jinja, or the key chat_template of
 * tokenizer_config.json) makes a text of a list of messages; each byte of it is known to be the template's or a
 * message's. Hence special tokens count only where the template has them, never in what somebody wrote, and
 * what an assistant's turn is needs no {% generation %} in the template. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_chat_template tt_chat_template;
/* Opens a template: path is a file of Jinja, a tokenizer_config.json, or a folder (or a tokenizer.json in one)
 * that has chat_template.jinja or tokenizer_config.json; or "chatml", which is built in. The texts of bos_token, eos_token, … come from the
 * tokenizer_config.json beside it; tt_chat_encode takes those of its tokenizer first. If a folder has several templates, the one
 * named tool_use is taken for conversations with tools.
 *   Errors: TT_ENOTFOUND: there is no template; TT_EINVAL: a fault in it, by file and line.
 *   Owner: the caller, by tt_chat_template_close.   [setup] */
TT_EXPORT tt_status tt_chat_template_open(const char *path, tt_chat_template **out, tt_error *err);
/* The same; beside a file of Jinja without a tokenizer_config.json, those texts come from that of the tokenizer:
 * its file or folder, or NULL. */
TT_EXPORT tt_status tt_chat_template_open_for(const char *path, const char *tokenizer,
                                              tt_chat_template **out, tt_error *err);
/* The same of a text; name: in messages; bos and eos may be NULL. */
TT_EXPORT tt_status tt_chat_template_text(const char *name, const char *text, size_t n,
                                          const char *bos, const char *eos, tt_chat_template **out,
                                          tt_error *err);
TT_EXPORT void tt_chat_template_close(tt_chat_template *t); /* NULL is fine */

typedef enum tt_chat_loss {
    TT_CHAT_ASSISTANT = 0, /* every turn of the assistant */
    TT_CHAT_LAST = 1,      /* the last one */
    TT_CHAT_ALL = 2        /* every token */
} tt_chat_loss;

typedef struct tt_conversation {
    size_t struct_size;
    /* JSON: [{"role": …, "content": …}, …]. What a template gets of it is the same for training and serving: without keys
     * whose value is null and without empty tool_calls; arguments of calls as objects, also where they are JSON in a
     * text, unless the template prints them as they are; a content of parts as a list for a template that goes over
     * it, as the text of all for others; reasoning_content, thinking and reasoning are one. An assistant's turn with
     * "weight": 0 or "train": false is not learned. */
    const char *messages;
    size_t n_messages; /* bytes */
    const char
        *variables; /* JSON object of more variables of the template, such as tools; NULL: none */
    int add_generation_prompt;
    tt_chat_loss loss_on;
    double now; /* unix time, of strftime_now; 0: this moment */
    /* With ASSISTANT or LAST: turns before the message of this number (from 0) are not learned. */
    int64_t learned_from;
    /* Gets the number of parts of contents that have no text, such as images, added; NULL: one is an error. */
    int64_t *textless;
} tt_conversation;

/* Where a token's text comes from. */
typedef enum tt_chat_origin {
    TT_CHAT_TEMPLATE = 0,
    TT_CHAT_INPUT = 1,    /* at least one byte is of a message */
    TT_CHAT_GENERATED = 2 /* of an assistant's turn: the loss counts it */
} tt_chat_origin;

typedef struct tt_chat_tokens { /* zero at first; by tt_chat_tokens_free */
    int32_t *ids;
    uint8_t *origins; /* tt_chat_origin */
    size_t n, cap;
} tt_chat_tokens;
/* Renders a conversation and appends its ids. The template has bos and eos where it wants them; where it has no special
 * token behind the last turn of an assistant, and that is learned, the tokenizer's eos follows as its last token.
 *   Errors: the template's own (raise_exception), a fault of the messages, the tokenizer's; a turn that no token
 *   could end.  [any-thread] */
TT_EXPORT tt_status tt_chat_encode(const tt_chat_template *t, const tt_conversation *c,
                                   const tt_tokenizer_vt *vt, void *tokenizer, tt_chat_tokens *out,
                                   tt_error *err);
TT_EXPORT void tt_chat_tokens_free(tt_chat_tokens *t);
/* The text and the origin of each byte, both from malloc; for tests and for who shows it. [any-thread] */
TT_EXPORT tt_status tt_chat_render(const tt_chat_template *t, const tt_conversation *c, char **text,
                                   uint8_t **origins, size_t *n, tt_error *err);

#ifdef __cplusplus
}
#endif
#endif
