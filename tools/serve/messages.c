/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"
#include "serve/api_impl.h"
#include <stdlib.h>
#include <string.h>

/* Makes a prompt of a chat's messages and tools by the model's chat template, which gets them as in training
 * (lib/chat/messages.c). */

/* *out: the request's tools; NULL: it has none. */
static tt_status read_tools(const tt_json *body, const tt_json **out, tt_error *err)
{
    const tt_json *v = tt_api_member(body, "tools"), *choice = tt_api_member(body, "tool_choice");
    const char *how = choice && choice->type == TT_JSON_STRING ? choice->string : "";
    *out = NULL;
    if (choice && strcmp(how, "auto") != 0 && strcmp(how, "none") != 0)
        return TT_FAIL(err, TT_EINVAL, "tool_choice is not supported, but \"auto\" and \"none\"");
    if (v && v->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL, "tools must be a list of tools");
    for (size_t i = 0; v && i < v->n; i++)
        if (v->items[i]->type != TT_JSON_OBJECT)
            return TT_FAIL(err, TT_EINVAL, "tools: element %zu must be an object", i);
    if (v && v->n && strcmp(how, "none") != 0)
        *out = v;
    return TT_OK;
}

/* Fails if the template makes the same text without the tools: the model would not see them. */
static tt_status check_tools(const tt_chat_template *t, const tt_conversation *c,
                             const tt_chat_json *j, tt_error *err)
{
    const tt_chat_json without = {.messages = j->messages, .variables = j->variables};
    char *text[2] = {NULL, NULL};
    uint8_t *origins[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    tt_status s = tt_chat_render_json(t, c, j, &text[0], &origins[0], &n[0], err);
    if (s == TT_OK)
        s = tt_chat_render_json(t, c, &without, &text[1], &origins[1], &n[1], err);
    if (s == TT_OK && n[0] == n[1] && !memcmp(text[0], text[1], n[0]))
        s = TT_FAIL(err, TT_EINVAL, "tools: the model's chat template does not use them");
    for (int i = 0; i < 2; i++) {
        free(text[i]);
        free(origins[i]);
    }
    return s;
}

/* A text that is longer than the context can be is not tokenized. */
static tt_status check_length(tt_api *a, const tt_conversation *c, const tt_chat_json *j,
                              tt_error *err)
{
    char *text = NULL;
    uint8_t *origins = NULL;
    size_t n = 0;
    tt_status s = tt_chat_render_json(a->o.template, c, j, &text, &origins, &n, err);
    if (s == TT_OK)
        s = tt_api_check_bytes(a, "messages", n, err);
    free(text);
    free(origins);
    return s;
}

static tt_status encode_messages(tt_api *a, const tt_json *body, size_t n_bytes,
                                 tt_chat_tokens *out, const tt_json **tools, tt_error *err)
{
    tt_chat_json j = {.messages = tt_api_member(body, "messages"),
                      .variables = tt_api_member(body, "chat_template_kwargs")};
    bool answers = true;
    TT_TRY(tt_api_bool(body, "add_generation_prompt", &answers, err));
    const tt_conversation c = {
        .struct_size = sizeof c, .add_generation_prompt = answers, .now = tt_wall_seconds()};
    if (!j.messages || j.messages->type != TT_JSON_ARRAY || !j.messages->n)
        return TT_FAIL(err, TT_EINVAL, "messages must be a list with a message or more");
    if (j.variables && j.variables->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "chat_template_kwargs must be an object");
    TT_TRY(read_tools(body, tools, err));
    j.tools = *tools;
    if (n_bytes > tt_api_most_bytes(a))
        TT_TRY(check_length(a, &c, &j, err));
    if (*tools)
        TT_TRY(check_tools(a->o.template, &c, &j, err));
    return tt_chat_encode_json(a->o.template, &c, &j, a->o.vt, a->o.tokenizer, out, err);
}

tt_status tt_api_read_messages(tt_api *a, tt_arena *arena, const tt_json *body, size_t n_bytes,
                               tt_ids *out, const tt_map **tools, tt_error *err)
{
    tt_chat_tokens t = {0};
    const tt_json *seen = NULL;
    if (!a->o.template || !a->o.vt)
        return TT_FAIL(err, TT_EINVAL,
                       "the model has no chat template: start ttrun serve with --template");
    tt_status s = encode_messages(a, body, n_bytes, &t, &seen, err);
    for (size_t i = 0; s == TT_OK && i < t.n; i++)
        s = tt_ids_push(out, t.ids[i], err);
    *tools = seen ? tt_tools_names(arena, seen) : NULL;
    tt_chat_tokens_free(&t);
    return s;
}
