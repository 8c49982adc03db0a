/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values as JSON: the filter tojson, which is json.dumps with transformers' defaults. */

#define MOST_INDENT 100

typedef struct json_form {  /* json.dumps's options */
    const char *indent;     /* of a level; NULL: all on one line */
    const char *item, *key; /* what separates items, and a key from its value */
    bool ascii, sorted;     /* characters beyond ASCII as \\u00e4; keys in order */
} json_form;

/* The bytes of a character beyond ASCII; its code. A byte that is no UTF-8 stands for itself. */
static size_t character(const char *s, size_t n, uint32_t *code)
{
    const unsigned char c = (unsigned char)s[0];
    const size_t k = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    *code = c;
    if (k == 1 || k > n)
        return 1;
    *code = c & (0x7fU >> k);
    for (size_t i = 1; i < k; i++)
        *code = *code << 6 | ((unsigned char)s[i] & 0x3f);
    return k;
}

static size_t escaped(char *out, size_t room, uint32_t code)
{
    if (code < 0x10000)
        return (size_t)snprintf(out, room, "\\u%04x", code);
    return (size_t)snprintf(out, room, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                            0xdc00 + ((code - 0x10000) & 0x3ff));
}

static void add_json_string(tt_arena *a, tt_jtext *t, const tt_jstring *s, bool ascii)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    tt_jtext_constant(a, t, "\"");
    for (size_t i = 0, k; i < s->n; i += k) {
        const char c = s->s[i], *at = c ? strchr(plain, c) : NULL;
        const tt_tag tag = s->tags ? s->tags[i] : TT_TAG_TEMPLATE;
        char escape[16];
        uint32_t code = (unsigned char)c;
        k = 1;
        if (at)
            tt_jtext_add(a, t, escape,
                         (size_t)snprintf(escape, sizeof escape, "\\%c", letters[at - plain]), NULL,
                         tag);
        else if (code < 0x20 || (ascii && code >= 0x7f)) {
            k = character(s->s + i, s->n - i, &code);
            tt_jtext_add(a, t, escape, escaped(escape, sizeof escape, code), NULL, tag);
        } else
            tt_jtext_add(a, t, &c, 1, NULL, tag);
    }
    tt_jtext_constant(a, t, "\"");
}

static void new_line(tt_arena *a, tt_jtext *t, const json_form *how, int depth)
{
    if (!how->indent)
        return;
    tt_jtext_constant(a, t, "\n");
    for (int i = 0; i < depth && !t->full; i++)
        tt_jtext_constant(a, t, how->indent);
}

static void add_json(tt_arena *a, tt_jtext *t, const tt_jvalue *v, const json_form *how, int depth);

/* A key that is no text is written as one. */
static void add_key(tt_arena *a, tt_jtext *t, const tt_jvalue *key, const json_form *how)
{
    const bool text = key->type == TT_J_STRING;
    tt_jtext_constant(a, t, text ? "" : "\"");
    add_json(a, t, key, how, 0);
    tt_jtext_constant(a, t, text ? "" : "\"");
}

static int by_json_key(const void *x, const void *y)
{
    const tt_jvalue *const *a = x, *const *b = y;
    int order = 0;
    tt_j_compare(*a, *b, &order);
    return order;
}

/* The keys and values in turns, in the order of the keys. */
static tt_jvalue **in_order(tt_arena *a, const tt_jdict *d)
{
    tt_jvalue **both = tt_arena_array(a, 2 * d->n + 1, sizeof *both);
    for (size_t i = 0; i < d->n; i++) {
        both[2 * i] = d->keys[i];
        both[2 * i + 1] = d->values[i];
    }
    if (d->n)
        qsort(both, d->n, 2 * sizeof *both, by_json_key);
    return both;
}

static void add_json_dict(tt_arena *a, tt_jtext *t, const tt_jdict *d, const json_form *how,
                          int depth)
{
    tt_jvalue **sorted = how->sorted ? in_order(a, d) : NULL;
    tt_jtext_constant(a, t, "{");
    for (size_t i = 0; i < d->n && !t->full; i++) {
        tt_jtext_constant(a, t, i ? how->item : "");
        new_line(a, t, how, depth + 1);
        add_key(a, t, sorted ? sorted[2 * i] : d->keys[i], how);
        tt_jtext_constant(a, t, how->key);
        add_json(a, t, sorted ? sorted[2 * i + 1] : d->values[i], how, depth + 1);
    }
    if (d->n)
        new_line(a, t, how, depth);
    tt_jtext_constant(a, t, "}");
}

static void add_json_list(tt_arena *a, tt_jtext *t, const tt_jlist *l, const json_form *how,
                          int depth)
{
    tt_jtext_constant(a, t, "[");
    for (size_t i = 0; i < l->n && !t->full; i++) {
        tt_jtext_constant(a, t, i ? how->item : "");
        new_line(a, t, how, depth + 1);
        add_json(a, t, l->items[i], how, depth + 1);
    }
    if (l->n)
        new_line(a, t, how, depth);
    tt_jtext_constant(a, t, "]");
}

static void add_json(tt_arena *a, tt_jtext *t, const tt_jvalue *v, const json_form *how, int depth)
{
    if (!tt_jtext_deeper(a, t))
        return;
    if (v->type == TT_J_STRING)
        add_json_string(a, t, &v->u.string, how->ascii);
    else if (v->type == TT_J_LIST)
        add_json_list(a, t, &v->u.list, how, depth);
    else if (v->type == TT_J_DICT)
        add_json_dict(a, t, &v->u.dict, how, depth);
    else if (v->type == TT_J_NONE || v->type == TT_J_UNDEFINED)
        tt_jtext_constant(a, t, "null");
    else if (v->type == TT_J_BOOL)
        tt_jtext_constant(a, t, v->u.boolean ? "true" : "false");
    else if (v->type == TT_J_FLOAT && !v->digits && !isfinite(v->u.real))
        tt_jtext_constant(a, t,
                          isnan(v->u.real) ? "NaN"
                          : v->u.real > 0  ? "Infinity"
                                           : "-Infinity");
    else
        tt_jtext_value(a, t, v);
    t->depth--;
}

tt_jvalue *tt_j_json(tt_arena *a, const tt_jvalue *v)
{
    const json_form how = {.item = ", ", .key = ": "};
    tt_jtext text = {0};
    add_json(a, &text, v, &how, 0);
    return tt_jtext_string(a, &text);
}

/* The text of a level: so many blanks, or a text. NULL: all on one line. */
static const char *indent_of(tt_jenv *e, const tt_jvalue *v)
{
    char *blanks;
    if (!v || v->type == TT_J_NONE)
        return NULL;
    if (v->type == TT_J_STRING)
        return tt_arena_strn(e->arena, v->u.string.s, v->u.string.n);
    const int64_t n = v->type == TT_J_INT ? v->u.integer : v->type == TT_J_BOOL ? v->u.boolean : -1;
    if (n > MOST_INDENT || (v->type != TT_J_INT && v->type != TT_J_BOOL)) {
        tt_jfail(e, "tojson: an indent is a text or a number of at most %d", MOST_INDENT);
        return NULL;
    }
    blanks = tt_arena_alloc(e->arena, (size_t)TT_MAXV(n, (int64_t)0) + 1);
    memset(blanks, ' ', (size_t)TT_MAXV(n, (int64_t)0));
    return blanks;
}

static const char *separator(tt_jenv *e, const tt_jvalue *v)
{
    if (v->type == TT_J_STRING)
        return tt_arena_strn(e->arena, v->u.string.s, v->u.string.n);
    tt_jfail(e, "tojson: separators are two texts");
    return "";
}

/* tojson(ensure_ascii, indent, separators, sort_keys) */
tt_jvalue *tt_jfilter_json(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *ascii = tt_jarg(a, 1, "ensure_ascii"), *by = tt_jarg(a, 3, "separators"),
                    *sorted = tt_jarg(a, 4, "sort_keys");
    tt_jtext text = {0};
    json_form how = {.indent = indent_of(e, tt_jarg(a, 2, "indent")),
                     .key = ": ",
                     .ascii = ascii && tt_j_truth(ascii),
                     .sorted = sorted && tt_j_truth(sorted)};
    how.item = how.indent ? "," : ", ";
    if (by && by->type == TT_J_LIST && by->u.list.n == 2) {
        how.item = separator(e, by->u.list.items[0]);
        how.key = separator(e, by->u.list.items[1]);
    } else if (by && by->type != TT_J_NONE) {
        return tt_jfail(e, "tojson: separators are two texts");
    }
    if (e->failed)
        return tt_j_undefined(e->arena, "");
    add_json(e->arena, &text, a->v[0], &how, 0);
    return tt_jtaken(e, &text);
}
