/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Prints the resolved job as text, and the differences between two of them. */

typedef struct node { /* a key of the printed job: children, or a value with its origin */
    const char *key;  /* NULL: an element of a list */
    const tt_json *value;
    const char *origin;
    bool list, raw;
    TT_VEC(struct node *) children;
} node;

static node *child(tt_arena *a, node *parent, const char *key, size_t index)
{
    if (!key && index < parent->children.n)
        return parent->children.items[index];
    for (size_t i = 0; key && i < parent->children.n; i++)
        if (parent->children.items[i]->key && strcmp(parent->children.items[i]->key, key) == 0)
            return parent->children.items[i];
    node *c = tt_arena_alloc(a, sizeof *c);
    c->key = key;
    tt_vec_push(a, &parent->children, c);
    parent->list = !key;
    return c;
}

static bool holds_objects(const tt_json *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i]->type == TT_JSON_OBJECT)
            return true;
    return false;
}

/* Inserts the leaves of a value that was read as a whole, unless there are more exact entries. */
static void insert_raw(tt_arena *a, node *at, const tt_json *v)
{
    bool open = v->type == TT_JSON_OBJECT || (v->type == TT_JSON_ARRAY && holds_objects(v));
    if (at->value && !at->raw)
        return;
    if (!open || !v->n) {
        if (at->children.n)
            return;
        at->value = v;
        at->raw = true;
        at->origin = tt_config_origin(a, v);
        return;
    }
    for (size_t i = 0; i < v->n; i++)
        insert_raw(a, child(a, at, v->type == TT_JSON_OBJECT ? v->keys[i] : NULL, i), v->items[i]);
}

static void insert(tt_arena *a, node *root, const tt_config_entry *e)
{
    node *at = root;
    for (const char *p = e->path; p && *p;) {
        const char *key;
        size_t index = 0;
        p = tt_config_step(a, p, &key, &index);
        if (p)
            at = child(a, at, key, index);
    }
    if (e->raw) {
        insert_raw(a, at, e->value);
        return;
    }
    at->value = e->value;
    at->origin = e->origin;
    at->raw = false;
}

static void indent(size_t depth, tt_str *out)
{
    tt_str_printf(out, "\n%*s", (int)(2 * depth), "");
}

static void print_node(const node *n, bool origins, size_t depth, bool last, tt_str *out)
{
    if (n->key) {
        tt_str_json(out, n->key);
        tt_str_add(out, ": ");
    }
    if (n->children.n) {
        tt_str_addc(out, n->list ? '[' : '{');
        for (size_t i = 0; i < n->children.n; i++) {
            indent(depth + 1, out);
            print_node(n->children.items[i], origins, depth + 1, i + 1 == n->children.n, out);
        }
        indent(depth, out);
        tt_str_addc(out, n->list ? ']' : '}');
    } else if (n->value) {
        tt_json_write(n->value, out);
    } else {
        tt_str_add(out, "{}");
    }
    if (!last)
        tt_str_addc(out, ',');
    if (origins && n->origin && !n->children.n) {
        tt_str_add(out, " // ");
        for (const char *p = n->origin; *p; p++) /* a file's name may hold anything */
            tt_str_addc(out, (unsigned char)*p < 0x20 ? '?' : *p);
    }
}

void tt_job_print(const tt_job *job, bool origins, tt_str *out)
{
    tt_arena *a = tt_arena_new();
    node root = {0};
    const tt_map *entries = job->book->entries;
    for (size_t i = 0; i < tt_map_size(entries); i++)
        insert(a, &root, tt_map_value(entries, i));
    print_node(&root, origins, 0, true, out);
    tt_str_addc(out, '\n');
    tt_arena_free(a);
}

/* ---- differences */

typedef struct leaf {
    const char *path, *text;
} leaf;
typedef TT_VEC(leaf) leaves;

static void flatten(tt_arena *a, const char *path, const tt_json *v, leaves *out)
{
    bool object = v->type == TT_JSON_OBJECT, list = v->type == TT_JSON_ARRAY && holds_objects(v);
    for (size_t i = 0; (object || list) && i < v->n; i++)
        flatten(a,
                object ? tt_config_join(a, path, v->keys[i])
                       : tt_arena_printf(a, "%s[%zu]", path, i),
                v->items[i], out);
    if ((object || list) && v->n)
        return;
    tt_str text = {0};
    tt_json_write(v, &text);
    leaf l = {path, tt_arena_str(a, text.s)};
    tt_str_free(&text);
    tt_vec_push(a, out, l);
}

static tt_map *leaf_map(tt_arena *a, const leaves *l)
{
    tt_map *m = tt_map_new(a);
    for (size_t i = 0; i < l->n; i++)
        tt_map_set(m, l->items[i].path, &l->items[i]);
    return m;
}

static bool read_leaves(tt_arena *a, const char *name, const char *text, leaves *out, tt_str *why)
{
    const tt_json *v;
    tt_error err = {0};
    if (tt_json_parse(a, name, text, strlen(text), &v, &err) != TT_OK) {
        tt_str_printf(why, "%s\n", err.text);
        return false;
    }
    flatten(a, "", v, out);
    return true;
}

static bool is_default(const tt_job *job, const char *path)
{
    const tt_config_entry *e = job ? tt_map_get(job->book->entries, path) : NULL;
    return e && e->origin && !strcmp(e->origin, "default");
}

/* job: the new one, or NULL. */
static void print_diff(const char *old_resolved_json, const char *new_resolved_json,
                       const tt_job *job, tt_str *out)
{
    tt_arena *a = tt_arena_new();
    leaves before = {0}, after = {0};
    if (read_leaves(a, "the old job", old_resolved_json, &before, out) &&
        read_leaves(a, "the new job", new_resolved_json, &after, out)) {
        tt_map *old = leaf_map(a, &before), *new = leaf_map(a, &after);
        for (size_t i = 0; i < before.n; i++) {
            const leaf *l = &before.items[i], *n = tt_map_get(new, l->path);
            if (!n || strcmp(n->text, l->text) != 0)
                tt_str_printf(out, "%s: %s → %s\n", l->path, l->text, n ? n->text : "(absent)");
        }
        for (size_t i = 0; i < after.n; i++)
            if (!tt_map_get(old, after.items[i].path) && !is_default(job, after.items[i].path))
                tt_str_printf(out, "%s: (absent) → %s\n", after.items[i].path, after.items[i].text);
    }
    tt_arena_free(a);
}

void tt_job_diff(const char *old_resolved_json, const char *new_resolved_json, tt_str *out)
{
    print_diff(old_resolved_json, new_resolved_json, NULL, out);
}

void tt_job_changes(const char *old_resolved_json, const tt_job *job, tt_str *out)
{
    tt_str now = {0};
    tt_job_print(job, false, &now);
    print_diff(old_resolved_json, tt_str_get(&now), job, out);
    tt_str_free(&now);
}
