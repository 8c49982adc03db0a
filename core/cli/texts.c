/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/texts.h"
#include <stdlib.h>
#include <string.h>

static const char *const finish_names[] = {"cut", "stop", "length", "context"};

static void decode(const tt_texts *t, int32_t id, tt_str *out)
{
    char piece[4096];
    const size_t n = t->vt ? t->vt->decode(t->tokenizer, id, piece, sizeof piece) : 0;
    tt_str_addn(out, piece, TT_MIN(n, sizeof piece));
}

/* As decode; *first: the text has not begun, so blanks that the tokenizer puts before it are
 * dropped. */
static void decode_from(const tt_texts *t, int32_t id, bool *first, tt_str *out)
{
    char piece[4096];
    const size_t before = out->n;
    decode(t, id, out);
    if (out->n == before || !*first)
        return;
    *first = false;
    if (!TT_HAS(t->vt, tt_tokenizer_vt, decode_first) || !t->vt->decode_first)
        return;
    const size_t n = t->vt->decode_first(t->tokenizer, id, piece, sizeof piece);
    tt_str rest = {0};
    tt_str_addn(&rest, tt_str_get(out), before);
    tt_str_addn(&rest, piece, TT_MIN(n, sizeof piece));
    tt_str_free(out);
    *out = rest;
    *first = t->trims_begin && n == 0;
}

static bool streams(const tt_texts *t)
{
    return t->n == 1 && !t->cli->json && t->vt;
}

/* Prints the prompt of a single text, before its first token. */
static void texts_begin(tt_texts *t)
{
    const tt_prompt *p = &t->prompts->items[0];
    if (t->begun)
        return;
    t->begun = true;
    tt_str out = {0};
    t->first = !p->text || p->n_bytes == 0;
    tt_str_addn(&out, p->text ? p->text : "", p->n_bytes);
    for (size_t i = 0; !p->text && i < p->ids.n; i++)
        decode_from(t, p->ids.ids[i], &t->first, &out);
    tt_cli_print(&out);
    tt_str_free(&out);
}

void tt_texts_token(void *texts, size_t sequence, int32_t id)
{
    tt_texts *t = texts;
    (void)sequence;
    if (!streams(t))
        return;
    texts_begin(t);
    decode_from(t, id, &t->first, &t->pending);
    const size_t n = tt_utf8_whole(tt_str_get(&t->pending), t->pending.n);
    tt_str out = {0};
    tt_str_addn(&out, tt_str_get(&t->pending), n);
    tt_cli_print(&out);
    tt_str_clear(&out);
    tt_str_addn(&out, tt_str_get(&t->pending) + n, t->pending.n - n);
    tt_str_free(&t->pending);
    t->pending = out;
}

/* A NUL byte would end the C string, so it is written as an escaped character. */
static void add_json_bytes(tt_str *out, const tt_str *bytes)
{
    tt_str part = {0};
    const char *s = tt_str_get(bytes);
    tt_str_addc(out, '"');
    for (size_t at = 0; at < bytes->n;) {
        const size_t n = strlen(s + at);
        tt_str_clear(&part);
        tt_str_json(&part, s + at);
        tt_str_addn(out, part.s + 1, part.n - 2);
        at += n;
        if (at < bytes->n) {
            tt_str_add(out, "\\u0000");
            at++;
        }
    }
    tt_str_addc(out, '"');
    tt_str_free(&part);
}

static void add_object(const tt_texts *t, size_t i, tt_str *out)
{
    const tt_sequence *s = &t->s[i];
    tt_str text = {0};
    tt_str_printf(out, "{\"prompt\":%zu,\"sample\":%zu,\"prompt_tokens\":%lld,\"tokens\":%zu,",
                  i / t->each, i % t->each, (long long)s->n_prompt, s->ids.n);
    tt_str_printf(out, "\"finish\":\"%s\",\"text\":", finish_names[s->finish]);
    for (size_t k = 0; k < s->ids.n; k++)
        decode(t, s->ids.ids[k], &text);
    if (t->vt)
        add_json_bytes(out, &text);
    else
        tt_str_add(out, "null");
    tt_str_add(out, ",\"ids\":[");
    for (size_t k = 0; k < s->ids.n; k++)
        tt_str_printf(out, "%s%d", k ? "," : "", (int)s->ids.ids[k]);
    tt_str_add(out, "]}\n");
    tt_str_free(&text);
}

static void add_text(const tt_texts *t, size_t i, tt_str *out)
{
    const tt_sequence *s = &t->s[i];
    const tt_prompt *p = &t->prompts->items[i / t->each];
    if (i)
        tt_str_add(out, "---\n");
    bool first = !p->text || p->n_bytes == 0;
    if (p->text)
        tt_str_addn(out, p->text, p->n_bytes);
    for (size_t k = 0; !p->text && k < p->ids.n; k++)
        t->vt ? decode_from(t, p->ids.ids[k], &first, out)
              : tt_str_printf(out, "%d ", (int)p->ids.ids[k]);
    for (size_t k = 0; k < s->ids.n; k++)
        t->vt ? decode_from(t, s->ids.ids[k], &first, out)
              : tt_str_printf(out, "%d ", (int)s->ids.ids[k]);
    tt_str_addc(out, '\n');
}

static void print_done(tt_texts *t, bool all)
{
    while (t->printed < t->n && (all || t->s[t->printed].finish)) {
        tt_str out = {0};
        if (t->cli->json)
            add_object(t, t->printed, &out);
        else
            add_text(t, t->printed, &out);
        tt_cli_print(&out);
        tt_str_free(&out);
        t->printed++;
    }
}

void tt_texts_end(void *texts, size_t sequence)
{
    tt_texts *t = texts;
    (void)sequence;
    if (!streams(t))
        print_done(t, false);
}

void tt_texts_close(tt_texts *t)
{
    if (streams(t)) {
        texts_begin(t);
        tt_str_addc(&t->pending, '\n');
        tt_cli_print(&t->pending);
    } else {
        print_done(t, true);
    }
    tt_str_free(&t->pending);
}
