/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "serve/api_impl.h"
#include <string.h>
#include <time.h>

/* Which function a request is for, and the texts that wait for the engine. */

tt_api *tt_api_open(const tt_api_opts *o)
{
    tt_arena *arena = tt_arena_new();
    tt_api *a = tt_arena_alloc(arena, sizeof *a);
    *a = (tt_api){.o = *o, .arena = arena, .created = (long long)time(NULL)};
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
        const tt_status s = tt_engine_add(a->o.engine, &x->r, err);
        if (s == TT_ENOMEM)
            tt_api_on_end(x, TT_FINISH_NONE, TT_API_NO_MEMORY);
        else if (s != TT_OK)
            return s;
        x->runs = s == TT_OK;
    }
    return TT_OK;
}

/* ---- calls ---- */

bool tt_api_is_done(const tt_api_call *c)
{
    return c->n_done == c->n;
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

int tt_api_status_of(tt_status s)
{
    return s == TT_ENOMEM || s == TT_EINTERNAL || s == TT_EIO ? 500 : 400;
}

int tt_api_no_memory(tt_error *err)
{
    if (!tt_reserve_is_low())
        return 0;
    TT_FAIL(err, TT_ENOMEM, TT_API_NO_MEMORY);
    return 500;
}

int tt_api_parse(tt_arena *arena, const tt_http_request *r, const tt_json **out, tt_error *err)
{
    size_t n = 1; /* no fewer than its values: each further one has one of these before it */
    for (size_t i = 0; i < r->n_body; i++)
        n += r->body[i] == ',' || r->body[i] == '[' || r->body[i] == '{';
    if (n > MOST_VALUES) {
        TT_FAIL(err, TT_EINVAL, "the body has too many values: at most %d", (int)MOST_VALUES);
        return 413;
    }
    const tt_status s = tt_json_parse(arena, "body", r->body, r->n_body, out, err);
    if (s == TT_OK && (*out)->type != TT_JSON_OBJECT) {
        TT_FAIL(err, TT_EINVAL, "the body must be a JSON object");
        return 400;
    }
    return s == TT_OK ? 0 : tt_api_status_of(s);
}

/* What people write where a client wants a name and there is one model. */
static bool is_placeholder(const char *name)
{
    static const char *const all[] = {"", "x", "any", "default", "model"};
    for (size_t i = 0; i < TT_COUNT(all); i++)
        if (!strcmp(all[i], name))
            return true;
    return false;
}

int tt_api_check_model(const tt_api *a, const tt_json *o, tt_error *err)
{
    const tt_json *v = tt_api_member(o, "model");
    if (!v || (v->type == TT_JSON_STRING &&
               (!strcmp(v->string, a->o.model) || is_placeholder(v->string))))
        return 0;
    TT_FAIL(err, TT_EINVAL, "model: there is only \"%s\" here (ttrun serve --name)", a->o.model);
    return v->type == TT_JSON_STRING ? 404 : 400;
}

/* Makes the call of a request, whose JSON is gone then. 0, or the status that the error has. */
static int read_call(tt_api_call *c, const tt_http_request *r, tt_error *err)
{
    tt_arena *arena = tt_arena_new();
    const tt_json *o;
    int status = tt_api_parse(arena, r, &o, err);
    if (!status)
        status = tt_api_check_model(c->a, o, err);
    if (!status) {
        const tt_status s = tt_api_read(o, r->n_body, c, err);
        status = s == TT_OK ? 0 : tt_api_status_of(s);
    }
    tt_arena_free(arena);
    return status;
}

static void complete(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out,
                     tt_api_call **call)
{
    tt_error e = {0};
    tt_arena *arena = tt_arena_new();
    tt_api_call *c = tt_arena_alloc(arena, sizeof *c);
    *c = (tt_api_call){.a = a,
                       .arena = arena,
                       .out = out,
                       .reply = p,
                       .chat = strstr(r->path, "chat") != NULL,
                       .created = (long long)time(NULL)};
    snprintf(c->id, sizeof c->id, "%s-%llu", c->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)++a->n_calls);
    int status = tt_api_no_memory(&e);
    if (!status)
        status = read_call(c, r, &e);
    if (!status)
        status = tt_api_no_memory(&e);
    if (status || a->n_wait + (size_t)c->n > a->o.most_wait) {
        tt_api_fault(out, p, status ? status : 503,
                     status ? e.text : "too many texts wait already: try again later");
        tt_api_free(a, c);
        return;
    }
    for (int i = 0; i < c->n; i++)
        wait_for_room(a, &c->texts[i]);
    if (c->stream)
        tt_api_stream_begin(c);
    *call = c;
}

/* ---- the small functions ---- */

/* In Prometheus' text format. */
static void metrics(const tt_api *a, tt_http_reply *p, tt_str *out)
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
    tt_api_send(out, p, 200, "text/plain; version=0.0.4", &text);
    tt_str_free(&text);
}

static void add_model(const tt_api *a, tt_str *json)
{
    tt_str_add(json, "{\"id\":");
    tt_str_json(json, a->o.model);
    tt_str_printf(json,
                  ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ttrun\","
                  "\"max_model_len\":%lld}",
                  a->created, (long long)a->o.context);
}

/* Is it the model's name, as it stands in a path, with % and two digits for some characters? */
static bool names_model(const tt_api *a, const char *text)
{
    const char *name = a->o.model;
    for (; *text && *name; text++, name++) {
        unsigned c = (unsigned char)*text;
        if (c == '%' && sscanf(text + 1, "%2x", &c) == 1 && text[1] && text[2])
            text += 2;
        if (c != (unsigned char)*name)
            return false;
    }
    return !*text && !*name;
}

static void get(const tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out)
{
    static const char models[] = "/v1/models/";
    tt_str json = {0};
    if (!strcmp(r->path, "/health")) {
        tt_str_add(&json, "{\"status\":\"ok\"}\n");
    } else if (!strcmp(r->path, "/tokenizer_info")) {
        tt_str_add(&json, a->o.tokenizer_config);
    } else if (!strcmp(r->path, "/v1/models")) {
        tt_str_add(&json, "{\"object\":\"list\",\"data\":[");
        add_model(a, &json);
        tt_str_add(&json, "]}\n");
    } else if (names_model(a, r->path + sizeof models - 1)) {
        add_model(a, &json);
        tt_str_addc(&json, '\n');
    } else {
        tt_api_fault(out, p, 404, "there is no such model: GET /v1/models tells which there is");
        return;
    }
    tt_api_send(out, p, 200, "application/json", &json);
    tt_str_free(&json);
}

void tt_api_begin(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out,
                  tt_api_call **call)
{
    *call = NULL;
    if (!strcmp(r->path, "/metrics"))
        metrics(a, p, out);
    else if (strcmp(r->method, "POST") != 0)
        get(a, r, p, out);
    else if (!strncmp(r->path, "/v1/", 4))
        complete(a, r, p, out, call);
    else
        tt_api_of_tokenizer(a, r, p, out);
}
