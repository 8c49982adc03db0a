/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_CHAT_FORMATS_H
#define TT_DATALOADERS_CHAT_FORMATS_H
#include "chat_turns.h"

/* Records of several formats as messages. */

typedef enum chat_format {
    CHAT_AUTO,
    CHAT_MESSAGES,
    CHAT_SHAREGPT,
    CHAT_ALPACA,
    CHAT_PROMPT,
    CHAT_PREFERENCE
} chat_format;

/* A row of a table has each of its columns, and null where it has no value. */
static bool has(const json_t *record, const char *key)
{
    const json_t *v = json_object_get(record, key);
    return v && !json_is_null(v);
}

static tt_status alpaca_question(const json_t *record, const chat_fields *f, json_t *out,
                                 tt_error *err)
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
    const tt_status s = add_turn(out, "user", text, key, err);
    json_decref(text);
    return s;
}

static tt_status from_alpaca(const json_t *record, const chat_fields *f, json_t *out, tt_error *err)
{
    const char *answer = field(f->completion, "output");
    TT_TRY(alpaca_question(record, f, out, err));
    return add_turn(out, "assistant", json_object_get(record, answer), answer, err);
}

/* What an answer answers: the prompt, or where there is none what another format has in its place. */
static tt_status pair_question(const json_t *record, const chat_fields *f, json_t *out,
                               tt_error *err)
{
    const char *key = field(f->prompt, "prompt"), *system = field(f->system, "system");
    const bool prompt = has(record, key);
    if (prompt || has(record, field(f->messages, "messages"))) {
        TT_TRY(add_optional(out, "system", record, system, err));
        TT_TRY(prompt ? add_turn(out, "user", json_object_get(record, key), key, err)
                      : from_messages(record, f, out, err));
    } else if (has(record, "conversations")) {
        TT_TRY(from_sharegpt(record, f, out, err));
    } else if (has(record, "instruction")) {
        TT_TRY(alpaca_question(record, f, out, err));
    } else {
        return TT_FAIL(
            err, TT_EINVAL,
            "no \"%s\", which the answers answer; dataloader.prompt_field names its key, "
            "or each answer is a list with the whole conversation",
            key);
    }
    const char *last =
        text_of(json_object_get(json_array_get(out, json_array_size(out) - 1), "role"));
    return last && !strcmp(last, "assistant")
               ? TT_FAIL(err, TT_EINVAL,
                         "what the answers answer ends with a turn of the assistant")
               : TT_OK;
}

/* The answer is a text, a message, or a list of messages, which may be the whole conversation. *prompt: the
 * messages before it. */
static tt_status from_pair(const json_t *record, const chat_fields *f, const char *answer,
                           json_t *out, size_t *prompt, tt_error *err)
{
    const json_t *last = json_object_get(record, answer),
                 *value = json_object_get(last, field(f->content, "value"));
    const char *role = text_of(json_object_get(json_array_get(last, 0), "role"));
    if (!role || !strcmp(role, "assistant"))
        TT_TRY(pair_question(record, f, out, err));
    else
        TT_TRY(add_optional(out, "system", record, field(f->system, "system"), err));
    *prompt = json_array_size(out);
    if (json_is_object(last))
        last = value ? value : json_object_get(last, field(f->content, "content"));
    return add_turn(out, "assistant", last, answer, err);
}

static chat_format find_format(const json_t *record, const chat_fields *f)
{
    if (has(record, field(f->messages, "messages")))
        return CHAT_MESSAGES;
    if (has(record, "chosen"))
        return CHAT_PREFERENCE;
    if (has(record, "conversations"))
        return CHAT_SHAREGPT;
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
