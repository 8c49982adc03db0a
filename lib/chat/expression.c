/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/parse.h"
#include <string.h>

/* Expressions within {{ }} and {% %}. */

static void want(tt_jparser *p, const char *sign)
{
    char what[40];
    if (tt_jparse_take(p, sign))
        return;
    snprintf(what, sizeof what, "%s should be here", sign);
    tt_jparse_fail(p, what);
}

void tt_jparse_close_output(tt_jparser *p)
{
    if (!p->failed && p->token.kind != TT_JT_OUTPUT_END)
        tt_jparse_fail(p, "}} should be here");
    p->trim = p->token.trims;
    p->after_block = false;
    p->in_tag = false;
}

void tt_jparse_keyword(tt_jparser *p, tt_jnode *n, const char *name)
{
    if (n->n_names == n->cap_names)
        n->names = tt_vec_grow(p->arena, n->names, n->n_names, &n->cap_names, sizeof(char *));
    n->names[n->n_names++] = name;
}

/* ---- expressions, from the loosest binding to the tightest ---- */

const char *tt_jparse_name(tt_jparser *p)
{
    const char *name = tt_arena_strn(p->arena, p->token.s ? p->token.s : "", p->token.n);
    if (p->token.kind != TT_JT_NAME)
        tt_jparse_fail(p, "a name should be here");
    tt_jparse_next(p);
    return name;
}

static tt_jnode *constant(tt_jparser *p, tt_jvalue *v)
{
    tt_jnode *n = tt_jparse_node(p, TT_JN_CONST);
    n->value = v;
    return n;
}

/* *list and **mapping among arguments. */
static bool spread(tt_jparser *p, tt_jnode *n)
{
    const bool named = tt_jparse_is(p, "**");
    tt_jnode **to = named ? &n->spread_named : &n->spread;
    if (!tt_jparse_take(p, named ? "**" : "*"))
        return false;
    if (*to || n->spread_named)
        tt_jparse_fail(p, "the arguments have *list or **mapping twice, or after **mapping");
    *to = tt_jparse_expression(p);
    tt_jparse_deepen(p, n, *to);
    return true;
}

/* (a, *b, c=d, **e): appended to n, those with names last. */
static void arguments(tt_jparser *p, tt_jnode *n)
{
    while (!p->failed && !tt_jparse_is(p, ")")) {
        if (!spread(p, n)) {
            tt_jnode *a = tt_jparse_expression(p);
            if (a && a->kind == TT_JN_NAME && tt_jparse_take(p, "=")) {
                tt_jparse_keyword(p, n, a->name);
                a = tt_jparse_expression(p);
            } else if (n->n_names || n->spread) {
                tt_jparse_fail(p, "an argument without a name follows one with a name, or *list");
            }
            if (n->spread_named)
                tt_jparse_fail(p, "an argument follows **mapping");
            tt_jparse_add(p, n, a);
        }
        if (!tt_jparse_take(p, ","))
            break;
    }
    want(p, ")");
}

static tt_jnode *items(tt_jparser *p, tt_jkind kind, const char *end)
{
    tt_jnode *n = tt_jparse_node(p, kind);
    while (!p->failed && !tt_jparse_is(p, end)) {
        tt_jparse_add(p, n, tt_jparse_expression(p));
        if (kind == TT_JN_DICT) {
            want(p, ":");
            tt_jparse_add(p, n, tt_jparse_expression(p));
        }
        if (!tt_jparse_take(p, ","))
            break;
    }
    want(p, end);
    return n;
}

static tt_jnode *parse_word(tt_jparser *p)
{
    const char *name = tt_jparse_name(p);
    if (!strcmp(name, "true") || !strcmp(name, "True"))
        return constant(p, tt_j_bool(p->arena, true));
    if (!strcmp(name, "false") || !strcmp(name, "False"))
        return constant(p, tt_j_bool(p->arena, false));
    if (!strcmp(name, "none") || !strcmp(name, "None"))
        return constant(p, tt_j_new(p->arena, TT_J_NONE));
    tt_jnode *n = tt_jparse_node(p, TT_JN_NAME);
    n->name = name;
    return n;
}

static tt_jnode *parse_primary(tt_jparser *p)
{
    const tt_jtoken t = p->token;
    if (t.kind == TT_JT_STRING) { /* those that follow are joined */
        tt_jtext text = {0};
        for (; p->token.kind == TT_JT_STRING; tt_jparse_next(p))
            tt_jtext_add(p->arena, &text, p->token.s, p->token.n, NULL, TT_TAG_TEMPLATE);
        tt_jvalue *v = tt_jtext_string(p->arena, &text);
        v->u.string.tags = NULL;
        return constant(p, v);
    }
    if (t.kind == TT_JT_INT || t.kind == TT_JT_FLOAT) {
        tt_jparse_next(p);
        return constant(p, t.kind == TT_JT_INT ? tt_j_int(p->arena, t.integer)
                                               : tt_j_float(p->arena, t.real));
    }
    if (t.kind == TT_JT_NAME)
        return parse_word(p);
    if (tt_jparse_take(p, "["))
        return items(p, TT_JN_LIST, "]");
    if (tt_jparse_take(p, "{"))
        return items(p, TT_JN_DICT, "}");
    if (tt_jparse_take(p, "(")) {
        if (tt_jparse_take(p, ")"))
            return tt_jparse_node(p, TT_JN_TUPLE);
        tt_jnode *n = tt_jparse_tuple(p);
        want(p, ")");
        return n;
    }
    tt_jparse_fail(p, "a value should be here");
    return constant(p, tt_j_new(p->arena, TT_J_NONE));
}

/* x[i], x[a:b:c] */
static tt_jnode *parse_item(tt_jparser *p, tt_jnode *of)
{
    tt_jnode *n = tt_jparse_node(p, TT_JN_ITEM), *part[3] = {NULL};
    int k = 0;
    bool slice = false;
    tt_jparse_add(p, n, of);
    while (!p->failed && !tt_jparse_is(p, "]")) {
        if (tt_jparse_take(p, ":")) {
            slice = true;
            if (++k > 2)
                tt_jparse_fail(p, "a slice has at most three parts");
            continue;
        }
        part[k] = tt_jparse_expression(p);
        if (!tt_jparse_is(p, ":"))
            break;
    }
    want(p, "]");
    if (!slice && !part[0])
        tt_jparse_fail(p, "a value should be in the brackets");
    n->kind = slice ? TT_JN_SLICE : TT_JN_ITEM;
    for (int i = 0; i < (slice ? 3 : 1); i++)
        tt_jparse_add(p, n, part[i]);
    return n;
}

static tt_jnode *parse_postfix(tt_jparser *p, tt_jnode *n)
{
    for (int many = 0; !p->failed; many++) {
        if (many > 200) {
            tt_jparse_fail(p, "too many parts in one expression");
        } else if (tt_jparse_take(p, ".")) {
            tt_jnode *of = n;
            if (p->token.kind == TT_JT_INT) { /* x.0 */
                n = tt_jparse_node(p, TT_JN_ITEM);
                tt_jparse_add(p, n, of);
                tt_jparse_add(p, n, constant(p, tt_j_int(p->arena, p->token.integer)));
                tt_jparse_next(p);
                continue;
            }
            n = tt_jparse_node(p, TT_JN_ATTRIBUTE);
            n->name = tt_jparse_name(p);
            tt_jparse_add(p, n, of);
        } else if (tt_jparse_take(p, "[")) {
            n = parse_item(p, n);
        } else if (tt_jparse_take(p, "(")) {
            tt_jnode *of = n;
            n = tt_jparse_node(p, TT_JN_CALL);
            tt_jparse_add(p, n, of);
            arguments(p, n);
        } else {
            break;
        }
    }
    return n;
}

static tt_jnode *parse_filter(tt_jparser *p, tt_jnode *on)
{
    tt_jnode *n = tt_jparse_node(p, TT_JN_APPLY);
    n->name = tt_jparse_name(p);
    tt_jparse_add(p, n, on);
    if (tt_jparse_take(p, "("))
        arguments(p, n);
    return n;
}

tt_jnode *tt_jparse_filters(tt_jparser *p, tt_jnode *on)
{
    do
        on = parse_filter(p, on);
    while (tt_jparse_take(p, "|"));
    return on;
}

static tt_jnode *parse_unary(tt_jparser *p, bool with_filters);

/* x is [not] NAME, NAME(…), NAME value */
static tt_jnode *parse_test(tt_jparser *p, tt_jnode *on)
{
    tt_jnode *n = tt_jparse_node(p, TT_JN_TEST);
    n->negated = tt_jparse_take(p, "not");
    n->name = tt_jparse_name(p);
    tt_jparse_add(p, n, on);
    const bool word = p->token.kind == TT_JT_NAME && !tt_jparse_is(p, "else") &&
                      !tt_jparse_is(p, "or") && !tt_jparse_is(p, "and") && !tt_jparse_is(p, "if") &&
                      !tt_jparse_is(p, "is") && !tt_jparse_is(p, "in") && !tt_jparse_is(p, "not");
    const tt_jtoken_kind k = p->token.kind;
    if (tt_jparse_take(p, "("))
        arguments(p, n);
    else if (word || k == TT_JT_STRING || k == TT_JT_INT || k == TT_JT_FLOAT ||
             tt_jparse_is(p, "["))
        tt_jparse_add(p, n, parse_postfix(p, parse_primary(p)));
    return n;
}

static tt_jnode *parse_unary(tt_jparser *p, bool with_filters)
{
    tt_jnode *n;
    if (++p->depth > TT_J_DEPTH)
        tt_jparse_fail(p, "expressions nested too deep");
    if (tt_jparse_is(p, "-") || tt_jparse_is(p, "+")) {
        const bool negative = tt_jparse_is(p, "-");
        tt_jparse_next(p);
        n = parse_unary(p, false);
        if (negative) {
            tt_jnode *of = n;
            n = tt_jparse_node(p, TT_JN_NEGATE);
            tt_jparse_add(p, n, of);
        }
    } else {
        n = parse_postfix(p, parse_primary(p));
    }
    while (with_filters && !p->failed) {
        if (tt_jparse_take(p, "|"))
            n = parse_filter(p, n);
        else if (tt_jparse_take(p, "is"))
            n = parse_test(p, n);
        else if (tt_jparse_is(p, "(") || tt_jparse_is(p, ".") || tt_jparse_is(p, "["))
            n = parse_postfix(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

typedef struct binary_level {
    const char *sign[5];
    tt_joperator op[5];
} binary_level;

static const binary_level levels[] = {
    {{"~"},                 {TT_JO_CONCAT}                                    },
    {{"+", "-"},            {TT_JO_ADD, TT_JO_SUB}                            },
    {{"*", "/", "//", "%"}, {TT_JO_MUL, TT_JO_DIV, TT_JO_FLOOR_DIV, TT_JO_MOD}},
    {{"**"},                {TT_JO_POWER}                                     },
};
/* Jinja's own order: + and - bind looser than ~, which binds looser than *. */
static const int order[] = {1, 0, 2, 3};

static tt_jnode *binary(tt_jparser *p, tt_joperator op, tt_jnode *a, tt_jnode *b)
{
    tt_jnode *n = tt_jparse_node(p, TT_JN_BINARY);
    n->op = op;
    tt_jparse_add(p, n, a);
    tt_jparse_add(p, n, b);
    return n;
}

static tt_jnode *parse_level(tt_jparser *p, size_t level)
{
    if (level == TT_COUNT(order))
        return parse_unary(p, true);
    const binary_level *l = &levels[order[level]];
    tt_jnode *n = parse_level(p, level + 1);
    for (bool more = true; more && !p->failed;) {
        more = false;
        for (int i = 0; i < 5 && l->sign[i] && !more; i++)
            if (tt_jparse_take(p, l->sign[i])) {
                n = binary(p, l->op[i], n, parse_level(p, level + 1));
                more = true;
            }
    }
    return n;
}

static bool take_comparison(tt_jparser *p, tt_joperator *op)
{
    static const struct {
        const char *sign;
        tt_joperator op;
    } all[] = {
        {"==", TT_JO_EQ},
        {"!=", TT_JO_NE},
        {"<=", TT_JO_LE},
        {">=", TT_JO_GE},
        {"<",  TT_JO_LT},
        {">",  TT_JO_GT},
        {"in", TT_JO_IN}
    };
    for (size_t i = 0; i < TT_COUNT(all); i++)
        if (tt_jparse_take(p, all[i].sign)) {
            *op = all[i].op;
            return true;
        }
    if (!tt_jparse_take(p, "not"))
        return false;
    want(p, "in");
    *op = TT_JO_NOT_IN;
    return true;
}

/* a < b < c means a < b and b < c */
static tt_jnode *parse_comparison(tt_jparser *p)
{
    tt_jnode *left = parse_level(p, 0), *all = NULL;
    tt_joperator op;
    while (!p->failed && take_comparison(p, &op)) {
        tt_jnode *right = parse_level(p, 0), *one = binary(p, op, left, right);
        all = all ? binary(p, TT_JO_AND, all, one) : one;
        left = right;
    }
    return all ? all : left;
}

static tt_jnode *parse_not(tt_jparser *p)
{
    if (!tt_jparse_take(p, "not"))
        return parse_comparison(p);
    tt_jnode *n = tt_jparse_node(p, TT_JN_NOT);
    if (++p->depth > TT_J_DEPTH)
        tt_jparse_fail(p, "expressions nested too deep");
    tt_jparse_add(p, n, p->failed ? NULL : parse_not(p));
    p->depth--;
    return n;
}

static tt_jnode *parse_and(tt_jparser *p)
{
    tt_jnode *n = parse_not(p);
    while (!p->failed && tt_jparse_take(p, "and"))
        n = binary(p, TT_JO_AND, n, parse_not(p));
    return n;
}

tt_jnode *tt_jparse_without_if(tt_jparser *p)
{
    if (++p->depth > TT_J_DEPTH)
        tt_jparse_fail(p, "expressions nested too deep");
    tt_jnode *n = parse_and(p);
    while (!p->failed && tt_jparse_take(p, "or"))
        n = binary(p, TT_JO_OR, n, parse_and(p));
    p->depth--;
    return n;
}

tt_jnode *tt_jparse_expression(tt_jparser *p)
{
    tt_jnode *n = tt_jparse_without_if(p);
    while (!p->failed && tt_jparse_take(p, "if")) {
        tt_jnode *then = n;
        n = tt_jparse_node(p, TT_JN_TERNARY);
        tt_jparse_add(p, n, then);
        tt_jparse_add(p, n, tt_jparse_without_if(p));
        if (++p->depth > TT_J_DEPTH)
            tt_jparse_fail(p, "expressions nested too deep");
        tt_jparse_add(p, n, tt_jparse_take(p, "else") ? tt_jparse_expression(p) : NULL);
        p->depth--;
    }
    return n;
}

tt_jnode *tt_jparse_tuple(tt_jparser *p)
{
    tt_jnode *n = tt_jparse_expression(p);
    if (!tt_jparse_is(p, ","))
        return n;
    tt_jnode *many = tt_jparse_node(p, TT_JN_TUPLE);
    tt_jparse_add(p, many, n);
    while (!p->failed && tt_jparse_take(p, ",") && !tt_jparse_is(p, ")") &&
           p->token.kind != TT_JT_BLOCK_END && p->token.kind != TT_JT_OUTPUT_END)
        tt_jparse_add(p, many, tt_jparse_expression(p));
    return many;
}
