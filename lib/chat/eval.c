/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/eval.h"
#include "base/reserve.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* Renders the tree of a template. */

tt_jvalue *tt_jfail(tt_jenv *e, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!e->failed)
        TT_FAIL(e->err, TT_EINVAL, "%s:%d: %s", e->name, e->line, text);
    e->failed = true;
    return tt_j_undefined(e->arena, "");
}

bool tt_jsteps(tt_jenv *e, size_t n)
{
    e->steps += (int64_t)TT_MIN(n, (size_t)TT_J_MOST_STEPS);
    if (e->steps > TT_J_MOST_STEPS || tt_arena_used(e->arena) > TT_J_MOST_MEMORY)
        tt_jfail(e, "the template takes too much work");
    if (!e->failed && tt_reserve_is_low()) {
        TT_FAIL(e->err, TT_ENOMEM, "%s:%d: out of memory", e->name, e->line);
        e->failed = true;
    }
    return !e->failed;
}

bool tt_jlook(tt_jenv *e, size_t bytes)
{
    return tt_jsteps(e, 1 + bytes / TT_J_BYTES_OF_STEP);
}

bool tt_jequal(tt_jenv *e, const tt_jvalue *a, const tt_jvalue *b)
{
    const bool equal = tt_j_equal(a, b, &e->steps);
    return tt_jsteps(e, 0) && equal;
}

tt_jvalue *tt_jfind(tt_jenv *e, const tt_jvalue *dict, const tt_jvalue *key)
{
    tt_jvalue *v = tt_j_find(dict, key, &e->steps);
    tt_jsteps(e, 0);
    return v;
}

void tt_jput(tt_jenv *e, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value)
{
    tt_j_put(e->arena, dict, key, value, &e->steps);
    tt_jsteps(e, 0);
}

tt_jvalue *tt_jtaken(tt_jenv *e, const tt_jtext *text)
{
    if (text->full)
        return tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
    tt_jlook(e, text->n);
    return tt_jtext_string(e->arena, text);
}

void tt_jset(tt_jenv *e, const char *name, tt_jvalue *v)
{
    tt_jput(e, e->frame->vars, tt_j_text(e->arena, name, strlen(name), TT_TAG_TEMPLATE), v);
}

/* In the arena: a macro that is defined in a loop or in a macro goes on seeing the names there. */
void tt_jframe_push(tt_jenv *e)
{
    tt_jframe *f = tt_arena_alloc(e->arena, sizeof *f);
    *f = (tt_jframe){tt_j_new(e->arena, TT_J_DICT), e->frame};
    e->frame = f;
}

/* ---- names ---- */

static const char *const functions[] = {"range", "namespace", "dict", "raise_exception",
                                        "strftime_now"};

static tt_jvalue *named_call(tt_jenv *e, const char *name, tt_jvalue *self)
{
    tt_jvalue *v = tt_j_new(e->arena, TT_J_CALL);
    v->u.call = (tt_jcall){.name = name, .self = self};
    return v;
}

static tt_jvalue *eval_name(tt_jenv *e, const char *name)
{
    const size_t n = strlen(name);
    for (const tt_jframe *f = e->frame; f; f = f->outer) {
        tt_jvalue *v = tt_j_get(f->vars, name, n);
        tt_jsteps(e, f->vars->u.dict.n / TT_J_BYTES_OF_STEP);
        if (v)
            return v;
    }
    for (size_t i = 0; i < TT_COUNT(functions); i++)
        if (!strcmp(functions[i], name))
            return named_call(e, functions[i], NULL);
    if (!strcmp(name, "self")) /* the blocks of the template, of which we have none */
        return tt_j_new(e->arena, TT_J_DICT);
    return tt_j_undefined(e->arena, name);
}

tt_jvalue *tt_jattribute(tt_jenv *e, tt_jvalue *of, const char *name)
{
    tt_jvalue *v = of->type == TT_J_DICT ? tt_j_get(of, name, strlen(name)) : NULL;
    if (of->type == TT_J_UNDEFINED)
        return tt_jfail(e, "%s is undefined, so it has no attribute \"%s\"",
                        *of->u.undefined ? of->u.undefined : "a value", name);
    if (of->type == TT_J_DICT && v && of->u.dict.is_namespace)
        return v;
    if (tt_jhas_method(of, name)) /* as Python: a mapping's methods go before its keys */
        return named_call(e, name, of);
    return v ? v : tt_j_undefined(e->arena, name);
}

tt_jvalue *tt_jpart(tt_jenv *e, const tt_jvalue *v, int64_t begin, int64_t n)
{
    const tt_jstring *s = &v->u.string;
    size_t at = 0, from = s->n, to = s->n;
    tt_jlook(e, s->n);
    for (int64_t k = 0; at <= s->n; k++) {
        if (k == begin)
            from = at;
        if (k == begin + n) {
            to = at;
            break;
        }
        if (at == s->n)
            break;
        at++;
        while (at < s->n && ((unsigned char)s->s[at] & 0xc0) == 0x80)
            at++;
    }
    return tt_j_part(e->arena, s, from, TT_MAXV(from, to));
}

tt_jvalue *tt_jitem(tt_jenv *e, tt_jvalue *of, const tt_jvalue *key)
{
    if (of->type == TT_J_UNDEFINED)
        return tt_jfail(e, "%s is undefined, so it has no items",
                        *of->u.undefined ? of->u.undefined : "a value");
    if (of->type == TT_J_DICT) {
        tt_jvalue *v = tt_jfind(e, of, key);
        if (!v && key->type == TT_J_STRING)
            return tt_j_undefined(e->arena,
                                  tt_arena_strn(e->arena, key->u.string.s, key->u.string.n));
        return v ? v : tt_j_undefined(e->arena, "an item");
    }
    if (key->type == TT_J_INT && (of->type == TT_J_LIST || of->type == TT_J_STRING)) {
        const int64_t n = tt_jlength(e, of),
                      i = key->u.integer < 0 ? key->u.integer + n : key->u.integer;
        if (i < 0 || i >= n)
            return tt_j_undefined(e->arena, "an item");
        return of->type == TT_J_LIST ? of->u.list.items[i] : tt_jpart(e, of, i, 1);
    }
    if (key->type == TT_J_STRING)
        return tt_jattribute(e, of, tt_arena_strn(e->arena, key->u.string.s, key->u.string.n));
    return tt_j_undefined(e->arena, "an item");
}

tt_jvalue *tt_jitems(tt_jenv *e, const tt_jvalue *v)
{
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    if (v->type == TT_J_LIST) {
        list->u.list = v->u.list;
        list->u.list.cap = v->u.list.n; /* who adds to it makes a copy */
    } else if (v->type == TT_J_DICT) {
        for (size_t i = 0; i < v->u.dict.n; i++)
            tt_j_push(e->arena, list, v->u.dict.keys[i]);
    } else if (v->type == TT_J_STRING) {
        for (size_t at = 0, to; at < v->u.string.n && tt_jsteps(e, 1); at = to) {
            to = at + 1;
            while (to < v->u.string.n && ((unsigned char)v->u.string.s[to] & 0xc0) == 0x80)
                to++;
            tt_j_push(e->arena, list, tt_j_part(e->arena, &v->u.string, at, to));
        }
    } else if (v->type != TT_J_UNDEFINED) {
        tt_jfail(e, "%s has no items to go over", tt_j_type_name(v));
    }
    tt_jsteps(e, v->type == TT_J_STRING ? 0 : list->u.list.n);
    return list;
}

/* ---- expressions ---- */

static tt_jvalue *eval_many(tt_jenv *e, const tt_jnode *n)
{
    tt_jvalue *v = tt_j_new(e->arena, n->kind == TT_JN_DICT ? TT_J_DICT : TT_J_LIST);
    if (n->kind == TT_JN_DICT) {
        for (size_t i = 0; i + 1 < n->n; i += 2) {
            tt_jvalue *key = tt_jeval(e, n->sub[i]);
            tt_jput(e, v, key, tt_jeval(e, n->sub[i + 1]));
        }
        return v;
    }
    v->u.list.is_tuple = n->kind == TT_JN_TUPLE;
    for (size_t i = 0; i < n->n; i++)
        tt_j_push(e->arena, v, tt_jeval(e, n->sub[i]));
    return v;
}

static bool may_go_on(tt_jenv *e)
{
    if (e->depth > TT_J_MOST_NESTED)
        tt_jfail(e, "macros and expressions within one another more than %d deep",
                 TT_J_MOST_NESTED);
    return tt_jsteps(e, 1);
}

static tt_jvalue *eval_node(tt_jenv *e, const tt_jnode *n)
{
    tt_jargs a;
    switch (n->kind) {
    case TT_JN_CONST:
        return n->value;
    case TT_JN_NAME:
        return eval_name(e, n->name);
    case TT_JN_LIST:
    case TT_JN_TUPLE:
    case TT_JN_DICT:
        return eval_many(e, n);
    case TT_JN_ATTRIBUTE:
        return tt_jattribute(e, tt_jeval(e, n->sub[0]), n->name);
    case TT_JN_ITEM: {
        tt_jvalue *of = tt_jeval(e, n->sub[0]);
        return tt_jitem(e, of, tt_jeval(e, n->sub[1]));
    }
    case TT_JN_SLICE:
        return tt_jslice(e, n);
    case TT_JN_CALL:
        return tt_jcall_of(e, n, NULL);
    case TT_JN_APPLY:
        a = tt_jargs_of(e, n, 0, NULL, NULL);
        return e->failed ? tt_j_undefined(e->arena, "") : tt_jfilter(e, n->name, &a);
    case TT_JN_TEST:
        a = tt_jargs_of(e, n, 0, NULL, NULL);
        return tt_j_bool(e->arena, !e->failed && tt_jtest(e, n->name, &a) != n->negated);
    case TT_JN_NOT:
        return tt_j_bool(e->arena, !tt_j_truth(tt_jeval(e, n->sub[0])));
    case TT_JN_NEGATE:
        return tt_jnegative(e, tt_jeval(e, n->sub[0]));
    case TT_JN_BINARY:
        return tt_jbinary(e, n);
    case TT_JN_TERNARY:
        if (tt_j_truth(tt_jeval(e, n->sub[1])))
            return tt_jeval(e, n->sub[0]);
        return n->sub[2] ? tt_jeval(e, n->sub[2]) : tt_j_undefined(e->arena, "a value");
    default:
        return tt_jfail(e, "no expression");
    }
}

tt_jvalue *tt_jeval(tt_jenv *e, const tt_jnode *n)
{
    if (!n || !may_go_on(e))
        return tt_j_undefined(e->arena, "");
    e->line = n->line;
    e->depth++;
    tt_jvalue *v = eval_node(e, n);
    e->depth--;
    return v;
}

/* ---- statements ---- */

static void assign(tt_jenv *e, const tt_jnode *target, tt_jvalue *v)
{
    if (target->kind == TT_JN_NAME) {
        tt_jset(e, target->name, v);
    } else if (target->kind == TT_JN_ATTRIBUTE) {
        tt_jvalue *of = tt_jeval(e, target->sub[0]);
        if (of->type != TT_J_DICT || !of->u.dict.is_namespace) {
            tt_jfail(e, "only attributes of a namespace() can be set");
            return;
        }
        tt_jput(e, of, tt_j_text(e->arena, target->name, strlen(target->name), TT_TAG_TEMPLATE), v);
    } else {
        const tt_jvalue *items = tt_jitems(e, v);
        if (!e->failed && items->u.list.n != target->n)
            tt_jfail(e, "%zu values for %zu names", items->u.list.n, target->n);
        for (size_t i = 0; !e->failed && i < target->n; i++)
            assign(e, target->sub[i], items->u.list.items[i]);
    }
}

static void put_loop_member(tt_jenv *e, tt_jvalue *d, const char *name, tt_jvalue *v)
{
    tt_j_append(e->arena, d, tt_j_text(e->arena, name, strlen(name), TT_TAG_TEMPLATE), v);
}

/* The variable `loop`. */
static tt_jvalue *loop_value(tt_jenv *e, const tt_jvalue *items, size_t i)
{
    const int64_t n = (int64_t)items->u.list.n, k = (int64_t)i;
    tt_jvalue *d = tt_j_new(e->arena, TT_J_DICT), **all = items->u.list.items;
    d->u.dict.is_namespace = true; /* its members go before a mapping's methods */
    put_loop_member(e, d, "index", tt_j_int(e->arena, k + 1));
    put_loop_member(e, d, "index0", tt_j_int(e->arena, k));
    put_loop_member(e, d, "revindex", tt_j_int(e->arena, n - k));
    put_loop_member(e, d, "revindex0", tt_j_int(e->arena, n - k - 1));
    put_loop_member(e, d, "first", tt_j_bool(e->arena, k == 0));
    put_loop_member(e, d, "last", tt_j_bool(e->arena, k == n - 1));
    put_loop_member(e, d, "length", tt_j_int(e->arena, n));
    put_loop_member(e, d, "previtem", k > 0 ? all[i - 1] : tt_j_undefined(e->arena, "previtem"));
    put_loop_member(e, d, "nextitem",
                    k + 1 < n ? all[i + 1] : tt_j_undefined(e->arena, "nextitem"));
    return d;
}

/* The items that a loop's own condition lets through. */
static tt_jvalue *chosen(tt_jenv *e, const tt_jnode *n, tt_jvalue *items)
{
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    if (!n->sub[2])
        return items;
    for (size_t i = 0; !e->failed && i < items->u.list.n; i++) {
        tt_jframe_push(e);
        assign(e, n->sub[0], items->u.list.items[i]);
        if (tt_j_truth(tt_jeval(e, n->sub[2])))
            tt_j_push(e->arena, list, items->u.list.items[i]);
        e->frame = e->frame->outer;
    }
    return list;
}

static void eval_for(tt_jenv *e, const tt_jnode *n)
{
    tt_jvalue *items = chosen(e, n, tt_jitems(e, tt_jeval(e, n->sub[1])));
    for (size_t i = 0; i < items->u.list.n && tt_jsteps(e, 1); i++) {
        tt_jframe_push(e);
        tt_jset(e, "loop", loop_value(e, items, i));
        assign(e, n->sub[0], items->u.list.items[i]);
        tt_jbody(e, n->sub[3]);
        e->frame = e->frame->outer;
        const bool ends = e->flow == TT_JF_BREAK;
        e->flow = TT_JF_NONE;
        if (ends)
            return;
    }
    if (!items->u.list.n && n->sub[4])
        tt_jbody(e, n->sub[4]);
}

/* The text that a body makes. */
static tt_jvalue *captured(tt_jenv *e, const tt_jnode *body)
{
    tt_jtext text = {0}, *const out = e->out;
    e->out = &text;
    tt_jbody(e, body);
    e->out = out;
    return tt_jtaken(e, &text);
}

/* The filters of {% filter %}, whose innermost value is the text. */
static tt_jvalue *filtered(tt_jenv *e, const tt_jnode *n, tt_jvalue *text)
{
    tt_jvalue *on = n->sub[0] ? filtered(e, n->sub[0], text) : text;
    const tt_jargs a = tt_jargs_of(e, n, 1, on, NULL);
    return e->failed ? on : tt_jfilter(e, n->name, &a);
}

static void eval_if(tt_jenv *e, const tt_jnode *n)
{
    size_t i = 0;
    while (i + 1 < n->n && !e->failed && !tt_j_truth(tt_jeval(e, n->sub[i])))
        i += 2;
    i += i + 1 < n->n; /* the body of a condition, or what is there if none is true */
    if (!e->failed && n->sub[i])
        tt_jbody(e, n->sub[i]);
}

static void eval_statement(tt_jenv *e, const tt_jnode *n)
{
    tt_jvalue *v;
    e->line = n->line;
    switch (n->kind) {
    case TT_JN_TEXT:
        tt_jtext_value(e->arena, e->out, n->value);
        break;
    case TT_JN_OUTPUT:
        v = tt_jeval(e, n->sub[0]);
        if (!e->failed)
            tt_jtext_value(e->arena, e->out, v);
        break;
    case TT_JN_IF:
        eval_if(e, n);
        break;
    case TT_JN_FOR:
        eval_for(e, n);
        break;
    case TT_JN_SET:
        assign(e, n->sub[0], tt_jeval(e, n->sub[1]));
        break;
    case TT_JN_BLOCK_SET:
        assign(e, n->sub[0], captured(e, n->sub[1]));
        break;
    case TT_JN_MACRO:
        v = tt_j_new(e->arena, TT_J_CALL);
        v->u.call = (tt_jcall){.macro = n, .frame = e->frame};
        tt_jset(e, n->name, v);
        break;
    case TT_JN_CALL_BLOCK:
        v = tt_j_new(e->arena, TT_J_CALL);
        v->u.call = (tt_jcall){.macro = n, .frame = e->frame};
        v = tt_jcall_of(e, n->sub[2], v);
        if (!e->failed)
            tt_jtext_value(e->arena, e->out, v);
        break;
    case TT_JN_FILTER:
        tt_jtext_value(e->arena, e->out, filtered(e, n->sub[1], captured(e, n->sub[0])));
        break;
    case TT_JN_GENERATION:
        e->out->generating++;
        tt_jbody(e, n->sub[0]);
        e->out->generating--;
        break;
    default:
        e->flow = n->kind == TT_JN_BREAK ? TT_JF_BREAK : TT_JF_CONTINUE;
        break;
    }
}

void tt_jbody(tt_jenv *e, const tt_jnode *n)
{
    for (size_t i = 0; i < n->n && e->flow == TT_JF_NONE && may_go_on(e); i++) {
        if (n->sub[i])
            eval_statement(e, n->sub[i]);
        if (e->out->full)
            tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
    }
}

tt_status tt_jinja_render(tt_arena *a, const char *name, const tt_jnode *tree,
                          const tt_jvalue *vars, double now, tt_jtext *out, tt_error *err)
{
    tt_jframe given = {(tt_jvalue *)(uintptr_t)vars, NULL};
    tt_jenv e = {.arena = a, .name = name, .frame = &given, .out = out, .err = err, .now = now};
    tt_jframe_push(&e);
    tt_jtext_add(a, out, "", 0, NULL, TT_TAG_TEMPLATE);
    tt_jbody(&e, tree);
    return !e.failed ? TT_OK : err ? err->code : TT_EINVAL;
}
