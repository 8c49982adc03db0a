/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat/eval.h"
#include <string.h>
#include <utf8proc.h>

/* Methods of texts, lists and mappings, as Python's. */

/* ---- what filters and methods share ---- */

static bool in_set(const char *set, char c)
{
    return set ? c && strchr(set, c) != NULL
               : c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

/* Bytes of whitespace of several bytes, such as U+00A0, at the begin or the end; 0: none. */
static size_t wide_space(const char *s, size_t n, bool at_end)
{
    static const char *const spaces[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a"};
    for (size_t i = 0; i < TT_COUNT(spaces); i++) {
        const size_t k = strlen(spaces[i]);
        if (n >= k && !memcmp(at_end ? s + n - k : s, spaces[i], k))
            return k;
    }
    return 0;
}

tt_jvalue *tt_jstrip(tt_jenv *e, const tt_jvalue *v, const char *set, int sides)
{
    const tt_jstring *s = &v->u.string;
    size_t begin = 0, end = s->n, k;
    tt_jlook(e, s->n);
    while ((sides & 1) && begin < end) {
        k = in_set(set, s->s[begin]) ? 1 : set ? 0 : wide_space(s->s + begin, end - begin, false);
        if (!k)
            break;
        begin += k;
    }
    while ((sides & 2) && begin < end) {
        k = in_set(set, s->s[end - 1]) ? 1 : set ? 0 : wide_space(s->s + begin, end - begin, true);
        if (!k)
            break;
        end -= k;
    }
    return tt_j_part(e->arena, s, begin, end);
}

tt_jvalue *tt_jcase(tt_jenv *e, const tt_jvalue *v, char how)
{
    const tt_jstring *s = &v->u.string;
    tt_jtext text = {0};
    bool begins = true;
    tt_jsteps(e, s->n / 4); /* a character takes longer than a byte that is compared */
    for (size_t at = 0; at < s->n && !e->failed;) {
        utf8proc_int32_t c;
        utf8proc_uint8_t out[4];
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s->s + at,
                                                    (utf8proc_ssize_t)(s->n - at), &c);
        const tt_tag tag = s->tags ? s->tags[at] : TT_TAG_TEMPLATE;
        if (k < 1) {
            tt_jtext_add(e->arena, &text, s->s + at++, 1, NULL, tag);
            continue;
        }
        const bool up = how == 'u' || ((how == 't' || how == 'c') && begins);
        const utf8proc_category_t kind = utf8proc_category(c);
        const bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
        begins = how == 't' ? !letter && c != '\'' : false;
        const utf8proc_ssize_t n =
            utf8proc_encode_char(up ? utf8proc_toupper(c) : utf8proc_tolower(c), out);
        tt_jtext_add(e->arena, &text, (const char *)out, (size_t)n, NULL, tag);
        at += (size_t)k;
    }
    return tt_jtaken(e, &text);
}

static void add_slice(tt_jenv *e, tt_jtext *text, const tt_jstring *s, size_t begin, size_t end)
{
    tt_jtext_add(e->arena, text, s->s + begin, end - begin, s->tags ? s->tags + begin : NULL,
                 TT_TAG_TEMPLATE);
}

tt_jvalue *tt_jreplace(tt_jenv *e, const tt_jvalue *v, const tt_jvalue *from, const tt_jvalue *to,
                       int64_t most)
{
    const tt_jstring *s = &v->u.string, *f = &from->u.string;
    tt_jtext text = {0};
    size_t at = 0;
    tt_jlook(e, s->n);
    while (f->n && most != 0 && tt_jlook(e, f->n)) {
        const char *hit = memmem(s->s + at, s->n - at, f->s, f->n);
        if (!hit)
            break;
        const size_t found = (size_t)(hit - s->s);
        add_slice(e, &text, s, at, found);
        tt_jtext_value(e->arena, &text, to);
        if (text.full)
            return tt_jfail(e, "a text of more than %zu MiB", TT_J_MOST_TEXT >> 20);
        at = found + f->n;
        most--;
    }
    add_slice(e, &text, s, at, s->n);
    return tt_jtaken(e, &text);
}

/* ---- methods of texts ---- */

static tt_jvalue *split_blanks(tt_jenv *e, const tt_jvalue *v, int64_t most)
{
    const tt_jstring *s = &v->u.string;
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    for (size_t at = 0; tt_jsteps(e, 1);) {
        while (at < s->n && in_set(NULL, s->s[at]))
            at++;
        if (at == s->n)
            return list;
        size_t end = at;
        while (end < s->n && !in_set(NULL, s->s[end]))
            end++;
        if (most >= 0 && (int64_t)list->u.list.n == most) {
            end = s->n;
            while (end > at && in_set(NULL, s->s[end - 1]))
                end--;
        }
        tt_j_push(e->arena, list, tt_j_part(e->arena, s, at, end));
        at = most >= 0 && (int64_t)list->u.list.n > most ? s->n : end;
    }
    return list;
}

static tt_jvalue *split(tt_jenv *e, const tt_jargs *a)
{
    const tt_jstring *s = &a->v[0]->u.string;
    const tt_jvalue *by = tt_jarg(a, 1, "sep");
    const int64_t most = tt_jarg_int(a, 2, "maxsplit", -1);
    tt_jvalue *list = tt_j_new(e->arena, TT_J_LIST);
    size_t at = 0;
    if (!by || by->type != TT_J_STRING)
        return split_blanks(e, a->v[0], most);
    if (!by->u.string.n)
        return tt_jfail(e, "split: the separator is empty");
    tt_jlook(e, s->n);
    while ((most < 0 || (int64_t)list->u.list.n < most) && tt_jlook(e, by->u.string.n)) {
        const char *hit = memmem(s->s + at, s->n - at, by->u.string.s, by->u.string.n);
        if (!hit)
            break;
        tt_j_push(e->arena, list, tt_j_part(e->arena, s, at, (size_t)(hit - s->s)));
        at = (size_t)(hit - s->s) + by->u.string.n;
    }
    tt_j_push(e->arena, list, tt_j_part(e->arena, s, at, s->n));
    return list;
}

static tt_jvalue *rsplit(tt_jenv *e, const tt_jargs *a)
{
    const tt_jstring *s = &a->v[0]->u.string;
    const tt_jvalue *by = tt_jarg(a, 1, "sep");
    const int64_t most = tt_jarg_int(a, 2, "maxsplit", -1);
    tt_jvalue *back = tt_j_new(e->arena, TT_J_LIST), *list = tt_j_new(e->arena, TT_J_LIST);
    size_t end = s->n;
    if (most < 0 || !by || by->type != TT_J_STRING || !by->u.string.n)
        return split(e, a);
    for (size_t at = end;
         (int64_t)back->u.list.n < most && at-- > 0 && tt_jlook(e, by->u.string.n);)
        if (at + by->u.string.n <= end && !memcmp(s->s + at, by->u.string.s, by->u.string.n)) {
            tt_j_push(e->arena, back, tt_j_part(e->arena, s, at + by->u.string.n, end));
            end = at;
        }
    tt_j_push(e->arena, list, tt_j_part(e->arena, s, 0, end));
    for (size_t i = back->u.list.n; i-- > 0;)
        tt_j_push(e->arena, list, back->u.list.items[i]);
    return list;
}

static bool has_affix(tt_jenv *e, const tt_jvalue *v, const tt_jvalue *what, bool end)
{
    if (!what || what->type != TT_J_STRING || what->u.string.n > v->u.string.n)
        return false;
    tt_jlook(e, what->u.string.n);
    return !memcmp(v->u.string.s + (end ? v->u.string.n - what->u.string.n : 0), what->u.string.s,
                   what->u.string.n);
}

/* startswith and endswith; a tuple of texts: any of them. */
static bool affixed(tt_jenv *e, const tt_jvalue *v, const tt_jvalue *what, bool end)
{
    if (!what || what->type != TT_J_LIST)
        return has_affix(e, v, what, end);
    for (size_t i = 0; i < what->u.list.n && !e->failed; i++)
        if (has_affix(e, v, what->u.list.items[i], end))
            return true;
    return false;
}

static tt_jvalue *find_text(tt_jenv *e, const tt_jargs *a, bool last)
{
    const tt_jstring *s = &a->v[0]->u.string;
    const tt_jvalue *what = tt_jarg(a, 1, NULL);
    int64_t characters = 0;
    if (!what || what->type != TT_J_STRING)
        return tt_jfail(e, "find: a text is needed");
    const size_t n = what->u.string.n;
    tt_jlook(e, s->n);
    const char *hit = last ? NULL : memmem(s->s, s->n, what->u.string.s, n);
    for (size_t at = s->n + 1; last && !hit && at-- > 0 && tt_jlook(e, n);)
        if (n <= s->n - at && !memcmp(s->s + at, what->u.string.s, n))
            hit = s->s + at;
    for (const char *c = s->s; hit && c < hit; c++)
        characters += ((unsigned char)*c & 0xc0) != 0x80;
    return tt_j_int(e->arena, hit ? characters : -1);
}

static tt_jvalue *count_of(tt_jenv *e, const tt_jargs *a)
{
    const tt_jvalue *what = tt_jarg(a, 1, NULL), *v = a->v[0];
    int64_t n = 0;
    for (size_t i = 0; what && v->type == TT_J_LIST && i < v->u.list.n; i++)
        n += tt_jequal(e, v->u.list.items[i], what);
    if (what && v->type == TT_J_STRING && what->type == TT_J_STRING && what->u.string.n) {
        const char *at = v->u.string.s, *end = at + v->u.string.n;
        tt_jlook(e, v->u.string.n);
        while (tt_jlook(e, what->u.string.n) &&
               (at = memmem(at, (size_t)(end - at), what->u.string.s, what->u.string.n))) {
            n++;
            at += what->u.string.n;
        }
    }
    return tt_j_int(e->arena, n);
}

static tt_jvalue *without_affix(tt_jenv *e, const tt_jargs *a, bool end)
{
    const tt_jstring *s = &a->v[0]->u.string;
    const tt_jvalue *what = tt_jarg(a, 1, NULL);
    if (!has_affix(e, a->v[0], what, end))
        return a->v[0];
    const size_t k = what->u.string.n;
    return tt_j_part(e->arena, s, end ? 0 : k, end ? s->n - k : s->n);
}

static bool all_of(tt_jenv *e, const tt_jvalue *v, char how)
{
    bool any = false;
    tt_jlook(e, v->u.string.n);
    for (size_t i = 0; i < v->u.string.n; i++) {
        const char c = v->u.string.s[i];
        const bool digit = c >= '0' && c <= '9',
                   letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80);
        if (how == 'd'   ? !digit
            : how == 'a' ? !letter
            : how == 'n' ? !digit && !letter
                         : !in_set(NULL, c))
            return false;
        any = true;
    }
    return any;
}

static tt_jvalue *of_text(tt_jenv *e, const char *name, const tt_jargs *a)
{
    tt_jvalue *v = a->v[0], *first = tt_jarg(a, 1, NULL), *second = tt_jarg(a, 2, NULL);
    const char *set = tt_jarg_text(e, a, 1, NULL, NULL);
    if (!strcmp(name, "strip") || !strcmp(name, "lstrip") || !strcmp(name, "rstrip"))
        return tt_jstrip(e, v, set, *name == 's' ? 3 : *name == 'l' ? 1 : 2);
    if (!strcmp(name, "format"))
        return tt_jformat(e, a);
    if (!strcmp(name, "split"))
        return split(e, a);
    if (!strcmp(name, "rsplit"))
        return rsplit(e, a);
    if (!strcmp(name, "splitlines")) {
        tt_jvalue *lines = tt_j_new(e->arena, TT_J_LIST);
        tt_jlook(e, v->u.string.n);
        for (size_t at = 0, end; at < v->u.string.n && tt_jsteps(e, 1); at = end + 1) {
            for (end = at; end < v->u.string.n && v->u.string.s[end] != '\n'; end++)
                ;
            tt_j_push(e->arena, lines, tt_j_part(e->arena, &v->u.string, at, end));
        }
        return lines;
    }
    if (!strcmp(name, "startswith") || !strcmp(name, "endswith"))
        return tt_j_bool(e->arena, affixed(e, v, first, *name == 'e'));
    if (!strcmp(name, "upper") || !strcmp(name, "lower") || !strcmp(name, "capitalize") ||
        !strcmp(name, "title"))
        return tt_jcase(e, v, *name);
    if (!strcmp(name, "replace"))
        return first && second
                   ? tt_jreplace(e, v, tt_jstring_of(e, first), tt_jstring_of(e, second),
                                 tt_jarg_int(a, 3, "count", -1))
                   : tt_jfail(e, "replace: two texts are needed");
    if (!strcmp(name, "find") || !strcmp(name, "rfind") || !strcmp(name, "index"))
        return find_text(e, a, *name == 'r');
    if (!strcmp(name, "count"))
        return count_of(e, a);
    if (!strcmp(name, "removeprefix") || !strcmp(name, "removesuffix"))
        return without_affix(e, a, !strcmp(name, "removesuffix"));
    if (!strcmp(name, "join")) {
        tt_jargs swapped = *a;
        tt_jvalue *both[] = {first ? first : v, v};
        swapped.v = both;
        swapped.n = 2;
        return tt_jfilter(e, "join", &swapped);
    }
    return tt_j_bool(e->arena, all_of(e, v,
                                      !strcmp(name, "isdigit")   ? 'd'
                                      : !strcmp(name, "isalpha") ? 'a'
                                      : !strcmp(name, "isalnum") ? 'n'
                                                                 : 's'));
}

/* ---- methods of mappings and lists ---- */

static tt_jvalue *of_dict(tt_jenv *e, const char *name, const tt_jargs *a)
{
    const tt_jvalue *d = a->v[0], *key = tt_jarg(a, 1, NULL);
    tt_jvalue *other = tt_jarg(a, 2, "default"), *list = tt_j_new(e->arena, TT_J_LIST);
    if (!strcmp(name, "get")) {
        tt_jvalue *v = key ? tt_jfind(e, d, key) : NULL;
        return v ? v : other ? other : tt_j_new(e->arena, TT_J_NONE);
    }
    if (!strcmp(name, "items"))
        return tt_jfilter(e, "items", a);
    for (size_t i = 0; i < d->u.dict.n; i++)
        tt_j_push(e->arena, list, *name == 'k' ? d->u.dict.keys[i] : d->u.dict.values[i]);
    return list;
}

static tt_jvalue *of_list(tt_jenv *e, const char *name, const tt_jargs *a)
{
    const tt_jvalue *what = tt_jarg(a, 1, NULL);
    if (!strcmp(name, "count"))
        return count_of(e, a);
    for (size_t i = 0; what && !e->failed && i < a->v[0]->u.list.n; i++)
        if (tt_jequal(e, a->v[0]->u.list.items[i], what))
            return tt_j_int(e->arena, (int64_t)i);
    return tt_jfail(e, "index: the list has no such item");
}

static const char *const text_methods[] = {
    "strip",        "lstrip",   "rstrip",  "split",   "rsplit",     "splitlines",
    "startswith",   "endswith", "upper",   "lower",   "capitalize", "title",
    "replace",      "find",     "rfind",   "index",   "count",      "removeprefix",
    "removesuffix", "join",     "isdigit", "isalpha", "isalnum",    "isspace",
    "format",       NULL};
static const char *const dict_methods[] = {"get", "items", "keys", "values", NULL};
static const char *const list_methods[] = {"index", "count", NULL};

static const char *const *methods_of(const tt_jvalue *of)
{
    static const char *const none[] = {NULL};
    return of->type == TT_J_STRING ? text_methods
           : of->type == TT_J_DICT ? dict_methods
           : of->type == TT_J_LIST ? list_methods
                                   : none;
}

bool tt_jhas_method(const tt_jvalue *of, const char *name)
{
    const char *const *all = methods_of(of);
    for (size_t i = 0; all[i]; i++)
        if (!strcmp(all[i], name))
            return true;
    return false;
}

tt_jvalue *tt_jmethod(tt_jenv *e, const char *name, const tt_jargs *a)
{
    return a->v[0]->type == TT_J_STRING ? of_text(e, name, a)
           : a->v[0]->type == TT_J_DICT ? of_dict(e, name, a)
                                        : of_list(e, name, a);
}
