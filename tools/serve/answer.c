/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>

/* Answers as JSON, whole or as server-sent events. */

void tt_api_send(tt_str *out, tt_http_reply *p, int status, const char *type, const tt_str *text)
{
    tt_http_head(out, p, status, type, (int64_t)text->n);
    if (!p->head_only)
        tt_str_addn(out, tt_str_get(text), text->n);
}

void tt_api_fault(tt_str *out, tt_http_reply *p, int status, const char *why)
{
    tt_str json = {0};
    if (status == 204) {
        tt_http_head(out, p, status, NULL, 0);
        return;
    }
    p->keep_alive = false;
    tt_str_add(&json, "{\"error\":{\"message\":");
    tt_str_json(&json, why);
    tt_str_printf(&json, ",\"type\":\"%s\",\"param\":null,\"code\":%d}}\n",
                  status == 401  ? "authentication_error"
                  : status < 500 ? "invalid_request_error"
                                 : "server_error",
                  status);
    tt_api_send(out, p, status, "application/json", &json);
    tt_str_free(&json);
}

static void begin_object(const tt_api_call *c, tt_str *o)
{
    const char *kind = !c->chat    ? "text_completion"
                       : c->stream ? "chat.completion.chunk"
                                   : "chat.completion";
    tt_str_printf(o, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", c->id, kind,
                  c->created);
    tt_str_json(o, c->a->o.model);
    tt_str_add(o, ",\"choices\":[");
}

static void add_usage(const tt_api_call *c, tt_str *o)
{
    long long n = 0, cached = 0;
    for (int i = 0; i < c->n; i++) {
        n += c->texts[i].n_new;
        cached += c->texts[i].sibling ? 0 : c->texts[i].n_cached;
    }
    tt_str_printf(o,
                  ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                  "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
                  (long long)c->prompt_tokens, n, (long long)c->prompt_tokens + n, cached);
}

void tt_api_add_bytes(tt_str *o, const char *s, size_t n)
{
    tt_str text = {0};
    for (size_t i = 0; i < n; i++) /* a NUL would end it */
        if (s[i])
            tt_str_addc(&text, s[i]);
        else
            tt_str_add(&text, "\xef\xbf\xbd");
    tt_str_json(o, tt_str_get(&text));
    tt_str_free(&text);
}

static void add_logprobs(const call_text *x, tt_str *o)
{
    tt_str_add(o, ",\"logprobs\":");
    if (!x->call->scored)
        tt_str_add(o, "null");
    else if (x->call->chat)
        tt_str_printf(o, "{\"content\":[%s]}", tt_str_get(&x->content));
    else
        tt_str_printf(o,
                      "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],"
                      "\"text_offset\":[%s]}",
                      tt_str_get(&x->tokens), tt_str_get(&x->logprobs), tt_str_get(&x->top),
                      tt_str_get(&x->offsets));
}

static void add_finish(const call_text *x, tt_str *o)
{
    tt_str_add(o, ",\"finish_reason\":");
    if (x->finish)
        tt_str_printf(o, "\"%s\"}", x->finish);
    else
        tt_str_add(o, "null}");
}

const tt_str *tt_api_told(const call_text *x)
{
    return x->call->tools ? &x->tools.said : &x->text;
}

/* "tool_calls": those from `from` on. indexed: as a stream has them. */
static void add_calls(const call_text *x, size_t from, bool indexed, tt_str *o)
{
    tt_str_add(o, "\"tool_calls\":[");
    for (size_t i = from; i < x->tools.calls.n; i++) {
        const tt_tool_call *c = &x->tools.calls.items[i];
        tt_str_add(o, i > from ? ",{" : "{");
        if (indexed)
            tt_str_printf(o, "\"index\":%zu,", i);
        tt_str_printf(o, "\"id\":\"call-%s-%d-%zu\",\"type\":\"function\",\"function\":{\"name\":",
                      x->call->id, x->index, i);
        tt_str_json(o, c->name);
        tt_str_add(o, ",\"arguments\":");
        tt_str_json(o, c->arguments);
        tt_str_add(o, "}}");
    }
    tt_str_addc(o, ']');
}

static void add_message(const call_text *x, tt_str *o)
{
    const tt_str *text = tt_api_told(x);
    tt_str_add(o, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (x->tools.calls.n && !text->n)
        tt_str_add(o, "null");
    else
        tt_api_add_bytes(o, tt_str_get(text), text->n);
    if (x->tools.calls.n) {
        tt_str_addc(o, ',');
        add_calls(x, 0, false, o);
    }
    tt_str_addc(o, '}');
}

void tt_api_answer(tt_api_call *c)
{
    tt_str o = {0};
    if (c->failed) {
        tt_api_fault(c->out, c->reply, 500, c->failed);
        return;
    }
    begin_object(c, &o);
    for (int i = 0; i < c->n; i++) {
        const call_text *x = &c->texts[i];
        tt_str_printf(&o, "%s{\"index\":%d,", i ? "," : "", x->index);
        if (c->chat) {
            add_message(x, &o);
        } else {
            tt_str_add(&o, "\"text\":");
            tt_api_add_bytes(&o, tt_str_get(&x->text), x->text.n);
        }
        add_logprobs(x, &o);
        add_finish(x, &o);
    }
    tt_str_addc(&o, ']');
    add_usage(c, &o);
    tt_str_add(&o, "}\n");
    tt_api_send(c->out, c->reply, 200, "application/json", &o);
    tt_str_free(&o);
}

/* ---- events ---- */

static void send_event(tt_api_call *c, const char *json, size_t n)
{
    tt_str event = {0};
    tt_str_add(&event, "data: ");
    tt_str_addn(&event, json, n);
    tt_str_add(&event, "\n\n");
    tt_http_chunk(c->out, c->reply, event.s, event.n);
    tt_str_free(&event);
}

/* member: of the choice, the text or what a chat's message gets. */
static void send_chunk(tt_api_call *c, call_text *x, const tt_str *member)
{
    tt_str o = {0};
    begin_object(c, &o);
    tt_str_printf(&o, "{\"index\":%d,", x->index);
    tt_str_add(&o, tt_str_get(member));
    add_logprobs(x, &o);
    add_finish(x, &o);
    tt_str_add(&o, "]}");
    send_event(c, o.s, o.n);
    tt_str_free(&o);
    tt_str_clear(&x->content);
    tt_str_clear(&x->tokens);
    tt_str_clear(&x->logprobs);
    tt_str_clear(&x->top);
    tt_str_clear(&x->offsets);
}

/* before: what stands before the text. */
static void send_text(call_text *x, const char *before, const char *text, size_t n)
{
    tt_str member = {0};
    tt_str_add(&member, before);
    tt_api_add_bytes(&member, text, n);
    tt_str_add(&member, x->call->chat ? "}" : "");
    send_chunk(x->call, x, &member);
    tt_str_free(&member);
}

static void send_calls(call_text *x)
{
    tt_str member = {0};
    tt_str_add(&member, "\"delta\":{");
    add_calls(x, x->n_calls_told, true, &member);
    tt_str_addc(&member, '}');
    send_chunk(x->call, x, &member);
    tt_str_free(&member);
    x->n_calls_told = x->tools.calls.n;
}

void tt_api_stream_begin(tt_api_call *c)
{
    tt_http_head(c->out, c->reply, 200, "text/event-stream", -1);
    for (int i = 0; c->chat && i < c->n; i++)
        send_text(&c->texts[i], "\"delta\":{\"role\":\"assistant\",\"content\":", "", 0);
}

void tt_api_stream_text(call_text *x, size_t n)
{
    tt_api_call *c = x->call;
    const char *finish = x->finish, *text = tt_str_get(tt_api_told(x));
    const size_t from = x->n_told;
    const bool news = n > from || x->content.n || x->tokens.n;
    tt_str nothing = {0};
    if (!c->chat && (news || finish)) {
        x->n_told = n;
        send_text(x, "\"text\":", text + from, n - from);
        return;
    }
    x->finish = NULL; /* the end has an event of its own */
    if (c->chat && news) {
        x->n_told = n;
        send_text(x, "\"delta\":{\"content\":", text + from, n - from);
    }
    if (x->n_calls_told < x->tools.calls.n)
        send_calls(x);
    x->finish = finish;
    if (c->chat && finish) {
        tt_str_add(&nothing, "\"delta\":{}");
        send_chunk(c, x, &nothing);
        tt_str_free(&nothing);
    }
}

void tt_api_stream_end(tt_api_call *c)
{
    if (c->usage) {
        tt_str o = {0};
        begin_object(c, &o);
        tt_str_addc(&o, ']');
        add_usage(c, &o);
        tt_str_addc(&o, '}');
        send_event(c, o.s, o.n);
        tt_str_free(&o);
    }
    send_event(c, "[DONE]", 6);
    tt_http_last_chunk(c->out, c->reply);
}
