/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"
#include <string.h>

/* Conversations as chat templates take them, for training and serving alike:
 *   - a key whose value is null is absent, and so is `tool_calls: []` (transformers drops null keys), but for templates
 *     that know a call of a tool by its content that is none (where transformers fails);
 *   - reasoning_content, thinking and reasoning are one: the first that is there is reasoning_content, and thinking
 *     where that is absent (as transformers 5);
 *   - the arguments of a call that are the JSON text of an object, as OpenAI's clients send them, are that object
 *     (as vLLM), but for templates that print them as they are, which get JSON text of an object;
 *   - a content that is a list of parts stays one for a template that goes over the parts, and is the text of all
 *     for one that takes texts (as vLLM);
 *   - numbers are Python's: 1.0 is 1.0, and an integer beyond 64 bits keeps its digits. */

tt_jvalue *tt_chat_value(tt_arena *a, const tt_json *j, tt_tag tag)
{
    tt_jvalue *v;
    switch (j->type) {
    case TT_JSON_BOOL:
        return tt_j_bool(a, j->boolean);
    case TT_JSON_INT:
        return tt_j_int(a, j->integer);
    case TT_JSON_REAL:
        v = tt_j_float(a, j->real);
        if (j->digits && !strpbrk(j->digits, ".eE"))
            v->digits = tt_arena_str(a, j->digits);
        return v;
    case TT_JSON_STRING:
        return tt_j_text(a, j->string, strlen(j->string), tag);
    case TT_JSON_ARRAY:
        v = tt_j_new(a, TT_J_LIST);
        for (size_t i = 0; i < j->n; i++)
            tt_j_push(a, v, tt_chat_value(a, j->items[i], tag));
        return v;
    case TT_JSON_OBJECT:
        v = tt_j_new(a, TT_J_DICT);
        for (size_t i = 0; i < j->n; i++)
            tt_j_append(a, v, tt_j_text(a, j->keys[i], strlen(j->keys[i]), tag),
                        tt_chat_value(a, j->items[i], tag));
        return v;
    default:
        return tt_j_new(a, TT_J_NONE);
    }
}

typedef struct message { /* that is made */
    tt_arena *arena;
    const tt_chat_form *form;
    tt_tag tag;
    size_t number;
    int64_t *textless;
    tt_error *err;
} message;

static tt_jvalue *key_of(const message *m, const char *key)
{
    return tt_j_text(m->arena, key, strlen(key), m->tag);
}

/* ---- calls of tools ---- */

static tt_jvalue *arguments_of(const message *m, const tt_json *v)
{
    const tt_json *o = v;
    tt_error ignored = {0};
    if (m->form->text_arguments) {
        tt_jvalue *as_is = tt_chat_value(m->arena, v, m->tag);
        return v->type == TT_JSON_OBJECT ? tt_j_json(m->arena, as_is) : as_is;
    }
    if (v->type == TT_JSON_NULL || (v->type == TT_JSON_STRING && !*v->string))
        return tt_j_new(m->arena, TT_J_DICT);
    if (v->type == TT_JSON_STRING && (tt_json_parse(m->arena, "arguments", v->string,
                                                    strlen(v->string), &o, &ignored) != TT_OK ||
                                      o->type != TT_JSON_OBJECT))
        o = v;
    return tt_chat_value(m->arena, o, m->tag);
}

/* A call, or its `function`. */
static tt_jvalue *call_of(const message *m, const tt_json *call)
{
    tt_jvalue *v = tt_j_new(m->arena, TT_J_DICT);
    if (call->type != TT_JSON_OBJECT)
        return tt_chat_value(m->arena, call, m->tag);
    for (size_t i = 0; i < call->n; i++) {
        const char *key = call->keys[i];
        const tt_json *of = call->items[i];
        tt_j_append(m->arena, v, key_of(m, key),
                    !strcmp(key, "arguments")  ? arguments_of(m, of)
                    : !strcmp(key, "function") ? call_of(m, of)
                                               : tt_chat_value(m->arena, of, m->tag));
    }
    return v;
}

static tt_jvalue *calls_of(const message *m, const tt_json *calls)
{
    tt_jvalue *v = tt_j_new(m->arena, TT_J_LIST);
    if (calls->type != TT_JSON_ARRAY)
        return call_of(m, calls);
    for (size_t i = 0; i < calls->n; i++)
        tt_j_push(m->arena, v, call_of(m, calls->items[i]));
    return v;
}

/* ---- contents ---- */

/* The text of a part; NULL: it has none. */
static const char *part_text(const tt_json *part)
{
    const tt_json *text = part->type == TT_JSON_OBJECT ? tt_json_get(part, "text") : part;
    return text && text->type == TT_JSON_STRING ? text->string : NULL;
}

static tt_status content_of(const message *m, const tt_json *v, tt_jvalue **out)
{
    tt_jtext text = {0};
    if (v->type == TT_JSON_ARRAY) {
        for (size_t i = 0; i < v->n; i++) {
            const char *part = part_text(v->items[i]);
            if (part)
                tt_jtext_add(m->arena, &text, part, strlen(part), NULL, m->tag);
            else if (m->textless)
                ++*m->textless;
            else
                return TT_FAIL(m->err, TT_EINVAL,
                               "messages[%zu]: part %zu of the content must be text", m->number, i);
        }
        if (text.full)
            return TT_FAIL(m->err, TT_EINVAL, "messages[%zu]: a content of more than %zu MiB",
                           m->number, TT_J_MOST_TEXT >> 20);
    }
    *out = v->type == TT_JSON_ARRAY && !m->form->lists ? tt_jtext_string(m->arena, &text)
                                                       : tt_chat_value(m->arena, v, m->tag);
    return TT_OK;
}

/* ---- messages ---- */

/* What a message's author has thought, under the first of its names that is there; NULL: nothing. */
static const tt_json *reasoning_of(const tt_json *m)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const tt_json *v = tt_json_get(m, names[i]);
        if (v && v->type != TT_JSON_NULL)
            return v;
    }
    return NULL;
}

/* Calls of tools, without a content. */
static bool only_calls(const tt_json *j)
{
    const tt_json *calls = tt_json_get(j, "tool_calls"), *content = tt_json_get(j, "content");
    return calls && calls->type == TT_JSON_ARRAY && calls->n &&
           (!content || content->type == TT_JSON_NULL);
}

static tt_status message_of(const message *m, const tt_json *j, tt_jvalue *out)
{
    const tt_json *reasoning = reasoning_of(j), *thinking = tt_json_get(j, "thinking");
    const bool thinks = thinking && thinking->type != TT_JSON_NULL;
    if (reasoning) /* the first key, as transformers has it */
        tt_j_append(m->arena, out, key_of(m, "thinking"),
                    tt_chat_value(m->arena, thinks ? thinking : reasoning, m->tag));
    for (size_t i = 0; i < j->n; i++) {
        const char *key = j->keys[i];
        const tt_json *v = j->items[i];
        tt_jvalue *made = NULL;
        if (v->type == TT_JSON_NULL || !strcmp(key, "thinking") ||
            (!strcmp(key, "tool_calls") && v->type == TT_JSON_ARRAY && !v->n))
            continue;
        if (!strcmp(key, "content"))
            TT_TRY(content_of(m, v, &made));
        else if (!strcmp(key, "tool_calls"))
            made = calls_of(m, v);
        else if (!strcmp(key, "function_call"))
            made = call_of(m, v);
        else
            made = tt_chat_value(m->arena, v, m->tag);
        tt_j_append(m->arena, out, key_of(m, key), made);
    }
    if (only_calls(j) && m->form->missing != TT_CHAT_ABSENT)
        tt_j_append(m->arena, out, key_of(m, "content"),
                    m->form->missing == TT_CHAT_NONE ? tt_j_new(m->arena, TT_J_NONE)
                                                     : key_of(m, ""));
    if (reasoning)
        tt_j_put(m->arena, out, key_of(m, "reasoning_content"),
                 tt_chat_value(m->arena, reasoning, m->tag), NULL);
    return TT_OK;
}

tt_status tt_chat_messages(tt_arena *a, const tt_chat_form *f, const tt_json *list,
                           int64_t *textless, tt_jvalue **out, tt_error *err)
{
    if (list->type != TT_JSON_ARRAY || list->n == 0)
        return TT_FAIL(err, TT_EINVAL, "messages: a list with at least one message is wanted");
    if (list->n >= INT16_MAX)
        return TT_FAIL(err, TT_EINVAL, "messages: %zu are too many for one conversation", list->n);
    *out = tt_j_new(a, TT_J_LIST);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *role = tt_json_get(list->items[i], "role");
        const message m = {.arena = a,
                           .form = f,
                           .tag = (tt_tag)(i + 1),
                           .number = i,
                           .textless = textless,
                           .err = err};
        tt_jvalue *made = tt_j_new(a, TT_J_DICT);
        if (!role || role->type != TT_JSON_STRING)
            return TT_FAIL(err, TT_EINVAL,
                           "messages[%zu]: an object with a string \"role\" is wanted", i);
        TT_TRY(message_of(&m, list->items[i], made));
        tt_j_push(a, *out, made);
    }
    return TT_OK;
}

/* ---- variables ---- */

static const tt_json *tools_of(const tt_chat_json *j)
{
    const tt_json *v = j->tools || !j->variables ? j->tools : tt_json_get(j->variables, "tools");
    return v && v->type != TT_JSON_NULL ? v : NULL;
}

const tt_chat_form *tt_chat_form_for(const tt_chat_template *t, const tt_chat_json *j)
{
    return t->with_tools.tree && tools_of(j) ? &t->with_tools : &t->form;
}

static void put_new(tt_arena *a, tt_jvalue *vars, const char *key, tt_jvalue *v)
{
    if (!tt_j_get(vars, key, strlen(key)))
        tt_j_append(a, vars, tt_j_text(a, key, strlen(key), TT_TAG_TEMPLATE), v);
}

tt_jvalue *tt_chat_variables(tt_arena *a, const tt_jvalue *constants, const tt_chat_json *j)
{
    const tt_json *tools = tools_of(j);
    tt_jvalue *vars = tt_j_new(a, TT_J_DICT);
    put_new(a, vars, "tools",
            tools ? tt_chat_value(a, tools, TT_TAG_INPUT) : tt_j_new(a, TT_J_NONE));
    for (size_t i = 0; j->variables && i < j->variables->n; i++) {
        const char *key = j->variables->keys[i];
        if (strcmp(key, "tools") != 0)
            tt_j_append(a, vars, tt_j_text(a, key, strlen(key), TT_TAG_TEMPLATE),
                        tt_chat_value(a, j->variables->items[i], TT_TAG_INPUT));
    }
    put_new(a, vars, "documents", tt_j_new(a, TT_J_NONE));
    const tt_jvalue *own[] = {j->tokens, constants};
    for (size_t k = 0; k < TT_COUNT(own); k++)
        for (size_t i = 0; own[k] && i < own[k]->u.dict.n; i++)
            put_new(a, vars, own[k]->u.dict.keys[i]->u.string.s, own[k]->u.dict.values[i]);
    return vars;
}
