/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/chat.h"
#include "config/config.h"
#include <stdlib.h>
#include <string.h>

/* Renders a conversation, and finds which bytes an assistant generates. If the template has
 * {% generation %}, it says so. Else an assistant's turn begins behind the generation prompt (what the template
 * adds for add_generation_prompt) in front of its first byte of input, and ends behind the first special token
 * that follows its last byte of input. */

/* ---- JSON as values ---- */

static tt_jvalue *value_of(tt_arena *a, const tt_json *j, tt_tag tag)
{
    tt_jvalue *v;
    switch (j->type) {
    case TT_JSON_BOOL:
        return tt_j_bool(a, j->boolean);
    case TT_JSON_INT:
        return tt_j_int(a, j->integer);
    case TT_JSON_REAL:
        return tt_j_float(a, j->real);
    case TT_JSON_STRING:
        return tt_j_text(a, j->string, strlen(j->string), tag);
    case TT_JSON_ARRAY:
        v = tt_j_new(a, TT_J_LIST);
        for (size_t i = 0; i < j->n; i++)
            tt_j_push(a, v, value_of(a, j->items[i], tag));
        return v;
    case TT_JSON_OBJECT:
        v = tt_j_new(a, TT_J_DICT);
        for (size_t i = 0; i < j->n; i++)
            tt_j_append(a, v, tt_j_text(a, j->keys[i], strlen(j->keys[i]), tag),
                        value_of(a, j->items[i], tag));
        return v;
    default:
        return tt_j_new(a, TT_J_NONE);
    }
}

/* Message i has the tag i + 1. */
static tt_status messages_of(tt_arena *a, const tt_conversation *c, tt_jvalue **out, tt_error *err)
{
    const tt_json *j;
    TT_TRY(tt_json_parse(a, "messages", c->messages, c->n_messages, &j, err));
    if (j->type != TT_JSON_ARRAY || j->n == 0)
        return TT_FAIL(err, TT_EINVAL, "messages: a list with at least one message is wanted");
    if (j->n >= INT16_MAX)
        return TT_FAIL(err, TT_EINVAL, "messages: %zu are too many for one conversation", j->n);
    *out = tt_j_new(a, TT_J_LIST);
    for (size_t i = 0; i < j->n; i++) {
        const tt_json *role = tt_json_get(j->items[i], "role");
        if (!role || role->type != TT_JSON_STRING)
            return TT_FAIL(err, TT_EINVAL,
                           "messages[%zu]: an object with a string \"role\" is wanted", i);
        tt_j_push(a, *out, value_of(a, j->items[i], (tt_tag)(i + 1)));
    }
    return TT_OK;
}

static tt_status variables_of(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                              tt_jvalue *vars, tt_error *err)
{
    const tt_json *more = NULL;
    tt_j_append(a, vars, tt_j_text(a, "tools", 5, TT_TAG_TEMPLATE), tt_j_new(a, TT_J_NONE));
    tt_j_append(a, vars, tt_j_text(a, "documents", 9, TT_TAG_TEMPLATE), tt_j_new(a, TT_J_NONE));
    for (size_t i = 0; i < t->constants->u.dict.n; i++)
        tt_j_put(a, vars, t->constants->u.dict.keys[i], t->constants->u.dict.values[i], NULL);
    if (!c->variables)
        return TT_OK;
    TT_TRY(tt_json_parse(a, "variables", c->variables, strlen(c->variables), &more, err));
    if (more->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EINVAL, "the variables of a chat template: an object is wanted");
    for (size_t i = 0; i < more->n; i++)
        tt_j_put(a, vars, tt_j_text(a, more->keys[i], strlen(more->keys[i]), TT_TAG_TEMPLATE),
                 value_of(a, more->items[i], TT_TAG_INPUT), NULL);
    return TT_OK;
}

static void set_variable(tt_arena *a, tt_jvalue *vars, const char *key, tt_jvalue *v)
{
    tt_j_put(a, vars, tt_j_text(a, key, strlen(key), TT_TAG_TEMPLATE), v, NULL);
}

static tt_status render(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                        tt_jvalue *vars, tt_jvalue *messages, bool prompt, tt_jtext *out,
                        tt_error *err)
{
    set_variable(a, vars, "messages", messages);
    set_variable(a, vars, "add_generation_prompt", tt_j_bool(a, prompt));
    return tt_jinja_render(a, t->name, t->tree, vars, c->now > 0 ? c->now : tt_wall_seconds(), out,
                           err);
}

/* ---- the assistant's turns ---- */

static bool is_assistant(const tt_jvalue *message)
{
    const tt_jvalue *role = tt_j_get(message, "role", 4);
    const tt_jstring *s = role && role->type == TT_J_STRING ? &role->u.string : NULL;
    return s && ((s->n == 9 && !memcmp(s->s, "assistant", 9)) ||
                 (s->n == 5 && !memcmp(s->s, "model", 5)));
}

/* What the template adds for add_generation_prompt to the messages before the first of an assistant, or to all if
 * an assistant begins; empty if it adds nothing, or refuses such a conversation. */
static tt_jstring generation_prompt(tt_arena *a, const tt_chat_template *t,
                                    const tt_conversation *c, tt_jvalue *vars,
                                    const tt_jvalue *messages)
{
    tt_jvalue *first = tt_j_new(a, TT_J_LIST);
    tt_jtext without = {0}, with = {0};
    tt_error ignored = {0};
    tt_jstring none = {"", NULL, 0};
    const bool all = is_assistant(messages->u.list.items[0]); /* there is a message */
    for (size_t i = 0; i < messages->u.list.n; i++) {
        if (!all && is_assistant(messages->u.list.items[i]))
            break;
        tt_j_push(a, first, messages->u.list.items[i]);
    }
    if (render(a, t, c, vars, first, false, &without, &ignored) != TT_OK ||
        render(a, t, c, vars, first, true, &with, &ignored) != TT_OK)
        return none;
    if (with.n < without.n || memcmp(with.s, without.s, without.n) != 0)
        return none;
    return (tt_jstring){with.s + without.n, NULL, with.n - without.n};
}

typedef struct turns {
    const tt_jtext *text;
    uint8_t *learned;
    tt_jstring prompt;
    tt_chat_special_fn special;
    const void *user;
} turns;

static size_t special_at(const turns *w, size_t at, size_t end)
{
    const size_t n = w->special ? w->special(w->user, w->text->s + at, end - at) : 0;
    for (size_t i = 0; i < n; i++)
        if (w->text->tags[at + i] != TT_TAG_TEMPLATE)
            return 0;
    return n;
}

/* Where the turn whose first byte of input is `first` begins; `from`: the text before belongs to others. */
static size_t turn_begin(const turns *w, size_t from, size_t first)
{
    const tt_jtext *t = w->text;
    const size_t n = w->prompt.n;
    size_t begin = first;
    for (size_t end = first; n && end >= from + n; end--)
        if (!memcmp(t->s + end - n, w->prompt.s, n))
            return end;
    for (size_t at = from, k; at < first; at += k ? k : 1) {
        k = special_at(w, at, first);
        begin = k ? at + k : begin;
    }
    return begin;
}

static size_t turn_end(const turns *w, size_t last, size_t next)
{
    for (size_t at = last; at < next; at++) {
        const size_t k = special_at(w, at, next);
        if (k)
            return at + k;
    }
    return last;
}

/* The first byte of input of message i, and behind its last one; false: it has none. */
static bool input_of(const tt_jtext *t, size_t i, size_t *first, size_t *last)
{
    bool any = false;
    for (size_t at = 0; at < t->n; at++)
        if (t->tags[at] == (tt_tag)(i + 1)) {
            *first = any ? *first : at;
            *last = at + 1;
            any = true;
        }
    return any;
}

/* Behind the generation prompt around byte `in`; `in` itself if it is in none. */
static size_t behind_prompt(const turns *w, size_t in)
{
    const size_t n = w->prompt.n;
    for (size_t at = in + 1 > n ? in + 1 - n : 0; at <= in && at + n <= w->text->n; at++)
        if (n && !memcmp(w->text->s + at, w->prompt.s, n))
            return at + n;
    return in;
}

/* Roles are input, too: what a template prints of them is in front of the turn. So the turn's first byte is the
 * first one behind the role. Of a turn without content the role is all the input there is: it begins, and ends,
 * behind the generation prompt that has the role. */
static void skip_role(const turns *w, const tt_jvalue *message, size_t *first, size_t *end)
{
    const size_t last = *end;
    const tt_jvalue *role = tt_j_get(message, "role", 4);
    const tt_jtext *t = w->text;
    const tt_tag tag = t->tags[*first];
    size_t n = 0;
    while (*first + n < last && t->tags[*first + n] == tag)
        n++;
    if (n != role->u.string.n || memcmp(t->s + *first, role->u.string.s, n) != 0)
        return;
    if (*first + n >= last) {
        const size_t behind = behind_prompt(w, *first);
        *first = behind > last ? behind : *first;
        *end = TT_MAXV(behind, last);
        return;
    }
    size_t at = *first + n;
    while (at < last && t->tags[at] != tag)
        at++;
    if (at < last)
        *first = at;
}

/* learned_from: the number of the first message that may be learned. */
static void mark_turns(const turns *w, const tt_jvalue *messages, tt_chat_loss loss_on,
                       size_t learned_from)
{
    const size_t n = messages->u.list.n;
    size_t from = 0, only = n;
    for (size_t i = 0; i < n; i++)
        if (is_assistant(messages->u.list.items[i]))
            only = i;
    for (size_t i = 0; i < n; i++) {
        size_t first = 0, last = 0, next = w->text->n, unused;
        if (!input_of(w->text, i, &first, &last))
            continue;
        for (size_t k = i + 1; k < n; k++)
            if (input_of(w->text, k, &next, &unused))
                break;
        if (is_assistant(messages->u.list.items[i]) && i >= learned_from &&
            (loss_on != TT_CHAT_LAST || i == only)) {
            skip_role(w, messages->u.list.items[i], &first, &last);
            next = TT_MAXV(next, last);
            const size_t begin = turn_begin(w, from, first), end = turn_end(w, last, next);
            memset(w->learned + begin, 1, end - begin);
        }
        from = last;
    }
}

/* The bytes within {% generation %}; of the last block alone if the loss is on the last turn. skipped: of so many
 * blocks, which are turns of an assistant, nothing is learned. False: there is no block. */
static bool mark_generated(const tt_jtext *t, uint8_t *learned, bool last, size_t skipped)
{
    bool any = false;
    size_t begin = 0, blocks = 0;
    for (size_t i = 0; i < t->n; i++) {
        const bool generated = t->generated[i] != 0;
        if (generated && (!i || !t->generated[i - 1])) {
            begin = i;
            blocks++;
        }
        learned[i] = generated && blocks > skipped;
        any = any || generated;
    }
    if (last)
        memset(learned, 0, begin);
    return any;
}

tt_status tt_chat_turns(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                        tt_chat_special_fn special, const void *user, tt_chat_text *out,
                        tt_error *err)
{
    tt_jvalue *messages = NULL, *vars = tt_j_new(a, TT_J_DICT);
    TT_TRY(messages_of(a, c, &messages, err));
    TT_TRY(variables_of(a, t, c, vars, err));
    TT_TRY(render(a, t, c, vars, messages, c->add_generation_prompt != 0, &out->text, err));
    out->learned = tt_arena_alloc(a, out->text.n + 1);
    if (c->loss_on == TT_CHAT_ALL) {
        memset(out->learned, 1, out->text.n);
        return TT_OK;
    }
    const size_t from = TT_HAS(c, tt_conversation, learned_from) && c->learned_from > 0
                            ? (size_t)c->learned_from
                            : 0;
    size_t before = 0; /* turns of the assistant */
    for (size_t i = 0; i < TT_MIN(from, messages->u.list.n); i++)
        before += is_assistant(messages->u.list.items[i]);
    if (mark_generated(&out->text, out->learned, c->loss_on == TT_CHAT_LAST, before))
        return TT_OK;
    const turns w = {&out->text, out->learned, generation_prompt(a, t, c, vars, messages), special,
                     user};
    mark_turns(&w, messages, c->loss_on, from);
    return TT_OK;
}

tt_status tt_chat_render(const tt_chat_template *t, const tt_conversation *c, char **text,
                         uint8_t **origins, size_t *n, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_chat_text r = {0};
    tt_status s = tt_chat_turns(a, t, c, NULL, NULL, &r, err);
    char *bytes = s == TT_OK ? malloc(r.text.n + 1) : NULL;
    uint8_t *of = bytes ? malloc(r.text.n + 1) : NULL;
    if (s == TT_OK && !of)
        s = TT_FAIL(err, TT_ENOMEM, "out of memory for a conversation of %zu bytes", r.text.n);
    for (size_t i = 0; s == TT_OK && i < r.text.n; i++) {
        bytes[i] = r.text.s[i];
        of[i] = r.learned[i]                        ? TT_CHAT_GENERATED
                : r.text.tags[i] != TT_TAG_TEMPLATE ? TT_CHAT_INPUT
                                                    : TT_CHAT_TEMPLATE;
    }
    if (s == TT_OK) {
        bytes[r.text.n] = '\0';
        *text = bytes;
        *origins = of;
        *n = r.text.n;
    } else {
        free(bytes);
        free(of);
    }
    tt_arena_free(a);
    return s;
}
