/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/tools.h"
#include <stdlib.h>
#include <string.h>

static const char begins[] = "<tool_call>", ends[] = "</tool_call>", python[] = "<|python_tag|>";
enum { N_BEGINS = sizeof begins - 1, N_ENDS = sizeof ends - 1, N_PYTHON = sizeof python - 1 };

bool tt_tools_is_mark(const char *text, size_t n)
{
    return (n == N_BEGINS && !memcmp(text, begins, n)) || (n == N_ENDS && !memcmp(text, ends, n)) ||
           (n == N_PYTHON && !memcmp(text, python, n));
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(const char *text, size_t at, size_t n)
{
    while (at < n && is_space(text[at]))
        at++;
    return at;
}

/* ---- one call ---- */

tt_map *tt_tools_names(tt_arena *a, const tt_json *tools)
{
    tt_map *names = tt_map_new(a);
    for (size_t i = 0; i < tools->n; i++) {
        const tt_json *f = tt_json_get(tools->items[i], "function"),
                      *name = tt_json_get(f ? f : tools->items[i], "name");
        if (name && name->type == TT_JSON_STRING)
            tt_map_set(names, name->string, names);
    }
    return names;
}

static void add_call(tt_tool_reader *r, const tt_json *name, const tt_json *arguments)
{
    tt_tool_call c = {tt_arena_str(r->arena, name->string), "{}"};
    tt_str text = {0};
    if (arguments && arguments->type == TT_JSON_STRING) /* JSON in a string */
        tt_str_add(&text, arguments->string);
    else if (arguments)
        tt_json_write_exact(arguments, &text);
    if (arguments)
        c.arguments = tt_arena_str(r->arena, tt_str_get(&text));
    tt_vec_push(r->arena, &r->calls, c);
    tt_str_free(&text);
}

/* The text of an object, or of a string with one. */
static bool are_arguments(const tt_json *v, tt_arena *a)
{
    const tt_json *o = v;
    if (v->type == TT_JSON_STRING &&
        tt_json_parse(a, "arguments", v->string, strlen(v->string), &o, NULL) != TT_OK)
        return false;
    return o->type == TT_JSON_OBJECT;
}

/* Adds the call that the text is; false: it is none. known: it must name one of the tools. */
static bool read_call(tt_tool_reader *r, const char *text, size_t n, bool known)
{
    tt_arena *a = tt_arena_new();
    const tt_json *o = NULL;
    bool is_call = tt_json_parse(a, "call", text, n, &o, NULL) == TT_OK;
    const tt_json *name = is_call ? tt_json_get(o, "name") : NULL,
                  *arguments = is_call ? tt_json_get(o, "arguments") : NULL;
    if (is_call && !arguments)
        arguments = tt_json_get(o, "parameters");
    is_call = name && name->type == TT_JSON_STRING && *name->string &&
              (!arguments || are_arguments(arguments, a)) &&
              (!known || (arguments && r->tools && tt_map_get(r->tools, name->string)));
    if (is_call)
        add_call(r, name, arguments);
    tt_arena_free(a);
    return is_call;
}

/* ---- the untagged form ---- */

/* Where the object ends that begins at `at`; n if it does not. */
static size_t end_of_object(const char *text, size_t at, size_t n)
{
    bool quoted = false;
    for (int depth = 0; at < n; at++) {
        const char c = text[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && --depth == 0)
            return at + 1;
    }
    return n;
}

/* The whole text is calls, or none of it is. */
static void read_untagged(tt_tool_reader *r, const char *text, size_t n)
{
    size_t at = skip_space(text, 0, n);
    bool is_call = true;
    if (n - at >= N_PYTHON && !memcmp(text + at, python, N_PYTHON))
        at = skip_space(text, at + N_PYTHON, n);
    while (is_call && at < n) {
        const size_t end = end_of_object(text, at, n);
        is_call = read_call(r, text + at, end - at, true);
        at = skip_space(text, end, n);
        if (is_call && at < n && text[at] == ';')
            at = skip_space(text, at + 1, n);
    }
    if (is_call && r->calls.n)
        return;
    r->calls.n = 0;
    tt_str_addn(&r->said, text, n);
}

/* What the text begins with says which form it has. False: that is not known yet. */
static bool find_form(tt_tool_reader *r, const char *text, size_t n, bool ended)
{
    const size_t at = skip_space(text, 0, n);
    if (at == n && !ended)
        return false;
    const bool tag = at < n && !memcmp(text + at, python, TT_MIN(n - at, (size_t)N_PYTHON));
    if (tag && n - at < N_PYTHON && !ended)
        return false;
    r->begun = true;
    r->untagged = at < n && (text[at] == '{' || (tag && n - at >= N_PYTHON));
    return true;
}

/* ---- the tagged form ---- */

/* The text up to `end`, which precedes a call or is what has come so far; not the blanks at its end. */
static void say(tt_tool_reader *r, const char *text, size_t end, bool ended)
{
    size_t to = end;
    while (to > r->at && is_space(text[to - 1]))
        to--;
    if (ended && !r->calls.n)
        to = end; /* there was no call at all: the text is as it is */
    tt_str_addn(&r->said, text + r->at, to - r->at);
    r->at = ended ? end : to;
}

/* A call begins at `from`. False: its end has not come. */
static bool read_tagged(tt_tool_reader *r, const char *text, size_t from, size_t n, bool ended)
{
    const size_t body = from + N_BEGINS;
    size_t first = n, end = n;
    bool is_call = false;
    for (size_t at = body; !is_call && at < n; at = end) {
        const char *mark = memmem(text + at, n - at, ends, N_ENDS);
        if (!mark)
            break;
        const size_t to = (size_t)(mark - text);
        end = to + N_ENDS;
        first = first == n ? end : first;
        is_call = read_call(r, text + body, to - body, false);
    }
    if (!is_call && !ended)
        return false;
    if (!is_call && first == n) /* a model may end its turn without the end of the call */
        is_call = read_call(r, text + body, n - body, false);
    if (!is_call) {
        tt_str_addn(&r->said, text + r->at, first - r->at);
        end = first;
    }
    r->at = end;
    return true;
}

/* The length of the longest end of the text that a call may begin with. */
static size_t may_become_call(const char *text, size_t at, size_t n)
{
    for (size_t k = TT_MIN(n - at, (size_t)N_BEGINS - 1); k > 0; k--)
        if (!memcmp(text + n - k, begins, k))
            return k;
    return 0;
}

void tt_tools_read(tt_tool_reader *r, const char *text, size_t n, bool ended)
{
    if (!r->begun && !find_form(r, text, n, ended))
        return;
    if (r->untagged) {
        if (ended && r->at < n) {
            read_untagged(r, text, n);
            r->at = n;
        }
        return;
    }
    for (bool whole = true; whole && r->at < n;) {
        if (r->calls.n && !r->said.n)
            r->at = skip_space(text, r->at, n);
        const char *call = memmem(text + r->at, n - r->at, begins, N_BEGINS);
        if (!call) {
            say(r, text, n - (ended ? 0 : may_become_call(text, r->at, n)), ended);
            return;
        }
        say(r, text, (size_t)(call - text), false);
        whole = read_tagged(r, text, (size_t)(call - text), n, ended);
    }
}
