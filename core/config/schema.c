/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Writes the JSON Schema (2020-12) of a job from the tables. With it an editor completes and checks
 * job files. */

typedef struct writer {
    tt_arena *arena;
    const tt_section_doc *docs;
    size_t n;
    tt_str *out;
    const char *section; /* of the rows that are written */
} writer;

/* Begins member `key` unless the object has it already (a component may repeat a common key). */
static bool name(writer *w, tt_map *seen, const char *key)
{
    if (tt_map_get(seen, key))
        return false;
    if (tt_map_size(seen))
        tt_str_addc(w->out, ',');
    tt_map_set(seen, key, w);
    tt_str_json(w->out, key);
    tt_str_addc(w->out, ':');
    return true;
}

/* Other spellings of a value that a job may use: ,"AdamW" */
static void write_value_aliases(writer *w, const char *key, const char *ours)
{
    const char *path = tt_config_join(w->arena, w->section, key), *alias;
    for (size_t i = 0; (alias = tt_config_value_alias(path, ours, i)); i++) {
        tt_str_addc(w->out, ',');
        tt_str_json(w->out, alias);
    }
}

static void write_choices(writer *w, const tt_option *o)
{
    bool first = true;
    tt_str_add(w->out, "\"enum\":[");
    for (const char *p = o->choices; p && *p;) {
        size_t n = strcspn(p, "|");
        if (*p != '~') {
            tt_str_add(w->out, first ? "" : ",");
            const char *word = tt_arena_strn(w->arena, p, n);
            tt_str_json(w->out, word);
            write_value_aliases(w, o->name, word);
            first = false;
        }
        p += n + (p[n] == '|');
    }
    tt_str_add(w->out, o->flags & TT_OPT_NULLABLE ? ",null]" : "]");
}

static void write_type(writer *w, const tt_option *o)
{
    static const char *const names[] = {[TT_OPT_BOOL] = "boolean",
                                        [TT_OPT_INT] = "integer",
                                        [TT_OPT_FLOAT] = "number",
                                        [TT_OPT_STRING] = "string"};
    if (o->flags & TT_OPT_NOT_YET)
        tt_str_printf(w->out, "\"const\":%s", o->default_json);
    else if (o->type == TT_OPT_ENUM || o->type == TT_OPT_CHOICE)
        write_choices(w, o);
    else if (o->type == TT_OPT_STRINGS)
        tt_str_printf(w->out, "\"type\":[\"string\",\"array\"%s],\"items\":{\"type\":\"string\"}",
                      o->flags & TT_OPT_NULLABLE ? ",\"null\"" : "");
    else if (o->type <= TT_OPT_STRING)
        tt_str_printf(w->out,
                      o->flags & TT_OPT_NULLABLE ? "\"type\":[\"%s\",\"null\"]" : "\"type\":\"%s\"",
                      names[o->type]);
    else /* any JSON: the description stands alone */
        return;
    bool number = o->type == TT_OPT_INT || o->type == TT_OPT_FLOAT;
    if (!number || (o->flags & TT_OPT_NOT_YET) ||
        !(o->min < 0 || o->min > 0 || o->max < 0 || o->max > 0))
        return;
    if (o->min > -1e18) {
        tt_str_add(w->out, ",\"minimum\":");
        tt_str_json_number(w->out, o->min);
    }
    if (o->max < 1e18) {
        tt_str_add(w->out, ",\"maximum\":");
        tt_str_json_number(w->out, o->max);
    }
}

static void write_row(writer *w, const tt_option *o, tt_map *seen)
{
    if (!name(w, seen, o->name))
        return;
    tt_str_addc(w->out, '{');
    size_t at = w->out->n;
    write_type(w, o);
    if (o->doc) {
        tt_str_add(w->out, w->out->n > at ? ",\"description\":" : "\"description\":");
        tt_str_json(w->out, o->doc);
    }
    if (o->default_json)
        tt_str_printf(w->out, "%s\"default\":%s", w->out->n > at ? "," : "", o->default_json);
    tt_str_addc(w->out, '}');
    for (const char *p = o->aliases; p && *p;) {
        size_t n = strcspn(p, "|");
        const char *alias = tt_arena_strn(w->arena, p, n);
        p += n + (p[n] == '|');
        if (strchr(alias, '.') || !name(w, seen, alias))
            continue;
        tt_str_add(w->out, "{\"deprecated\":true,");
        at = w->out->n;
        write_type(w, o);
        tt_str_printf(w->out, "%s\"description\":", w->out->n > at ? "," : "");
        tt_str_json(w->out, tt_arena_printf(w->arena, "another name of %s", o->name));
        tt_str_addc(w->out, '}');
    }
}

/* The member of an object that an alias "adamw.lr" names: "lr", if the object is `outer`. */
static const char *member(writer *w, const tt_option *o, const char *outer)
{
    const size_t k = strlen(outer);
    for (const char *p = o->aliases; p && *p; p += *p == '|') {
        const size_t n = strcspn(p, "|");
        if (n > k && strncmp(p, outer, k) == 0 && p[k] == '.')
            return tt_arena_strn(w->arena, p + k + 1, n - k - 1);
        p += n;
    }
    return NULL;
}

static void write_object(writer *w, const tt_section_doc *s, const char *outer)
{
    tt_map *own = tt_map_new(w->arena);
    tt_str_add(w->out, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < s->n_options; i++) {
        tt_option o = tt_config_row(s->options, s->option_size, i);
        const char *key = member(w, &o, outer);
        if (!key)
            continue;
        o.name = key;
        o.aliases = NULL;
        write_row(w, &o, own);
    }
    tt_str_add(w->out, "},\"additionalProperties\":false}");
}

/* The objects whose members are other spellings of options. */
static void write_objects(writer *w, const tt_section_doc *s, tt_map *seen)
{
    for (size_t i = 0; i < s->n_options; i++) {
        const tt_option o = tt_config_row(s->options, s->option_size, i);
        for (const char *p = o.aliases; p && *p; p += *p == '|') {
            const size_t n = strcspn(p, "|"), k = strcspn(p, ".|");
            const char *outer = tt_arena_strn(w->arena, p, k);
            if (k < n && name(w, seen, outer))
                write_object(w, s, outer);
            p += n;
        }
    }
}

/* The name of a component, in its spellings; a default like "auto" stands for any of them. */
static void write_name(writer *w, const char *automatic, const char *component)
{
    const char *path = tt_config_join(w->arena, w->section, "name");
    const bool one = !automatic && !tt_config_value_alias(path, component, 0);
    tt_str_add(w->out, one ? "{\"const\":" : "{\"enum\":[");
    tt_str_json(w->out, component);
    if (automatic)
        tt_str_printf(w->out, ",%s", automatic);
    write_value_aliases(w, "name", component);
    tt_str_add(w->out, one ? "}" : "]}");
}

/* Rows of every doc with this key and component; const_name: what "name" must be, or NULL. */
static void write_rows(writer *w, const char *key, const char *component, const char *const_name,
                       tt_map *seen)
{
    w->section = key;
    for (size_t d = 0; d < w->n; d++) {
        const tt_section_doc *s = &w->docs[d];
        bool same =
            component ? s->component && strcmp(s->component, component) == 0 : !s->component;
        if (strcmp(s->key, key) != 0 || !same)
            continue;
        for (size_t i = 0; i < s->n_options; i++) {
            tt_option o = tt_config_row(s->options, s->option_size, i);
            if (const_name && strcmp(o.name, "name") == 0) {
                if (!name(w, seen, "name"))
                    continue;
                write_name(w, o.default_json, const_name);
            } else {
                write_row(w, &o, seen);
            }
        }
        write_objects(w, s, seen);
    }
}

static void write_section(writer *w, const char *key);

/* The part of a doc's key right below `key`, or NULL: "model.args" below "model" is "args". */
static const char *below(writer *w, const char *key, const char *doc_key)
{
    size_t n = strlen(key);
    if (strncmp(doc_key, key, n) != 0 || !doc_key[n])
        return NULL;
    const char *rest = doc_key + n;
    if (n && *rest++ != '.')
        return NULL;
    return tt_arena_strn(w->arena, rest, strcspn(rest, "."));
}

static void write_children(writer *w, const char *key, tt_map *seen)
{
    for (size_t d = 0; d < w->n; d++) {
        const char *part = below(w, key, w->docs[d].key);
        size_t n = part ? strlen(part) : 0;
        bool list = n > 2 && strcmp(part + n - 2, "[]") == 0;
        if (!part || !name(w, seen, list ? tt_arena_strn(w->arena, part, n - 2) : part))
            continue;
        tt_str_add(w->out, list ? "{\"type\":\"array\",\"items\":" : "");
        write_section(w, tt_config_join(w->arena, key, part));
        tt_str_add(w->out, list ? "}" : "");
    }
}

/* ---- what is accepted from other trainers: deprecated, so that an editor says what it does */

static void write_values(writer *w, const char *values)
{
    for (const char *p = values; *p;) {
        const size_t n = strcspn(p, "|");
        const char *v = tt_arena_strn(w->arena, p, n);
        const bool json = !strcmp(v, "true") || !strcmp(v, "false") || !strcmp(v, "null") ||
                          *v == '[' || (*v >= '0' && *v <= '9');
        tt_str_add(w->out, p == values ? "\"enum\":[" : ",");
        if (json)
            tt_str_add(w->out, v);
        else
            tt_str_json(w->out, v);
        p += n + (p[n] == '|');
    }
    tt_str_add(w->out, "],");
}

static void write_reserved_key(writer *w, const tt_reserved *r, const char *key, tt_map *seen)
{
    if (!name(w, seen, key))
        return;
    tt_str_add(w->out, "{\"deprecated\":true,");
    if (r->values)
        write_values(w, r->values);
    tt_str_add(w->out, "\"description\":");
    tt_str_json(w->out, r->kind == TT_RESERVED_ALIAS
                            ? tt_arena_printf(w->arena, "another name of %s", r->text)
                            : tt_arena_printf(w->arena, "changes nothing here: %s", r->text));
    tt_str_addc(w->out, '}');
}

static bool accepted(const tt_reserved *r)
{
    return r->kind == TT_RESERVED_ALIAS || r->kind == TT_RESERVED_IDLE;
}

/* The accepted keys right below `section`, "" = the top level. */
static void write_reserved(writer *w, const char *section, tt_map *seen)
{
    size_t n;
    const size_t k = strlen(section);
    const tt_reserved *r = tt_reserved_table(&n);
    for (size_t i = 0; i < n; i++) {
        const char *key = k ? r[i].key + k + 1 : r[i].key;
        if (accepted(&r[i]) && !strncmp(r[i].key, section, k) && (!k || r[i].key[k] == '.') &&
            !strchr(key, '.') && *key != '*')
            write_reserved_key(w, &r[i], key, seen);
    }
}

/* Sections that only other trainers have. */
static void write_foreign_sections(writer *w, tt_map *seen)
{
    size_t n;
    const tt_reserved *r = tt_reserved_table(&n);
    for (size_t i = 0; i < n; i++) {
        const size_t k = strcspn(r[i].key, ".");
        const char *section = tt_arena_strn(w->arena, r[i].key, k);
        if (!accepted(&r[i]) || !r[i].key[k] || !name(w, seen, section))
            continue;
        tt_map *own = tt_map_new(w->arena);
        const bool all = !strcmp(r[i].key + k, ".*");
        tt_str_add(w->out, "{\"type\":\"object\",\"deprecated\":true,\"properties\":{");
        write_reserved(w, section, own);
        tt_str_printf(w->out, "},\"minProperties\":1,\"additionalProperties\":%s}",
                      all ? "true" : "false");
    }
}

static void write_members(writer *w, const char *key, const char *component, const char *const_name)
{
    tt_map *seen = tt_map_new(w->arena);
    tt_str_add(w->out, "\"properties\":{");
    if (component) /* first: what a plugin says of a common key is more exact */
        write_rows(w, key, component, const_name, seen);
    write_rows(w, key, NULL, const_name, seen);
    write_children(w, key, seen);
    write_reserved(w, key, seen);
    if (!*key)
        write_foreign_sections(w, seen);
    if (!*key)
        tt_str_add(
            w->out,
            ",\"$schema\":{\"type\":\"string\"},\"extends\":{\"type\":\"string\",\"description\":"
            "\"another job file, relative to this one, whose values this file overrides\"},"
            "\"validator\":{\"$ref\":\"#/properties/validation\"},"
            "\"profiler\":{\"$ref\":\"#/properties/profiling\"}");
    tt_str_add(w->out, "},\"additionalProperties\":false");
}

static void write_description(writer *w, const char *key, const char *component)
{
    for (size_t d = 0; d < w->n; d++) {
        const tt_section_doc *s = &w->docs[d];
        bool same =
            component ? s->component && strcmp(s->component, component) == 0 : !s->component;
        if (strcmp(s->key, key) != 0 || !same || !s->doc || !*s->doc)
            continue;
        tt_str_add(w->out, "\"description\":");
        tt_str_json(w->out, s->doc);
        tt_str_addc(w->out, ',');
        return;
    }
}

/* A section with the keys of another one refers to that one. */
static bool write_same(writer *w, const char *key)
{
    for (size_t d = 0; d < w->n; d++)
        if (w->docs[d].same_as && strcmp(w->docs[d].key, key) == 0) {
            tt_str_addc(w->out, '{');
            write_description(w, key, NULL);
            tt_str_printf(w->out, "\"$ref\":\"#/properties/%s\"}", w->docs[d].same_as);
            return true;
        }
    return false;
}

static void write_section(writer *w, const char *key)
{
    if (write_same(w, key))
        return;
    size_t n = strlen(key), last = n;
    while (last > 0 && key[last - 1] != '.')
        last--;
    bool named =
        strcmp(key + last, "args") != 0; /* model.args has its component's name elsewhere */
    bool first = true;
    tt_str_add(w->out, "{\"type\":\"object\",");
    write_description(w, key, NULL);
    for (size_t d = 0; d < w->n; d++) {
        const tt_section_doc *s = &w->docs[d];
        if (strcmp(s->key, key) != 0 || !s->component)
            continue;
        tt_str_add(w->out, first ? "\"anyOf\":[{" : ",{");
        first = false;
        tt_str_add(w->out, "\"title\":");
        tt_str_json(w->out, s->component);
        tt_str_addc(w->out, ',');
        write_description(w, key, s->component);
        write_members(w, key, s->component, named ? s->component : NULL);
        tt_str_addc(w->out, '}');
    }
    if (first)
        write_members(w, key, NULL, NULL);
    else
        tt_str_addc(w->out, ']');
    tt_str_addc(w->out, '}');
}

static void pretty(const tt_json *v, int depth, tt_str *out)
{
    bool object = v->type == TT_JSON_OBJECT, deep = false;
    for (size_t i = 0; i < v->n; i++)
        deep = deep || v->items[i]->n > 0;
    if (!v->n || (!deep && depth > 2)) {
        tt_json_write(v, out);
        return;
    }
    tt_str_addc(out, object ? '{' : '[');
    for (size_t i = 0; i < v->n; i++) {
        tt_str_printf(out, "%s\n%*s", i ? "," : "", 2 * depth + 2, "");
        if (object) {
            tt_str_json(out, v->keys[i]);
            tt_str_add(out, ": ");
        }
        pretty(v->items[i], depth + 1, out);
    }
    tt_str_printf(out, "\n%*s%c", 2 * depth, "", object ? '}' : ']');
}

void tt_schema_print(const tt_section_doc *s, size_t n, tt_str *out)
{
    tt_str text = {0};
    tt_error err = {0};
    writer w = {tt_arena_new(), s, n, &text, ""};
    const tt_json *v;
    tt_str_add(
        &text,
        "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":\"ttrun job\","
        "\"type\":\"object\",");
    write_members(&w, "", NULL, NULL);
    tt_str_addc(&text, '}');
    if (tt_json_parse(w.arena, "schema", text.s, text.n, &v, &err) == TT_OK)
        pretty(v, 0, out);
    else /* a table has a default that is not JSON, or a key twice: report it */
        tt_str_add(out, err.text);
    tt_str_addc(out, '\n');
    tt_arena_free(w.arena);
    tt_str_free(&text);
}
