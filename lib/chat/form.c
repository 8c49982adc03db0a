/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"
#include <string.h>

/* How a template takes what conversations have in several forms. Contents: as vLLM does, by its tree: whether it goes over
 * the parts of a message's content. Arguments of calls, and a content that is not there beside them: by what it makes of each
 * form of one. */

/* ---- contents ---- */

typedef struct names { /* of variables that hold a content */
    tt_arena *arena;
    TT_VEC(const char *) all;
    bool grown, lists;
    const tt_jnode *tree;
    int64_t steps; /* what was looked at: a template that takes too many is not looked at further */
} names;

static bool is_constant(const tt_jnode *n, const char *text)
{
    return n && n->kind == TT_JN_CONST && n->value->type == TT_J_STRING &&
           n->value->u.string.n == strlen(text) &&
           !memcmp(n->value->u.string.s, text, n->value->u.string.n);
}

static bool is_member(const tt_jnode *n, const char *name)
{
    return (n->kind == TT_JN_ATTRIBUTE && !strcmp(n->name, name)) ||
           (n->kind == TT_JN_ITEM && is_constant(n->sub[1], name));
}

static bool is_name(names *w, const char *name)
{
    size_t i = 0;
    while (i < w->all.n && strcmp(w->all.items[i], name))
        i++;
    w->steps += (int64_t)i;
    return i < w->all.n;
}

/* An expression that may be a content, or a part of the list that it is. */
static bool is_content(names *w, const tt_jnode *n)
{
    w->steps++;
    if (!n)
        return false;
    if (n->kind == TT_JN_NAME)
        return is_name(w, n->name);
    if (n->kind == TT_JN_APPLY || n->kind == TT_JN_SLICE)
        return is_content(w, n->sub[0]);
    if (n->kind == TT_JN_TERNARY)
        return is_content(w, n->sub[0]) || is_content(w, n->sub[2]);
    if (n->kind == TT_JN_BINARY && (n->op == TT_JO_OR || n->op == TT_JO_AND))
        return is_content(w, n->sub[0]) || is_content(w, n->sub[1]);
    return is_member(n, "content");
}

static void add_name(names *w, const tt_jnode *target)
{
    if (target->kind != TT_JN_NAME || is_name(w, target->name))
        return;
    tt_vec_push(w->arena, &w->all, target->name);
    w->grown = true;
}

static const tt_jnode *find_macro(names *w, const tt_jnode *n, const char *name)
{
    const tt_jnode *found = n->kind == TT_JN_MACRO && !strcmp(n->name, name) ? n : NULL;
    w->steps++;
    for (size_t i = 0; i < n->n && !found && w->steps < TT_J_MOST_STEPS; i++)
        found = n->sub[i] ? find_macro(w, n->sub[i], name) : NULL;
    return found;
}

/* A parameter of a macro that gets a content. */
static void look_at_call(names *w, const tt_jnode *n)
{
    const tt_jnode *m =
        n->sub[0]->kind == TT_JN_NAME ? find_macro(w, w->tree, n->sub[0]->name) : NULL;
    for (size_t i = 1; m && i < n->n; i++) {
        const size_t plain = n->n - n->n_names;
        const char *name = i >= plain        ? n->names[i - plain]
                           : i <= m->n_names ? m->names[i - 1]
                                             : NULL;
        const tt_jnode parameter = {.kind = TT_JN_NAME, .name = name};
        if (name && is_content(w, n->sub[i]))
            add_name(w, &parameter);
    }
}

/* Filters and items that need a list. */
static bool goes_over(names *w, const tt_jnode *n)
{
    static const char *const filters[] = {"selectattr", "rejectattr", "map", "select", "reject"};
    if (n->kind == TT_JN_FOR)
        return is_content(w, n->sub[1]);
    for (size_t i = 0; n->kind == TT_JN_APPLY && i < TT_COUNT(filters); i++)
        if (!strcmp(n->name, filters[i]))
            return is_content(w, n->sub[0]);
    return is_member(n, "text") && n->sub[0]->kind == TT_JN_ITEM &&
           is_content(w, n->sub[0]->sub[0]);
}

static void look_at(names *w, const tt_jnode *n)
{
    if (n->kind == TT_JN_SET && is_content(w, n->sub[1]))
        add_name(w, n->sub[0]);
    if (n->kind == TT_JN_CALL)
        look_at_call(w, n);
    w->lists = w->lists || goes_over(w, n);
    w->steps++;
    for (size_t i = 0; i < n->n && !w->lists && w->steps < TT_J_MOST_STEPS; i++)
        if (n->sub[i])
            look_at(w, n->sub[i]);
}

static bool takes_lists(tt_arena *a, const tt_jnode *tree)
{
    names w = {.arena = a, .tree = tree};
    do {
        w.grown = false;
        look_at(&w, tree);
    } while (w.grown && !w.lists && w.steps < TT_J_MOST_STEPS);
    return w.lists;
}

/* ---- arguments ---- */

/* A message's JSON without content, by tt_chat_missing. */
static const char *const no_content[] = {"", "\"content\":null,", "\"content\":\"\","};

static bool mentions(const tt_jnode *n, const char *name)
{
    bool found = is_constant(n, name) || is_member(n, name);
    for (size_t i = 0; i < n->n && !found; i++)
        found = n->sub[i] && mentions(n->sub[i], name);
    return found;
}

/* Whether what a template makes of a call with such arguments has `text`. */
static bool makes(tt_arena *a, const tt_chat_form *f, const tt_jvalue *constants,
                  const char *content, const char *arguments, const char *text)
{
    tt_str list = {0};
    const tt_chat_json none = {0};
    const tt_json *j = NULL;
    tt_jvalue *vars = tt_chat_variables(a, constants, &none);
    tt_jtext out = {0};
    tt_error ignored = {0};
    tt_str_printf(&list,
                  "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",%s"
                  "\"tool_calls\":[{\"type\":\"function\",\"id\":\"abcdefghi\",\"function\":"
                  "{\"name\":\"tool7\",\"arguments\":%s}}]}]",
                  content, arguments);
    tt_status s = tt_json_parse(a, "probe", tt_str_get(&list), list.n, &j, &ignored);
    tt_str_free(&list);
    if (s == TT_OK) {
        tt_j_append(a, vars, tt_j_text(a, "messages", 8, TT_TAG_TEMPLATE),
                    tt_chat_value(a, j, TT_TAG_TEMPLATE));
        tt_j_append(a, vars, tt_j_text(a, "add_generation_prompt", 21, TT_TAG_TEMPLATE),
                    tt_j_bool(a, false));
        s = tt_jinja_render(a, f->name, f->tree, vars, 1, &out, &ignored);
    }
    return s == TT_OK && strstr(out.s, text) != NULL;
}

/* JSON text is printed as it is, and of a mapping there is an error, or what Python prints of it. */
static bool takes_text(tt_arena *a, const tt_chat_form *f, const tt_jvalue *constants)
{
    static const char mapping[] = "{\"knob7\": \"v\"}", text[] = "\"{\\\"knob7\\\": \\\"v\\\"}\"";
    bool as_text = false, as_json = false, as_python = false, has_key = false;
    for (size_t i = 0; i < TT_COUNT(no_content); i++) {
        as_text = as_text || makes(a, f, constants, no_content[i], text, mapping);
        as_json = as_json || makes(a, f, constants, no_content[i], mapping, "\"knob7\"");
        as_python = as_python || makes(a, f, constants, no_content[i], mapping, "{'knob7': 'v'}");
        has_key = has_key || makes(a, f, constants, no_content[i], mapping, "knob7");
    }
    return as_text && !as_json && (as_python || !has_key);
}

/* ---- a call without content ---- */

/* Most templates want no key, or do not care; DeepSeek's know a call by a content that is none, and join any other one with
 * their text. */
static tt_chat_missing missing_content(tt_arena *a, const tt_chat_form *f,
                                       const tt_jvalue *constants)
{
    const char *arguments = f->text_arguments ? "\"{}\"" : "{}";
    for (size_t i = 0; i < TT_COUNT(no_content); i++)
        if (makes(a, f, constants, no_content[i], arguments, "tool7"))
            return (tt_chat_missing)i;
    return TT_CHAT_ABSENT;
}

void tt_chat_find_form(tt_chat_form *f, const tt_jvalue *constants)
{
    tt_arena *scratch = tt_arena_new();

    f->lists = takes_lists(scratch, f->tree);
    f->text_arguments = mentions(f->tree, "arguments") && takes_text(scratch, f, constants);
    if (mentions(f->tree, "tool_calls"))
        f->missing = missing_content(scratch, f, constants);
    tt_arena_free(scratch);
}
