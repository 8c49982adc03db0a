/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/eval.h"
#include <math.h>
#include <string.h>

/* Texts with places for values: '{:>5}'.format(x), and '%5s' % x with the filter format, as Python's. */

#define MOST_WIDTH 10000

typedef struct place {   /* how a value is printed */
    char fill[4], align; /* align: < > ^ =, or 0: that of the type */
    size_t n_fill;
    char sign, type; /* sign: + or blank; type: 0 is none */
    bool alternate, commas;
    int64_t width, precision; /* precision: -1 is none */
} place;

/* ---- a value ---- */

static bool is_any(char c, const char *set)
{
    return c && strchr(set, c) != NULL;
}

static void add_pad(tt_jenv *e, tt_jtext *out, const place *p, int64_t n)
{
    for (; n > 0; n--)
        tt_jtext_add(e->arena, out, p->fill, p->n_fill, NULL, TT_TAG_TEMPLATE);
}

/* text in a place; sign: bytes of it in front of which "=" does not pad. */
static void add_padded(tt_jenv *e, tt_jtext *out, const place *p, const tt_jvalue *text,
                       size_t sign, char align)
{
    const tt_jstring *s = &text->u.string;
    const int64_t room = p->width - tt_jlength(e, text);
    const char how = p->align ? p->align : align;
    const int64_t left = room <= 0 ? 0 : how == '^' ? room / 2 : how == '<' ? 0 : room;
    const size_t first = how == '=' ? sign : 0;
    tt_jtext_add(e->arena, out, s->s, first, s->tags, TT_TAG_TEMPLATE);
    add_pad(e, out, p, left);
    tt_jtext_add(e->arena, out, s->s + first, s->n - first, s->tags ? s->tags + first : NULL,
                 TT_TAG_TEMPLATE);
    add_pad(e, out, p, room - left);
}

static void put_binary(char *out, uint64_t x)
{
    int bits = 1;
    while (bits < 64 && x >> bits)
        bits++;
    for (int i = 0; i < bits; i++)
        out[i] = (char)('0' + (x >> (bits - 1 - i) & 1));
    out[bits] = '\0';
}

/* A comma between each three digits before a point or an exponent. */
static void put_commas(char *text, size_t room)
{
    size_t n = strlen(text), digits = strspn(text, "0123456789");
    for (size_t at = digits; at > 3 && n + 2 < room; n++) {
        at -= 3;
        memmove(text + at + 1, text + at, n - at + 1);
        text[at] = ',';
    }
}

static void put_whole(char *out, size_t room, const place *p, uint64_t x)
{
    const char *prefix = !p->alternate                      ? ""
                         : p->type == 'x' || p->type == 'X' ? (p->type == 'x' ? "0x" : "0X")
                         : p->type == 'o'                   ? "0o"
                         : p->type == 'b'                   ? "0b"
                                                            : "";
    const size_t n = (size_t)snprintf(out, room, "%s", prefix);
    if (p->type == 'x')
        snprintf(out + n, room - n, "%llx", (unsigned long long)x);
    else if (p->type == 'X')
        snprintf(out + n, room - n, "%llX", (unsigned long long)x);
    else if (p->type == 'o')
        snprintf(out + n, room - n, "%llo", (unsigned long long)x);
    else if (p->type == 'b')
        put_binary(out + n, x);
    else
        snprintf(out + n, room - n, "%llu", (unsigned long long)x);
}

static void put_real(char *out, size_t room, const place *p, double x)
{
    const int precision = (int)TT_MIN(p->precision < 0 ? 6 : p->precision, (int64_t)100);
    if (p->type == 'e')
        snprintf(out, room, "%.*e", precision, x);
    else if (p->type == 'E')
        snprintf(out, room, "%.*E", precision, x);
    else if (!p->type || p->type == 'g' || p->type == 'G')
        snprintf(out, room, p->type == 'G' ? "%.*G" : "%.*g", precision, x);
    else if (p->type == '%')
        snprintf(out, room, "%.*f%%", precision, 100 * x);
    else
        snprintf(out, room, "%.*f", precision, x);
}

/* As Python prints it without a format. */
static void put_shortest(tt_jenv *e, char *out, size_t room, double x)
{
    tt_jtext text = {0};
    tt_jtext_value(e->arena, &text, tt_j_float(e->arena, x));
    snprintf(out, room, "%s", text.s);
}

static void add_number(tt_jenv *e, tt_jtext *out, const place *p, const tt_jvalue *v)
{
    char text[520], *digits = text + 1;
    const bool whole = v->type != TT_J_FLOAT && (!p->type || is_any(p->type, "dixXobu"));
    const int64_t i = v->type == TT_J_BOOL ? v->u.boolean : v->u.integer;
    const double x = v->type == TT_J_FLOAT ? v->u.real : (double)i;
    const bool negative = v->type == TT_J_FLOAT ? signbit(x) != 0 : i < 0;
    if (whole)
        put_whole(digits, sizeof text - 1, p, negative ? 0 - (uint64_t)i : (uint64_t)i);
    else if (is_any(p->type, "diu"))
        snprintf(digits, sizeof text - 1, "%.0f", trunc(fabs(x))); /* '%d' % 2.5 */
    else if (!p->type && p->precision < 0)
        put_shortest(e, digits, sizeof text - 1, fabs(x));
    else
        put_real(digits, sizeof text - 1, p, fabs(x));
    if (p->commas)
        put_commas(digits, sizeof text - 1);
    *text = negative ? '-' : p->sign;
    char *begin = *text ? text : digits;
    add_padded(e, out, p, tt_j_text(e->arena, begin, strlen(begin), TT_TAG_TEMPLATE), begin == text,
               '>');
}

/* Whether Python takes this format for such a value. */
static bool format_fits(const place *p, const tt_jvalue *v)
{
    const bool plain = !p->sign && !p->commas && !p->alternate && p->align != '=';
    if (p->alternate && (!is_any(p->type, "xXob") || p->align == '='))
        return false; /* not done here */
    switch (v->type) {
    case TT_J_STRING:
        return plain && (!p->type || p->type == 's');
    case TT_J_BOOL:
    case TT_J_INT:
        return (!p->type && p->precision < 0) || is_any(p->type, "eEfFgG%") ||
               (p->precision < 0 && (p->type == 'd' || (!p->commas && is_any(p->type, "xXob"))));
    case TT_J_FLOAT:
        return !v->digits && (!p->type || is_any(p->type, "eEfFgG%"));
    default:
        return false;
    }
}

/* format(v, spec) of a spec that is not empty, and the places of %. */
static void add_value(tt_jenv *e, tt_jtext *out, const place *p, tt_jvalue *v)
{
    const bool number = v->type == TT_J_INT || v->type == TT_J_BOOL || v->type == TT_J_FLOAT;
    if (number && !v->digits) {
        add_number(e, out, p, v);
        return;
    }
    tt_jvalue *text = tt_jstring_of(e, v);
    if (p->precision >= 0)
        text = tt_jpart(e, text, 0, p->precision);
    add_padded(e, out, p, text, 0, '<');
}

static tt_jvalue *repr_of(tt_jenv *e, const tt_jvalue *v)
{
    tt_jtext text = {0};
    tt_jtext_repr(e->arena, &text, v);
    return tt_jtaken(e, &text);
}

/* ---- '{}'.format(…) ---- */

typedef struct cursor {
    const char *at, *end;
} cursor;

static int64_t take_digits(tt_jenv *e, cursor *c)
{
    int64_t n = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && n <= MOST_WIDTH)
        n = 10 * n + (*c->at++ - '0');
    if (n > MOST_WIDTH)
        tt_jfail(e, "a format of more than %d characters", MOST_WIDTH);
    return n;
}

static bool take_any(cursor *c, const char *set, char *out)
{
    if (c->at == c->end || !*c->at || !strchr(set, *c->at))
        return false;
    *out = *c->at++;
    return true;
}

static bool take_char(cursor *c, char one)
{
    const char set[2] = {one, '\0'};
    char unused;
    return take_any(c, set, &unused);
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static void read_spec(tt_jenv *e, cursor c, place *p)
{
    size_t k = 1;
    while (c.at + k < c.end && k < sizeof p->fill && ((unsigned char)c.at[k] & 0xc0) == 0x80)
        k++;
    if (c.end - c.at > (ptrdiff_t)k && strchr("<>^=", c.at[k]) && c.at[k]) {
        memcpy(p->fill, c.at, k);
        p->n_fill = k;
        c.at += k;
    }
    take_any(&c, "<>^=", &p->align);
    take_any(&c, "+- ", &p->sign);
    p->sign = p->sign == '-' ? '\0' : p->sign;
    p->alternate = take_char(&c, '#');
    if (take_char(&c, '0') && !p->align) {
        p->fill[0] = '0';
        p->n_fill = 1;
        p->align = '=';
    }
    p->width = take_digits(e, &c);
    p->commas = take_char(&c, ',');
    if (take_char(&c, '.'))
        p->precision = take_digits(e, &c);
    if (c.at < c.end)
        p->type = *c.at++;
    if (c.at < c.end)
        tt_jfail(e, "a format that is not known: %.*s", (int)TT_MIN(c.end - c.at, (ptrdiff_t)40),
                 c.at);
}

/* The value that a field names: number or name, then .attribute and [item]. */
static tt_jvalue *field_value(tt_jenv *e, cursor c, const tt_jargs *a, size_t *next)
{
    const size_t plain = a->n - a->n_names;
    const char *from = c.at;
    while (c.at < c.end && *c.at != '.' && *c.at != '[')
        c.at++;
    const char *name = tt_arena_strn(e->arena, from, (size_t)(c.at - from));
    cursor digits = {from, c.at};
    size_t i = *name ? SIZE_MAX : 1 + (*next)++;
    if (*name && strspn(name, "0123456789") == strlen(name))
        i = 1 + (size_t)take_digits(e, &digits);
    tt_jvalue *v = i < plain ? a->v[i] : i == SIZE_MAX ? tt_jarg(a, i, name) : NULL;
    if (!v)
        return tt_jfail(e, "format: there is no value for {%s}", name);
    while (c.at < c.end && !e->failed) {
        const bool item = *c.at++ == '[';
        from = c.at;
        while (c.at < c.end && (item ? *c.at != ']' : *c.at != '.' && *c.at != '['))
            c.at++;
        const char *part = tt_arena_strn(e->arena, from, (size_t)(c.at - from));
        digits = (cursor){from, c.at};
        if (!item)
            v = tt_jattribute(e, v, part);
        else if (*part && strspn(part, "0123456789") == strlen(part))
            v = tt_jitem(e, v, tt_j_int(e->arena, take_digits(e, &digits)));
        else
            v = tt_jitem(e, v, tt_j_text(e->arena, part, strlen(part), TT_TAG_TEMPLATE));
        c.at += item && c.at < c.end;
    }
    return v;
}

/* A field between braces: name!conversion:spec. */
static void add_field(tt_jenv *e, tt_jtext *out, cursor c, const tt_jargs *a, size_t *next)
{
    cursor name = {c.at, c.at};
    place p = {.fill = " ", .n_fill = 1, .precision = -1};
    char how = 's';
    while (name.end < c.end && *name.end != '!' && *name.end != ':')
        name.end++;
    tt_jvalue *v = field_value(e, name, a, next);
    c.at = name.end;
    if (take_char(&c, '!')) {
        if (!take_any(&c, "sr", &how))
            tt_jfail(e, "format: a conversion is !s or !r");
        v = e->failed ? v : how == 'r' ? repr_of(e, v) : tt_jstring_of(e, v);
    }
    const bool plain = !take_char(&c, ':') || c.at == c.end;
    if (!plain)
        read_spec(e, c, &p);
    if (!e->failed && !plain && !format_fits(&p, v))
        tt_jfail(e, "format: %s has no such format: %.*s", tt_j_type_name(v),
                 (int)TT_MIN(c.end - c.at, (ptrdiff_t)40), c.at);
    if (!e->failed)
        add_value(e, out, &p, plain ? tt_jstring_of(e, v) : v);
}

tt_jvalue *tt_jformat(tt_jenv *e, const tt_jargs *a)
{
    const tt_jstring *s = &a->v[0]->u.string;
    const char *at = s->s, *const end = s->s + s->n;
    tt_jtext out = {0};
    size_t next = 0;
    while (at < end && tt_jsteps(e, 1)) {
        const char *from = at;
        while (at < end && *at != '{' && *at != '}')
            at++;
        tt_jtext_add(e->arena, &out, from, (size_t)(at - from),
                     s->tags ? s->tags + (from - s->s) : NULL, TT_TAG_TEMPLATE);
        if (at == end)
            break;
        if (at + 1 < end && at[1] == *at) { /* {{ and }} */
            tt_jtext_add(e->arena, &out, at, 1, s->tags ? s->tags + (at - s->s) : NULL,
                         TT_TAG_TEMPLATE);
            at += 2;
            continue;
        }
        const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
        if (!close || memchr(at + 1, '{', (size_t)(close - at - 1)))
            return tt_jfail(e, "format: a brace without its partner, or braces in braces");
        add_field(e, &out, (cursor){at + 1, close}, a, &next);
        at = close + 1;
    }
    return tt_jtaken(e, &out);
}

/* ---- '%s' % … ---- */

/* The next value: by its name, or in order. */
static tt_jvalue *old_value(tt_jenv *e, cursor *c, tt_jvalue *with, size_t *next)
{
    tt_jvalue *v = NULL;
    if (take_char(c, '(')) {
        const char *from = c->at;
        while (c->at < c->end && *c->at != ')')
            c->at++;
        const tt_jvalue *key = tt_j_text(e->arena, from, (size_t)(c->at - from), TT_TAG_TEMPLATE);
        v = with->type == TT_J_DICT ? tt_jfind(e, with, key) : NULL;
        c->at += c->at < c->end;
        return v ? v : tt_jfail(e, "format: there is no value for %%(%s)", key->u.string.s);
    }
    if (with->type == TT_J_LIST && with->u.list.is_tuple)
        v = *next < with->u.list.n ? with->u.list.items[*next] : NULL;
    else if (*next == 0)
        v = with;
    (*next)++;
    return v ? v : tt_jfail(e, "format: more places than values");
}

/* What follows a %: [(name)][flags][width][.precision]type */
static void add_old(tt_jenv *e, tt_jtext *out, cursor *c, tt_jvalue *with, size_t *next)
{
    place p = {.fill = " ", .n_fill = 1, .precision = -1, .align = '>'};
    char flag;
    bool zero = false;
    cursor name = *c;
    if (take_char(c, '('))
        while (c->at < c->end && *c->at++ != ')')
            ;
    while (take_any(c, "-+ #0", &flag)) {
        p.align = flag == '-' ? '<' : p.align;
        p.sign = flag == '+' || (flag == ' ' && !p.sign) ? flag : p.sign;
        p.alternate = p.alternate || flag == '#';
        zero = zero || flag == '0';
    }
    p.width = take_digits(e, c);
    if (take_char(c, '.'))
        p.precision = take_digits(e, c);
    if (!take_any(c, "srdiuxXoeEfFgG", &p.type)) {
        tt_jfail(e, "format: a place that is not known behind %%");
        return;
    }
    tt_jvalue *v = old_value(e, &name, with, next);
    if (e->failed)
        return;
    if (p.type == 's' || p.type == 'r') {
        v = p.type == 's' ? tt_jstring_of(e, v) : repr_of(e, v);
    } else if (v->digits || (p.precision >= 0 && is_any(p.type, "diuxXo")) ||
               (p.alternate && !is_any(p.type, "xXo")) ||
               (v->type != TT_J_INT && v->type != TT_J_BOOL &&
                (v->type != TT_J_FLOAT || is_any(p.type, "xXo")))) {
        tt_jfail(e, "format: %s has no such format of %%%c", tt_j_type_name(v), p.type);
        return;
    } else if (zero && p.align != '<') {
        p.fill[0] = '0';
        p.align = '=';
    }
    add_value(e, out, &p, v);
}

tt_jvalue *tt_jformat_old(tt_jenv *e, const tt_jvalue *format, tt_jvalue *with)
{
    const tt_jstring *s = &format->u.string;
    cursor c = {s->s, s->s + s->n};
    tt_jtext out = {0};
    size_t next = 0;
    while (c.at < c.end && tt_jsteps(e, 1)) {
        const char *from = c.at;
        while (c.at < c.end && *c.at != '%')
            c.at++;
        tt_jtext_add(e->arena, &out, from, (size_t)(c.at - from),
                     s->tags ? s->tags + (from - s->s) : NULL, TT_TAG_TEMPLATE);
        if (c.at++ == c.end)
            break;
        if (take_char(&c, '%'))
            tt_jtext_add(e->arena, &out, "%", 1, NULL, TT_TAG_TEMPLATE);
        else
            add_old(e, &out, &c, with, &next);
    }
    if (!e->failed && with->type == TT_J_LIST && with->u.list.is_tuple && next < with->u.list.n)
        return tt_jfail(e, "format: more values than places");
    return tt_jtaken(e, &out);
}

/* value|format(a, b) or value|format(name=a) */
tt_jvalue *tt_jfilter_format(tt_jenv *e, const tt_jargs *a)
{
    const size_t plain = a->n - a->n_names;
    tt_jvalue *with = tt_j_new(e->arena, a->n_names ? TT_J_DICT : TT_J_LIST);
    if (a->n_names && plain > 1)
        return tt_jfail(e, "format: values are named, or none of them is");
    for (size_t i = 1; i < plain; i++)
        tt_j_push(e->arena, with, a->v[i]);
    for (size_t i = 0; i < a->n_names; i++)
        tt_jput(e, with, tt_j_text(e->arena, a->names[i], strlen(a->names[i]), TT_TAG_TEMPLATE),
                a->v[plain + i]);
    if (with->type == TT_J_LIST)
        with->u.list.is_tuple = true;
    return tt_jformat_old(e, tt_jstring_of(e, a->v[0]), with);
}
