/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/mesh.h"
#include <stdlib.h>
#include <string.h>

/* Parses sharding rules (R5), "t=(b q) h=(k g), s=(b !p) k, s k -> t h". <ttrun/op.h> has the
 * grammar. */

#define NAME_SIZE (int)sizeof(((tt_rule *)0)->name[0])
#define MAX_GROUPS (int)(sizeof((tt_rule *)0)->groups / sizeof((tt_rule *)0)->groups[0])

typedef struct item { /* one word of an operand */
    char name[NAME_SIZE];
    bool star, whole;
    int shift;
} item;

typedef struct group_text {
    item x, member[2];
} group_text;

typedef struct parser {
    const char *text, *p;
    tt_error *err;
    int star_dims; /* number of dims that `*` stands for; -1 = no `*` so far */
    int n_groups;
    group_text groups[MAX_GROUPS]; /* resolved last: their letters are numbered after those of the
                                      operands */
    tt_rule rule;
} parser;

static tt_status rule_fail(parser *ps, const char *fmt, ...) TT_PRINTF(2, 3);

static tt_status rule_fail(parser *ps, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return TT_FAIL(ps->err, TT_EINVAL, "sharding rule \"%.300s\": %s", ps->text, what);
}

static bool is_letter(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(parser *ps)
{
    while (*ps->p == ' ' || *ps->p == '\t')
        ps->p++;
}

/* `*` stands for letters named "x0", "x1", …, so the rule itself must not use such a name. */
static bool is_star_name(const char *name)
{
    return name[0] == 'x' && name[1] != '\0' && strspn(name + 1, "0123456789") == strlen(name + 1);
}

static tt_status parse_name(parser *ps, item *out)
{
    item it = {.whole = false};
    int n = 0;
    if (*ps->p == '!') {
        it.whole = true;
        ps->p++;
    }
    if (!is_letter(*ps->p))
        return *ps->p != '\0' ? rule_fail(ps, "a letter is expected at \"%.20s\"", ps->p)
                              : rule_fail(ps, "a letter is expected at the end");
    for (; is_letter(ps->p[n]) || is_digit(ps->p[n]); n++)
        if (n < NAME_SIZE - 1)
            it.name[n] = ps->p[n];
    if (n >= NAME_SIZE)
        return rule_fail(ps, "letter \"%.*s\" is longer than %d characters", TT_MIN(n, 60), ps->p,
                         NAME_SIZE - 1);
    if (is_star_name(it.name) && strchr(ps->text, '*') != NULL)
        return rule_fail(ps, "%s is one of the letters * stands for; call it something else",
                         it.name);
    ps->p += n;
    *out = it;
    return TT_OK;
}

/* Parses "+2" after a letter, if it is there. */
static tt_status parse_shift(parser *ps, item *it)
{
    if (*ps->p != '+')
        return TT_OK;
    ps->p++;
    if (!is_digit(*ps->p))
        return rule_fail(ps, "%s+ must be followed by a number of steps", it->name);
    for (; is_digit(*ps->p); ps->p++)
        if ((it->shift = it->shift * 10 + *ps->p - '0') > UINT16_MAX)
            return rule_fail(ps, "%s is shifted by more than %d steps", it->name, UINT16_MAX);
    return TT_OK;
}

/* The group that says the same at another operand, NULL = none. */
static group_text *same_group(parser *ps, const group_text *g)
{
    for (int i = 0; i < ps->n_groups; i++) {
        group_text *h = &ps->groups[i];
        if (!strcmp(h->x.name, g->x.name) && !strcmp(h->member[0].name, g->member[0].name) &&
            !strcmp(h->member[1].name, g->member[1].name))
            return h;
    }
    return NULL;
}

/* Parses "=(first rest)" after a letter, if it is there. */
static tt_status parse_group(parser *ps, const item *x)
{
    group_text g = {.x = *x};
    int n = 0;
    skip_blanks(ps);
    if (*ps->p != '=')
        return TT_OK;
    ps->p++;
    skip_blanks(ps);
    if (*ps->p != '(')
        return rule_fail(ps, "%s= must be followed by (first rest)", x->name);
    ps->p++;
    for (skip_blanks(ps); is_letter(*ps->p) || *ps->p == '!'; skip_blanks(ps)) {
        if (n == 2)
            return rule_fail(ps, "%s=(…) has more than two letters", x->name);
        TT_TRY(parse_name(ps, &g.member[n++]));
    }
    if (*ps->p != ')')
        return rule_fail(ps, "%s=( is not closed at \"%.20s\"", x->name, ps->p);
    if (n != 2)
        return rule_fail(ps, "%s=(…) needs two letters, the first and the rest", x->name);
    ps->p++;
    group_text *same = same_group(ps, &g);
    if (!same && ps->n_groups == MAX_GROUPS)
        return rule_fail(ps, "more than %d groups", MAX_GROUPS);
    if (!same)
        ps->groups[ps->n_groups++] = g;
    for (int i = 0; same && i < 2; i++)
        same->member[i].whole = same->member[i].whole || g.member[i].whole;
    if (same)
        same->x.whole = same->x.whole || g.x.whole;
    return TT_OK;
}

static tt_status find_letter(parser *ps, const char *name, bool whole, int8_t *out)
{
    tt_rule *r = &ps->rule;
    int i = 0;
    while (i < r->n_letters && strcmp(r->name[i], name) != 0)
        i++;
    if (i == TT_MAX_LETTERS)
        return rule_fail(ps, "more than %d letters", TT_MAX_LETTERS);
    if (i == r->n_letters) {
        memcpy(r->name[i], name, (size_t)NAME_SIZE);
        r->n_letters++;
    }
    if (whole)
        r->whole |= UINT32_C(1) << i;
    *out = (int8_t)i;
    return TT_OK;
}

/* Parses the items of one operand, up to ',' or the end of the side. */
static tt_status parse_items(parser *ps, item *items, int *n_items)
{
    int n = 0;
    for (skip_blanks(ps); *ps->p != ',' && *ps->p != '\0' && strncmp(ps->p, "->", 2) != 0;
         skip_blanks(ps)) {
        if (n > TT_MAX_DIMS)
            return rule_fail(ps, "an operand has more than %d dims", TT_MAX_DIMS);
        item it = {.whole = false};
        if (*ps->p == '*' || (ps->p[0] == '!' && ps->p[1] == '*')) {
            it.star = true;
            it.whole = *ps->p == '!';
            ps->p += it.whole ? 2 : 1;
        } else {
            TT_TRY(parse_name(ps, &it));
            TT_TRY(parse_shift(ps, &it));
            TT_TRY(parse_group(ps, &it));
        }
        items[n++] = it;
    }
    *n_items = n;
    return TT_OK;
}

static tt_status add_dim(parser *ps, const char *what, int index, int8_t *letters, int *n,
                         const char *name, bool whole)
{
    int8_t at = 0;
    TT_TRY(find_letter(ps, name, whole, &at));
    for (int i = 0; i < *n; i++)
        if (letters[i] == at)
            return rule_fail(ps, "%s %d has letter %s twice", what, index, name);
    letters[(*n)++] = at;
    return TT_OK;
}

/* Parses one operand of `rank` dims into its letters; `*` stands for the dims without a letter. */
static tt_status parse_operand(parser *ps, const char *what, int index, int rank, int8_t *letters,
                               int8_t *n_dims, uint16_t *shift)
{
    item items[TT_MAX_DIMS + 1];
    int n_items = 0, n_stars = 0, n = 0;
    TT_TRY(parse_items(ps, items, &n_items));
    for (int i = 0; i < n_items; i++) {
        n_stars += items[i].star;
        if (items[i].shift && (i > 0 || items[i].star))
            return rule_fail(ps, "%s: only an operand's first letter may be shifted",
                             items[i].name);
    }
    if (n_items > 0)
        *shift = (uint16_t)items[0].shift;
    if (n_stars > 1)
        return rule_fail(ps, "%s %d has * twice", what, index);
    if (rank < 0 || rank > TT_MAX_DIMS)
        return rule_fail(ps, "%s %d has %d dims, at most %d", what, index, rank, TT_MAX_DIMS);
    if (n_stars == 0 ? n_items != rank : n_items - 1 > rank)
        return rule_fail(ps, "%s %d has %d dims, the rule names %d", what, index, rank,
                         n_items - n_stars);
    if (n_stars == 1) {
        int star_dims = rank - (n_items - 1);
        if (ps->star_dims >= 0 && ps->star_dims != star_dims)
            return rule_fail(ps, "* stands for %d dims, but for %d in %s %d", ps->star_dims,
                             star_dims, what, index);
        ps->star_dims = star_dims;
    }
    for (int i = 0; i < n_items; i++) {
        if (!items[i].star) {
            TT_TRY(add_dim(ps, what, index, letters, &n, items[i].name, items[i].whole));
            continue;
        }
        for (int k = 0; k < ps->star_dims; k++) {
            char name[NAME_SIZE] = {'x', (char)('0' + k)};
            TT_TRY(add_dim(ps, what, index, letters, &n, name, items[i].whole));
        }
    }
    *n_dims = (int8_t)n;
    return TT_OK;
}

static tt_status parse_side(parser *ps, const char *what, const int *ranks, int n,
                            int8_t letters[][TT_MAX_DIMS], int8_t *n_dims, uint16_t *shifts)
{
    for (int i = 0; i < n; i++) {
        TT_TRY(parse_operand(ps, what, i, ranks[i], letters[i], &n_dims[i], &shifts[i]));
        if (i + 1 == n)
            break;
        if (*ps->p != ',')
            return rule_fail(ps, "it has %d %ss, the op has %d", i + 1, what, n);
        ps->p++;
    }
    skip_blanks(ps);
    if (*ps->p == ',' || (n == 0 && *ps->p != '\0' && strncmp(ps->p, "->", 2) != 0))
        return rule_fail(ps, "it has more %ss than the op, which has %d", what, n);
    return TT_OK;
}

static tt_status resolve_groups(parser *ps)
{
    tt_rule *r = &ps->rule;
    for (int i = 0; i < ps->n_groups; i++) {
        const group_text *g = &ps->groups[i];
        int8_t x, first, rest;
        TT_TRY(find_letter(ps, g->x.name, g->x.whole, &x));
        TT_TRY(find_letter(ps, g->member[0].name, g->member[0].whole, &first));
        TT_TRY(find_letter(ps, g->member[1].name, g->member[1].whole, &rest));
        if (x == first || x == rest || first == rest)
            return rule_fail(ps, "%s=(%s %s) has a letter twice", r->name[x], r->name[first],
                             r->name[rest]);
        int at = 0;
        while (at < r->n_groups && r->groups[at].x != x)
            at++;
        if (at < r->n_groups && (r->groups[at].first != first || r->groups[at].rest != rest))
            return rule_fail(ps, "%s is factored in two ways", r->name[x]);
        if (at < r->n_groups)
            continue;
        r->groups[at].x = x;
        r->groups[at].first = first;
        r->groups[at].rest = rest;
        r->n_groups++;
    }
    return TT_OK;
}

tt_status tt_rule_parse(const char *text, const int *in_ranks, int n_in, const int *out_ranks,
                        int n_out, tt_rule *out, tt_error *err)
{
    parser ps;
    memset(&ps, 0, sizeof ps);
    ps.text = text;
    ps.err = err;
    ps.p = text;
    ps.star_dims = -1;
    ps.rule.n_in = n_in;
    ps.rule.n_out = n_out;
    if (n_in < 0 || n_in > 16 || n_out < 0 || n_out > 4)
        return rule_fail(&ps, "an op has at most 16 inputs and 4 outputs, this one has %d and %d",
                         n_in, n_out);
    if (strstr(text, "->") == NULL)
        return rule_fail(&ps, "-> is missing between inputs and outputs");
    TT_TRY(
        parse_side(&ps, "input", in_ranks, n_in, ps.rule.in, ps.rule.n_in_dims, ps.rule.in_shift));
    if (strncmp(ps.p, "->", 2) != 0)
        return rule_fail(&ps, "-> is expected at \"%.20s\"", ps.p);
    ps.p += 2;
    TT_TRY(parse_side(&ps, "output", out_ranks, n_out, ps.rule.out, ps.rule.n_out_dims,
                      ps.rule.out_shift));
    if (*ps.p != '\0')
        return rule_fail(&ps, "nothing is expected at \"%.20s\"", ps.p);
    TT_TRY(resolve_groups(&ps));
    *out = ps.rule;
    return TT_OK;
}
