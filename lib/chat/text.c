/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Text whose bytes know where they come from, and values as text. */

void tt_jtext_add(tt_arena *a, tt_jtext *t, const char *s, size_t n, const tt_tag *tags, tt_tag tag)
{
    if (n > TT_J_MOST_TEXT - t->n) {
        t->full = true;
        return;
    }
    if (t->n + n + 1 > t->cap) {
        const size_t cap = 2 * (t->n + n) + 64;
        char *bytes = tt_arena_alloc(a, cap);
        tt_tag *of = tt_arena_array(a, cap, sizeof *of);
        uint8_t *generated = tt_arena_alloc(a, cap);
        if (t->n) {
            memcpy(bytes, t->s, t->n);
            memcpy(of, t->tags, t->n * sizeof *of);
            memcpy(generated, t->generated, t->n);
        }
        t->s = bytes;
        t->tags = of;
        t->generated = generated;
        t->cap = cap;
    }
    for (size_t i = 0; i < n; i++) {
        t->s[t->n + i] = s[i];
        t->tags[t->n + i] = tags ? tags[i] : tag;
        t->generated[t->n + i] = t->generating;
    }
    t->n += n;
    t->s[t->n] = '\0';
}

void tt_jtext_constant(tt_arena *a, tt_jtext *t, const char *s)
{
    tt_jtext_add(a, t, s, strlen(s), NULL, TT_TAG_TEMPLATE);
}

/* As Python's repr: the shortest digits, with a point or an exponent. */
static void add_float(tt_arena *a, tt_jtext *t, double x)
{
    char text[40];
    int digits = 1;
    if (isnan(x) || isinf(x)) {
        tt_jtext_constant(a, t, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    do
        snprintf(text, sizeof text, "%.*g", digits, x);
    while (digits++ < 17 && strtod(text, NULL) != x); /* lint: exact */
    const double size = fabs(x);
    if (size >= 1e16 || (size > 0 && size < 1e-4)) {
        tt_jtext_constant(a, t, text);
        return;
    }
    int after = 0; /* digits behind the point */
    do
        snprintf(text, sizeof text, "%.*f", after, x);
    while (after++ < 30 && strtod(text, NULL) != x); /* lint: exact */
    tt_jtext_constant(a, t, text);
    if (!strchr(text, '.'))
        tt_jtext_constant(a, t, ".0");
}

static void add_string_repr(tt_arena *a, tt_jtext *t, const tt_jstring *s)
{
    const bool single = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n);
    const char quote = single ? '"' : '\'';
    tt_jtext_add(a, t, &quote, 1, NULL, TT_TAG_TEMPLATE);
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->s[i];
        const char *escape = c == '\n'   ? "\\n"
                             : c == '\t' ? "\\t"
                             : c == '\r' ? "\\r"
                             : c == '\\' ? "\\\\"
                                         : NULL;
        const tt_tag tag = s->tags ? s->tags[i] : TT_TAG_TEMPLATE;
        if (c == quote)
            tt_jtext_add(a, t, "\\", 1, NULL, tag);
        tt_jtext_add(a, t, escape ? escape : &c, escape ? 2 : 1, NULL, tag);
    }
    tt_jtext_add(a, t, &quote, 1, NULL, TT_TAG_TEMPLATE);
}

static void add_list_repr(tt_arena *a, tt_jtext *t, const tt_jlist *l)
{
    tt_jtext_constant(a, t, l->is_tuple ? "(" : "[");
    for (size_t i = 0; i < l->n; i++) {
        tt_jtext_constant(a, t, i ? ", " : "");
        tt_jtext_repr(a, t, l->items[i]);
    }
    tt_jtext_constant(a, t, !l->is_tuple ? "]" : l->n == 1 ? ",)" : ")");
}

/* A namespace may have itself as a member. */
bool tt_jtext_deeper(tt_arena *a, tt_jtext *t)
{
    if (t->full)
        return false;
    if (++t->depth <= TT_J_MOST_DEPTH)
        return true;
    t->depth--;
    tt_jtext_constant(a, t, "...");
    return false;
}

void tt_jtext_repr(tt_arena *a, tt_jtext *t, const tt_jvalue *v)
{
    if (!tt_jtext_deeper(a, t))
        return;
    if (v->type == TT_J_STRING) {
        add_string_repr(a, t, &v->u.string);
    } else if (v->type == TT_J_LIST) {
        add_list_repr(a, t, &v->u.list);
    } else if (v->type == TT_J_DICT) {
        tt_jtext_constant(a, t, "{");
        for (size_t i = 0; i < v->u.dict.n; i++) {
            tt_jtext_constant(a, t, i ? ", " : "");
            tt_jtext_repr(a, t, v->u.dict.keys[i]);
            tt_jtext_constant(a, t, ": ");
            tt_jtext_repr(a, t, v->u.dict.values[i]);
        }
        tt_jtext_constant(a, t, "}");
    } else {
        tt_jtext_value(a, t, v);
    }
    t->depth--;
}

void tt_jtext_value(tt_arena *a, tt_jtext *t, const tt_jvalue *v)
{
    char text[TT_I64_TEXT];
    switch (v->type) {
    case TT_J_NONE:
        tt_jtext_constant(a, t, "None");
        break;
    case TT_J_BOOL:
        tt_jtext_constant(a, t, v->u.boolean ? "True" : "False");
        break;
    case TT_J_INT:
        tt_jtext_constant(a, t, tt_i64_text(v->u.integer, text));
        break;
    case TT_J_FLOAT:
        if (v->digits)
            tt_jtext_constant(a, t, v->digits);
        else
            add_float(a, t, v->u.real);
        break;
    case TT_J_STRING:
        tt_jtext_add(a, t, v->u.string.s, v->u.string.n, v->u.string.tags, TT_TAG_TEMPLATE);
        break;
    case TT_J_LIST:
    case TT_J_DICT:
        tt_jtext_repr(a, t, v);
        break;
    case TT_J_UNDEFINED:
    case TT_J_CALL:
        break;
    }
}

tt_jvalue *tt_jtext_string(tt_arena *a, const tt_jtext *t)
{
    tt_jvalue *v = tt_j_new(a, TT_J_STRING);
    v->u.string = (tt_jstring){t->n ? t->s : "", t->n ? t->tags : NULL, t->n};
    return v;
}
