/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_FORMATS_H
#define TT_DATALOADERS_CHAT_FORMATS_H
#include "chat_record.h"

/* Records of several formats as messages. */

typedef enum chat_format {
    CHAT_AUTO,
    CHAT_MESSAGES,
    CHAT_SHAREGPT,
    CHAT_ALPACA,
    CHAT_PROMPT,
    CHAT_PREFERENCE
} chat_format;

/* The names of a record's members; NULL: the format's own. */
typedef struct chat_fields {
    const char *messages, *role, *content, *prompt, *completion, *system;
} chat_fields;

static const char *field(const char *given, const char *own)
{
    return given && *given ? given : own;
}

/* A message of a role, or several: content may be a string or a list of messages. */
static tt_status add_turn(json_t *messages, const char *role, const json_t *content,
                          const char *key, tt_error *err)
{
    if (json_is_array(content)) {
        json_array_extend(messages, (json_t *)(uintptr_t)content);
        return TT_OK;
    }
    if (!text_of(content))
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is neither a string nor a list of messages", key);
    json_array_append_new(messages, json_pack("{s:s,s:O}", "role", role, "content", content));
    return TT_OK;
}

static tt_status add_optional(json_t *messages, const char *role, const json_t *record,
                              const char *key, tt_error *err)
{
    const json_t *v = json_object_get(record, key);
    if (!v || json_is_null(v) || (text_of(v) && !*text_of(v)))
        return TT_OK;
    return add_turn(messages, role, v, key, err);
}

static tt_status from_messages(const json_t *record, const chat_fields *f, json_t *out,
                               tt_error *err)
{
    const char *key = field(f->messages, "messages"), *role = field(f->role, "role"),
               *content = field(f->content, "content");
    const json_t *list = json_object_get(record, key);
    json_t *m;
    size_t i;
    if (!json_is_array(list))
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a list of messages", key);
    json_array_foreach(list, i, m)
    {
        if (!json_is_object(m) || !text_of(json_object_get(m, role)))
            return TT_FAIL(err, TT_EINVAL, "\"%s\"[%zu] has no string \"%s\"", key, i, role);
        json_t *copy = json_copy(m);
        if (strcmp(role, "role") != 0) {
            json_object_set(copy, "role", json_object_get(m, role));
            json_object_del(copy, role);
        }
        if (strcmp(content, "content") != 0) {
            json_object_set(copy, "content", json_object_get(m, content));
            json_object_del(copy, content);
        }
        json_array_append_new(out, copy);
    }
    return TT_OK;
}

static const char *role_of_sharegpt(const char *from)
{
    static const char *const roles[][2] = {
        {"human",         "user"     },
        {"user",          "user"     },
        {"gpt",           "assistant"},
        {"assistant",     "assistant"},
        {"chatgpt",       "assistant"},
        {"bing",          "assistant"},
        {"bard",          "assistant"},
        {"model",         "assistant"},
        {"function_call", "assistant"},
        {"system",        "system"   },
        {"tool",          "tool"     },
        {"observation",   "tool"     },
        {"function",      "tool"     }
    };
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (!strcmp(roles[i][0], from))
            return roles[i][1];
    return NULL;
}

static tt_status from_sharegpt(const json_t *record, const chat_fields *f, json_t *out,
                               tt_error *err)
{
    const char *key = field(f->messages, "conversations"), *role = field(f->role, "from"),
               *content = field(f->content, "value");
    const json_t *list = json_object_get(record, key);
    json_t *m;
    size_t i;
    TT_TRY(add_optional(out, "system", record, field(f->system, "system"), err));
    if (!json_is_array(list))
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a list", key);
    json_array_foreach(list, i, m)
    {
        const char *from = text_of(json_object_get(m, role)),
                   *to = from ? role_of_sharegpt(from) : NULL;
        if (!from)
            return TT_FAIL(err, TT_EINVAL, "\"%s\"[%zu] has no string \"%s\"", key, i, role);
        if (!to)
            return TT_FAIL(
                err, TT_EINVAL,
                "\"%s\"[%zu]: \"%.60s\" is no role of ShareGPT (human, gpt, system, tool, …)", key,
                i, from);
        TT_TRY(add_turn(out, to, json_object_get(m, content), content, err));
        copy_weight(m, json_array_get(out, json_array_size(out) - 1));
    }
    return TT_OK;
}

static tt_status from_alpaca(const json_t *record, const chat_fields *f, json_t *out, tt_error *err)
{
    const char *input = text_of(json_object_get(record, "input"));
    const char *key = field(f->prompt, "instruction"), *ask = text_of(json_object_get(record, key));
    json_t *turn;
    size_t i;
    TT_TRY(add_optional(out, "system", record, field(f->system, "system"), err));
    json_array_foreach(json_object_get(record, "history"), i, turn)
    {
        TT_TRY(add_turn(out, "user", json_array_get(turn, 0), "history", err));
        TT_TRY(add_turn(out, "assistant", json_array_get(turn, 1), "history", err));
    }
    if (!ask)
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a string", key);
    json_t *text = input && *input ? json_sprintf("%s\n%s", ask, input) : json_string(ask);
    tt_status s = add_turn(out, "user", text, key, err);
    json_decref(text);
    return s == TT_OK
               ? add_turn(out, "assistant", json_object_get(record, field(f->completion, "output")),
                          field(f->completion, "output"), err)
               : s;
}

/* The answer may have the whole conversation. *prompt: the messages before it. */
static tt_status from_pair(const json_t *record, const chat_fields *f, const char *answer,
                           json_t *out, size_t *prompt, tt_error *err)
{
    const char *key = field(f->prompt, "prompt");
    const json_t *last = json_object_get(record, answer);
    const char *role = text_of(json_object_get(json_array_get(last, 0), "role"));
    TT_TRY(add_optional(out, "system", record, field(f->system, "system"), err));
    if (!role || !strcmp(role, "assistant"))
        TT_TRY(add_turn(out, "user", json_object_get(record, key), key, err));
    *prompt = json_array_size(out);
    return add_turn(out, "assistant", last, answer, err);
}

/* A row of a table has each of its columns, and null where it has no value. */
static bool has(const json_t *record, const char *key)
{
    const json_t *v = json_object_get(record, key);
    return v && !json_is_null(v);
}

static chat_format find_format(const json_t *record, const chat_fields *f)
{
    if (has(record, field(f->messages, "messages")))
        return CHAT_MESSAGES;
    if (has(record, "conversations"))
        return CHAT_SHAREGPT;
    if (has(record, "chosen"))
        return CHAT_PREFERENCE;
    if (has(record, field(f->completion, "completion")) && has(record, field(f->prompt, "prompt")))
        return CHAT_PROMPT;
    return has(record, "instruction") ? CHAT_ALPACA : CHAT_AUTO;
}

/* "tools" may be JSON in a string; "chat_template_kwargs" are more variables. */
static json_t *variables_of(const json_t *record)
{
    json_t *tools = json_object_get(record, "tools"),
           *more = json_object_get(record, "chat_template_kwargs");
    json_t *out = json_is_object(more) ? json_copy(more) : NULL;
    if (tools && !json_is_null(tools)) {
        json_t *parsed = text_of(tools)
                             ? chat_parse(text_of(tools), json_string_length(tools), NULL)
                             : json_incref(tools);
        out = out ? out : json_object();
        json_object_set_new(out, "tools", parsed ? parsed : json_incref(tools));
    }
    return out;
}

/* The messages of a record, a new list of {"role", "content", …}, and the variables of the template, a new object or
 * NULL. *prompt: how many of them are a prompt that stands apart, of which nothing is learned. */
static tt_status chat_messages(const json_t *record, chat_format format, const chat_fields *f,
                               json_t **messages, json_t **variables, size_t *prompt, tt_error *err)
{
    *prompt = 0;
    tt_status s;
    if (!json_is_object(record))
        return TT_FAIL(err, TT_EINVAL, "not an object");
    if (format == CHAT_AUTO)
        format = find_format(record, f);
    json_t *out = json_array();
    switch (format) {
    case CHAT_MESSAGES:
        s = from_messages(record, f, out, err);
        break;
    case CHAT_SHAREGPT:
        s = from_sharegpt(record, f, out, err);
        break;
    case CHAT_ALPACA:
        s = from_alpaca(record, f, out, err);
        break;
    case CHAT_PROMPT:
        s = from_pair(record, f, field(f->completion, "completion"), out, prompt, err);
        break;
    case CHAT_PREFERENCE:
        s = from_pair(record, f, field(f->completion, "chosen"), out, prompt, err);
        break;
    default:
        s = TT_FAIL(err, TT_EINVAL,
                    "no conversation: none of messages, conversations, instruction, prompt with "
                    "completion, chosen is there; "
                    "dataloader.format and .messages_field name it");
    }
    if (s != TT_OK) {
        json_decref(out);
        return s;
    }
    *messages = out;
    *variables = variables_of(record);
    return TT_OK;
}

#endif
