/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/parse.h"
#include <string.h>

/* Statements of a template: text, {{ }}, {% %}, {# #}, with trim_blocks and lstrip_blocks. */

static tt_jnode *parse_body(tt_jparser *p, const char *const *ends);

tt_jnode *tt_jparse_node(tt_jparser *p, tt_jkind kind)
{
    tt_jnode *n = tt_arena_alloc(p->arena, sizeof *n);
    n->kind = kind;
    n->line = p->line;
    return n;
}

void tt_jparse_deepen(tt_jparser *p, tt_jnode *n, const tt_jnode *sub)
{
    if (sub && sub->depth >= n->depth)
        n->depth = sub->depth + 1;
    if (n->depth > TT_J_TREE)
        tt_jparse_fail(p, "an expression or a statement of too many parts");
}

void tt_jparse_add(tt_jparser *p, tt_jnode *to, tt_jnode *sub)
{
    tt_jparse_deepen(p, to, sub);
    if (to->n == to->cap)
        to->sub = tt_vec_grow(p->arena, to->sub, to->n, &to->cap, sizeof(tt_jnode *));
    to->sub[to->n++] = sub;
}

void tt_jparse_fail(tt_jparser *p, const char *what)
{
    if (!p->failed)
        TT_FAIL(p->err, TT_EINVAL, "%s:%d: %s", p->name, p->line, what);
    p->failed = true;
    p->at = p->end;
    p->token.kind = TT_JT_END;
}

/* ---- text ---- */

static bool begins(const tt_jparser *p, const char *s)
{
    const size_t n = strlen(s);
    return (size_t)(p->end - p->at) >= n && !memcmp(p->at, s, n);
}

static void count_lines(tt_jparser *p, const char *from, const char *to)
{
    for (; from < to; from++)
        p->line += *from == '\n';
}

/* Skips {# … #}. */
static void skip_comment(tt_jparser *p)
{
    const char *from = p->at;
    while (p->at < p->end && !begins(p, "#}"))
        p->at++;
    count_lines(p, from, p->at);
    if (p->at == p->end) {
        tt_jparse_fail(p, "a comment without its end #}");
        return;
    }
    p->trim = p->at[-1] == '-';
    p->after_block = p->at[-1] != '+' && !p->trim;
    p->at += 2;
}

/* The text up to the next tag, with the whitespace that tags take away. NULL: it is empty. */
static tt_jnode *take_text(tt_jparser *p)
{
    const char *from = p->at;
    if (p->trim)
        while (from < p->end && strchr(" \t\r\n", *from) && *from)
            from++;
    else if (p->after_block && from < p->end && *from == '\n')
        from++;
    p->trim = p->after_block = false;
    count_lines(p, p->at, from);
    const char *to = from;
    while (to < p->end && !(to[0] == '{' && to + 1 < p->end && strchr("{%#", to[1]) && to[1]))
        to++;
    const char *keep = to;
    const char mark = to + 2 < p->end ? to[2] : 0;
    if (to < p->end && mark == '-') {
        while (keep > from && strchr(" \t\r\n", keep[-1]))
            keep--;
    } else if (to < p->end && to[1] != '{' && mark != '+') { /* lstrip_blocks */
        while (keep > from && strchr(" \t", keep[-1]))
            keep--;
        const bool line_begins =
            keep == from ? from == p->begin || from[-1] == '\n' : keep[-1] == '\n';
        keep = line_begins ? keep : to;
    }
    tt_jnode *n = NULL;
    if (keep > from) {
        n = tt_jparse_node(p, TT_JN_TEXT);
        n->value = tt_j_text(p->arena, from, (size_t)(keep - from), TT_TAG_TEMPLATE);
    }
    count_lines(p, from, to);
    p->at = to;
    return n;
}

/* ---- statements ---- */

static bool word_is(const tt_jparser *p, const char *word)
{
    return p->token.kind == TT_JT_NAME && p->token.n == strlen(word) &&
           !memcmp(p->token.s, word, p->token.n);
}

static void end_block(tt_jparser *p)
{
    if (p->failed)
        return;
    if (p->token.kind != TT_JT_BLOCK_END) {
        tt_jparse_fail(p, "the end of the statement, %}, should be here");
        return;
    }
    p->trim = p->token.trims;
    p->after_block = !p->token.trims && !p->token.keeps;
    p->in_tag = false;
}

static tt_jnode *parse_target(tt_jparser *p);

/* A name, ns.name, or targets in parentheses. */
static tt_jnode *parse_one_target(tt_jparser *p)
{
    tt_jnode *one;
    if (++p->depth > TT_J_DEPTH)
        tt_jparse_fail(p, "names nested too deep");
    if (!p->failed && tt_jparse_take(p, "(")) {
        one = parse_target(p);
        if (!tt_jparse_take(p, ")"))
            tt_jparse_fail(p, ") should be here");
    } else {
        one = tt_jparse_node(p, TT_JN_NAME);
        one->name = tt_jparse_name(p);
        if (tt_jparse_take(p, ".")) { /* {% set ns.x = … %} */
            tt_jnode *attribute = tt_jparse_node(p, TT_JN_ATTRIBUTE);
            attribute->name = tt_jparse_name(p);
            tt_jparse_add(p, attribute, one);
            one = attribute;
        }
    }
    p->depth--;
    return one;
}

/* A target, or several with commas: what a loop or an assignment gives values to. */
static tt_jnode *parse_target(tt_jparser *p)
{
    tt_jnode *one = parse_one_target(p), *many;
    if (!tt_jparse_is(p, ","))
        return one;
    many = tt_jparse_node(p, TT_JN_TUPLE);
    tt_jparse_add(p, many, one);
    while (!p->failed && tt_jparse_take(p, ",") && !tt_jparse_is(p, ")") && !tt_jparse_is(p, "="))
        tt_jparse_add(p, many, parse_one_target(p));
    return many;
}

static tt_jnode *parse_if(tt_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    tt_jnode *n = tt_jparse_node(p, TT_JN_IF), *otherwise = NULL;
    do {
        tt_jparse_add(p, n, tt_jparse_expression(p));
        end_block(p);
        tt_jparse_add(p, n, parse_body(p, ends));
    } while (!p->failed && tt_jparse_take(p, "elif"));
    if (tt_jparse_take(p, "else")) {
        end_block(p);
        otherwise = parse_body(p, ends + 2);
    }
    tt_jparse_add(p, n, otherwise);
    tt_jparse_next(p);
    end_block(p);
    return n;
}

static tt_jnode *parse_for(tt_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    tt_jnode *n = tt_jparse_node(p, TT_JN_FOR);
    tt_jparse_add(p, n, parse_target(p));
    if (!word_is(p, "in"))
        tt_jparse_fail(p, "\"in\" should be here");
    tt_jparse_next(p);
    tt_jparse_add(p, n, tt_jparse_without_if(p));
    tt_jnode *condition = NULL;
    if (word_is(p, "if")) {
        tt_jparse_next(p);
        condition = tt_jparse_expression(p);
    }
    tt_jparse_add(p, n, condition);
    end_block(p);
    tt_jparse_add(p, n, parse_body(p, ends));
    tt_jnode *otherwise = NULL;
    if (word_is(p, "else")) {
        static const char *const end[] = {"endfor", NULL};
        tt_jparse_next(p);
        end_block(p);
        otherwise = parse_body(p, end);
    }
    tt_jparse_add(p, n, otherwise);
    tt_jparse_next(p);
    end_block(p);
    return n;
}

static tt_jnode *parse_set(tt_jparser *p)
{
    static const char *const end[] = {"endset", NULL};
    tt_jnode *target = parse_target(p), *n = tt_jparse_node(p, TT_JN_SET);
    tt_jparse_add(p, n, target);
    if (tt_jparse_take(p, "=")) {
        tt_jparse_add(p, n, tt_jparse_tuple(p));
        end_block(p);
        return n;
    }
    n->kind = TT_JN_BLOCK_SET;
    end_block(p);
    tt_jparse_add(p, n, parse_body(p, end));
    tt_jparse_next(p);
    end_block(p);
    return n;
}

/* (a, b=1): the names go to n, and what they are when they are not given to n's first part, a list. */
static void parse_parameters(tt_jparser *p, tt_jnode *n)
{
    tt_jnode *defaults = tt_jparse_node(p, TT_JN_LIST);
    while (!p->failed && !tt_jparse_take(p, ")")) {
        tt_jparse_keyword(p, n, tt_jparse_name(p));
        tt_jparse_add(p, defaults, tt_jparse_take(p, "=") ? tt_jparse_expression(p) : NULL);
        if (!tt_jparse_take(p, ",") && !tt_jparse_is(p, ")"))
            tt_jparse_fail(p, "a comma or ) should be here");
    }
    tt_jparse_add(p, n, defaults);
}

static tt_jnode *parse_macro(tt_jparser *p)
{
    static const char *const end[] = {"endmacro", NULL};
    tt_jnode *n = tt_jparse_node(p, TT_JN_MACRO);
    n->name = tt_jparse_name(p);
    if (!tt_jparse_take(p, "("))
        tt_jparse_fail(p, "the parameters of a macro should be here");
    parse_parameters(p, n);
    end_block(p);
    tt_jparse_add(p, n, parse_body(p, end));
    tt_jparse_next(p);
    end_block(p);
    return n;
}

/* {% call(x) f(…) %} … {% endcall %}: within f, caller(…) gives the text in between. */
static tt_jnode *parse_call(tt_jparser *p)
{
    static const char *const end[] = {"endcall", NULL};
    tt_jnode *n = tt_jparse_node(p, TT_JN_CALL_BLOCK), *call;
    n->name = "caller";
    if (tt_jparse_take(p, "("))
        parse_parameters(p, n);
    else
        tt_jparse_add(p, n, tt_jparse_node(p, TT_JN_LIST));
    call = tt_jparse_expression(p);
    if (!p->failed && call->kind != TT_JN_CALL)
        tt_jparse_fail(p, "a call should be here");
    end_block(p);
    tt_jparse_add(p, n, parse_body(p, end));
    tt_jparse_add(p, n, call);
    tt_jparse_next(p);
    end_block(p);
    return n;
}

static tt_jnode *parse_wrapped(tt_jparser *p, tt_jkind kind, const char *name)
{
    const char *const end[] = {name, NULL};
    tt_jnode *n = tt_jparse_node(p, kind), *chain = NULL;
    if (kind == TT_JN_FILTER)
        chain = tt_jparse_filters(p, NULL);
    end_block(p);
    tt_jparse_add(p, n, parse_body(p, end));
    tt_jparse_add(p, n, chain);
    tt_jparse_next(p);
    end_block(p);
    return n;
}

/* {% raw %} … {% endraw %} */
static tt_jnode *parse_raw(tt_jparser *p)
{
    end_block(p);
    const char *from = p->at, *to = from;
    while (to < p->end) {
        const char *q = to + 2;
        if (p->end - to > 10 && to[0] == '{' && to[1] == '%') {
            q += *q == '-' || *q == '+';
            while (q < p->end && *q == ' ')
                q++;
            if (p->end - q > 6 && !memcmp(q, "endraw", 6))
                break;
        }
        to++;
    }
    tt_jnode *n = tt_jparse_node(p, TT_JN_TEXT);
    n->value = tt_j_text(p->arena, from, (size_t)(to - from), TT_TAG_TEMPLATE);
    count_lines(p, from, to);
    p->at = to;
    p->trim = p->after_block = false;
    if (to == p->end) {
        tt_jparse_fail(p, "{% raw %} without {% endraw %}");
        return n;
    }
    tt_jparse_open(p);
    tt_jparse_next(p); /* endraw */
    tt_jparse_next(p);
    end_block(p);
    return n;
}

static tt_jnode *parse_statement(tt_jparser *p)
{
    static const struct {
        const char *word;
        tt_jkind kind;
        const char *end;
    } wrapped[] = {
        {"generation", TT_JN_GENERATION, "endgeneration"},
        {"filter",     TT_JN_FILTER,     "endfilter"    }
    };
    static const struct {
        const char *word;
        tt_jnode *(*parse)(tt_jparser *);
    } by_word[] = {
        {"if",    parse_if   },
        {"for",   parse_for  },
        {"set",   parse_set  },
        {"macro", parse_macro},
        {"call",  parse_call },
        {"raw",   parse_raw  }
    };
    char text[160];
    for (size_t i = 0; i < TT_COUNT(by_word); i++)
        if (word_is(p, by_word[i].word)) {
            tt_jparse_next(p);
            return by_word[i].parse(p);
        }
    for (size_t i = 0; i < TT_COUNT(wrapped); i++)
        if (word_is(p, wrapped[i].word)) {
            tt_jparse_next(p);
            return parse_wrapped(p, wrapped[i].kind, wrapped[i].end);
        }
    if (word_is(p, "break") || word_is(p, "continue")) {
        tt_jnode *n = tt_jparse_node(p, word_is(p, "break") ? TT_JN_BREAK : TT_JN_CONTINUE);
        if (!p->loops)
            tt_jparse_fail(p, "break and continue belong in a loop");
        tt_jparse_next(p);
        end_block(p);
        return n;
    }
    snprintf(text, sizeof text, "there is no statement \"%.*s\" in chat templates",
             (int)TT_MIN(p->token.n, (size_t)60), p->token.s);
    tt_jparse_fail(p, text);
    return NULL;
}

static bool is_end(const tt_jparser *p, const char *const *ends)
{
    for (size_t i = 0; ends && ends[i]; i++)
        if (word_is(p, ends[i]))
            return true;
    return false;
}

/* Up to a tag whose word is one of ends, which is the token then; ends NULL: the whole text. */
static tt_jnode *parse_body(tt_jparser *p, const char *const *ends)
{
    tt_jnode *body = tt_jparse_node(p, TT_JN_BODY);
    if (++p->depth > TT_J_DEPTH)
        tt_jparse_fail(p, "statements nested too deep");
    p->loops += ends && ends[0] && !strcmp(ends[0], "else") && !strcmp(ends[1], "endfor");
    while (!p->failed) {
        tt_jnode *text = take_text(p);
        if (text)
            tt_jparse_add(p, body, text);
        if (p->at == p->end)
            break;
        if (p->at[1] == '#') {
            skip_comment(p);
            continue;
        }
        const bool output = p->at[1] == '{';
        tt_jparse_open(p);
        tt_jparse_next(p);
        if (output) {
            tt_jnode *n = tt_jparse_node(p, TT_JN_OUTPUT);
            tt_jparse_add(p, n, tt_jparse_tuple(p));
            tt_jparse_close_output(p);
            tt_jparse_add(p, body, n);
        } else if (is_end(p, ends)) {
            break;
        } else {
            tt_jparse_add(p, body, parse_statement(p));
        }
    }
    if (!p->failed && p->at == p->end && ends && !is_end(p, ends)) {
        char what[80];
        size_t last = 0;
        while (ends[last + 1])
            last++;
        snprintf(what, sizeof what, "it ends without {%% %s %%}", ends[last]);
        tt_jparse_fail(p, what);
    }
    p->loops -=
        ends && ends[0] && !strcmp(ends[0], "else") && ends[1] && !strcmp(ends[1], "endfor");
    p->depth--;
    return body;
}

tt_status tt_jinja_parse(tt_arena *a, const char *name, const char *text, size_t n,
                         const tt_jnode **out, tt_error *err)
{
    /* as jinja2 reads files: \r\n is \n, and one newline at the end is taken away */
    char *copy = tt_arena_alloc(a, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (!(text[i] == '\r' && i + 1 < n && text[i + 1] == '\n'))
            copy[k++] = text[i];
    k -= k && copy[k - 1] == '\n';
    copy[k] = '\0';
    tt_jparser p = {.arena = a,
                    .name = name,
                    .begin = copy,
                    .at = copy,
                    .end = copy + k,
                    .line = 1,
                    .err = err};
    *out = parse_body(&p, NULL);
    return p.failed ? TT_EINVAL : TT_OK;
}
