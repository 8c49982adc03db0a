/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/eval.h"
#include <math.h>
#include <string.h>

/* Operators of expressions, and slices. */

static int64_t whole_of(const tt_jvalue *v) /* of an integer or a boolean */
{
    return v->type == TT_J_BOOL ? v->u.boolean : v->u.integer;
}

/* ---- slices ---- */

/* NULL: it is not given */
static int64_t bound(const tt_jvalue *v, int64_t n, int64_t fallback, bool backwards)
{
    if (!v)
        return fallback;
    const int64_t i = whole_of(v) < 0 ? whole_of(v) + n : whole_of(v);
    return backwards ? TT_MIN(TT_MAXV(i, (int64_t)-1), n - 1) : TT_MIN(TT_MAXV(i, (int64_t)0), n);
}

tt_jvalue *tt_jslice(tt_jenv *e, const tt_jnode *node)
{
    tt_jvalue *of = tt_jeval(e, node->sub[0]), *part[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        part[i] = node->sub[1 + i] ? tt_jeval(e, node->sub[1 + i]) : NULL;
        if (part[i] && part[i]->type == TT_J_NONE)
            part[i] = NULL;
        if (part[i] && part[i]->type != TT_J_INT && part[i]->type != TT_J_BOOL)
            return tt_jfail(e, "a slice from, to or by %s", tt_j_type_name(part[i]));
    }
    const int64_t step = part[2] ? whole_of(part[2]) : 1;
    if (of->type != TT_J_LIST && of->type != TT_J_STRING)
        return tt_jfail(e, "%s cannot be sliced", tt_j_type_name(of));
    if (step == 0)
        return tt_jfail(e, "a slice of step 0");
    const int64_t n = tt_jlength(e, of), begin = bound(part[0], n, step < 0 ? n - 1 : 0, step < 0),
                  end = bound(part[1], n, step < 0 ? -1 : n, step < 0);
    if (of->type == TT_J_STRING && step == 1)
        return tt_jpart(e, of, begin, TT_MAXV(end - begin, (int64_t)0));
    const tt_jvalue *items = tt_jitems(e, of);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    for (int64_t i = begin; !e->failed && (step > 0 ? i < end : i > end);) {
        tt_j_push(e->arena, list, items->u.list.items[i]);
        if (!tt_add_i64(i, step, &i))
            break;
    }
    if (of->type == TT_J_LIST)
        return list;
    tt_jtext text = {0};
    for (size_t i = 0; i < list->u.list.n; i++)
        tt_jtext_value(e->arena, &text, list->u.list.items[i]);
    return tt_jtaken(e, &text);
}

/* ---- operators ---- */

tt_jvalue *tt_jstring_of(tt_jenv *e, tt_jvalue *v)
{
    tt_jtext text = {0};
    if (v->type == TT_J_STRING)
        return v;
    tt_jtext_value(e->arena, &text, v);
    return tt_jtaken(e, &text);
}

static tt_jvalue *concatenate(tt_jenv *e, tt_jvalue *a, tt_jvalue *b)
{
    tt_jtext text = {0};
    tt_jtext_value(e->arena, &text, a);
    tt_jtext_value(e->arena, &text, b);
    if (text.full)
        return tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
    return tt_jtaken(e, &text);
}

static bool is_numeric(const tt_jvalue *v)
{
    return v->type == TT_J_INT || v->type == TT_J_FLOAT || v->type == TT_J_BOOL;
}

static double real_of(const tt_jvalue *v)
{
    return v->type == TT_J_FLOAT  ? v->u.real
           : v->type == TT_J_BOOL ? (double)v->u.boolean
                                  : (double)v->u.integer;
}

static tt_jvalue *integer_result(tt_jenv *e, tt_joperator op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    if ((op == TT_JO_FLOOR_DIV || op == TT_JO_MOD) && (b == 0 || (b == -1 && a == INT64_MIN)))
        return tt_jfail(e, "division by zero");
    if (op == TT_JO_ADD)
        over = __builtin_add_overflow(a, b, &r);
    else if (op == TT_JO_SUB)
        over = __builtin_sub_overflow(a, b, &r);
    else if (op == TT_JO_MUL)
        over = __builtin_mul_overflow(a, b, &r);
    else if (op == TT_JO_FLOOR_DIV)
        r = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else
        r = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return over ? tt_jfail(e, "a number that is too large") : tt_j_int(e->arena, r);
}

static tt_jvalue *arithmetic(tt_jenv *e, tt_joperator op, const tt_jvalue *a, const tt_jvalue *b)
{
    const double x = real_of(a), y = real_of(b);
    const bool whole = a->type != TT_J_FLOAT && b->type != TT_J_FLOAT;
    if (whole && op != TT_JO_DIV && op != TT_JO_POWER)
        return integer_result(e, op, whole_of(a), whole_of(b));
    if (!(y < 0 || y > 0) && (op == TT_JO_DIV || op == TT_JO_FLOOR_DIV || op == TT_JO_MOD))
        return tt_jfail(e, "division by zero");
    const double r = op == TT_JO_ADD         ? x + y
                     : op == TT_JO_SUB       ? x - y
                     : op == TT_JO_MUL       ? x * y
                     : op == TT_JO_DIV       ? x / y
                     : op == TT_JO_POWER     ? pow(x, y)
                     : op == TT_JO_FLOOR_DIV ? floor(x / y)
                                             : x - y * floor(x / y);
    if (whole && op == TT_JO_POWER && y >= 0 && fabs(r) < 9e15)
        return tt_j_int(e->arena, (int64_t)r);
    return tt_j_float(e->arena, r);
}

static tt_jvalue *repeat(tt_jenv *e, const tt_jvalue *s, int64_t times)
{
    tt_jtext text = {0};
    if (times > 0 && s->u.string.n > TT_J_MOST_TEXT / (size_t)times)
        return tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
    for (int64_t i = 0; i < times && s->u.string.n; i++)
        tt_jtext_value(e->arena, &text, s);
    return tt_jtaken(e, &text);
}

static tt_jvalue *join_lists(tt_jenv *e, const tt_jvalue *a, const tt_jvalue *b)
{
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    const tt_jvalue *both[] = {a, b};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->u.list.n; i++)
            tt_j_push(e->arena, list, both[k]->u.list.items[i]);
    tt_jsteps(e, list->u.list.n);
    return list;
}

bool tt_jcontains(tt_jenv *e, const tt_jvalue *in, const tt_jvalue *what)
{
    if (in->type == TT_J_STRING && what->type == TT_J_STRING)
        return tt_jlook(e, in->u.string.n) &&
               memmem(in->u.string.s, in->u.string.n, what->u.string.s, what->u.string.n) != NULL;
    if (in->type == TT_J_DICT)
        return tt_jfind(e, in, what) != NULL;
    if (in->type != TT_J_LIST) {
        if (in->type != TT_J_UNDEFINED)
            tt_jfail(e, "\"in\" needs a text, a list or a mapping, not %s", tt_j_type_name(in));
        return false;
    }
    for (size_t i = 0; !e->failed && i < in->u.list.n; i++)
        if (tt_jequal(e, in->u.list.items[i], what))
            return true;
    return false;
}

static tt_jvalue *compare(tt_jenv *e, tt_joperator op, const tt_jvalue *a, const tt_jvalue *b)
{
    int order = 0;
    if (a->type == TT_J_STRING && b->type == TT_J_STRING)
        tt_jlook(e, TT_MIN(a->u.string.n, b->u.string.n));
    if (op == TT_JO_EQ || op == TT_JO_NE)
        return tt_j_bool(e->arena, tt_jequal(e, a, b) == (op == TT_JO_EQ));
    if (op == TT_JO_IN || op == TT_JO_NOT_IN)
        return tt_j_bool(e->arena, tt_jcontains(e, b, a) == (op == TT_JO_IN));
    if (!tt_j_compare(a, b, &order))
        return tt_jfail(e, "%s and %s have no order", tt_j_type_name(a), tt_j_type_name(b));
    return tt_j_bool(e->arena, op == TT_JO_LT   ? order < 0
                               : op == TT_JO_LE ? order <= 0
                               : op == TT_JO_GT ? order > 0
                                                : order >= 0);
}

tt_jvalue *tt_jbinary(tt_jenv *e, const tt_jnode *n)
{
    tt_jvalue *a = tt_jeval(e, n->sub[0]);
    if (n->op == TT_JO_AND || n->op == TT_JO_OR)
        return tt_j_truth(a) == (n->op == TT_JO_OR) ? a : tt_jeval(e, n->sub[1]);
    tt_jvalue *b = tt_jeval(e, n->sub[1]);
    if (n->op == TT_JO_CONCAT)
        return concatenate(e, a, b);
    if (n->op <= TT_JO_NOT_IN)
        return compare(e, n->op, a, b);
    if (n->op == TT_JO_MOD && a->type == TT_J_STRING)
        return tt_jformat_old(e, a, b);
    if (is_numeric(a) && is_numeric(b))
        return arithmetic(e, n->op, a, b);
    if (n->op == TT_JO_ADD && a->type == TT_J_STRING && b->type == TT_J_STRING)
        return concatenate(e, a, b);
    if (n->op == TT_JO_ADD && a->type == TT_J_LIST && b->type == TT_J_LIST)
        return join_lists(e, a, b);
    if (n->op == TT_JO_MUL && a->type == TT_J_STRING && b->type == TT_J_INT)
        return repeat(e, a, b->u.integer);
    if (a->type == TT_J_UNDEFINED || b->type == TT_J_UNDEFINED)
        return tt_jfail(e, "%s is undefined", (a->type == TT_J_UNDEFINED ? a : b)->u.undefined);
    return tt_jfail(e, "no such operation on %s and %s", tt_j_type_name(a), tt_j_type_name(b));
}

tt_jvalue *tt_jnegative(tt_jenv *e, const tt_jvalue *v)
{
    if (!is_numeric(v))
        return tt_jfail(e, "%s has no negative", tt_j_type_name(v));
    return v->type == TT_J_FLOAT ? tt_j_float(e->arena, -v->u.real)
                                 : integer_result(e, TT_JO_SUB, 0, whole_of(v));
}
