/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>

/* Reads the bodies of completions. A key that is not known is refused by its name: it could mean another answer. */

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
        return TT_FAIL(err, TT_EINVAL, "%s must be true or false", key);
    *out = v ? v->boolean : *out;
    return TT_OK;
}

tt_status tt_api_number(const tt_json *o, const char *key, double least, double most, double *out,
                        tt_error *err)
{
    const tt_json *v = tt_api_member(o, key);
    if (!v)
        return TT_OK;
    if ((v->type != TT_JSON_REAL && v->type != TT_JSON_INT) || !(v->real >= least) ||
        !(v->real <= most))
        return TT_FAIL(err, TT_EINVAL, "%s must be a number from %g to %g", key, least, most);
    *out = v->real;
    return TT_OK;
}

tt_status tt_api_integer(const tt_json *o, const char *key, int64_t least, int64_t most,
                         int64_t *out, tt_error *err)
{
    const tt_json *v = tt_api_member(o, key);
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_INT || v->integer < least || v->integer > most)
        return TT_FAIL(err, TT_EINVAL, "%s must be an integer from %lld to %lld", key,
                       (long long)least, (long long)most);
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
        c->stops[c->n_stops++] = tt_arena_str(c->arena, s->string);
        c->longest_stop = TT_MAXV(c->longest_stop, strlen(s->string));
    }
    return c->n_stops && !c->a->o.vt
               ? TT_FAIL(err, TT_EINVAL, "stop: the model has no tokenizer, so there is no text")
               : TT_OK;
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

/* What others have asked is seen by how many tokens of a prompt need not be computed: whose salt is another one shares nothing.
 * A client's salts and those of requests alone cannot be equal. */
static tt_status read_salt(const tt_json *o, const tt_api_call *c, tt_request *r, tt_error *err)
{
    const tt_json *v = tt_api_member(o, "cache_salt");
    if (v && (v->type != TT_JSON_STRING || !*v->string || strlen(v->string) > MOST_OF_SALT))
        return TT_FAIL(err, TT_EINVAL, "cache_salt must be a text of 1 to %d bytes",
                       (int)MOST_OF_SALT);
    if (v)
        r->salt = tt_arena_printf(c->arena, "salt %s", v->string);
    else if (c->a->o.salted)
        r->salt = tt_arena_printf(c->arena, "alone %s", c->id);
    return TT_OK;
}

/* ---- prompts ---- */

tt_status tt_api_encode(const tt_api *a, const char *text, bool special, tt_ids *out, tt_error *err)
{
    if (special && a->o.info.bos >= 0 && !a->o.info.omits_bos)
        TT_TRY(tt_ids_push(out, a->o.info.bos, err));
    return a->o.vt->encode(a->o.tokenizer, text, strlen(text), out, err);
}

size_t tt_api_most_bytes(tt_api *a)
{
    char bytes[4096];
    const tt_tokenizer_vt *vt = a->o.vt;
    tt_special s = {.struct_size = sizeof s};
    if (!a->longest) {
        a->longest = 16; /* of what a tokenizer may leave out or take as one unknown */
        for (int32_t id = 0; id < a->o.info.vocab_size; id++)
            a->longest = TT_MAXV(a->longest, vt->decode(a->o.tokenizer, id, bytes, sizeof bytes));
        for (size_t i = 0; TT_HAS(vt, tt_tokenizer_vt, special) && vt->special &&
                           vt->special(a->o.tokenizer, i, &s);
             i++)
            a->longest = TT_MAXV(a->longest, s.text.n);
    }
    return (size_t)a->o.context * a->longest;
}

tt_status tt_api_check_bytes(tt_api *a, const char *name, size_t n, tt_error *err)
{
    const size_t most = tt_api_most_bytes(a);
    return n <= most ? TT_OK
                     : TT_FAIL(err, TT_EINVAL,
                               "%s: a text of %zu bytes, but %lld tokens, which the context holds, "
                               "have at most %zu: shorten it",
                               name, n, (long long)a->o.context, most);
}

static tt_status push_ids(const tt_api *a, const tt_json *list, tt_ids *out, tt_error *err)
{
    if (list->n > (size_t)a->o.context)
        return TT_FAIL(err, TT_EINVAL,
                       "the prompt has %zu tokens, but the context holds %lld: shorten it", list->n,
                       (long long)a->o.context);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *v = list->items[i];
        if (v->type != TT_JSON_INT || v->integer < 0 || v->integer > INT32_MAX)
            return TT_FAIL(err, TT_EINVAL, "prompt: element %zu must be a token id", i);
        TT_TRY(tt_ids_push(out, (int32_t)v->integer, err));
    }
    return TT_OK;
}

/* Prompt i of `prompt`: a text, a list of texts, a list of ids, or a list of lists of ids. */
static tt_status read_prompt(tt_api *a, const tt_json *v, size_t i, tt_ids *out, tt_error *err)
{
    const bool ids = v->type == TT_JSON_ARRAY && v->n && v->items[0]->type == TT_JSON_INT;
    const tt_json *one = v->type == TT_JSON_ARRAY && !ids ? v->items[i] : v;
    if (one->type == TT_JSON_STRING && !a->o.vt)
        return TT_FAIL(err, TT_EINVAL, "the model has no tokenizer: send prompts as lists of ids");
    if (one->type == TT_JSON_STRING) {
        TT_TRY(tt_api_check_bytes(a, "prompt", strlen(one->string), err));
        return tt_api_encode(a, one->string, true, out, err);
    }
    if (one->type == TT_JSON_ARRAY)
        return push_ids(a, one, out, err);
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
        TT_TRY(tt_api_integer(o, "top_logprobs", 0, TT_MOST_TOP, &n, err));
        c->n_top = c->scored ? (int)n : 0;
        return TT_OK;
    }
    TT_TRY(tt_api_integer(o, "logprobs", 0, TT_MOST_TOP, &n, err));
    c->scored = n >= 0;
    c->n_top = n > 0 ? (int)n : 0;
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

/* What the request asks of each of its texts. */
typedef struct wanted {
    tt_request base;
    int64_t n, max_new;
} wanted;

/* ids: of the prompt, which is checked. */
static tt_status make_text(tt_api_call *c, call_text *x, const tt_ids *ids, const wanted *w,
                           int sample, tt_error *err)
{
    const tt_api *a = c->a;
    x->call = c;
    x->r = w->base;
    x->decoder = tt_api_decoder(a);
    if (!c->echo) /* else the engine tells the prompt, too */
        tt_decoder_pass(&x->decoder, ids->ids, ids->n);
    x->r.prompt = ids->ids;
    x->r.n_prompt = (int64_t)ids->n;
    TT_TRY(room_for(c, x->r.n_prompt, w->max_new, c->chat ? a->o.context : 16, &x->r.max_new, err));
    x->r.stream = (uint64_t)sample;
    x->r.scored = c->scored;
    x->r.n_top = c->n_top;
    x->r.of_prompt = c->echo;
    x->r.on_token = tt_api_on_token;
    x->r.on_end = tt_api_on_end;
    x->r.allowed = c->json ? tt_api_allowed : NULL;
    x->r.user = x;
    x->r.n_cached = &x->n_cached;
    x->tools = (tt_tool_reader){.tools = c->tools, .arena = c->arena};
    x->sibling = sample > 0;
    return TT_OK;
}

/* The texts of prompt i, whose first one owns its ids. prompt: NULL in a chat. */
static tt_status make_texts(tt_api_call *c, const tt_json *o, size_t n_bytes, const tt_json *prompt,
                            size_t i, const wanted *w, tt_error *err)
{
    tt_api *a = c->a;
    tt_ids *ids = &c->texts[c->n].prompt;
    const int first = c->n;
    c->n += (int)w->n; /* what they own is freed with the call */
    TT_TRY(prompt ? read_prompt(a, prompt, i, ids, err)
                  : tt_api_read_messages(a, c->arena, o, n_bytes, ids, &c->tools, err));
    TT_TRY(tt_engine_check(a->o.engine, "the prompt", ids->ids, (int64_t)ids->n, err));
    if (c->json && c->tools)
        return TT_FAIL(err, TT_EINVAL,
                       "response_format: a call of a tool is no JSON object; leave out one of "
                       "response_format and tools");
    for (int k = 0; k < w->n; k++) {
        c->texts[first + k].index = first + k;
        TT_TRY(make_text(c, &c->texts[first + k], ids, w, k, err));
    }
    c->prompt_tokens += (int64_t)ids->n;
    return TT_OK;
}

static tt_status read_usage(const tt_json *o, tt_api_call *c, tt_error *err)
{
    const tt_json *v = tt_api_member(o, "stream_options");
    c->usage = !c->stream;
    if (v && v->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "stream_options must be an object");
    return v ? tt_api_bool(v, "include_usage", &c->usage, err) : TT_OK;
}

/* All but the prompt. */
static tt_status read_wanted(const tt_json *o, tt_api_call *c, wanted *w, tt_error *err)
{
    int64_t best = 1;
    *w = (wanted){.n = 1, .max_new = -1};
    TT_TRY(tt_api_check_keys(o, c->chat ? TT_API_CHAT : TT_API_COMPLETION, err));
    TT_TRY(tt_api_read_sampling(o, c, &w->base, err));
    TT_TRY(read_salt(o, c, &w->base, err));
    TT_TRY(read_stops(o, c, err));
    TT_TRY(read_format(o, c, err));
    TT_TRY(read_logprobs(o, c, err));
    TT_TRY(tt_api_bool(o, "stream", &c->stream, err));
    TT_TRY(read_usage(o, c, err));
    TT_TRY(tt_api_integer(o, "n", 1, MOST_N, &w->n, err));
    TT_TRY(tt_api_integer(o, "best_of", 1, MOST_N, &best, err));
    TT_TRY(tt_api_integer(o, "max_tokens", 0, INT32_MAX, &w->max_new, err));
    if (c->chat)
        TT_TRY(tt_api_integer(o, "max_completion_tokens", 0, INT32_MAX, &w->max_new, err));
    else
        TT_TRY(tt_api_bool(o, "echo", &c->echo, err));
    if (w->max_new >= 0 && w->base.adjust.min_new > w->max_new)
        return TT_FAIL(err, TT_EINVAL, "min_tokens is more than max_tokens");
    return best > w->n ? TT_FAIL(err, TT_EINVAL, "best_of is not supported") : TT_OK;
}

tt_status tt_api_read(const tt_json *o, size_t n_bytes, tt_api_call *c, tt_error *err)
{
    const tt_json *prompt = NULL;
    wanted w;
    TT_TRY(read_wanted(o, c, &w, err));
    if (!c->chat && !(prompt = tt_api_member(o, "prompt")))
        return TT_FAIL(err, TT_EINVAL, "prompt is missing");
    if (prompt && prompt->type == TT_JSON_ARRAY && !prompt->n)
        return TT_FAIL(err, TT_EINVAL, "prompt is an empty list");
    const size_t prompts = prompt ? n_prompts(prompt) : 1;
    if (prompts > MOST_TEXTS / (size_t)w.n)
        return TT_FAIL(err, TT_EINVAL, "%zu prompts with %lld texts each; at most %d texts",
                       prompts, (long long)w.n, (int)MOST_TEXTS);
    c->texts = tt_arena_array(c->arena, prompts * (size_t)w.n, sizeof *c->texts);
    for (size_t i = 0; i < prompts; i++)
        TT_TRY(make_texts(c, o, n_bytes, prompt, i, &w, err));
    return TT_OK;
}
