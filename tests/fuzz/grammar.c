/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar.h"
#include <ctype.h>
#include <string.h>
#include <ttrun/option.h>

enum { NAMES = 256, NESTED = 64, UNKNOWN = 1 << 20 };

typedef enum part_kind {
    TEXT,
    CHOICE, /* of its parts */
    SEQUENCE,
    RULE,
    REPEAT,
    NUMBER,
    SIZED,
    PADDED,
    KEEP,
    KEPT
} part_kind;
typedef enum number_form { U8, U16, U32, U64, VARINT, ZIGZAG, DECIMAL, HEX, FORMS } number_form;
typedef enum number_source { ANY, RANGE, SIZE, PLACE } number_source;

static const char *const form_names[FORMS] = {"u8",     "u16",    "u32",     "u64",
                                              "varint", "zigzag", "decimal", "hex"};

typedef struct part part;
struct part {
    part_kind kind;
    char *text; /* of TEXT [n] */
    size_t n;
    size_t name; /* of a rule, or of what is kept */
    number_form form;
    number_source source;
    int64_t least, most; /* of REPEAT and RANGE; most: of PADDED, too */
    uint64_t weight;     /* of an alternative */
    TT_VEC(part *) parts;
    int line;
    int depth;    /* the fewest rules within rules that it takes; UNKNOWN: not found yet */
    bool endless; /* it has a rule that may contain itself */
    part *last;   /* of a CHOICE in this input */
};

typedef struct named {
    const char *name;
    part *is;      /* of a rule */
    uint8_t *kept; /* [GRAMMAR_MOST] */
    size_t n, place;
    int line;
} named;

struct grammar {
    named rules[NAMES], kept[NAMES];
    size_t n_rules, n_kept;
};

/* ---- reading ---- */

typedef struct reading {
    tt_arena *a;
    grammar *g;
    const char *name, *at, *end;
    int line, nested;
    tt_error *err;
    bool failed;
} reading;

static void refuse(reading *r, int line, const char *what)
{
    if (!r->failed)
        tt_fail(r->err, TT_EINVAL, "%s:%d: %s", r->name, line, what);
    r->failed = true;
    r->at = r->end;
}

static void skip_blanks(reading *r)
{
    for (bool comment = false; r->at < r->end; r->at++) {
        comment = *r->at != '\n' && (comment || *r->at == '#');
        if (!comment && !isspace((unsigned char)*r->at))
            return;
        r->line += *r->at == '\n';
    }
}

static bool take_sign(reading *r, const char *sign)
{
    const size_t n = strlen(sign);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, sign, n) != 0)
        return false;
    r->at += n;
    skip_blanks(r);
    return true;
}

static void want_sign(reading *r, const char *sign)
{
    char what[40];
    snprintf(what, sizeof what, "%s should be here", sign);
    if (!take_sign(r, sign))
        refuse(r, r->line, what);
}

static size_t word_size(const reading *r)
{
    size_t n = 0;
    while (r->at + n < r->end && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_'))
        n++;
    return n && !isdigit((unsigned char)*r->at) ? n : 0;
}

static const char *take_word(reading *r)
{
    const size_t n = word_size(r);
    const char *word = tt_arena_strn(r->a, r->at, n);
    if (!n)
        refuse(r, r->line, "a name should be here");
    r->at += n;
    skip_blanks(r);
    return word;
}

static int64_t take_integer(reading *r)
{
    const bool negative = take_sign(r, "-");
    int64_t v = 0;
    if (r->at == r->end || !isdigit((unsigned char)*r->at))
        refuse(r, r->line, "a number should be here");
    while (r->at < r->end && isdigit((unsigned char)*r->at) && v < INT64_MAX / 100)
        v = v * 10 + *r->at++ - '0';
    skip_blanks(r);
    return negative ? -v : v;
}

/* The number of a name, which is new if it is met for the first time. */
static size_t find_name(reading *r, named *all, size_t *n, const char *name)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(all[i].name, name))
            return i;
    if (*n == NAMES) {
        refuse(r, r->line, "there are too many names");
        return 0;
    }
    all[*n] = (named){.name = name, .line = r->line};
    return (*n)++;
}

static size_t kept_name(reading *r)
{
    return find_name(r, r->g->kept, &r->g->n_kept, take_word(r));
}

static part *new_part(reading *r, part_kind kind)
{
    part *p = tt_arena_alloc(r->a, sizeof *p);
    *p = (part){.kind = kind, .line = r->line, .weight = 1, .depth = UNKNOWN, .endless = true};
    return p;
}

static part *wrap(reading *r, part_kind kind, part *sub)
{
    part *p = new_part(r, kind);
    tt_vec_push(r->a, &p->parts, sub);
    return p;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, tolower(c)) : NULL;
    return at ? (int)(at - digits) : -1;
}

static char take_escape(reading *r)
{
    const char c = *r->at++;
    if (c == 'x' && r->end - r->at >= 2 && hex_digit(r->at[0]) >= 0 && hex_digit(r->at[1]) >= 0) {
        r->at += 2;
        return (char)(hex_digit(r->at[-2]) * 16 + hex_digit(r->at[-1]));
    }
    if (!strchr("nrt0\"\\", c) || !c)
        refuse(r, r->line, "known are \\n \\r \\t \\0 \\\" \\\\ and \\xNN");
    return (char)(c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c == '0' ? 0 : c);
}

static part *take_text(reading *r)
{
    part *p = new_part(r, TEXT);
    p->text = tt_arena_alloc(r->a, (size_t)(r->end - r->at) + 1);
    while (r->at < r->end && *r->at != '"' && *r->at != '\n') {
        const char c = *r->at++;
        const char meant = c == '\\' && r->at < r->end ? take_escape(r) : c;
        p->text[p->n++] = meant;
    }
    want_sign(r, "\"");
    return p;
}

static part *take_choice(reading *r);

static part *take_within(reading *r, const char *end)
{
    part *p = take_choice(r);
    want_sign(r, end);
    return p;
}

/* What stands right behind its name is its own, and behind a blank the next part. */
static part *take_number(reading *r, number_form form, bool touches)
{
    part *p = new_part(r, NUMBER);
    p->form = form;
    if (!touches)
        return p;
    if (take_sign(r, "[")) {
        tt_vec_push(r->a, &p->parts, take_within(r, "]"));
        p->kind = SIZED;
    } else if (take_sign(r, "(")) {
        const char *word = word_size(r) ? take_word(r) : NULL;
        if (!word) {
            p->source = RANGE;
            p->least = take_integer(r);
            want_sign(r, "..");
            p->most = take_integer(r);
        } else if (!strcmp(word, "size") || !strcmp(word, "place")) {
            p->source = *word == 's' ? SIZE : PLACE;
            p->name = kept_name(r);
        } else {
            refuse(r, r->line, "a range, size NAME or place NAME should be here");
        }
        want_sign(r, ")");
        if (p->least > p->most)
            refuse(r, r->line, "the range is empty");
    }
    return p;
}

static part *take_kept(reading *r)
{
    const size_t name = kept_name(r);
    part *p = new_part(r, KEPT);
    if (take_sign(r, "=")) {
        want_sign(r, "(");
        p = wrap(r, KEEP, take_within(r, ")"));
        r->g->kept[name].kept = tt_arena_alloc(r->a, GRAMMAR_MOST);
    }
    p->name = name;
    return p;
}

static part *take_name(reading *r)
{
    const char *end = r->at + word_size(r), *word = take_word(r);
    for (int f = 0; f < FORMS; f++)
        if (!strcmp(word, form_names[f]))
            return take_number(r, (number_form)f, r->at == end);
    part *p = new_part(r, strcmp(word, "pad") != 0 ? RULE : PADDED);
    if (p->kind == RULE) {
        p->name = find_name(r, r->g->rules, &r->g->n_rules, word);
        return p;
    }
    want_sign(r, "(");
    p->most = take_integer(r);
    want_sign(r, ")");
    want_sign(r, "[");
    tt_vec_push(r->a, &p->parts, take_within(r, "]"));
    return p;
}

static part *take_part(reading *r)
{
    part *p = take_sign(r, "(")                 ? take_within(r, ")")
              : take_sign(r, "$")               ? take_kept(r)
              : r->at < r->end && *r->at == '"' ? (r->at++, take_text(r))
                                                : take_name(r);
    for (bool more = true; more && !r->failed;) {
        const bool many = take_sign(r, "*"), some = !many && take_sign(r, "+"),
                   maybe = !many && !some && take_sign(r, "?"),
                   counted = !many && !some && !maybe && take_sign(r, "{");
        more = many || some || maybe || counted;
        if (!more)
            break;
        p = wrap(r, REPEAT, p);
        p->least = counted ? take_integer(r) : some;
        p->most = counted ? p->least : maybe ? 1 : INT64_MAX;
        if (counted && take_sign(r, ","))
            p->most = take_integer(r);
        if (counted)
            want_sign(r, "}");
    }
    return p;
}

/* At the name of the next rule? */
static bool at_rule(const reading *r)
{
    reading ahead = *r;
    ahead.at += word_size(r);
    if (ahead.at == r->at)
        return false;
    skip_blanks(&ahead);
    return ahead.at < ahead.end && *ahead.at == '=';
}

static part *take_alternative(reading *r)
{
    part *p = new_part(r, SEQUENCE);
    if (r->at < r->end && isdigit((unsigned char)*r->at)) {
        p->weight = (uint64_t)take_integer(r);
        if (!p->weight)
            refuse(r, r->line, "a weight of 0");
        want_sign(r, ":");
    }
    while (!r->failed && r->at < r->end && !strchr("|)]", *r->at) && !at_rule(r))
        tt_vec_push(r->a, &p->parts, take_part(r));
    return p;
}

static part *take_choice(reading *r)
{
    part *p = new_part(r, CHOICE);
    if (++r->nested > NESTED)
        refuse(r, r->line, "it is nested too deep");
    do
        tt_vec_push(r->a, &p->parts, take_alternative(r));
    while (!r->failed && take_sign(r, "|"));
    r->nested--;
    return p;
}

/* Finds depth and endless of p from what its parts have; true: they have changed. */
static bool look_at(const grammar *g, part *p)
{
    int depth = p->kind == CHOICE ? UNKNOWN : 0;
    bool endless = false, changed = false;
    for (size_t i = 0; i < p->parts.n; i++) {
        part *sub = p->parts.items[i];
        changed = look_at(g, sub) || changed;
        depth = p->kind == CHOICE ? TT_MIN(depth, sub->depth) : TT_MAXV(depth, sub->depth);
        endless = endless || sub->endless;
    }
    if (p->kind == RULE) {
        const part *is = g->rules[p->name].is;
        depth = TT_MIN(is->depth + 1, UNKNOWN);
        endless = is->endless;
    }
    if (p->kind == REPEAT && !p->least)
        depth = 0;
    changed = changed || depth != p->depth || endless != p->endless;
    p->depth = depth;
    p->endless = endless;
    return changed;
}

static void finish(reading *r)
{
    const grammar *g = r->g;
    for (size_t i = 0; i < g->n_kept && !r->failed; i++)
        if (!g->kept[i].kept)
            refuse(r, g->kept[i].line, "this $name is never set");
    for (size_t i = 0; i < g->n_rules && !r->failed; i++)
        if (!g->rules[i].is)
            refuse(r, g->rules[i].line, "this name has no rule");
    for (bool changed = !r->failed; changed;) {
        changed = false;
        for (size_t i = 0; i < g->n_rules; i++)
            changed = look_at(g, g->rules[i].is) || changed;
    }
    for (size_t i = 0; i < g->n_rules && !r->failed; i++)
        if (g->rules[i].is->depth >= UNKNOWN)
            refuse(r, g->rules[i].is->line,
                   "this rule has no end: each alternative contains itself");
}

tt_status grammar_read(tt_arena *a, const char *name, const char *text, size_t n, grammar **out,
                       tt_error *err)
{
    reading r = {.a = a, .name = name, .at = text, .end = text + n, .line = 1, .err = err};
    r.g = tt_arena_alloc(a, sizeof *r.g);
    *r.g = (grammar){0};
    skip_blanks(&r);
    if (!at_rule(&r))
        refuse(&r, r.line, "a rule should be here: NAME = …");
    while (!r.failed && r.at < r.end) {
        named *rule = &r.g->rules[find_name(&r, r.g->rules, &r.g->n_rules, take_word(&r))];
        if (rule->is)
            refuse(&r, r.line, "this name has a rule already");
        want_sign(&r, "=");
        part *is = take_choice(&r);
        rule->is = is;
        if (r.at < r.end && !at_rule(&r))
            refuse(&r, r.line, "a part or a rule should be here");
    }
    finish(&r);
    *out = r.g;
    return r.failed ? TT_EINVAL : TT_OK;
}

/* ---- making ---- */

typedef struct making {
    grammar *g;
    grammar_draw draw;
    uint8_t *buf;
    size_t n, enough;   /* behind so many bytes it takes the shortest way */
    int depth, deepest; /* parts within parts */
    uint64_t wide;      /* one in so many repetitions is the last */
    bool deep;          /* it takes what contains itself where it can, */
    bool same;          /* and the same as at this choice before */
} making;

static bool is_enough(const making *m)
{
    return m->n >= m->enough || m->depth >= m->deepest;
}

static void add_bytes(making *m, const void *s, size_t n)
{
    n = TT_MIN(n, GRAMMAR_MOST - m->n);
    if (n)
        memcpy(m->buf + m->n, s, n);
    m->n += n;
}

static void add_number(making *m, number_form form, uint64_t v)
{
    char text[24];
    size_t n = 0;
    if (form <= U64) {
        for (; n < (size_t)1 << form; n++)
            text[n] = (char)(v >> 8 * n);
    } else if (form == DECIMAL || form == HEX) {
        n = (size_t)snprintf(text, sizeof text, form == HEX ? "%llx" : "%lld", (long long)v);
    } else {
        if (form == ZIGZAG)
            v = v << 1 ^ (uint64_t) - (int64_t)(v >> 63);
        for (; v >= 0x80; v >>= 7)
            text[n++] = (char)(v | 0x80);
        text[n++] = (char)v;
    }
    add_bytes(m, text, n);
}

static uint64_t draw_number(making *m, const part *p)
{
    static const uint64_t edges[] = {0x7f,       0x80,      0xff,       0x100,      0x7fff,
                                     0x8000,     0xffff,    0x7fffffff, 0x80000000, 0xffffffff,
                                     1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX};
    switch (p->source) {
    case RANGE:
        return (uint64_t)p->least + m->draw((uint64_t)p->most - (uint64_t)p->least + 1);
    case SIZE:
        return m->g->kept[p->name].n;
    case PLACE:
        return m->g->kept[p->name].place;
    default:
        return m->draw(8) ? m->draw(16) : edges[m->draw(TT_COUNT(edges))];
    }
}

static void make_part(making *m, part *p);

static void make_choice(making *m, part *p)
{
    const bool is_short = is_enough(m), deep = m->deep && p->endless && (m->same || m->draw(16));
    uint64_t all = 0, at;
    if (m->same && deep && !is_short && p->last && p->last->endless) {
        make_part(m, p->last);
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        at = pass ? m->draw(all) : 0;
        for (size_t i = 0; i < p->parts.n; i++) {
            part *one = p->parts.items[i];
            if (is_short ? one->depth > p->depth : deep && !one->endless)
                continue;
            if (pass && at < one->weight) {
                p->last = one;
                make_part(m, one);
                return;
            }
            all += pass ? 0 : one->weight;
            at -= pass ? one->weight : 0;
        }
    }
}

static void make_repeat(making *m, part *p)
{
    for (int64_t i = 0; i < p->most; i++) {
        if (i >= p->least && (is_enough(m) || !m->draw(m->wide)))
            return;
        make_part(m, p->parts.items[0]);
    }
}

/* The length goes in front of what is there from `begin` on. */
static void make_sized(making *m, part *p)
{
    const size_t begin = m->n;
    make_part(m, p->parts.items[0]);
    const size_t end = m->n;
    add_number(m, p->form, end - begin);
    uint8_t number[24];
    const size_t n = m->n - end;
    memcpy(number, m->buf + end, n);
    memmove(m->buf + begin + n, m->buf + begin, end - begin);
    memcpy(m->buf + begin, number, n);
}

static void make_kept(making *m, part *p)
{
    named *k = &m->g->kept[p->name];
    if (p->kind == KEPT) {
        k->place = m->n;
        add_bytes(m, k->kept, k->n);
        return;
    }
    const size_t begin = m->n;
    make_part(m, p->parts.items[0]);
    k->n = m->n - begin;
    m->n = begin;
    memcpy(k->kept, m->buf + begin, k->n);
}

static void make_padded(making *m, part *p)
{
    const size_t begin = m->n, most = TT_MIN((size_t)p->most, GRAMMAR_MOST - begin);
    make_part(m, p->parts.items[0]);
    const size_t n = TT_MIN(m->n - begin, most);
    memset(m->buf + begin + n, 0, most - n);
    m->n = begin + most;
}

static void make_part(making *m, part *p)
{
    m->depth++;
    switch (p->kind) {
    case TEXT:
        add_bytes(m, p->text, p->n);
        break;
    case NUMBER:
        add_number(m, p->form, draw_number(m, p));
        break;
    case RULE:
        make_part(m, m->g->rules[p->name].is);
        break;
    case CHOICE:
        make_choice(m, p);
        break;
    case SEQUENCE:
        for (size_t i = 0; i < p->parts.n; i++)
            make_part(m, p->parts.items[i]);
        break;
    case REPEAT:
        make_repeat(m, p);
        break;
    case SIZED:
        make_sized(m, p);
        break;
    case PADDED:
        make_padded(m, p);
        break;
    default:
        make_kept(m, p);
    }
    m->depth--;
}

static void forget(part *p)
{
    p->last = NULL;
    for (size_t i = 0; i < p->parts.n; i++)
        forget(p->parts.items[i]);
}

size_t grammar_make(grammar *g, grammar_draw draw, uint8_t *buf)
{
    making m = {.g = g, .draw = draw, .buf = buf, .wide = 3};
    const uint64_t way = draw(8);
    m.enough = (size_t)16 << draw(8);
    m.deepest = 16 + (int)draw(64);
    if (way == 0) { /* long lists */
        m.wide = 64;
        m.enough *= 4;
    } else if (way < 3) {
        m.deep = true;
        m.same = way == 2;
        m.deepest = 8 << draw(10);
        m.enough *= 4;
    }
    for (size_t i = 0; m.same && i < g->n_rules; i++)
        forget(g->rules[i].is);
    for (size_t i = 0; i < g->n_kept; i++)
        g->kept[i].n = g->kept[i].place = 0;
    make_part(&m, g->rules[0].is);
    return m.n;
}
