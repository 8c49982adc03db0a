/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/eval.h"
#include <string.h>
#include <time.h>

/* Calls: their arguments, macros, and the functions that templates have. */

/* ---- arguments ---- */

tt_jvalue *tt_jarg(const tt_jargs *a, size_t i, const char *name)
{
    const size_t plain = a->n - a->n_names;
    if (i < plain)
        return a->v[i];
    for (size_t k = 0; name && k < a->n_names; k++)
        if (!strcmp(a->names[k], name))
            return a->v[plain + k];
    return NULL;
}

const char *tt_jarg_text(tt_jenv *e, const tt_jargs *a, size_t i, const char *name,
                         const char *fallback)
{
    const tt_jvalue *v = tt_jarg(a, i, name);
    return v && v->type == TT_J_STRING ? tt_arena_strn(e->arena, v->u.string.s, v->u.string.n)
                                       : fallback;
}

int64_t tt_jarg_int(const tt_jargs *a, size_t i, const char *name, int64_t fallback)
{
    const tt_jvalue *v = tt_jarg(a, i, name);
    return v && v->type == TT_J_INT ? v->u.integer : fallback;
}

typedef struct arguments { /* that are being collected */
    TT_VEC(tt_jvalue *) values;
    TT_VEC(const char *) names;
} arguments;

static void add_named(tt_jenv *e, arguments *to, const char *name, tt_jvalue *v)
{
    tt_vec_push(e->arena, &to->names, name);
    tt_vec_push(e->arena, &to->values, v);
}

/* Of **mapping. */
static void add_mapping(tt_jenv *e, arguments *to, const tt_jvalue *d)
{
    if (d->type != TT_J_DICT)
        tt_jfail(e, "** needs a mapping, not %s", tt_j_type_name(d));
    for (size_t i = 0; !e->failed && i < d->u.dict.n; i++) {
        const tt_jvalue *key = d->u.dict.keys[i];
        if (key->type != TT_J_STRING)
            tt_jfail(e, "** needs a mapping whose keys are texts");
        else
            add_named(e, to, tt_arena_strn(e->arena, key->u.string.s, key->u.string.n),
                      d->u.dict.values[i]);
    }
}

tt_jargs tt_jargs_of(tt_jenv *e, const tt_jnode *n, size_t from, tt_jvalue *first,
                     tt_jvalue *caller)
{
    arguments all = {0};
    if (first)
        tt_vec_push(e->arena, &all.values, first);
    for (size_t i = from; i + n->n_names < n->n; i++)
        tt_vec_push(e->arena, &all.values, tt_jeval(e, n->sub[i]));
    if (n->spread) {
        const tt_jvalue *items = tt_jitems(e, tt_jeval(e, n->spread));
        for (size_t i = 0; !e->failed && i < items->u.list.n; i++)
            tt_vec_push(e->arena, &all.values, items->u.list.items[i]);
    }
    for (size_t i = 0; i < n->n_names; i++)
        add_named(e, &all, n->names[i], tt_jeval(e, n->sub[n->n - n->n_names + i]));
    if (n->spread_named)
        add_mapping(e, &all, tt_jeval(e, n->spread_named));
    if (caller)
        add_named(e, &all, "caller", caller);
    return (tt_jargs){all.values.items, all.values.n, all.names.items, all.names.n};
}

/* ---- functions ---- */

static tt_jvalue *call_range(tt_jenv *e, const tt_jargs *a)
{
    const int64_t first = tt_jarg_int(a, 0, NULL, 0), begin = a->n > 1 ? first : 0,
                  end = a->n > 1 ? tt_jarg_int(a, 1, NULL, 0) : first,
                  step = tt_jarg_int(a, 2, NULL, 1);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    if (step == 0)
        return tt_jfail(e, "range: a step of 0");
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (list->u.list.n >= TT_J_MOST_RANGE)
            return tt_jfail(e, "range: more than %d numbers", TT_J_MOST_RANGE);
        tt_j_push(e->arena, list, tt_j_int(e->arena, i));
        if (!tt_add_i64(i, step, &i))
            break;
    }
    tt_jsteps(e, list->u.list.n);
    return list;
}

static tt_jvalue *call_dict(tt_jenv *e, const tt_jargs *a, bool is_namespace)
{
    tt_jvalue *d = tt_j_new(e->arena, TT_J_DICT);
    for (size_t i = 0; i < a->n; i++) {
        const bool named = i >= a->n - a->n_names;
        const char *name = named ? a->names[i - (a->n - a->n_names)] : NULL;
        if (named)
            tt_jput(e, d, tt_j_text(e->arena, name, strlen(name), TT_TAG_TEMPLATE), a->v[i]);
        for (size_t k = 0; !named && a->v[i]->type == TT_J_DICT && k < a->v[i]->u.dict.n; k++)
            tt_jput(e, d, a->v[i]->u.dict.keys[k], a->v[i]->u.dict.values[k]);
    }
    d->u.dict.is_namespace = is_namespace;
    return d;
}

static tt_jvalue *call_strftime(tt_jenv *e, const tt_jargs *a)
{
    char text[256];
    struct tm tm;
    const time_t t = (time_t)e->now;
    localtime_r(&t, &tm);
    const size_t n = strftime(text, sizeof text, tt_jarg_text(e, a, 0, "format", "%Y-%m-%d"), &tm);
    return tt_j_text(e->arena, text, n, TT_TAG_TEMPLATE);
}

/* Of a macro, or of the block of a {% call %}. */
static tt_jvalue *call_macro(tt_jenv *e, const tt_jcall *call, const tt_jargs *a)
{
    const tt_jnode *m = call->macro;
    tt_jtext text = {0}, *const out = e->out;
    tt_jframe *const was = e->frame;
    tt_jvalue *const caller = tt_jarg(a, SIZE_MAX, "caller");
    if (++e->calls > TT_J_MOST_CALLS)
        return tt_jfail(e, "macros call each other more than %d deep", TT_J_MOST_CALLS);
    e->frame = call->frame;
    tt_jframe_push(e);
    if (caller)
        tt_jset(e, "caller", caller);
    for (size_t i = 0; i < m->n_names; i++) {
        tt_jvalue *v = tt_jarg(a, i, m->names[i]);
        const tt_jnode *fallback = m->sub[0]->sub[i];
        tt_jset(e, m->names[i],
                v          ? v
                : fallback ? tt_jeval(e, fallback)
                           : tt_j_undefined(e->arena, m->names[i]));
    }
    e->out = &text;
    tt_jbody(e, m->sub[1]);
    e->out = out;
    e->frame = was;
    e->calls--;
    return tt_jtaken(e, &text);
}

static tt_jvalue *call_named(tt_jenv *e, const char *name, const tt_jargs *a)
{
    if (!strcmp(name, "range"))
        return call_range(e, a);
    if (!strcmp(name, "namespace") || !strcmp(name, "dict"))
        return call_dict(e, a, *name == 'n');
    if (!strcmp(name, "strftime_now"))
        return call_strftime(e, a);
    return tt_jfail(e, "the template says: %s", tt_jarg_text(e, a, 0, "message", "(nothing)"));
}

tt_jvalue *tt_jcall_of(tt_jenv *e, const tt_jnode *n, tt_jvalue *caller)
{
    const tt_jvalue *f = tt_jeval(e, n->sub[0]);
    if (e->failed)
        return tt_j_undefined(e->arena, "");
    if (f->type != TT_J_CALL)
        return tt_jfail(e, "%s cannot be called",
                        f->type == TT_J_UNDEFINED ? f->u.undefined : tt_j_type_name(f));
    const tt_jargs a = tt_jargs_of(e, n, 1, f->u.call.self, caller);
    if (e->failed)
        return tt_j_undefined(e->arena, "");
    if (f->u.call.macro)
        return call_macro(e, &f->u.call, &a);
    return f->u.call.self ? tt_jmethod(e, f->u.call.name, &a) : call_named(e, f->u.call.name, &a);
}
