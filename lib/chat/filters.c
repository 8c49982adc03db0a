/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/eval.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Filters: value|name(arguments). */

typedef tt_jvalue *(*filter_fn)(tt_jenv *e, const tt_jargs *a);

int64_t tt_jlength(tt_jenv *e, const tt_jvalue *v)
{
    int64_t n = 0;
    switch (v->type) {
    case TT_J_LIST:
        return (int64_t)v->u.list.n;
    case TT_J_DICT:
        return (int64_t)v->u.dict.n;
    case TT_J_UNDEFINED:
        return 0;
    case TT_J_STRING:
        tt_jlook(e, v->u.string.n);
        for (size_t i = 0; i < v->u.string.n; i++)
            n += ((unsigned char)v->u.string.s[i] & 0xc0) != 0x80;
        return n;
    default:
        tt_jfail(e, "%s has no length", tt_j_type_name(v));
        return 0;
    }
}

static tt_jvalue *filter_length(tt_jenv *e, const tt_jargs *a)
{
    return tt_j_int(e->arena, tt_jlength(e, a->v[0]));
}

static tt_jvalue *filter_trim(tt_jenv *e, const tt_jargs *a)
{
    return tt_jstrip(e, tt_jstring_of(e, a->v[0]), tt_jarg_text(e, a, 1, "chars", NULL), 3);
}

static tt_jvalue *filter_upper(tt_jenv *e, const tt_jargs *a)
{
    return tt_jcase(e, tt_jstring_of(e, a->v[0]), 'u');
}
static tt_jvalue *filter_lower(tt_jenv *e, const tt_jargs *a)
{
    return tt_jcase(e, tt_jstring_of(e, a->v[0]), 'l');
}
static tt_jvalue *filter_capitalize(tt_jenv *e, const tt_jargs *a)
{
    return tt_jcase(e, tt_jstring_of(e, a->v[0]), 'c');
}
static tt_jvalue *filter_title(tt_jenv *e, const tt_jargs *a)
{
    return tt_jcase(e, tt_jstring_of(e, a->v[0]), 't');
}

static tt_jvalue *filter_default(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *falsy = tt_jarg(a, 2, "boolean");
    tt_jvalue *other = tt_jarg(a, 1, "default_value");
    const bool use =
        a->v[0]->type == TT_J_UNDEFINED || (falsy && tt_j_truth(falsy) && !tt_j_truth(a->v[0]));
    if (!use)
        return a->v[0];
    return other ? other : tt_j_text(e->arena, "", 0, TT_TAG_TEMPLATE);
}

static tt_jvalue *attribute_path(tt_jenv *e, tt_jvalue *v, const char *path)
{
    for (;;) {
        const size_t n = strcspn(path, ".");
        char *end;
        const char *name = tt_arena_strn(e->arena, path, n);
        const long index = strtol(name, &end, 10);
        if (n && !*end)
            v = tt_jitem(e, v, tt_j_int(e->arena, index));
        else if (v->type == TT_J_DICT)
            v = tt_jitem(e, v, tt_j_text(e->arena, name, n, TT_TAG_TEMPLATE));
        else
            v = tt_jattribute(e, v, name);
        if (e->failed || !path[n])
            return v;
        path += n + 1;
    }
}

static tt_jvalue *filter_join(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]), *by = tt_jarg(a, 1, "d");
    const char *path = tt_jarg_text(e, a, 2, "attribute", NULL);
    tt_jtext text = {0};
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        tt_jvalue *v = items->u.list.items[i];
        if (i && by)
            tt_jtext_value(e->arena, &text, by);
        tt_jtext_value(e->arena, &text, path ? attribute_path(e, v, path) : v);
        if (text.full)
            return tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
    }
    return tt_jtaken(e, &text);
}

static tt_jvalue *pair(tt_jenv *e, tt_jvalue *key, tt_jvalue *value)
{
    tt_jvalue *p = tt_j_new(e->arena, TT_J_LIST);
    p->u.list.is_tuple = true;
    tt_j_push(e->arena, p, key);
    tt_j_push(e->arena, p, value);
    return p;
}

static tt_jvalue *filter_items(tt_jenv *e, const tt_jargs *a)
{
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    const tt_jvalue *d = a->v[0];
    if (d->type == TT_J_UNDEFINED)
        return list;
    if (d->type != TT_J_DICT)
        return tt_jfail(e, "items: a mapping is needed, not %s", tt_j_type_name(d));
    for (size_t i = 0; i < d->u.dict.n; i++)
        tt_j_push(e->arena, list, pair(e, d->u.dict.keys[i], d->u.dict.values[i]));
    return list;
}

static tt_jvalue *filter_list(tt_jenv *e, const tt_jargs *a)
{
    return tt_jitems(e, a->v[0]);
}

static tt_jvalue *filter_first(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]);
    return items->u.list.n ? items->u.list.items[0] : tt_j_undefined(e->arena, "the first item");
}

static tt_jvalue *filter_last(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]);
    return items->u.list.n ? items->u.list.items[items->u.list.n - 1]
                           : tt_j_undefined(e->arena, "the last item");
}

static tt_jvalue *filter_string(tt_jenv *e, const tt_jargs *a)
{
    return tt_jstring_of(e, a->v[0]);
}

/* Whether the text is a number as Python's float() reads it: decimal, with white space around it. */
static bool number_in(tt_jenv *e, const tt_jvalue *text, double *x)
{
    char *end;
    const char *s = tt_arena_strn(e->arena, text->u.string.s, text->u.string.n);
    *x = strtod(s, &end);
    if (end == s || strpbrk(s, "xX(")) /* strtod also reads 0x1A and nan(1) */
        return false;
    while (isspace((unsigned char)*end))
        end++;
    return !*end;
}

/* What int and float give for a value that is no number. */
static tt_jvalue *instead(const tt_jargs *a, tt_jvalue *zero)
{
    tt_jvalue *given = tt_jarg(a, 1, "default");
    return given ? given : zero;
}

static tt_jvalue *filter_int(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *v = a->v[0];
    double x;
    if (v->type == TT_J_STRING && number_in(e, v, &x) && fabs(x) < 9e15)
        return tt_j_int(e->arena, (int64_t)x);
    if (v->type == TT_J_FLOAT && fabs(v->u.real) < 9e15)
        return tt_j_int(e->arena, (int64_t)v->u.real);
    if (v->type == TT_J_INT || v->type == TT_J_BOOL)
        return tt_j_int(e->arena, v->type == TT_J_INT ? v->u.integer : v->u.boolean);
    return instead(a, tt_j_int(e->arena, 0));
}

static bool real_of(tt_jenv *e, const tt_jvalue *v, double *x)
{
    *x = 0;
    if (v->type == TT_J_STRING)
        return number_in(e, v, x);
    *x = v->type == TT_J_FLOAT  ? v->u.real
         : v->type == TT_J_INT  ? (double)v->u.integer
         : v->type == TT_J_BOOL ? (double)v->u.boolean
                                : 0.0;
    return v->type == TT_J_FLOAT || v->type == TT_J_INT || v->type == TT_J_BOOL;
}

static tt_jvalue *filter_float(tt_jenv *e, const tt_jargs *a)
{
    double x;
    return real_of(e, a->v[0], &x) ? tt_j_float(e->arena, x) : instead(a, tt_j_float(e->arena, 0));
}

static tt_jvalue *filter_replace(tt_jenv *e, const tt_jargs *a)
{
    tt_jvalue *from = tt_jarg(a, 1, "old"), *to = tt_jarg(a, 2, "new");
    if (!from || !to)
        return tt_jfail(e, "replace: two texts are needed");
    return tt_jreplace(e, tt_jstring_of(e, a->v[0]), tt_jstring_of(e, from), tt_jstring_of(e, to),
                       tt_jarg_int(a, 3, "count", -1));
}

/* ---- lists ---- */

/* The items for select, reject and map: none and every other false value have no items, as in jinja2. */
static tt_jvalue *items_if_any(tt_jenv *e, const tt_jvalue *v)
{
    return tt_j_truth(v) ? tt_jitems(e, v) : tt_j_new(e->arena, TT_J_LIST);
}

/* selectattr(path[, test, arguments]), select([test, arguments]) */
static tt_jvalue *choose(tt_jenv *e, const tt_jargs *a, bool by_attribute, bool keep)
{
    const tt_jvalue *items = items_if_any(e, a->v[0]);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    const size_t at = by_attribute ? 2 : 1;
    const char *path = by_attribute ? tt_jarg_text(e, a, 1, "attribute", "") : NULL,
               *test = tt_jarg_text(e, a, at, NULL, NULL);
    const size_t rest = a->n > at + 1 ? a->n - at - 1 : 0;
    tt_jargs t = {.v = tt_arena_array(e->arena, rest + 1, sizeof *t.v), .n = rest + 1};
    for (size_t i = 0; i < rest; i++)
        t.v[1 + i] = a->v[at + 1 + i];
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        tt_jvalue *v = items->u.list.items[i];
        t.v[0] = path ? attribute_path(e, v, path) : v;
        if ((test ? tt_jtest(e, test, &t) : tt_j_truth(t.v[0])) == keep)
            tt_j_push(e->arena, list, v);
    }
    return list;
}

static tt_jvalue *filter_selectattr(tt_jenv *e, const tt_jargs *a)
{
    return choose(e, a, true, true);
}
static tt_jvalue *filter_rejectattr(tt_jenv *e, const tt_jargs *a)
{
    return choose(e, a, true, false);
}
static tt_jvalue *filter_select(tt_jenv *e, const tt_jargs *a)
{
    return choose(e, a, false, true);
}
static tt_jvalue *filter_reject(tt_jenv *e, const tt_jargs *a)
{
    return choose(e, a, false, false);
}

/* map(attribute="x"[, default=…]), map("filter", arguments) */
static tt_jvalue *filter_map(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = items_if_any(e, a->v[0]);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST), *other = tt_jarg(a, 9, "default");
    const char *path = tt_jarg_text(e, a, 99, "attribute", NULL),
               *name = tt_jarg_text(e, a, 1, NULL, NULL);
    const size_t rest = a->n > 2 ? a->n - 2 : 0;
    tt_jargs t = {.v = tt_arena_array(e->arena, rest + 1, sizeof *t.v), .n = rest + 1};
    if (!path && !name)
        return tt_jfail(e, "map: an attribute or the name of a filter is needed");
    if (!path) {
        t.names = a->names;
        t.n_names = a->n_names;
    }
    for (size_t i = 0; i < rest; i++)
        t.v[1 + i] = a->v[2 + i];
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        t.v[0] = items->u.list.items[i];
        tt_jvalue *v = path ? attribute_path(e, t.v[0], path) : tt_jfilter(e, name, &t);
        tt_j_push(e->arena, list, v->type == TT_J_UNDEFINED && other ? other : v);
    }
    return list;
}

static tt_jvalue *filter_reverse(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    tt_jtext text = {0};
    for (size_t i = items->u.list.n; i-- > 0;) {
        tt_j_push(e->arena, list, items->u.list.items[i]);
        if (a->v[0]->type == TT_J_STRING)
            tt_jtext_value(e->arena, &text, items->u.list.items[i]);
    }
    return a->v[0]->type == TT_J_STRING ? tt_jtaken(e, &text) : list;
}

/* By a path of each item, or by the items themselves; letters without case unless case_sensitive. Stable. */
static tt_jvalue *sorted(tt_jenv *e, const tt_jvalue *items, const char *path, bool sensitive,
                         bool down)
{
    const size_t n = items->u.list.n;
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    tt_jvalue **keys = tt_arena_array(e->arena, n + 1, sizeof(tt_jvalue *));
    if (n > 10000)
        return tt_jfail(e, "sort: more than 10000 items");
    for (size_t i = 0; i < n && !e->failed; i++) {
        tt_jvalue *key =
            path ? attribute_path(e, items->u.list.items[i], path) : items->u.list.items[i];
        key = key->type == TT_J_STRING && !sensitive ? tt_jcase(e, key, 'l') : key;
        size_t at = i;
        int order = 0;
        tt_j_push(e->arena, list, NULL);
        while (at > 0) {
            if (!tt_j_compare(keys[at - 1], key, &order))
                return tt_jfail(e, "sort: %s and %s have no order", tt_j_type_name(keys[at - 1]),
                                tt_j_type_name(key));
            if (!tt_jsteps(e, 1) || (down ? order >= 0 : order <= 0))
                break;
            keys[at] = keys[at - 1];
            list->u.list.items[at] = list->u.list.items[at - 1];
            at--;
        }
        keys[at] = key;
        list->u.list.items[at] = items->u.list.items[i];
    }
    return list;
}

static tt_jvalue *filter_sort(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *down = tt_jarg(a, 1, "reverse"), *sensitive = tt_jarg(a, 2, "case_sensitive");
    return sorted(e, tt_jitems(e, a->v[0]), tt_jarg_text(e, a, 3, "attribute", NULL),
                  sensitive && tt_j_truth(sensitive), down && tt_j_truth(down));
}

static tt_jvalue *filter_dictsort(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *down = tt_jarg(a, 3, "reverse"), *sensitive = tt_jarg(a, 1, "case_sensitive");
    const bool by_value = strcmp(tt_jarg_text(e, a, 2, "by", "key"), "value") == 0;
    return sorted(e, filter_items(e, a), by_value ? "1" : "0", sensitive && tt_j_truth(sensitive),
                  down && tt_j_truth(down));
}

static tt_jvalue *filter_unique(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST), *seen = tt_j_new(e->arena, TT_J_DICT);
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        tt_jvalue *v = items->u.list.items[i],
                  *key = v->type == TT_J_STRING ? tt_jcase(e, v, 'l') : v;
        if (tt_jfind(e, seen, key))
            continue;
        tt_jput(e, seen, key, key);
        tt_j_push(e->arena, list, v);
    }
    return list;
}

static tt_jvalue *filter_sum(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *items = tt_jitems(e, a->v[0]);
    const char *path = tt_jarg_text(e, a, 1, "attribute", NULL);
    double sum = 0;
    bool whole = true;
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        const tt_jvalue *v =
            path ? attribute_path(e, items->u.list.items[i], path) : items->u.list.items[i];
        if (v->type != TT_J_INT && v->type != TT_J_FLOAT)
            return tt_jfail(e, "sum: %s is no number", tt_j_type_name(v));
        whole = whole && v->type == TT_J_INT;
        sum += v->type == TT_J_INT ? (double)v->u.integer : v->u.real;
    }
    return whole && fabs(sum) < 9e15 ? tt_j_int(e->arena, (int64_t)sum) : tt_j_float(e->arena, sum);
}

/* min and max: of a list, by their own order */
static tt_jvalue *extreme(tt_jenv *e, const tt_jargs *a, bool down)
{
    const tt_jvalue *list =
        sorted(e, tt_jitems(e, a->v[0]), tt_jarg_text(e, a, 2, "attribute", NULL), false, down);
    return !e->failed && list->u.list.n ? list->u.list.items[0]
                                        : tt_j_undefined(e->arena, "an item");
}
static tt_jvalue *filter_min(tt_jenv *e, const tt_jargs *a)
{
    return extreme(e, a, false);
}
static tt_jvalue *filter_max(tt_jenv *e, const tt_jargs *a)
{
    return extreme(e, a, true);
}

/* ---- numbers and texts ---- */

static tt_jvalue *filter_abs(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *v = a->v[0];
    if (v->type == TT_J_INT && v->u.integer > INT64_MIN)
        return tt_j_int(e->arena, v->u.integer < 0 ? -v->u.integer : v->u.integer);
    if (v->type == TT_J_FLOAT)
        return tt_j_float(e->arena, fabs(v->u.real));
    return tt_jfail(e, "abs: %s is no number", tt_j_type_name(v));
}

static tt_jvalue *filter_round(tt_jenv *e, const tt_jargs *a)
{
    const int64_t digits =
        TT_MIN(TT_MAXV(tt_jarg_int(a, 1, "precision", 0), (int64_t)0), (int64_t)15);
    const char *how = tt_jarg_text(e, a, 2, "method", "common");
    const double scale = pow(10, (double)digits);
    double x;
    if (!real_of(e, a->v[0], &x))
        x = 0;
    return tt_j_float(e->arena, !strcmp(how, "ceil")    ? ceil(x * scale) / scale
                                : !strcmp(how, "floor") ? floor(x * scale) / scale
                                                        : rint(x * scale) / scale);
}

static tt_jvalue *filter_indent(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *v = tt_jstring_of(e, a->v[0]), *first = tt_jarg(a, 2, "first"),
                    *blank = tt_jarg(a, 3, "blank");
    const tt_jstring *s = &v->u.string;
    const int64_t width = TT_MIN(TT_MAXV(tt_jarg_int(a, 1, "width", 4), (int64_t)0), (int64_t)1000);
    tt_jtext text = {0};
    bool begins = first && tt_j_truth(first);
    for (size_t i = 0; i < s->n; i++) {
        if (begins && (s->s[i] != '\n' || (blank && tt_j_truth(blank))))
            for (int64_t k = 0; k < width; k++)
                tt_jtext_add(e->arena, &text, " ", 1, NULL, TT_TAG_TEMPLATE);
        begins = s->s[i] == '\n';
        tt_jtext_add(e->arena, &text, s->s + i, 1, s->tags ? s->tags + i : NULL, TT_TAG_TEMPLATE);
    }
    return tt_jtaken(e, &text);
}

static tt_jvalue *filter_escape(tt_jenv *e, const tt_jargs *a)
{
    static const char plain[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const tt_jvalue *v = tt_jstring_of(e, a->v[0]);
    tt_jtext text = {0};
    for (size_t i = 0; i < v->u.string.n; i++) {
        const char *c = v->u.string.s + i, *at = *c ? strchr(plain, *c) : NULL;
        const tt_tag tag = v->u.string.tags ? v->u.string.tags[i] : TT_TAG_TEMPLATE;
        tt_jtext_add(e->arena, &text, at ? names[at - plain] : c,
                     at ? strlen(names[at - plain]) : 1, NULL, tag);
    }
    return tt_jtaken(e, &text);
}

static tt_jvalue *filter_safe(tt_jenv *e, const tt_jargs *a)
{
    (void)e;
    return a->v[0];
}

static const struct {
    const char *name;
    filter_fn run;
} filters[] = {
    {"abs",        filter_abs       },
    {"capitalize", filter_capitalize},
    {"count",      filter_length    },
    {"d",          filter_default   },
    {"default",    filter_default   },
    {"dictsort",   filter_dictsort  },
    {"e",          filter_escape    },
    {"escape",     filter_escape    },
    {"first",      filter_first     },
    {"float",      filter_float     },
    {"format",     tt_jfilter_format},
    {"indent",     filter_indent    },
    {"int",        filter_int       },
    {"items",      filter_items     },
    {"join",       filter_join      },
    {"last",       filter_last      },
    {"length",     filter_length    },
    {"list",       filter_list      },
    {"lower",      filter_lower     },
    {"map",        filter_map       },
    {"max",        filter_max       },
    {"min",        filter_min       },
    {"reject",     filter_reject    },
    {"rejectattr", filter_rejectattr},
    {"replace",    filter_replace   },
    {"reverse",    filter_reverse   },
    {"round",      filter_round     },
    {"safe",       filter_safe      },
    {"select",     filter_select    },
    {"selectattr", filter_selectattr},
    {"sort",       filter_sort      },
    {"string",     filter_string    },
    {"sum",        filter_sum       },
    {"title",      filter_title     },
    {"tojson",     tt_jfilter_json  },
    {"trim",       filter_trim      },
    {"unique",     filter_unique    },
    {"upper",      filter_upper     },
};

tt_jvalue *tt_jfilter(tt_jenv *e, const char *name, const tt_jargs *a)
{
    for (size_t i = 0; i < TT_COUNT(filters); i++)
        if (!strcmp(filters[i].name, name))
            return filters[i].run(e, a);
    return tt_jfail(e, "there is no filter \"%s\" in chat templates", name);
}
