/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/reserve.h"
#include "base/shown.h"
#include "serve/api_impl.h"
#include <string.h>

/* Texts as they grow: decoding, texts that end them, and logprobs. */

tt_decoder tt_api_decoder(const tt_api *a)
{
    return tt_decoder_of(a->o.vt, a->o.tokenizer, &a->o.info);
}

static void comma(tt_str *s)
{
    if (s->n)
        tt_str_addc(s, ',');
}

/* What stands for a token behind d: its text, or of a special one, which has none, its number. */
static void token_name(const tt_decoder *d, int32_t id, tt_str *out)
{
    tt_decoder_show(d, id, out);
    if (!out->n)
        tt_str_printf(out, "<token %d>", (int)id);
}

/* The same, but bytes that are a part of a character are written bytes:\xe6\x97, as OpenAI's completions do:
 * JSON could hold only U+FFFD for them, and different tokens would then be one key of top_logprobs. */
void tt_api_token_key(const tt_decoder *d, int32_t id, tt_str *out)
{
    tt_str text = {0};
    token_name(d, id, &text);
    if (tt_utf8_valid(text.s, text.n) == text.n && !memchr(text.s, '\0', text.n)) {
        *out = text;
        return;
    }
    tt_str_add(out, "bytes:");
    tt_str_escaped(out, text.s, text.n);
    tt_str_free(&text);
}

/* {"text": logprob, …}: the most likely tokens and this one. Of equal texts the first is the likeliest. */
static void add_top_of_completion(const tt_decoder *d, const tt_token *t, tt_str *out)
{
    tt_str seen[TT_MOST_TOP + 1] = {{0}};
    bool any = false;
    tt_str_addc(out, '{');
    for (int i = 0; i <= t->n_top; i++) {
        const tt_scored s = i < t->n_top ? t->top[i] : (tt_scored){t->id, t->logprob};
        bool known = false;
        tt_api_token_key(d, s.id, &seen[i]);
        for (int k = 0; k < i; k++)
            known = known || (seen[k].n == seen[i].n && !memcmp(seen[k].s, seen[i].s, seen[i].n));
        if (known)
            continue;
        if (any)
            tt_str_addc(out, ',');
        any = true;
        tt_api_add_bytes(out, seen[i].s, seen[i].n);
        tt_str_addc(out, ':');
        tt_str_json_number(out, s.logprob);
    }
    tt_str_addc(out, '}');
    for (int i = 0; i <= t->n_top; i++)
        tt_str_free(&seen[i]);
}

static void add_scored_of_chat(const tt_decoder *d, tt_scored s, tt_str *out)
{
    tt_str text = {0};
    token_name(d, s.id, &text);
    tt_str_add(out, "{\"token\":");
    tt_api_add_bytes(out, text.s, text.n);
    tt_str_add(out, ",\"logprob\":");
    tt_str_json_number(out, s.logprob);
    tt_str_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.n; i++)
        tt_str_printf(out, "%s%d", i ? "," : "", (int)(unsigned char)text.s[i]);
    tt_str_addc(out, ']');
    tt_str_free(&text);
}

/* How many characters the text's first n bytes are, as clients count them. A byte that belongs to no character counts
 * as one; a character that these bytes have only a part of does not count. n must not get smaller from call to call. */
static size_t n_characters(call_text *x, size_t n)
{
    while (x->n_counted < n) {
        const char *s = x->text.s + x->n_counted;
        const size_t most = TT_MIN(x->text.n - x->n_counted, 4);
        size_t length = 1;
        if (!tt_utf8_whole(s, most))
            break; /* the rest of a character is to come */
        while (length < most && tt_utf8_valid(s, length) != length)
            length++;
        if (tt_utf8_valid(s, length) != length)
            length = 1;
        if (x->n_counted + length > n)
            break;
        x->n_counted += length;
        x->n_characters++;
    }
    return x->n_characters;
}

/* d: before this token; before: bytes of the text there. */
static void add_logprob(call_text *x, const tt_token *t, const tt_decoder *d, size_t before)
{
    tt_str text = {0};
    if (x->call->chat) {
        tt_str one = {0};
        add_scored_of_chat(d, (tt_scored){t->id, t->logprob}, &one);
        tt_str_add(&one, ",\"top_logprobs\":[");
        for (int i = 0; i < t->n_top; i++) {
            if (i)
                tt_str_addc(&one, ',');
            add_scored_of_chat(d, t->top[i], &one);
            tt_str_addc(&one, '}');
        }
        tt_str_add(&one, "]}");
        comma(&x->content);
        tt_str_addn(&x->content, one.s, one.n);
        tt_str_free(&one);
        return;
    }
    tt_api_token_key(d, t->id, &text);
    comma(&x->tokens);
    tt_api_add_bytes(&x->tokens, text.s, text.n);
    comma(&x->logprobs);
    comma(&x->top);
    if (t->has_logprob) {
        tt_str_json_number(&x->logprobs, t->logprob);
        add_top_of_completion(d, t, &x->top);
    } else {
        tt_str_add(&x->logprobs, "null");
        tt_str_add(&x->top, "null");
    }
    comma(&x->offsets);
    tt_str_printf(&x->offsets, "%zu", n_characters(x, before));
    tt_str_free(&text);
}

/* Where the first of the texts that end it begins, not before `from`; the length if there is none. */
static size_t find_stop(const call_text *x, size_t from)
{
    const tt_api_call *c = x->call;
    size_t at = x->text.n;
    for (size_t i = 0; i < c->n_stops; i++) {
        const char *hit = x->text.n > from ? memmem(x->text.s + from, x->text.n - from, c->stops[i],
                                                    strlen(c->stops[i]))
                                           : NULL;
        if (hit)
            at = TT_MIN(at, (size_t)(hit - x->text.s));
    }
    return at;
}

/* How much of the text is sure to stay: not what may become a text that ends it. */
static size_t settled(const call_text *x)
{
    const tt_api_call *c = x->call;
    size_t keep = 0;
    for (size_t i = 0; i < c->n_stops; i++)
        for (size_t k = TT_MIN(strlen(c->stops[i]) - 1, x->text.n - x->prompt_bytes); k > keep; k--)
            if (!memcmp(x->text.s + x->text.n - k, c->stops[i], k))
                keep = k;
    return x->text.n - keep;
}

/* Takes calls of tools out of the first n bytes of the text, and sends what is left, but no part of a character. */
static void tell(call_text *x, size_t n, bool ended)
{
    const tt_api_call *c = x->call;
    if (c->tools) {
        tt_tools_read(&x->tools, tt_str_get(&x->text), n, ended);
        n = x->tools.said.n;
    }
    if (ended && x->tools.calls.n && !strcmp(x->finish, "stop"))
        x->finish = "tool_calls";
    if (!c->stream)
        return;
    if (!ended)
        n = n > x->n_told ? x->n_told + tt_utf8_whole(tt_api_told(x)->s + x->n_told, n - x->n_told)
                          : x->n_told;
    tt_api_stream_text(x, n);
}

/* A special token that begins or ends a call decodes to nothing. */
static void add_mark(const tt_api *a, int32_t id, tt_str *out)
{
    const tt_tokenizer_vt *vt = a->o.vt;
    tt_special s = {.struct_size = sizeof s};
    if (!vt || !TT_HAS(vt, tt_tokenizer_vt, special) || !vt->special)
        return;
    for (size_t i = 0; vt->special(a->o.tokenizer, i, &s); i++)
        if (s.id == id && tt_tools_is_mark(s.text.s, s.text.n)) {
            tt_str_addn(out, s.text.s, s.text.n);
            return;
        }
}

const uint64_t *tt_api_allowed(void *text)
{
    const call_text *x = text;
    tt_api *a = x->call->a;
    if (!a->masks)
        a->masks = tt_json_masks_new(a->o.vt, a->o.tokenizer, a->o.info.vocab_size);
    return tt_json_masks_get(a->masks, &x->json);
}

/* Takes the text from `from` on into the state of the object; true: it is whole. */
static bool go_on_json(call_text *x, size_t from)
{
    for (size_t i = from; i < x->text.n; i++)
        if (!tt_json_text_next(&x->json, (unsigned char)x->text.s[i]))
            return true; /* never: only such tokens may come */
    return tt_json_text_is_whole(&x->json);
}

/* Memory is out, and the text that needs more of it has to give back what it has. */
static bool text_give_up(call_text *x)
{
    tt_str *const all[] = {&x->tokens, &x->logprobs, &x->top, &x->offsets, &x->content};
    x->call->failed = TT_API_NO_MEMORY;
    x->finish = "error";
    for (size_t i = 0; i < TT_COUNT(all); i++)
        tt_str_free(all[i]);
    return false;
}

bool tt_api_on_token(void *text, const tt_token *t)
{
    call_text *x = text;
    tt_api_call *c = x->call;
    const tt_decoder decoder = x->decoder;
    const size_t before = x->text.n;
    if (c->failed && !c->stream)
        return false; /* nobody will see it */
    if (!t->ends)
        tt_decoder_add(&x->decoder, t->id, &x->text);
    if (c->tools && !t->ends && x->text.n == before)
        add_mark(c->a, t->id, &x->text);
    if (c->scored)
        add_logprob(x, t, &decoder, before);
    if (tt_reserve_is_low())
        return text_give_up(x);
    if (t->of_prompt) {
        x->prompt_bytes = x->text.n;
        return true;
    }
    x->n_new++;
    if (t->ends)
        return true; /* tt_api_on_end tells it */
    if (c->json && go_on_json(x, before))
        return false;
    if (c->n_stops && x->text.n > before) {
        const size_t from = before > x->prompt_bytes + c->longest_stop ? before - c->longest_stop
                                                                       : x->prompt_bytes,
                     at = find_stop(x, from);
        if (at < x->text.n) {
            x->text.n = at;
            x->text.s[at] = '\0';
            return false;
        }
    }
    if (c->stream)
        tell(x, settled(x), false);
    return true;
}

void tt_api_on_end(void *text, tt_finish finish, const char *error)
{
    call_text *x = text;
    tt_api_call *c = x->call;
    x->runs = false;
    c->n_done++;
    c->failed = error ? error : c->failed;
    if (error)
        x->finish = "error";
    else if (!x->finish)
        x->finish = finish == TT_FINISH_STOP ? "stop" : "length";
    tell(x, x->text.n, true);
    if (c->n_done < c->n)
        return;
    if (c->stream)
        tt_api_stream_end(c);
    else
        tt_api_answer(c);
}
