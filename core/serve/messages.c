/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <stdlib.h>
#include <string.h>

/* Makes a prompt of a chat's messages and tools by the model's chat template. */

/* A content that is a list of parts becomes the text of all: templates know texts. */
static tt_status write_content(const tt_json *v, tt_str *out, tt_error *err)
{
    tt_str text = {0};
    if (v->type != TT_JSON_ARRAY) {
        tt_json_write(v, out);
        return TT_OK;
    }
    for (size_t i = 0; i < v->n; i++) {
        const tt_json *type = tt_json_get(v->items[i], "type"),
                      *part = tt_json_get(v->items[i], "text");
        if (!type || type->type != TT_JSON_STRING || strcmp(type->string, "text") != 0 || !part ||
            part->type != TT_JSON_STRING) {
            tt_str_free(&text);
            return TT_FAIL(err, TT_EINVAL, "messages: a part of a content is no text");
        }
        tt_str_add(&text, part->string);
    }
    tt_str_json(out, tt_str_get(&text));
    tt_str_free(&text);
    return TT_OK;
}

/* Clients send the arguments of a call as a text of JSON; templates take the object that it is. */
static void write_arguments(const tt_json *v, tt_str *out)
{
    tt_arena *arena = tt_arena_new();
    const tt_json *o = v;
    tt_error ignored = {0};
    if (v->type == TT_JSON_STRING &&
        (tt_json_parse(arena, "arguments", v->string, strlen(v->string), &o, &ignored) != TT_OK ||
         o->type != TT_JSON_OBJECT))
        o = v;
    tt_json_write(o, out);
    tt_arena_free(arena);
}

/* A part of a message's tool_calls. */
static void write_calls(const tt_json *v, tt_str *out)
{
    const bool list = v->type == TT_JSON_ARRAY;
    if (!list && v->type != TT_JSON_OBJECT) {
        tt_json_write(v, out);
        return;
    }
    tt_str_addc(out, list ? '[' : '{');
    for (size_t i = 0; i < v->n; i++) {
        tt_str_add(out, i ? "," : "");
        if (!list) {
            tt_str_json(out, v->keys[i]);
            tt_str_addc(out, ':');
        }
        if (!list && !strcmp(v->keys[i], "arguments"))
            write_arguments(v->items[i], out);
        else
            write_calls(v->items[i], out);
    }
    tt_str_addc(out, list ? ']' : '}');
}

static tt_status write_messages(const tt_json *v, tt_str *out, tt_error *err)
{
    for (size_t i = 0; i < v->n; i++) {
        const tt_json *m = v->items[i];
        if (m->type != TT_JSON_OBJECT)
            return TT_FAIL(err, TT_EINVAL, "messages: element %zu is no message", i);
        tt_str_add(out, i ? ",{" : "[{");
        for (size_t k = 0; k < m->n; k++) {
            tt_str_add(out, k ? "," : "");
            tt_str_json(out, m->keys[k]);
            tt_str_addc(out, ':');
            if (!strcmp(m->keys[k], "content"))
                TT_TRY(write_content(m->items[k], out, err));
            else if (!strcmp(m->keys[k], "tool_calls"))
                write_calls(m->items[k], out);
            else
                tt_json_write(m->items[k], out);
        }
        tt_str_addc(out, '}');
    }
    tt_str_addc(out, ']');
    return TT_OK;
}

/* *out: the request's tools; NULL: it has none. */
static tt_status read_tools(const tt_json *body, const tt_json **out, tt_error *err)
{
    const tt_json *v = tt_api_member(body, "tools"), *choice = tt_api_member(body, "tool_choice");
    const char *how = choice && choice->type == TT_JSON_STRING ? choice->string : "";
    *out = NULL;
    if (choice && strcmp(how, "auto") != 0 && strcmp(how, "none") != 0)
        return TT_FAIL(err, TT_EINVAL, "tool_choice is not supported, but \"auto\" and \"none\"");
    if (v && v->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL, "tools is no list of tools");
    for (size_t i = 0; v && i < v->n; i++)
        if (v->items[i]->type != TT_JSON_OBJECT)
            return TT_FAIL(err, TT_EINVAL, "tools: element %zu is no object", i);
    if (v && v->n && strcmp(how, "none") != 0)
        *out = v;
    return TT_OK;
}

/* The template's variables: chat_template_kwargs, and the tools unless they are NULL. */
static tt_status write_variables(const tt_json *body, const tt_json *tools, tt_str *out,
                                 tt_error *err)
{
    const tt_json *more = tt_api_member(body, "chat_template_kwargs");
    if (more && more->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "chat_template_kwargs is no object");
    tt_str_addc(out, '{');
    for (size_t i = 0; more && i < more->n; i++) {
        tt_str_add(out, i ? "," : "");
        tt_str_json(out, more->keys[i]);
        tt_str_addc(out, ':');
        tt_json_write(more->items[i], out);
    }
    if (tools) {
        tt_str_add(out, out->n > 1 ? ",\"tools\":" : "\"tools\":");
        tt_json_write(tools, out);
    }
    tt_str_addc(out, '}');
    return TT_OK;
}

/* Fails if the template makes the same text with other variables, those without the tools: the model would not see
 * them. */
static tt_status check_tools(const tt_chat_template *t, const tt_conversation *c,
                             const char *variables, tt_error *err)
{
    tt_conversation without = *c;
    char *text[2] = {NULL, NULL};
    uint8_t *origins[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    without.variables = variables;
    tt_status s = tt_chat_render(t, c, &text[0], &origins[0], &n[0], err);
    if (s == TT_OK)
        s = tt_chat_render(t, &without, &text[1], &origins[1], &n[1], err);
    if (s == TT_OK && n[0] == n[1] && !memcmp(text[0], text[1], n[0]))
        s = TT_FAIL(err, TT_EINVAL, "tools: the model's chat template does not use them");
    for (int i = 0; i < 2; i++) {
        free(text[i]);
        free(origins[i]);
    }
    return s;
}

typedef struct chat_text { /* JSON of a conversation, as the template takes it */
    tt_str messages, variables, without_tools;
} chat_text;

static tt_status encode_messages(const tt_api *a, const tt_json *list, const tt_json *body,
                                 chat_text *x, tt_chat_tokens *out, const tt_json **tools,
                                 tt_error *err)
{
    TT_TRY(write_messages(list, &x->messages, err));
    TT_TRY(read_tools(body, tools, err));
    TT_TRY(write_variables(body, *tools, &x->variables, err));
    TT_TRY(write_variables(body, NULL, &x->without_tools, err));
    const tt_conversation c = {.struct_size = sizeof c,
                               .messages = tt_str_get(&x->messages),
                               .n_messages = x->messages.n,
                               .variables = tt_str_get(&x->variables),
                               .add_generation_prompt = 1,
                               .now = tt_wall_seconds()};
    if (*tools)
        TT_TRY(check_tools(a->o.template, &c, tt_str_get(&x->without_tools), err));
    return tt_chat_encode(a->o.template, &c, a->o.vt, a->o.tokenizer, out, err);
}

tt_status tt_api_read_messages(const tt_api *a, const tt_json *body, tt_ids *out,
                               const tt_json **tools, tt_error *err)
{
    const tt_json *v = tt_api_member(body, "messages");
    tt_chat_tokens t = {0};
    chat_text x = {{0}, {0}, {0}};
    if (!a->o.template || !a->o.vt)
        return TT_FAIL(err, TT_EINVAL,
                       "the model has no chat template: start ttrun serve with --template");
    if (!v || v->type != TT_JSON_ARRAY || !v->n)
        return TT_FAIL(err, TT_EINVAL, "messages is no list of messages");
    tt_status s = encode_messages(a, v, body, &x, &t, tools, err);
    for (size_t i = 0; s == TT_OK && i < t.n; i++)
        s = tt_ids_push(out, t.ids[i], err);
    tt_chat_tokens_free(&t);
    tt_str_free(&x.messages);
    tt_str_free(&x.variables);
    tt_str_free(&x.without_tools);
    return s;
}
