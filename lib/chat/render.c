/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/chat.h"
#include "config/config.h"
#include <stdlib.h>
#include <string.h>

/* Renders a conversation, and finds which bytes an assistant generates. If the template has
 * {% generation %}, it says so. Else an assistant's turn begins behind the generation prompt (what the template
 * adds for add_generation_prompt) in front of its first byte of input, and ends behind the first special token
 * that follows its last byte of input; the last message without such a token ends with the text. A turn of which
 * nothing is printed lies where a content would be. */

tt_status tt_chat_read(tt_arena *a, const tt_conversation *c, tt_chat_json *out, tt_error *err)
{
    *out = (tt_chat_json){0};
    TT_TRY(tt_json_parse(a, "messages", c->messages, c->n_messages, &out->messages, err));
    if (!c->variables)
        return TT_OK;
    TT_TRY(tt_json_parse(a, "variables", c->variables, strlen(c->variables), &out->variables, err));
    return out->variables->type == TT_JSON_OBJECT
               ? TT_OK
               : TT_FAIL(err, TT_EINVAL, "the variables of a chat template: an object is wanted");
}

static void set_variable(tt_arena *a, tt_jvalue *vars, const char *key, tt_jvalue *v)
{
    tt_j_put(a, vars, tt_j_text(a, key, strlen(key), TT_TAG_TEMPLATE), v, NULL);
}

static tt_status render(tt_arena *a, const tt_chat_form *f, const tt_conversation *c,
                        tt_jvalue *vars, tt_jvalue *messages, bool prompt, tt_jtext *out,
                        tt_error *err)
{
    set_variable(a, vars, "messages", messages);
    set_variable(a, vars, "add_generation_prompt", tt_j_bool(a, prompt));
    return tt_jinja_render(a, f->name, f->tree, vars, c->now > 0 ? c->now : tt_wall_seconds(), out,
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
static tt_jstring generation_prompt(tt_arena *a, const tt_chat_form *f, const tt_conversation *c,
                                    tt_jvalue *vars, const tt_jvalue *messages)
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
    if (render(a, f, c, vars, first, false, &without, &ignored) != TT_OK ||
        render(a, f, c, vars, first, true, &with, &ignored) != TT_OK)
        return none;
    if (with.n < without.n || memcmp(with.s, without.s, without.n) != 0)
        return none;
    return (tt_jstring){with.s + without.n, NULL, with.n - without.n};
}

enum { MOST_HEADS = 8 };

typedef struct turns {
    const tt_jtext *text;
    uint8_t *learned;
    /* What an assistant's turn may begin with, the longest first: the generation prompt, and what is left of it
     * without its last tags, such as <think>, which the template need not put before what is said. */
    tt_jstring heads[MOST_HEADS];
    size_t n_heads;
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

static void find_heads(turns *w, tt_jstring prompt)
{
    while (prompt.n && w->n_heads < MOST_HEADS) {
        w->heads[w->n_heads++] = prompt;
        do
            prompt.n--;
        while (prompt.n && prompt.s[prompt.n] != '<' && prompt.s[prompt.n] != '[');
    }
}

/* Where the turn whose first byte of input is `first` begins; `from`: the text before belongs to others. */
static size_t turn_begin(const turns *w, size_t from, size_t first)
{
    const tt_jtext *t = w->text;
    size_t begin = first, head = 0;
    for (size_t i = 0; i < w->n_heads && !head; i++) {
        const tt_jstring *h = &w->heads[i];
        for (size_t end = first; end >= from + h->n && !head; end--)
            if (!memcmp(t->s + end - h->n, h->s, h->n))
                head = end;
        if (head && i == 0)
            return head;
    }
    for (size_t at = from, k; at < first; at += k ? k : 1) {
        k = special_at(w, at, first);
        begin = k ? at + k : begin;
    }
    return head && (begin == first || head > begin) ? head : begin;
}

/* Behind the first special token that follows a turn's last byte; none: *open. */
static size_t turn_end(const turns *w, size_t last, size_t next, bool *open)
{
    for (size_t at = last; at < next; at++) {
        const size_t k = special_at(w, at, next);
        if (k) {
            *open = false;
            return at + k;
        }
    }
    *open = true;
    return last;
}

typedef struct place {  /* of a message's input in the text */
    size_t first, last; /* its first byte, and behind its last one; equal: it is empty */
    bool is;            /* it has one */
} place;

/* The places of all messages that print something. */
static place *input_places(tt_arena *a, const tt_jtext *t, size_t n)
{
    place *p = tt_arena_array(a, n + 1, sizeof *p);
    for (size_t at = 0; at < t->n; at++) {
        if (t->tags[at] < 1 || (size_t)t->tags[at] > n)
            continue;
        place *of = &p[t->tags[at] - 1];
        of->first = of->is ? of->first : at;
        of->last = at + 1;
        of->is = true;
    }
    return p;
}

/* A copy of a message, with the content "x" in place of an empty one. */
static tt_jvalue *with_content(tt_arena *a, const tt_jvalue *m, size_t number)
{
    tt_jvalue *out = tt_j_new(a, TT_J_DICT), *x = tt_j_text(a, "x", 1, (tt_tag)(number + 1));
    for (size_t k = 0; k < m->u.dict.n; k++)
        tt_j_append(a, out, m->u.dict.keys[k], m->u.dict.values[k]);
    tt_jvalue *key = tt_j_text(a, "content", 7, TT_TAG_TEMPLATE);
    if (tt_j_get(m, "content", 7)->type == TT_J_LIST) {
        tt_jvalue *part = tt_j_new(a, TT_J_DICT), *list = tt_j_new(a, TT_J_LIST);
        tt_j_append(a, part, tt_j_text(a, "type", 4, TT_TAG_TEMPLATE),
                    tt_j_text(a, "text", 4, TT_TAG_TEMPLATE));
        tt_j_append(a, part, tt_j_text(a, "text", 4, TT_TAG_TEMPLATE), x);
        tt_j_push(a, list, part);
        x = list;
    }
    tt_j_put(a, out, key, x, NULL);
    return out;
}

/* Where the text t has the turns of an assistant of which it prints nothing: where it would print a content. None, if it
 * then differs in more. */
static void find_empty(tt_arena *a, const tt_chat_form *f, const tt_conversation *c,
                       tt_jvalue *vars, const tt_jvalue *messages, const tt_jtext *t, place *p)
{
    tt_jvalue *filled = tt_j_new(a, TT_J_LIST);
    const size_t n = messages->u.list.n;
    bool *empty = tt_arena_array(a, n + 1, sizeof *empty), some = false;
    tt_jtext with = {0};
    tt_error ignored = {0};
    size_t at = 0, k = 0;
    for (size_t i = 0; i < n; i++) {
        tt_jvalue *m = messages->u.list.items[i];
        empty[i] = !p[i].is && is_assistant(m) && tt_j_get(m, "content", 7);
        some = some || empty[i];
        tt_j_push(a, filled, empty[i] ? with_content(a, m, i) : m);
    }
    if (!some || render(a, f, c, vars, filled, false, &with, &ignored) != TT_OK)
        return;
    for (; k < with.n; k++) {
        const size_t i = with.tags[k] > 0 ? (size_t)with.tags[k] - 1 : n;
        if (i < n && empty[i])
            p[i] = p[i].is ? p[i] : (place){at, at, true};
        else if (at < t->n && with.s[k] == t->s[at])
            at++;
        else
            break;
    }
    for (size_t i = 0; i < n && (k < with.n || at < t->n); i++)
        p[i].is = p[i].is && !empty[i];
}

/* Behind the generation prompt around byte `in`; `in` itself if it is in none. */
static size_t behind_prompt(const turns *w, size_t in)
{
    for (size_t i = 0; i < w->n_heads; i++) {
        const size_t n = w->heads[i].n;
        for (size_t at = in + 1 > n ? in + 1 - n : 0; at <= in && at + n <= w->text->n; at++)
            if (!memcmp(w->text->s + at, w->heads[i].s, n))
                return at + n;
    }
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

/* Which messages are learned. */
typedef struct choice {
    const tt_jvalue *messages;
    tt_chat_loss loss_on;
    size_t from, last; /* the first message that may be learned; the last one of an assistant */
} choice;

/* "weight": 0, as OpenAI and Mistral have it, or "train": false, as axolotl. */
static bool is_left_out(const tt_jvalue *message)
{
    const tt_jvalue *weight = tt_j_get(message, "weight", 6),
                    *train = tt_j_get(message, "train", 5);
    const bool number = weight && (weight->type == TT_J_INT || weight->type == TT_J_FLOAT);
    return (number && !tt_j_truth(weight)) ||
           (train && train->type == TT_J_BOOL && !tt_j_truth(train));
}

static bool is_chosen(const choice *w, size_t i)
{
    const tt_jvalue *m = w->messages->u.list.items[i];
    return is_assistant(m) && i >= w->from && (w->loss_on != TT_CHAT_LAST || i == w->last) &&
           !is_left_out(m);
}

static choice choice_of(const tt_conversation *c, const tt_jvalue *messages)
{
    const bool has = TT_HAS(c, tt_conversation, learned_from) && c->learned_from > 0;
    choice w = {messages, c->loss_on, has ? (size_t)c->learned_from : 0, 0};
    for (size_t i = 0; i < messages->u.list.n; i++)
        if (is_assistant(messages->u.list.items[i]))
            w.last = i;
    return w;
}

/* Of each assistant's turn: learned if it is chosen, and not if it is not. *open_end: the last message is learned, and no
 * token ends it. */
static void mark_turns(const turns *w, const choice *chosen, const place *p, bool *open_end)
{
    const size_t n = chosen->messages->u.list.n;
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        size_t first = p[i].first, last = p[i].last, next = i + 1;
        const tt_jvalue *m = chosen->messages->u.list.items[i];
        bool open = false;
        if (!p[i].is)
            continue;
        while (next < n && !p[next].is)
            next++;
        if (is_assistant(m)) {
            const bool ends = next == n; /* no input follows */
            if (first < last)
                skip_role(w, m, &first, &last);
            next = TT_MAXV(ends ? w->text->n : p[next].first, last);
            const size_t begin = turn_begin(w, from, first);
            size_t end = turn_end(w, last, next, &open);
            *open_end = open && ends && w->special && is_chosen(chosen, i);
            end = *open_end ? w->text->n : end;
            memset(w->learned + begin, is_chosen(chosen, i), end - begin);
        }
        from = last;
    }
}

/* The message whose block of {% generation %} this is, by the first byte of it that a message has; before: the number
 * of blocks before, each of which is a turn. */
static size_t message_of_block(const tt_jtext *t, size_t begin, const tt_jvalue *messages,
                               size_t before)
{
    for (size_t i = begin; i < t->n && t->generated[i]; i++)
        if (t->tags[i] > 0)
            return (size_t)t->tags[i] - 1;
    for (size_t i = 0; i < messages->u.list.n; i++)
        if (is_assistant(messages->u.list.items[i]) && before-- == 0)
            return i;
    return SIZE_MAX;
}

/* The bytes within {% generation %} of messages that are chosen; of the last block alone if the loss is on the last
 * turn. False: there is no block. */
static bool mark_generated(const tt_jtext *t, uint8_t *learned, const choice *chosen)
{
    const bool all = chosen->loss_on == TT_CHAT_ALL;
    size_t begin = 0, blocks = 0;
    bool learns = false;
    for (size_t i = 0; i < t->n; i++) {
        if (t->generated[i] && (!i || !t->generated[i - 1])) {
            const size_t m = message_of_block(t, i, chosen->messages, blocks++);
            const tt_jvalue *const *items =
                (const tt_jvalue *const *)chosen->messages->u.list.items;
            begin = i;
            learns = m == SIZE_MAX || (m >= chosen->from && !is_left_out(items[m]));
        }
        learned[i] = t->generated[i] ? learns : all;
    }
    if (chosen->loss_on == TT_CHAT_LAST && blocks)
        memset(learned, 0, begin);
    return blocks > 0;
}

tt_status tt_chat_turns(tt_arena *a, const tt_chat_template *t, const tt_conversation *c,
                        const tt_chat_json *j, tt_chat_special_fn special, const void *user,
                        tt_chat_text *out, tt_error *err)
{
    const tt_chat_form *f = tt_chat_form_for(t, j);
    tt_jvalue *messages = NULL, *vars = tt_chat_variables(a, t->constants, j);
    int64_t *textless = TT_HAS(c, tt_conversation, textless) ? c->textless : NULL;
    TT_TRY(tt_chat_messages(a, f, j->messages, textless, &messages, err));
    TT_TRY(render(a, f, c, vars, messages, c->add_generation_prompt != 0, &out->text, err));
    out->learned = tt_arena_alloc(a, out->text.n + 1);
    out->open_end = false;
    if (c->add_generation_prompt)
        return TT_OK; /* nobody learns a prompt */
    const choice chosen = choice_of(c, messages);
    if (mark_generated(&out->text, out->learned, &chosen))
        return TT_OK;
    turns w = {.text = &out->text, .learned = out->learned, .special = special, .user = user};
    find_heads(&w, generation_prompt(a, f, c, vars, messages));
    place *p = input_places(a, &out->text, messages->u.list.n);
    find_empty(a, f, c, vars, messages, &out->text, p);
    mark_turns(&w, &chosen, p, &out->open_end);
    return TT_OK;
}

tt_status tt_chat_render_json(const tt_chat_template *t, const tt_conversation *c,
                              const tt_chat_json *j, char **text, uint8_t **origins, size_t *n,
                              tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_chat_text r = {0};
    tt_status s = tt_chat_turns(a, t, c, j, NULL, NULL, &r, err);
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

tt_status tt_chat_render(const tt_chat_template *t, const tt_conversation *c, char **text,
                         uint8_t **origins, size_t *n, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_chat_json j;
    tt_status s = tt_chat_read(a, c, &j, err);
    if (s == TT_OK)
        s = tt_chat_render_json(t, c, &j, text, origins, n, err);
    tt_arena_free(a);
    return s;
}
