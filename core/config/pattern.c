/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "config/pattern.h"
#include <pcre2.h>
#include <string.h>

#define MAX_BYTES 4096
#define MAX_NESTING 64
#define MAX_STEPS 1000000 /* steps per match, about 10 ms; ordinary patterns take a few hundred */
#define MAX_HEAP_KIB (16 << 10)

struct tt_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

/* Returns the end of a bracket expression that begins at p; NULL: it has no end. "]" is an ordinary
 * member if it comes first, and in "[:alpha:]", "[=a=]" and "[.x.]". */
static const char *end_of_brackets(const char *p)
{
    p += 1 + (p[1] == '^');
    for (p += *p == ']'; *p && *p != ']'; p++)
        if (*p == '[' && p[1] && strchr(":=.", p[1])) {
            const char close[] = {p[1], ']', '\0'};
            p = strstr(p + 2, close);
            if (!p)
                return NULL;
            p++;
        }
    return *p ? p + 1 : NULL;
}

/* Rewrites a pattern where PCRE reads POSIX's extended syntax, or glibc's additions to it, in
 * another way: a backslash in brackets is an ordinary member, {,n} begins at 0, \< and \> are the
 * start and the end of a word. */
static void rewrite(const char *text, tt_str *out)
{
    for (const char *p = text; *p;) {
        const char *end = *p == '[' ? end_of_brackets(p) : NULL;
        if (end) {
            for (; p < end; p++)
                tt_str_printf(out, *p == '\\' ? "\\\\" : "%c", *p);
        } else if (*p == '\\' && (p[1] == '<' || p[1] == '>')) {
            tt_str_add(out, p[1] == '<' ? "\\b(?=\\w)" : "\\b(?<=\\w)");
            p += 2;
        } else if (*p == '{' && p[1] == ',') {
            tt_str_add(out, "{0");
            p++;
        } else {
            const size_t n = *p == '\\' && p[1] ? 2 : 1;
            tt_str_addn(out, p, n);
            p += n;
        }
    }
}

static tt_status pcre_fail(int code, tt_error *err)
{
    char why[160];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return TT_FAIL(err, TT_EINVAL, "%s", why);
}

static tt_status compile(const tt_str *text, pcre2_code **out, tt_error *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a pattern");
    pcre2_set_parens_nest_limit(context, MAX_NESTING);
    *out = pcre2_compile((PCRE2_SPTR)tt_str_get(text), text->n,
                         PCRE2_NEVER_BACKSLASH_C | PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY, &code, &at,
                         context);
    pcre2_compile_context_free(context);
    if (*out)
        return TT_OK;
    return pcre_fail(code, err);
}

static void pattern_free(void *arg)
{
    tt_pattern *p = arg;
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
}

static tt_status make_pattern(tt_arena *a, const char *text, bool posix, tt_pattern **out,
                              tt_error *err)
{
    tt_str pcre = {0};
    if (strlen(text) > MAX_BYTES)
        return TT_FAIL(err, TT_EINVAL, "%zu bytes long, at most %d", strlen(text), MAX_BYTES);
    tt_pattern *p = tt_arena_alloc(a, sizeof *p);
    tt_arena_cleanup(a, pattern_free, p);
    if (posix)
        rewrite(text, &pcre);
    else
        tt_str_add(&pcre, text);
    const tt_status s = compile(&pcre, &p->code, err);
    tt_str_free(&pcre);
    TT_TRY(s);
    p->data = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    if (!p->data || !p->context)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a pattern");
    pcre2_set_match_limit(p->context, MAX_STEPS);
    pcre2_set_heap_limit(p->context, MAX_HEAP_KIB);
    *out = p;
    return TT_OK;
}

tt_status tt_pattern_new(tt_arena *a, const char *text, tt_pattern **out, tt_error *err)
{
    return make_pattern(a, text, true, out, err);
}

tt_status tt_pattern_new_pcre(tt_arena *a, const char *text, tt_pattern **out, tt_error *err)
{
    return make_pattern(a, text, false, out, err);
}

tt_status tt_pattern_match(const tt_pattern *p, const char *name, bool *out, tt_error *err)
{
    const int rc = pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->data, p->context);
    *out = rc >= 0;
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? TT_OK : pcre_fail(rc, err);
}

tt_status tt_pattern_replace(const tt_pattern *p, tt_arena *a, const char *name, const char *to,
                             bool *matched, const char **out, tt_error *err)
{
    PCRE2_SIZE n = strlen(name) + strlen(to) + 1;
    for (int i = 0; i < 2; i++) { /* the second time with the length that the first one asked for */
        char *text = tt_arena_alloc(a, n);
        const int rc =
            pcre2_substitute(p->code, (PCRE2_SPTR)name, strlen(name), 0,
                             PCRE2_SUBSTITUTE_OVERFLOW_LENGTH | PCRE2_SUBSTITUTE_UNSET_EMPTY, NULL,
                             p->context, (PCRE2_SPTR)to, strlen(to), (PCRE2_UCHAR *)text, &n);
        if (rc == PCRE2_ERROR_NOMEMORY && !i)
            continue;
        if (rc < 0)
            return pcre_fail(rc, err);
        *matched = rc > 0;
        *out = rc > 0 ? text : name;
        return TT_OK;
    }
    return TT_OK;
}
