/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_TURNS_H
#define TT_DATALOADERS_CHAT_TURNS_H
#include "chat_record.h"

/* Lists of turns, messages and ShareGPT's, as messages. */

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

#endif
