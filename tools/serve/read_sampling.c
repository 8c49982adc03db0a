/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <stdlib.h>
#include <string.h>

/* Reads what a request says of the choice of tokens: OpenAI's keys, and those that vLLM has besides. */

/* "17": 4.5 adds to the logit of id 17. */
static tt_status read_bias(const tt_json *o, const tt_api_call *c, tt_adjust_opts *out,
                           tt_error *err)
{
    const tt_json *v = tt_api_member(o, "logit_bias");
    const int64_t vocab = c->a->o.info.vocab_size;
    if (v && v->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "logit_bias must be an object: {\"17\": 4.5}");
    tt_logit_bias *all = tt_arena_array(c->arena, v ? v->n + 1 : 1, sizeof *all);
    for (size_t i = 0; v && i < v->n; i++) {
        char *end;
        const long long id = strtoll(v->keys[i], &end, 10);
        const tt_json *x = v->items[i];
        if (end == v->keys[i] || *end || id < 0 || id >= vocab)
            return TT_FAIL(err, TT_EINVAL,
                           "logit_bias: \"%.40s\" must be a token id from 0 to %lld", v->keys[i],
                           (long long)vocab - 1);
        if ((x->type != TT_JSON_INT && x->type != TT_JSON_REAL) ||
            !(x->real >= -100 && x->real <= 100))
            return TT_FAIL(err, TT_EINVAL,
                           "logit_bias: the value of %lld must be a number from -100 to 100", id);
        all[i] = (tt_logit_bias){(int32_t)id, (float)x->real};
    }
    out->bias = all;
    out->n_bias = v ? v->n : 0;
    return TT_OK;
}

/* The ids that end a text: the model's, unless ignore_eos, and stop_token_ids. */
static tt_status read_ends(const tt_json *o, const tt_api_call *c, tt_request *r, tt_error *err)
{
    const tt_api_opts *a = &c->a->o;
    const tt_json *v = tt_api_member(o, "stop_token_ids");
    const int32_t *own = c->chat ? a->chat_stop_ids : a->stop_ids;
    const size_t n_own = c->chat ? a->n_chat_stop_ids : a->n_stop_ids;
    bool ignores = false;
    TT_TRY(tt_api_bool(o, "ignore_eos", &ignores, err));
    if (v && v->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL, "stop_token_ids must be a list of token ids");
    int32_t *all = tt_arena_array(c->arena, n_own + (v ? v->n : 0) + 1, sizeof *all);
    size_t n = 0;
    for (; n < n_own && !ignores; n++)
        all[n] = own[n];
    for (size_t i = 0; v && i < v->n; i++) {
        const tt_json *id = v->items[i];
        if (id->type != TT_JSON_INT || id->integer < 0 || id->integer >= a->info.vocab_size)
            return TT_FAIL(err, TT_EINVAL,
                           "stop_token_ids: element %zu must be a token id from 0 to %lld", i,
                           (long long)a->info.vocab_size - 1);
        all[n++] = (int32_t)id->integer;
    }
    r->stop_ids = all;
    r->n_stop_ids = n;
    return TT_OK;
}

tt_status tt_api_read_sampling(const tt_json *o, const tt_api_call *c, tt_request *r, tt_error *err)
{
    tt_sampling *s = &r->sampling;
    tt_adjust_opts *a = &r->adjust;
    int64_t seed = 0;
    *s = (tt_sampling){.temperature = 1, .top_p = 1};
    TT_TRY(tt_api_number(o, "temperature", 0, 100, &s->temperature, err));
    TT_TRY(tt_api_number(o, "top_p", 0, 1, &s->top_p, err));
    TT_TRY(tt_api_number(o, "min_p", 0, 1, &s->min_p, err));
    TT_TRY(tt_api_integer(o, "top_k", -1, INT32_MAX, &s->top_k, err)); /* vLLM's -1: all */
    TT_TRY(tt_api_integer(o, "seed", INT64_MIN, INT64_MAX, &seed, err));
    s->top_k = TT_MAXV(s->top_k, (int64_t)0);
    s->seed = (uint64_t)seed;
    TT_TRY(tt_api_number(o, "presence_penalty", -2, 2, &a->presence, err));
    TT_TRY(tt_api_number(o, "frequency_penalty", -2, 2, &a->frequency, err));
    TT_TRY(tt_api_number(o, "repetition_penalty", 0.01, 100, &a->repetition, err));
    TT_TRY(tt_api_integer(o, "min_tokens", 0, INT32_MAX, &a->min_new, err));
    TT_TRY(read_bias(o, c, a, err));
    return read_ends(o, c, r, err);
}

/* ---- keys that are not read ---- */

/* What is read, here and in read.c and messages.c; and what changes no text. */
static const char *const known[] = {"model",
                                    "prompt",
                                    "messages",
                                    "stream",
                                    "stream_options",
                                    "n",
                                    "best_of",
                                    "max_tokens",
                                    "logprobs",
                                    "temperature",
                                    "top_p",
                                    "top_k",
                                    "min_p",
                                    "seed",
                                    "stop",
                                    "stop_token_ids",
                                    "ignore_eos",
                                    "min_tokens",
                                    "presence_penalty",
                                    "frequency_penalty",
                                    "logit_bias",
                                    "response_format",
                                    "repetition_penalty",
                                    "user",
                                    "metadata",
                                    "store",
                                    "service_tier",
                                    "prompt_cache_key",
                                    "cache_salt",
                                    "safety_identifier",
                                    "priority",
                                    "request_id",
                                    "prompt_cache_retention"};
static const char *const of_chats[] = {"max_completion_tokens", "top_logprobs", "tools",
                                       "tool_choice", "chat_template_kwargs"};
static const char *const of_completions[] = {"echo"};
static const char *const of_tokenize[] = {"model",
                                          "prompt",
                                          "messages",
                                          "add_special_tokens",
                                          "add_generation_prompt",
                                          "tools",
                                          "tool_choice",
                                          "chat_template_kwargs",
                                          "return_token_strs"};
static const char *const of_detokenize[] = {"model", "tokens"};

static const struct {
    const char *const *keys;
    size_t n;
    bool generates; /* those of all completions are known, too */
} of_kinds[] = {
    [TT_API_COMPLETION] = {of_completions, TT_COUNT(of_completions), true },
    [TT_API_CHAT] = {of_chats,       TT_COUNT(of_chats),       true },
    [TT_API_TOKENIZE] = {of_tokenize,    TT_COUNT(of_tokenize),    false},
    [TT_API_DETOKENIZE] = {of_detokenize,  TT_COUNT(of_detokenize),  false},
};

/* Keys that this server does not have, which may say what it does anyway. */
static const struct {
    const char *key, *value;
} usual[] = {
    {"suffix",                        "\"\""      },
    {"functions",                     "[]"        },
    {"tools",                         "[]"        },
    {"function_call",                 "\"none\""  },
    {"modalities",                    "[\"text\"]"},
    {"parallel_tool_calls",           "true"      },
    {"length_penalty",                "1"         },
    {"use_beam_search",               "false"     },
    {"skip_special_tokens",           "true"      },
    {"spaces_between_special_tokens", "true"      },
    {"include_stop_str_in_output",    "false"     },
    {"add_generation_prompt",         "true"      },
    {"continue_final_message",        "false"     },
    {"typical_p",                     "1"         },
    {"top_a",                         "0"         },
    {"tfs",                           "1"         },
};

static bool is_among(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

static bool is_value(const tt_json *v, const char *text)
{
    tt_str printed = {0};
    if (v->type == TT_JSON_INT || v->type == TT_JSON_REAL)
        return v->real == strtod(text, NULL);
    tt_json_write(v, &printed);
    const bool same = !strcmp(tt_str_get(&printed), text);
    tt_str_free(&printed);
    return same;
}

static bool is_usual(const char *key, const tt_json *v)
{
    for (size_t i = 0; i < TT_COUNT(usual); i++)
        if (!strcmp(usual[i].key, key))
            return is_value(v, usual[i].value);
    return false;
}

tt_status tt_api_check_keys(const tt_json *o, tt_api_kind kind, tt_error *err)
{
    for (size_t i = 0; i < o->n; i++) {
        const char *key = o->keys[i];
        if (o->items[i]->type == TT_JSON_NULL ||
            (of_kinds[kind].generates && is_among(key, known, TT_COUNT(known))) ||
            is_among(key, of_kinds[kind].keys, of_kinds[kind].n) || is_usual(key, o->items[i]))
            continue;
        return TT_FAIL(err, TT_EINVAL, "%.80s is not supported", key);
    }
    return TT_OK;
}
