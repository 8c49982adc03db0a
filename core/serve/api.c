/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>
#include <time.h>

/* Which function a request is for, and the texts that wait for the engine. */

tt_api *tt_api_open(const tt_api_opts *o)
{
    tt_arena *arena = tt_arena_new();
    tt_api *a = tt_arena_alloc(arena, sizeof *a);
    *a = (tt_api){.o = *o, .arena = arena};
    return a;
}

void tt_api_close(tt_api *a)
{
    if (!a)
        return;
    tt_json_masks_free(a->masks);
    tt_arena_free(a->arena);
}

/* ---- texts that wait ---- */

static void wait_for_room(tt_api *a, call_text *x)
{
    x->waits = true;
    x->next = NULL;
    if (a->last)
        a->last->next = x;
    else
        a->first = x;
    a->last = x;
    a->n_wait++;
}

/* Takes x out of the list. */
static void wait_no_more(tt_api *a, call_text *x)
{
    call_text *before = NULL;
    for (call_text *i = a->first; i && i != x; i = i->next)
        before = i;
    if (before)
        before->next = x->next;
    else
        a->first = x->next;
    if (a->last == x)
        a->last = before;
    x->waits = false;
    a->n_wait--;
}

tt_status tt_api_admit(tt_api *a, tt_error *err)
{
    while (a->first && tt_engine_has_room(a->o.engine)) {
        call_text *x = a->first;
        wait_no_more(a, x);
        TT_TRY(tt_engine_add(a->o.engine, &x->r, err));
        x->runs = true;
    }
    return TT_OK;
}

/* ---- calls ---- */

bool tt_api_is_done(const tt_api_call *c)
{
    return c->n_done == c->n;
}

bool tt_api_has_failed(const tt_api_call *c)
{
    return c->failed != NULL && !c->stream;
}

void tt_api_free(tt_api *a, tt_api_call *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++) {
        call_text *x = &c->texts[i];
        tt_str *const all[] = {&x->text,    &x->tokens,  &x->logprobs,  &x->top,
                               &x->offsets, &x->content, &x->tools.said};
        if (x->waits)
            wait_no_more(a, x);
        if (x->runs)
            tt_engine_drop(a->o.engine, x);
        for (size_t k = 0; k < TT_COUNT(all); k++)
            tt_str_free(all[k]);
        tt_ids_free(&x->prompt);
    }
    tt_arena_free(c->arena);
}

/* Of a request that could not be read: whose fault it is. */
static int status_of(tt_status s)
{
    return s == TT_ENOMEM || s == TT_EINTERNAL || s == TT_EIO ? 500 : 400;
}

static bool complete(tt_api *a, const tt_http_request *r, bool chat, tt_str *out,
                     tt_api_call **call)
{
    tt_error e = {0};
    tt_arena *arena = tt_arena_new();
    tt_api_call *c = tt_arena_alloc(arena, sizeof *c);
    *c = (tt_api_call){.a = a, .arena = arena, .out = out, .keep_alive = r->keep_alive};
    snprintf(c->id, sizeof c->id, "%s-%llu", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)++a->n_calls);
    c->created = (long long)time(NULL);
    const tt_status s = tt_api_read(a, r, chat, c, &e);
    if (s == TT_OK && a->n_wait + (size_t)c->n > a->o.most_wait) {
        tt_api_fault(out, 503, "too many texts wait already: try again later");
        tt_api_free(a, c);
        return false;
    }
    if (s != TT_OK) {
        tt_api_fault(out, status_of(s), e.text);
        tt_api_free(a, c);
        return false;
    }
    for (int i = 0; i < c->n; i++)
        wait_for_room(a, &c->texts[i]);
    if (c->stream)
        tt_api_stream_begin(c);
    *call = c;
    return r->keep_alive;
}

/* ---- the small functions ---- */

static tt_status tokenize(const tt_api *a, const tt_json *o, tt_str *json, tt_error *err)
{
    const tt_json *text = tt_json_get(o, "prompt");
    tt_ids ids = {0};
    bool special = true;
    TT_TRY(tt_api_bool(o, "add_special_tokens", &special, err));
    if (!text || text->type != TT_JSON_STRING)
        return TT_FAIL(err, TT_EINVAL, "prompt is no text");
    const tt_status s = tt_api_encode(a, text->string, special, &ids, err);
    tt_str_printf(json, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", ids.n,
                  (long long)a->o.context);
    for (size_t i = 0; s == TT_OK && i < ids.n; i++)
        tt_str_printf(json, "%s%d", i ? "," : "", (int)ids.ids[i]);
    tt_str_add(json, "]}\n");
    tt_ids_free(&ids);
    return s;
}

static tt_status detokenize(const tt_api *a, const tt_json *o, tt_str *json, tt_error *err)
{
    const tt_json *list = tt_json_get(o, "tokens");
    tt_decoder decoder = tt_api_decoder(a);
    tt_str text = {0};
    if (!list || list->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EINVAL, "tokens is no list of token ids");
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *v = list->items[i];
        if (v->type != TT_JSON_INT || v->integer < 0 || v->integer >= a->o.info.vocab_size) {
            tt_str_free(&text);
            return TT_FAIL(err, TT_EINVAL, "tokens: element %zu is no token id", i);
        }
        tt_decoder_add(&decoder, (int32_t)v->integer, &text);
    }
    tt_str_add(json, "{\"prompt\":");
    tt_api_add_bytes(json, text.s, text.n);
    tt_str_add(json, "}\n");
    tt_str_free(&text);
    return TT_OK;
}

static bool of_tokenizer(const tt_api *a, const tt_http_request *r, tt_str *out,
                         tt_status (*f)(const tt_api *a, const tt_json *o, tt_str *json,
                                        tt_error *err))
{
    tt_arena *arena = tt_arena_new();
    tt_error e = {0};
    tt_str json = {0};
    const tt_json *o;
    tt_status s = a->o.vt ? tt_api_parse(arena, r, &o, &e)
                          : TT_FAIL(&e, TT_EINVAL, "the model has no tokenizer");
    if (s == TT_OK)
        s = f(a, o, &json, &e);
    if (s == TT_OK)
        tt_api_send(out, 200, &json, r->keep_alive);
    else
        tt_api_fault(out, status_of(s), e.text);
    tt_str_free(&json);
    tt_arena_free(arena);
    return s == TT_OK && r->keep_alive;
}

/* In Prometheus' text format. */
static bool metrics(const tt_api *a, const tt_http_request *r, tt_str *out)
{
    const tt_engine_stats s = tt_engine_count(a->o.engine);
    const struct {
        const char *name, *type, *help;
        int64_t value;
    } all[] = {
        {"prompt_tokens_total",    "counter", "tokens of prompts",                    s.prompt_tokens   },
        {"cached_tokens_total",    "counter", "tokens of prompts that the cache had", s.cached_tokens   },
        {"generated_tokens_total", "counter", "tokens that were generated",           s.new_tokens      },
        {"texts_running",          "gauge",   "texts that are computed",              s.running         },
        {"texts_waiting",          "gauge",   "texts that wait",                      (int64_t)a->n_wait},
    };
    tt_str text = {0};
    for (size_t i = 0; i < TT_COUNT(all); i++)
        tt_str_printf(&text,
                      "# HELP ttrun_serve_%s %s\n# TYPE ttrun_serve_%s %s\nttrun_serve_%s %lld\n",
                      all[i].name, all[i].help, all[i].name, all[i].type, all[i].name,
                      (long long)all[i].value);
    tt_http_head(out, 200, "text/plain; version=0.0.4", (int64_t)text.n, r->keep_alive);
    tt_str_addn(out, tt_str_get(&text), text.n);
    tt_str_free(&text);
    return r->keep_alive;
}

static bool get(const tt_api *a, const tt_http_request *r, tt_str *out)
{
    tt_str json = {0};
    if (!strcmp(r->path, "/health")) {
        tt_str_add(&json, "{\"status\":\"ok\"}\n");
    } else if (!strcmp(r->path, "/tokenizer_info")) {
        tt_str_add(&json, a->o.tokenizer_config);
    } else {
        tt_str_add(&json, "{\"object\":\"list\",\"data\":[{\"id\":");
        tt_str_json(&json, a->o.model);
        tt_str_printf(&json,
                      ",\"object\":\"model\",\"created\":0,\"owned_by\":\"ttrun\","
                      "\"max_model_len\":%lld}]}\n",
                      (long long)a->o.context);
    }
    tt_api_send(out, 200, &json, r->keep_alive);
    tt_str_free(&json);
    return r->keep_alive;
}

static bool refused(tt_str *out, int status, const char *why)
{
    tt_api_fault(out, status, why);
    return false;
}

/* Takes as long for a wrong key as for the right one. */
static bool has_key(const tt_api *a, const tt_http_request *r)
{
    const char *sent = r->authorization ? r->authorization : "";
    if (!a->o.key)
        return true;
    if (!strncmp(sent, "Bearer ", 7))
        sent += 7;
    const size_t n = strlen(a->o.key), m = strlen(sent);
    unsigned differs = n != m;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)a->o.key[i] ^ (unsigned char)(i < m ? sent[i] : 0);
    return !differs;
}

bool tt_api_begin(tt_api *a, const tt_http_request *r, tt_str *out, tt_api_call **call)
{
    static const struct {
        const char *method, *path;
    } all[] = {
        {"GET",  "/health"             },
        {"GET",  "/v1/models"          },
        {"GET",  "/tokenizer_info"     },
        {"GET",  "/metrics"            },
        {"POST", "/v1/completions"     },
        {"POST", "/v1/chat/completions"},
        {"POST", "/tokenize"           },
        {"POST", "/detokenize"         }
    };
    size_t i = 0;
    *call = NULL;
    while (i < TT_COUNT(all) && strcmp(all[i].path, r->path) != 0)
        i++;
    if (i == TT_COUNT(all))
        return refused(out, 404, "there is no such path");
    if (strcmp(all[i].method, r->method) != 0)
        return refused(out, 405,
                       strcmp(all[i].method, "GET") ? "this path takes POST"
                                                    : "this path takes GET");
    if (i && !has_key(a, r))
        return refused(out, 401, "the key is missing or wrong: Authorization: Bearer KEY");
    if (!strcmp(r->path, "/metrics"))
        return metrics(a, r, out);
    if (!strcmp(r->method, "GET"))
        return get(a, r, out);
    if (!strcmp(r->path, "/tokenize"))
        return of_tokenizer(a, r, out, tokenize);
    if (!strcmp(r->path, "/detokenize"))
        return of_tokenizer(a, r, out, detokenize);
    return complete(a, r, strstr(r->path, "chat") != NULL, out, call);
}
