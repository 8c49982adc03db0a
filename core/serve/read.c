/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>

/* Reads the bodies of completions. Fields that would change the answer and are not known are refused by name; all
 * others that OpenAI's clients send are ignored. */

tt_status tt_api_parse(tt_arena *arena, const tt_http_request *r, const tt_json **out,
                       tt_error *err)
{
    TT_TRY(tt_json_parse(arena, "body", r->body, r->n_body, out, err));
    return (*out)->type == TT_JSON_OBJECT ? TT_OK
                                          : TT_FAIL(err, TT_EINVAL, "the body is no JSON object");
}

/* A member that is there and not null. */
const tt_json *tt_api_member(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    return v && v->type != TT_JSON_NULL ? v : NULL;
}

tt_status tt_api_bool(const tt_json *o, const char *key, bool *out, tt_error *err)
{
    const tt_json *v = tt_api_member(o, key);
    if (v && v->type != TT_JSON_BOOL)
        return TT_FAIL(err, TT_EINVAL, "%s is neither true nor false", key);
    *out = v ? v->boolean : *out;
    return TT_OK;
}

static tt_status read_number(const tt_json *o, const char *key, double least, double most,
                             double *out, tt_error *err)
{
    const tt_json *v = tt_api_member(o, key);
    if (!v)
        return TT_OK;
    if ((v->type != TT_JSON_REAL && v->type != TT_JSON_INT) || !(v->real >= least) ||
        !(v->real <= most))
        return TT_FAIL(err, TT_EINVAL, "%s is no number of %g to %g", key, least, most);
    *out = v->real;
    return TT_OK;
}

static tt_status read_integer(const tt_json *o, const char *key, int64_t least, int64_t most,
                              int64_t *out, tt_error *err)
{
    const tt_json *v = tt_api_member(o, key);
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_INT || v->integer < least || v->integer > most)
        return TT_FAIL(err, TT_EINVAL, "%s is no integer of %lld to %lld", key, (long long)least,
                       (long long)most);
    *out = v->integer;
    return TT_OK;
}

static tt_status read_stops(const tt_json *o, tt_api_call *c, tt_error *err)
{
    const tt_json *v = tt_api_member(o, "stop");
    if (!v)
        return TT_OK;
    const size_t n = v->type == TT_JSON_ARRAY ? v->n : 1;
    if (n > MOST_STOPS)
        return TT_FAIL(err, TT_EINVAL, "stop has %zu texts; at most %d", n, (int)MOST_STOPS);
    for (size_t i = 0; i < n; i++) {
        const tt_json *s = v->type == TT_JSON_ARRAY ? v->items[i] : v;
        if (s->type != TT_JSON_STRING)
            return TT_FAIL(err, TT_EINVAL, "stop is neither a text nor a list of texts");
        if (!*s->string)
            continue;
        c->stops[c->n_stops++] = s->string;
        c->longest_stop = TT_MAXV(c->longest_stop, strlen(s->string));
    }
    return c->n_stops && !c->a->o.vt
               ? TT_FAIL(err, TT_EINVAL, "stop: the model has no tokenizer, so there is no text")
               : TT_OK;
}

/* What this server does not have; null and what it does anyway are fine. */
static tt_status refuse(const tt_json *o, bool chat, tt_error *err)
{
    static const char *const zeros[] = {"frequency_penalty", "presence_penalty"};
    static const char *const absent[] = {"suffix", "functions", "logit_bias", "tools"};
    for (size_t i = 0; i < TT_COUNT(zeros); i++) {
        const tt_json *v = tt_api_member(o, zeros[i]);
        if (v && !(v->type == TT_JSON_INT || v->type == TT_JSON_REAL ? v->real == 0 : false))
            return TT_FAIL(err, TT_EINVAL, "%s is not supported", zeros[i]);
    }
    for (size_t i = 0; i < TT_COUNT(absent) - (chat ? 1 : 0); i++) { /* chats have tools */
        const tt_json *v = tt_api_member(o, absent[i]);
        const bool empty =
            v && ((v->type == TT_JSON_STRING && !*v->string) ||
                  ((v->type == TT_JSON_ARRAY || v->type == TT_JSON_OBJECT) && !v->n));
        if (v && !empty)
            return TT_FAIL(err, TT_EINVAL, "%s is not supported", absent[i]);
    }
    return TT_OK;
}

static tt_status read_format(const tt_json *o, tt_api_call *c, tt_error *err)
{
    const tt_json *format = tt_api_member(o, "response_format"),
                  *type = format ? tt_json_get(format, "type") : NULL;
    const char *name = type && type->type == TT_JSON_STRING ? type->string : "";
    c->json = !strcmp(name, "json_object");
    if (format && !c->json && strcmp(name, "text") != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "response_format is not supported, but {\"type\": \"text\"} and "
                       "{\"type\": \"json_object\"}");
    if (c->json && !c->a->o.vt)
        return TT_FAIL(err, TT_EINVAL,
                       "response_format: the model has no tokenizer, so there is no text");
    return TT_OK;
}

/* ---- prompts ---- */

tt_status tt_api_encode(const tt_api *a, const char *text, bool special, tt_ids *out, tt_error *err)
{
    if (special && a->o.info.bos >= 0 && !a->o.info.omits_bos)
        TT_TRY(tt_ids_push(out, a->o.info.bos, err));
    return a->o.vt->encode(a->o.tokenizer, text, strlen(text), out, err);
}

static tt_status push_ids(const tt_json *list, tt_ids *out, tt_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *v = list->items[i];
        if (v->type != TT_JSON_INT || v->integer < 0 || v->integer > INT32_MAX)
            return TT_FAIL(err, TT_EINVAL, "prompt: element %zu is no token id", i);
        TT_TRY(tt_ids_push(out, (int32_t)v->integer, err));
    }
    return TT_OK;
}

/* Prompt i of `prompt`: a text, a list of texts, a list of ids, or a list of lists of ids. */
static tt_status read_prompt(const tt_api *a, const tt_json *v, size_t i, tt_ids *out,
                             tt_error *err)
{
    const bool ids = v->type == TT_JSON_ARRAY && v->n && v->items[0]->type == TT_JSON_INT;
    const tt_json *one = v->type == TT_JSON_ARRAY && !ids ? v->items[i] : v;
    if (one->type == TT_JSON_STRING && !a->o.vt)
        return TT_FAIL(err, TT_EINVAL, "the model has no tokenizer: send prompts as lists of ids");
    if (one->type == TT_JSON_STRING)
        return tt_api_encode(a, one->string, true, out, err);
    if (one->type == TT_JSON_ARRAY)
        return push_ids(one, out, err);
    return TT_FAIL(err, TT_EINVAL, "prompt is neither text nor token ids, nor a list of such");
}

static size_t n_prompts(const tt_json *v)
{
    return v->type == TT_JSON_ARRAY && v->n && v->items[0]->type != TT_JSON_INT ? v->n : 1;
}

/* ---- the whole ---- */

/* Completions: logprobs is a number; chat: logprobs is true or false, and top_logprobs the number. */
static tt_status read_logprobs(const tt_json *o, tt_api_call *c, tt_error *err)
{
    int64_t n = -1;
    if (c->chat) {
        TT_TRY(tt_api_bool(o, "logprobs", &c->scored, err));
        n = 0;
        TT_TRY(read_integer(o, "top_logprobs", 0, TT_MOST_TOP, &n, err));
        c->n_top = c->scored ? (int)n : 0;
        return TT_OK;
    }
    TT_TRY(read_integer(o, "logprobs", 0, TT_MOST_TOP, &n, err));
    c->scored = n >= 0;
    c->n_top = n > 0 ? (int)n : 0;
    return TT_OK;
}

static tt_status read_sampling(const tt_json *o, tt_request *r, tt_error *err)
{
    int64_t seed = 0;
    r->sampling = (tt_sampling){.temperature = 1, .top_p = 1};
    TT_TRY(read_number(o, "temperature", 0, 100, &r->sampling.temperature, err));
    TT_TRY(read_number(o, "top_p", 0, 1, &r->sampling.top_p, err));
    TT_TRY(read_integer(o, "top_k", -1, INT32_MAX, &r->sampling.top_k, err)); /* vLLM's -1: all */
    TT_TRY(read_integer(o, "seed", INT64_MIN, INT64_MAX, &seed, err));
    r->sampling.top_k = TT_MAXV(r->sampling.top_k, (int64_t)0);
    r->sampling.seed = (uint64_t)seed;
    return TT_OK;
}

/* How many new tokens a prompt of n may have. max_new < 0: the request does not say, and `usual` is a number that is
 * lowered to what the context holds. */
static tt_status room_for(const tt_api_call *c, int64_t n, int64_t max_new, int64_t usual,
                          int64_t *out, tt_error *err)
{
    const int64_t context = c->a->o.context, left = context - n;
    *out = max_new < 0 ? TT_MIN(usual, left) : max_new;
    if (max_new == 0 && !c->echo)
        return TT_FAIL(err, TT_EINVAL, "max_tokens is 0: then echo must be true");
    if (max_new < 0 && left < 1)
        return TT_FAIL(err, TT_EINVAL,
                       "the prompt has %lld tokens, as many as the context holds: shorten it",
                       (long long)n);
    if (max_new > left)
        return TT_FAIL(err, TT_EINVAL,
                       "the prompt has %lld tokens and max_tokens is %lld, but the context holds "
                       "%lld: shorten the prompt or lower max_tokens",
                       (long long)n, (long long)max_new, (long long)context);
    return TT_OK;
}

static tt_status make_text(tt_api_call *c, call_text *x, const tt_request *base, int64_t max_new,
                           int sample, tt_error *err)
{
    const tt_api *a = c->a;
    const int64_t n = (int64_t)x->prompt.n;
    TT_TRY(tt_engine_check(a->o.engine, "the prompt", x->prompt.ids, n, err));
    x->call = c;
    x->r = *base;
    x->decoder = tt_api_decoder(a);
    if (!c->echo) /* else the engine tells the prompt, too */
        tt_decoder_pass(&x->decoder, x->prompt.ids, x->prompt.n);
    x->r.prompt = x->prompt.ids;
    x->r.n_prompt = n;
    TT_TRY(room_for(c, n, max_new, c->chat ? a->o.context : 16, &x->r.max_new, err));
    x->r.stream = (uint64_t)sample;
    x->r.stop_ids = c->chat ? a->o.chat_stop_ids : a->o.stop_ids;
    x->r.n_stop_ids = c->chat ? a->o.n_chat_stop_ids : a->o.n_stop_ids;
    x->r.scored = c->scored;
    x->r.n_top = c->n_top;
    x->r.of_prompt = c->echo;
    x->r.on_token = tt_api_on_token;
    x->r.on_end = tt_api_on_end;
    x->r.allowed = c->json ? tt_api_allowed : NULL;
    x->r.user = x;
    return TT_OK;
}

static tt_status read_usage(const tt_json *o, tt_api_call *c, tt_error *err)
{
    const tt_json *v = tt_api_member(o, "stream_options");
    c->usage = !c->stream;
    return v ? tt_api_bool(v, "include_usage", &c->usage, err) : TT_OK;
}

tt_status tt_api_read(tt_api *a, const tt_http_request *r, bool chat, tt_api_call *c, tt_error *err)
{
    const tt_json *o, *prompt = NULL;
    tt_request base = {0};
    int64_t n = 1, max_new = -1, best = 1;
    c->chat = chat;
    TT_TRY(tt_api_parse(c->arena, r, &o, err));
    TT_TRY(refuse(o, chat, err));
    TT_TRY(read_sampling(o, &base, err));
    TT_TRY(read_stops(o, c, err));
    TT_TRY(read_format(o, c, err));
    TT_TRY(read_logprobs(o, c, err));
    TT_TRY(tt_api_bool(o, "stream", &c->stream, err));
    TT_TRY(read_usage(o, c, err));
    TT_TRY(read_integer(o, "n", 1, MOST_N, &n, err));
    TT_TRY(read_integer(o, "best_of", 1, MOST_N, &best, err));
    TT_TRY(read_integer(o, "max_tokens", 0, INT32_MAX, &max_new, err));
    if (chat)
        TT_TRY(read_integer(o, "max_completion_tokens", 0, INT32_MAX, &max_new, err));
    else
        TT_TRY(tt_api_bool(o, "echo", &c->echo, err));
    if (best > n)
        return TT_FAIL(err, TT_EINVAL, "best_of is not supported");
    if (!chat && !(prompt = tt_api_member(o, "prompt")))
        return TT_FAIL(err, TT_EINVAL, "prompt is missing");
    if (!chat && prompt->type == TT_JSON_ARRAY && !prompt->n)
        return TT_FAIL(err, TT_EINVAL, "prompt is an empty list");
    const size_t prompts = chat ? 1 : n_prompts(prompt);
    if (prompts > MOST_TEXTS / (size_t)n)
        return TT_FAIL(err, TT_EINVAL, "%zu prompts with %lld texts each; at most %d texts",
                       prompts, (long long)n, (int)MOST_TEXTS);
    c->texts = tt_arena_array(c->arena, prompts * (size_t)n, sizeof *c->texts);
    for (size_t i = 0; i < prompts; i++)
        for (int k = 0; k < n; k++) {
            call_text *x = &c->texts[c->n];
            x->index = c->n++;
            TT_TRY(chat ? tt_api_read_messages(a, o, &x->prompt, &c->tools, err)
                        : read_prompt(a, prompt, i, &x->prompt, err));
            TT_TRY(make_text(c, x, &base, max_new, k, err));
            if (c->json && c->tools)
                return TT_FAIL(err, TT_EINVAL,
                               "response_format: a call of a tool is no JSON object; leave out one "
                               "of response_format and tools");
            x->tools = (tt_tool_reader){.tools = c->tools, .arena = c->arena};
            x->r.n_cached = &x->n_cached;
            x->sibling = k > 0;
            c->prompt_tokens += k ? 0 : x->r.n_prompt;
        }
    return TT_OK;
}
