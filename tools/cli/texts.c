/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/texts.h"
#include <stdlib.h>
#include <string.h>

static const char *const finish_names[] = {"cut", "stop", "length", "context"};

static bool streams(const tt_texts *t)
{
    return t->n == 1 && !t->cli->json && t->decoder.vt;
}

/* The prompt of a text, as it was given; returns the decoder behind it. */
static tt_decoder add_prompt(const tt_texts *t, const tt_prompt *p, tt_str *out)
{
    tt_decoder d = t->decoder;
    if (p->text) {
        tt_str_addn(out, p->text, p->n_bytes);
        tt_decoder_pass(&d, p->ids.ids, p->ids.n);
    }
    for (size_t i = 0; !p->text && i < p->ids.n; i++)
        tt_decoder_add(&d, p->ids.ids[i], out);
    return d;
}

/* Prints the prompt of a single text, before its first token. */
static void texts_begin(tt_texts *t)
{
    if (t->begun)
        return;
    t->begun = true;
    tt_str out = {0};
    t->single = add_prompt(t, &t->prompts->items[0], &out);
    tt_cli_print_exact(&out);
    tt_str_free(&out);
}

void tt_texts_token(void *texts, size_t sequence, int32_t id)
{
    tt_texts *t = texts;
    (void)sequence;
    if (!streams(t))
        return;
    texts_begin(t);
    tt_decoder_add(&t->single, id, &t->pending);
    const size_t n = tt_utf8_whole(tt_str_get(&t->pending), t->pending.n);
    tt_str out = {0};
    tt_str_addn(&out, tt_str_get(&t->pending), n);
    tt_cli_print_exact(&out);
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
    tt_decoder d = t->decoder;
    tt_str text = {0};
    tt_str_printf(out, "{\"prompt\":%zu,\"sample\":%zu,\"prompt_tokens\":%lld,\"tokens\":%zu,",
                  i / t->each, i % t->each, (long long)s->n_prompt, s->ids.n);
    tt_str_printf(out, "\"finish\":\"%s\",\"text\":", finish_names[s->finish]);
    tt_decoder_pass(&d, s->prompt, (size_t)s->n_prompt);
    for (size_t k = 0; k < s->ids.n; k++)
        tt_decoder_add(&d, s->ids.ids[k], &text);
    if (d.vt)
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
    tt_decoder d = add_prompt(t, p, out);
    for (size_t k = 0; !d.vt && k < p->ids.n; k++)
        tt_str_printf(out, "%d ", (int)p->ids.ids[k]);
    for (size_t k = 0; k < s->ids.n; k++)
        if (d.vt)
            tt_decoder_add(&d, s->ids.ids[k], out);
        else
            tt_str_printf(out, "%d ", (int)s->ids.ids[k]);
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
        tt_cli_print_exact(&out);
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
        tt_cli_print_exact(&t->pending);
    } else {
        print_done(t, true);
    }
    tt_str_free(&t->pending);
}
