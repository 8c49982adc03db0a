/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>

/* /tokenize and /detokenize, as vLLM has them. */

/* Of `prompt`, with what begins a text, or of `messages`, whose template begins it. */
static tt_status ids_of(tt_api *a, tt_arena *arena, const tt_json *o, size_t n_bytes, tt_ids *ids,
                        tt_error *err)
{
    const tt_json *prompt = tt_api_member(o, "prompt");
    const bool chat = tt_api_member(o, "messages") != NULL;
    const tt_map *tools;
    bool special = !chat;
    TT_TRY(tt_api_bool(o, "add_special_tokens", &special, err));
    if (chat && prompt)
        return TT_FAIL(err, TT_EINVAL, "prompt and messages exclude each other");
    if (chat) {
        if (special)
            TT_TRY(tt_api_encode(a, "", true, ids, err));
        return tt_api_read_messages(a, arena, o, n_bytes, ids, &tools, err);
    }
    if (!prompt || prompt->type != TT_JSON_STRING)
        return TT_FAIL(err, TT_EINVAL, "prompt must be text");
    if (strlen(prompt->string) > MOST_OF_TOKENIZE)
        TT_TRY(tt_api_check_bytes(a, "prompt", strlen(prompt->string), err));
    return tt_api_encode(a, prompt->string, special, ids, err);
}

static void add_ids(const tt_api *a, const tt_ids *ids, bool names, tt_str *json)
{
    tt_decoder decoder = tt_api_decoder(a);
    tt_str name = {0}, text = {0};
    tt_str_printf(json, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", ids->n,
                  (long long)a->o.context);
    for (size_t i = 0; i < ids->n; i++)
        tt_str_printf(json, "%s%d", i ? "," : "", (int)ids->ids[i]);
    tt_str_add(json, names ? "],\"token_strs\":[" : "],\"token_strs\":null");
    for (size_t i = 0; names && i < ids->n; i++) {
        tt_str_add(json, i ? "," : "");
        tt_api_token_key(&decoder, ids->ids[i], &name);
        tt_api_add_bytes(json, name.s, name.n);
        tt_decoder_add(&decoder, ids->ids[i], &text);
        tt_str_clear(&text);
        tt_str_free(&name);
    }
    tt_str_add(json, names ? "]}\n" : "}\n");
    tt_str_free(&text);
}

static tt_status tokenize(tt_api *a, tt_arena *arena, const tt_json *o, size_t n_bytes,
                          tt_str *json, tt_error *err)
{
    tt_ids ids = {0};
    bool names = false;
    TT_TRY(tt_api_check_keys(o, TT_API_TOKENIZE, err));
    TT_TRY(tt_api_bool(o, "return_token_strs", &names, err));
    const tt_status s = ids_of(a, arena, o, n_bytes, &ids, err);
    if (s == TT_OK)
        add_ids(a, &ids, names, json);
    tt_ids_free(&ids);
    return s;
}

static tt_status detokenize(tt_api *a, const tt_json *o, tt_str *json, tt_error *err)
{
    const tt_json *list = tt_json_get(o, "tokens");
    tt_decoder decoder = tt_api_decoder(a);
    tt_str text = {0};
    TT_TRY(tt_api_check_keys(o, TT_API_DETOKENIZE, err));
    if (!list || list->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL, "tokens must be a list of token ids");
    if (list->n > TT_MAXV((size_t)a->o.context, (size_t)MOST_OF_DETOKENIZE))
        return TT_FAIL(err, TT_EINVAL, "tokens: %zu are too many", list->n);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *v = list->items[i];
        if (v->type != TT_JSON_INT || v->integer < 0 || v->integer >= a->o.info.vocab_size) {
            tt_str_free(&text);
            return TT_FAIL(err, TT_EINVAL, "tokens: element %zu must be a token id", i);
        }
        tt_decoder_add(&decoder, (int32_t)v->integer, &text);
    }
    tt_str_add(json, "{\"prompt\":");
    tt_api_add_bytes(json, text.s, text.n);
    tt_str_add(json, "}\n");
    tt_str_free(&text);
    return TT_OK;
}

void tt_api_of_tokenizer(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out)
{
    tt_arena *arena = tt_arena_new();
    tt_error e = {0};
    tt_str json = {0};
    const tt_json *o;
    int status = tt_api_no_memory(&e);
    if (!status)
        status = tt_api_parse(arena, r, &o, &e);
    if (!status)
        status = tt_api_check_model(a, o, &e);
    if (!status && !a->o.vt) {
        TT_FAIL(&e, TT_EINVAL, "the model has no tokenizer");
        status = 400;
    }
    if (!status) {
        const tt_status s = strcmp(r->path, "/tokenize")
                                ? detokenize(a, o, &json, &e)
                                : tokenize(a, arena, o, r->n_body, &json, &e);
        status = s == TT_OK ? 0 : tt_api_status_of(s);
    }
    if (status)
        tt_api_fault(out, p, status, e.text);
    else
        tt_api_send(out, p, 200, "application/json", &json);
    tt_str_free(&json);
    tt_arena_free(arena);
}
