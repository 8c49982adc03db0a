/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja.h"
#include <math.h>
#include <string.h>

/* Values of a template's expressions, with Python's truth, equality and order. */

tt_jvalue *tt_j_new(tt_arena *a, tt_jtype type)
{
    tt_jvalue *v = tt_arena_alloc(a, sizeof *v);
    v->type = type;
    return v;
}

tt_jvalue *tt_j_bool(tt_arena *a, bool x)
{
    tt_jvalue *v = tt_j_new(a, TT_J_BOOL);
    v->u.boolean = x;
    return v;
}

tt_jvalue *tt_j_int(tt_arena *a, int64_t x)
{
    tt_jvalue *v = tt_j_new(a, TT_J_INT);
    v->u.integer = x;
    return v;
}

tt_jvalue *tt_j_float(tt_arena *a, double x)
{
    tt_jvalue *v = tt_j_new(a, TT_J_FLOAT);
    v->u.real = x;
    return v;
}

tt_jvalue *tt_j_text(tt_arena *a, const char *s, size_t n, tt_tag tag)
{
    tt_jvalue *v = tt_j_new(a, TT_J_STRING);
    tt_tag *tags = tag == TT_TAG_TEMPLATE ? NULL : tt_arena_array(a, n + 1, sizeof *tags);
    for (size_t i = 0; tags && i < n; i++)
        tags[i] = tag;
    v->u.string = (tt_jstring){tt_arena_strn(a, s, n), tags, n};
    return v;
}

tt_jvalue *tt_j_part(tt_arena *a, const tt_jstring *s, size_t begin, size_t end)
{
    tt_jvalue *v = tt_j_new(a, TT_J_STRING);
    v->u.string = (tt_jstring){s->s + begin, s->tags ? s->tags + begin : NULL, end - begin};
    return v;
}

tt_jvalue *tt_j_undefined(tt_arena *a, const char *name)
{
    tt_jvalue *v = tt_j_new(a, TT_J_UNDEFINED);
    v->u.undefined = name;
    return v;
}

void tt_j_push(tt_arena *a, tt_jvalue *list, tt_jvalue *item)
{
    tt_jlist *l = &list->u.list;
    if (l->n == l->cap)
        l->items = tt_vec_grow(a, l->items, l->n, &l->cap, sizeof(tt_jvalue *));
    l->items[l->n++] = item;
}

static size_t place_of_key(const tt_jvalue *dict, const tt_jvalue *key, int64_t *steps)
{
    size_t i = 0;
    while (i < dict->u.dict.n && !tt_j_equal(dict->u.dict.keys[i], key, steps))
        i++;
    return i;
}

void tt_j_append(tt_arena *a, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value)
{
    tt_jdict *d = &dict->u.dict;
    if (d->n == d->cap) {
        size_t cap = d->cap;
        d->values = tt_vec_grow(a, d->values, d->n, &cap, sizeof(tt_jvalue *));
        d->keys = tt_vec_grow(a, d->keys, d->n, &d->cap, sizeof(tt_jvalue *));
    }
    d->keys[d->n] = key;
    d->values[d->n++] = value;
}

void tt_j_put(tt_arena *a, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value, int64_t *steps)
{
    const size_t at = place_of_key(dict, key, steps);
    if (at < dict->u.dict.n)
        dict->u.dict.values[at] = value;
    else
        tt_j_append(a, dict, key, value);
}

tt_jvalue *tt_j_find(const tt_jvalue *dict, const tt_jvalue *key, int64_t *steps)
{
    const size_t at = place_of_key(dict, key, steps);
    return at < dict->u.dict.n ? dict->u.dict.values[at] : NULL;
}

tt_jvalue *tt_j_get(const tt_jvalue *dict, const char *key, size_t n)
{
    const tt_jdict *d = &dict->u.dict;
    for (size_t i = 0; i < d->n; i++)
        if (d->keys[i]->type == TT_J_STRING && d->keys[i]->u.string.n == n &&
            !memcmp(d->keys[i]->u.string.s, key, n))
            return d->values[i];
    return NULL;
}

bool tt_j_truth(const tt_jvalue *v)
{
    switch (v->type) {
    case TT_J_BOOL:
        return v->u.boolean;
    case TT_J_INT:
        return v->u.integer != 0;
    case TT_J_FLOAT:
        return v->u.real < 0 || v->u.real > 0 || isnan(v->u.real);
    case TT_J_STRING:
        return v->u.string.n > 0;
    case TT_J_LIST:
        return v->u.list.n > 0;
    case TT_J_DICT:
        return v->u.dict.n > 0 || v->u.dict.is_namespace;
    case TT_J_CALL:
        return true;
    case TT_J_NONE:
    case TT_J_UNDEFINED:
        break;
    }
    return false;
}

static bool is_number(const tt_jvalue *v)
{
    return v->type == TT_J_INT || v->type == TT_J_FLOAT || v->type == TT_J_BOOL;
}

static double value_as_real(const tt_jvalue *v)
{
    return v->type == TT_J_FLOAT  ? v->u.real
           : v->type == TT_J_BOOL ? (double)v->u.boolean
                                  : (double)v->u.integer;
}

typedef struct comparing {
    int64_t *steps;
    int depth;
} comparing;

/* Values that are nested deeper than TT_J_MOST_DEPTH are not equal, unless they are the same. */
static bool equal_within(comparing *c, const tt_jvalue *a, const tt_jvalue *b);

static bool lists_equal(comparing *c, const tt_jvalue *a, const tt_jvalue *b)
{
    bool equal = a->u.list.n == b->u.list.n && a->u.list.is_tuple == b->u.list.is_tuple;
    for (size_t i = 0; equal && i < a->u.list.n; i++)
        equal = equal_within(c, a->u.list.items[i], b->u.list.items[i]);
    return equal;
}

static bool dicts_equal(comparing *c, const tt_jvalue *a, const tt_jvalue *b)
{
    bool equal = a->u.dict.n == b->u.dict.n;
    for (size_t i = 0; equal && i < a->u.dict.n; i++) {
        const tt_jvalue *other = tt_j_find(b, a->u.dict.keys[i], c->steps);
        equal = other && equal_within(c, a->u.dict.values[i], other);
    }
    return equal;
}

static bool nested_equal(comparing *c, const tt_jvalue *a, const tt_jvalue *b)
{
    if (a == b)
        return true;
    if (c->depth >= TT_J_MOST_DEPTH)
        return false;
    c->depth++;
    const bool equal = a->type == TT_J_LIST ? lists_equal(c, a, b) : dicts_equal(c, a, b);
    c->depth--;
    return equal;
}

static bool equal_within(comparing *c, const tt_jvalue *a, const tt_jvalue *b)
{
    int order;
    if (c->steps && ++*c->steps > TT_J_MOST_STEPS)
        return false;
    if (is_number(a) && is_number(b))
        return tt_j_compare(a, b, &order) && order == 0;
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case TT_J_STRING:
        if (a->u.string.n != b->u.string.n)
            return false;
        if (c->steps)
            *c->steps += (int64_t)(a->u.string.n / TT_J_BYTES_OF_STEP);
        return !memcmp(a->u.string.s, b->u.string.s, a->u.string.n);
    case TT_J_LIST:
    case TT_J_DICT:
        return nested_equal(c, a, b);
    case TT_J_NONE:
    case TT_J_UNDEFINED:
        return true;
    default:
        return a == b;
    }
}

bool tt_j_equal(const tt_jvalue *a, const tt_jvalue *b, int64_t *steps)
{
    comparing c = {steps, 0};
    return equal_within(&c, a, b);
}

bool tt_j_compare(const tt_jvalue *a, const tt_jvalue *b, int *order)
{
    if (is_number(a) && is_number(b)) {
        const double x = value_as_real(a), y = value_as_real(b);
        *order = (x > y) - (x < y);
        if (a->type == TT_J_INT && b->type == TT_J_INT)
            *order = (a->u.integer > b->u.integer) - (a->u.integer < b->u.integer);
        return !isnan(x) && !isnan(y);
    }
    if (a->type != TT_J_STRING || b->type != TT_J_STRING)
        return false;
    const tt_jstring *s = &a->u.string, *t = &b->u.string;
    *order = memcmp(s->s, t->s, TT_MIN(s->n, t->n));
    if (*order == 0)
        *order = (s->n > t->n) - (s->n < t->n);
    return true;
}

const char *tt_j_type_name(const tt_jvalue *v)
{
    static const char *const names[] = {"undefined",  "none",      "a boolean",
                                        "an integer", "a number",  "a string",
                                        "a list",     "a mapping", "a function"};
    return names[v->type];
}
