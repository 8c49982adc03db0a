/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Prints `ttrun config --explain` and docs/reference.md from the option tables. */

static void add_choices(const tt_option *o, bool built, tt_str *out)
{
    size_t start = out->n;
    for (const char *p = o->choices; p && *p;) {
        size_t n = strcspn(p, "|");
        if ((*p != '~') == built)
            tt_str_printf(out, "%s%.*s", out->n > start ? ", " : "", (int)n - !built, p + !built);
        p += n + (p[n] == '|');
    }
}

/* "integer, 1 or more", "one of none, selective, full" */
static void add_type(const tt_option *o, tt_str *out)
{
    static const char *const names[] = {
        [TT_OPT_BOOL] = "true or false", [TT_OPT_INT] = "integer",
        [TT_OPT_FLOAT] = "number",       [TT_OPT_STRING] = "string",
        [TT_OPT_ENUM] = "one of ",       [TT_OPT_STRINGS] = "list of strings",
        [TT_OPT_JSON] = "JSON",          [TT_OPT_CHOICE] = "one of "};
    tt_str_add(out, o->type <= TT_OPT_CHOICE ? names[o->type] : "value");
    if (o->type == TT_OPT_ENUM || o->type == TT_OPT_CHOICE)
        add_choices(o, true, out);
    if (o->flags & TT_OPT_NULLABLE)
        tt_str_add(out, " or null");
    bool number = o->type == TT_OPT_INT || o->type == TT_OPT_FLOAT;
    if (!number || !(o->min < 0 || o->min > 0 || o->max < 0 || o->max > 0))
        return;
    tt_str_add(out, ", ");
    if (o->min > -1e18)
        tt_str_json_number(out, o->min);
    if (o->max < 1e18) {
        tt_str_add(out, o->min > -1e18 ? " to " : "at most ");
        tt_str_json_number(out, o->max);
    } else {
        tt_str_add(out, " or more");
    }
}

/* Adds notes on an option, each after "; ". */
static void add_notes(const tt_option *o, tt_str *out)
{
    tt_str later = {0};
    if (o->type == TT_OPT_ENUM || o->type == TT_OPT_CHOICE)
        add_choices(o, false, &later);
    if (later.n)
        tt_str_printf(out, "; not built yet: %s", later.s);
    if (o->flags & TT_OPT_NOT_YET)
        tt_str_add(out, "; not built yet: only the default works");
    if (o->aliases) {
        tt_str_add(out, "; also spelt ");
        for (const char *p = o->aliases; *p; p++)
            tt_str_add(out, *p == '|' ? ", " : (const char[]){*p, '\0'});
    }
    tt_str_free(&later);
}

static const char *default_text(const tt_option *o)
{
    return o->default_json ? o->default_json : "none";
}

static void explain_row(const char *path, const char *component, const tt_option *o, tt_str *out)
{
    tt_str_printf(out, "%s", path);
    if (component)
        tt_str_printf(out, " [%s]", component);
    tt_str_add(out, "\n    ");
    tt_str_add(out, o->doc ? o->doc : "");
    add_notes(o, out);
    tt_str_add(out, "\n    ");
    add_type(o, out);
    tt_str_printf(out, "; default %s\n", default_text(o));
}

/* Whether one of the spellings "a|b.c" is `name`, or a member of an object of this name. */
static bool spelt(tt_arena *a, const char *aliases, const char *name)
{
    for (const char *p = aliases; p && *p; p += *p == '|') {
        const size_t n = strcspn(p, "|");
        if (tt_config_under(tt_arena_strn(a, p, n), name))
            return true;
        p += n;
    }
    return false;
}

/* Whether the user's key means this one: it is the key, its section, or the section's alias. */
static bool asked(tt_arena *a, const char *key, const char *path, const char *section,
                  const tt_option *o)
{
    size_t n = strcspn(key, ".[");
    const char *head = tt_config_section_name(tt_arena_strn(a, key, n));
    const char *canonical = tt_arena_printf(a, "%s%s", head, key + n);
    if (tt_config_under(path, canonical))
        return true;
    if (!strchr(canonical, '.'))
        return !*section && tt_config_spelling(o->aliases, canonical);
    n = strlen(section);
    return strncmp(canonical, section, n) == 0 && canonical[n] == '.' &&
           spelt(a, o->aliases, canonical + n + 1);
}

static void explain_nearest(tt_arena *a, const tt_section_doc *s, size_t n, const char *key,
                            tt_str *out)
{
    TT_VEC(const char *) all = {0};
    const char *last = strrchr(key, '.'), *found = NULL;
    last = last ? last + 1 : key;
    for (size_t d = 0; d < n; d++) {
        tt_vec_push(a, &all, s[d].key);
        for (size_t i = 0; i < s[d].n_options; i++) {
            tt_option o = tt_config_row(s[d].options, s[d].option_size, i);
            const char *path = tt_config_join(a, s[d].key, o.name);
            tt_vec_push(a, &all, path);
            if (!found && strcmp(o.name, last) == 0)
                found = path;
        }
    }
    found = found ? found : tt_nearest(key, all.items, all.n);
    size_t plain =
        strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]");
    tt_str_printf(out, "%s: unknown key", key[plain] ? tt_config_key(a, key) : key);
    if (found)
        tt_str_printf(out, " (did you mean %s?)", found);
    tt_str_addc(out, '\n');
}

const char *tt_docs_key_ending_in(tt_arena *a, const tt_section_doc *s, size_t n, const char *name)
{
    for (size_t d = 0; d < n; d++)
        for (size_t i = 0; i < s[d].n_options; i++) {
            const tt_option o = tt_config_row(s[d].options, s[d].option_size, i);
            if (strcmp(o.name, name) == 0 || tt_config_spelling(o.aliases, name))
                return tt_config_join(a, s[d].key, o.name);
        }
    return NULL;
}

/* The rows of one table, as keys of `section`. */
static bool explain_table(tt_arena *a, const tt_section_doc *table, const tt_section_doc *section,
                          const char *key, bool *headed, tt_str *out)
{
    bool found = false;
    for (size_t i = 0; i < table->n_options; i++) {
        tt_option o = tt_config_row(table->options, table->option_size, i);
        const char *path = tt_config_join(a, section->key, o.name);
        if (key && !asked(a, key, path, section->key, &o))
            continue;
        bool whole = !key || strcmp(path, key) != 0;
        if (whole && !*headed && section->doc && *section->doc && *section->key)
            tt_str_printf(out, "%s%s%s: %s\n", section->key, section->component ? " " : "",
                          section->component ? section->component : "", section->doc);
        *headed = found = true;
        explain_row(path, table->component, &o, out);
    }
    return found;
}

/* A key, or a section, of another trainer. */
static bool explain_reserved(tt_arena *a, const char *key, tt_str *out)
{
    const tt_reserved *r = tt_reserved_find(key);
    if (!r && !strpbrk(key, ".["))
        r = tt_reserved_find(tt_arena_printf(a, "%s.*", key));
    if (!r)
        return false;
    tt_str_printf(out, "%s\n    ", key);
    if (r->kind == TT_RESERVED_IDLE && r->values)
        tt_str_printf(out, "accepted if %s, and changes nothing here; else: %s\n", r->values,
                      r->otherwise);
    else if (r->kind == TT_RESERVED_IDLE)
        tt_str_printf(out, "accepted, and changes nothing here: %s\n", r->text);
    else if (r->kind == TT_RESERVED_MOVED || r->kind == TT_RESERVED_ALIAS)
        tt_str_printf(out, "the same as %s\n", r->text);
    else
        tt_str_printf(out, "%s\n", tt_reserved_answer(a, r));
    return true;
}

void tt_explain_print(const tt_section_doc *s, size_t n, const char *key, tt_str *out)
{
    tt_arena *a = tt_arena_new();
    bool found = false;
    for (size_t d = 0; d < n; d++) {
        bool headed = false;
        found = explain_table(a, &s[d], &s[d], key, &headed, out) || found;
        for (size_t e = 0; s[d].same_as && e < n; e++)
            if (strcmp(s[e].key, s[d].same_as) == 0)
                found = explain_table(a, &s[e], &s[d], key, &headed, out) || found;
    }
    if (key && !found && !explain_reserved(a, key, out))
        explain_nearest(a, s, n, key, out);
    tt_arena_free(a);
}

void tt_explain_sections(const tt_section_doc *s, size_t n, tt_str *out)
{
    tt_str_add(out, "Sections of a job:\n");
    for (size_t d = 0; d < n; d++)
        if (!s[d].component && s[d].doc && *s[d].doc)
            tt_str_printf(out, "  %-22s %s\n", *s[d].key ? s[d].key : "(top level)", s[d].doc);
}

/* Writes a cell of a Markdown table and escapes bars, which would end it. */
static void add_cell(const char *text, tt_str *out)
{
    for (const char *p = text; *p; p++) {
        if (*p == '|')
            tt_str_addc(out, '\\');
        tt_str_addc(out, *p);
    }
}

static void reference_head(const tt_section_doc *s, tt_str *out)
{
    if (s->component)
        tt_str_printf(out, "\n### %s: %s\n\n", s->key, s->component);
    else
        tt_str_printf(out, "\n## %s\n\n", *s->key ? s->key : "Top level");
    if (s->doc && *s->doc)
        tt_str_printf(out, "%s\n%s", s->doc, s->same_as ? "" : "\n");
    if (s->same_as)
        return;
    tt_str_add(out, s->n_options ? "| key | type | default | meaning |\n|---|---|---|---|\n"
                                 : "No keys.\n");
}

static void reference_row(const tt_option *o, tt_str *out)
{
    tt_str type = {0}, notes = {0};
    add_type(o, &type);
    add_notes(o, &notes);
    tt_str_printf(out, "| `%s` | ", o->name);
    add_cell(type.s, out);
    tt_str_add(out, " | `");
    add_cell(default_text(o), out);
    tt_str_add(out, "` | ");
    add_cell(o->doc ? o->doc : "", out);
    add_cell(tt_str_get(&notes), out);
    tt_str_add(out, " |\n");
    tt_str_free(&type);
    tt_str_free(&notes);
}

/* The keys of other trainers that a job may have. */
static void reference_accepted(tt_str *out)
{
    size_t n;
    const tt_reserved *r = tt_reserved_table(&n);
    tt_str_add(out, "\n## Accepted from torchtitan\n\nThese keys are taken with a notice. `ttrun "
                    "config --explain KEY` answers for those that are refused, and for Hugging "
                    "Face's, Megatron-LM's, nanoGPT's, nanochat's and llm.c's names.\n\n"
                    "| key | values | effect |\n|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        if (r[i].kind != TT_RESERVED_ALIAS && r[i].kind != TT_RESERVED_IDLE)
            continue;
        const bool alias = r[i].kind == TT_RESERVED_ALIAS;
        tt_str_printf(out, "| `%s` | ", r[i].key);
        add_cell(alias ? "as there" : r[i].values ? r[i].values : "any", out);
        tt_str_printf(out, " | %s", alias ? "the same as " : "none: ");
        add_cell(r[i].text, out);
        tt_str_add(out, " |\n");
    }
}

void tt_reference_print(const tt_section_doc *s, size_t n, tt_str *out)
{
    tt_str_add(out, "# Job file reference\n\nMade from the option tables by `make docs` (`ttrun "
                    "config --reference`); do not edit.\n"
                    "Every key may be given on the command line as `--section.key VALUE`.\n");
    for (size_t d = 0; d < n; d++) {
        /* the rows of a section's second table follow those of the first */
        if (d == 0 || s[d].component || strcmp(s[d].key, s[d - 1].key) != 0)
            reference_head(&s[d], out);
        for (size_t i = 0; i < s[d].n_options; i++) {
            const tt_option o = tt_config_row(s[d].options, s[d].option_size, i);
            reference_row(&o, out);
        }
    }
    reference_accepted(out);
}
