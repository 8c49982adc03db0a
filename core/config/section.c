/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Parses an object of the job by an option table: defaults < base < job. All values are checked
 * before any is stored. */

typedef struct table {
    tt_job *job;
    const char *path; /* of the object, "" = top level or a bare text */
    const tt_option *options;
    size_t n, option_size;
    const char *const *ignore;
    tt_config_value *values; /* [n] */
    const char **origins;    /* [n] NULL = the job does not set it */
} table;

static table table_new(tt_job *job, const char *path, const tt_option *options, size_t n,
                       size_t option_size, const char *const *ignore)
{
    table t = {job, tt_arena_str(job->arena, path), options, n, option_size, ignore, NULL, NULL};
    t.values = tt_arena_array(job->arena, n, sizeof *t.values);
    t.origins = tt_arena_array(job->arena, n, sizeof *t.origins);
    return t;
}

/* The row that has this spelling of a key, n if none. */
static size_t find_row(const table *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++) {
        tt_option o = tt_config_row(t->options, t->option_size, i);
        if (o.name && (strcmp(o.name, key) == 0 || tt_config_spelling(o.aliases, key)))
            return i;
    }
    return t->n;
}

static bool is_ignored(const table *t, const char *key)
{
    for (size_t i = 0; t->ignore && t->ignore[i]; i++)
        if (strcmp(t->ignore[i], key) == 0)
            return true;
    return false;
}

static tt_status fail_unknown(const table *t, const tt_json *object, size_t at, tt_error *err)
{
    TT_VEC(const char *) own = {0};
    for (size_t i = 0; i < t->n; i++) {
        tt_option o = tt_config_row(t->options, t->option_size, i);
        if (o.name)
            tt_vec_push(t->job->arena, &own, o.name);
    }
    for (size_t i = 0; t->ignore && t->ignore[i]; i++)
        tt_vec_push(t->job->arena, &own, t->ignore[i]);
    return tt_config_fail_unknown(t->job, object, at, t->path, own.items, own.n, err);
}

/* An object has two spellings of one key: within one file that is an error, else the later layer
 * wins. Gives the member that stays. */
static tt_status choose_spelling(const table *t, const tt_json *object, size_t first, size_t second,
                                 size_t *winner, tt_error *err)
{
    const tt_json *a = object->items[first], *b = object->items[second];
    int la = a->origin ? a->origin->layer : -1, lb = b->origin ? b->origin->layer : -1;
    if (la == lb)
        return tt_config_fail(b, &object->key_pos[second],
                              tt_config_join(t->job->arena, t->path, object->keys[second]), err,
                              "the same option as %s; keep one of them",
                              tt_config_join(t->job->arena, t->path, object->keys[first]));
    *winner = la > lb ? first : second;
    return TT_OK;
}

/* members[row] = index + 1 of the object's member for the row, 0 = absent. */
static tt_status match_rows(const table *t, const tt_json *object, size_t *members, tt_error *err)
{
    for (size_t i = 0; i < object->n; i++) {
        const char *key = object->keys[i];
        size_t row = find_row(t, key), winner = i;
        if (row == t->n) {
            /* at the top level this may be a section: tt_job_finish checks those */
            if (!is_ignored(t, key) && (*t->path || object != t->job->root) &&
                !tt_config_idle(t->job, object->items[i],
                                tt_config_join(t->job->arena, t->path, key)))
                return fail_unknown(t, object, i, err);
            continue;
        }
        if (members[row])
            TT_TRY(choose_spelling(t, object, members[row] - 1, i, &winner, err));
        members[row] = winner + 1;
    }
    return TT_OK;
}

/* Gives keys their canonical spelling in the tree, so that paths find their values. */
static void rename_members(const table *t, tt_json *object, const size_t *members)
{
    for (size_t row = 0; row < t->n; row++) {
        if (!members[row])
            continue;
        tt_option o = tt_config_row(t->options, t->option_size, row);
        size_t i = members[row] - 1;
        if (strcmp(object->keys[i], o.name) == 0)
            continue;
        tt_vec_push(t->job->arena, &t->job->book->spelt,
                    tt_config_join(t->job->arena, t->path, object->keys[i]));
        for (size_t k = 0; k < object->n; k++) /* remove the spelling that lost */
            if (k != i && strcmp(object->keys[k], o.name) == 0)
                object->keys[k] = object->keys[i];
        object->keys[i] = o.name;
        object->sorted = NULL;
    }
}

/* Overrides t->values by an object's members. */
static tt_status read_object(const table *t, tt_json *object, tt_error *err)
{
    if (object->type != TT_JSON_OBJECT)
        return tt_config_fail_type(object, t->path, "an object", err);
    size_t *members = tt_arena_array(t->job->arena, t->n, sizeof *members);
    TT_TRY(tt_config_nested(t->job, t->path, object, t->options, t->n, t->option_size, err));
    TT_TRY(match_rows(t, object, members, err));
    for (size_t row = 0; row < t->n; row++) {
        if (!members[row])
            continue;
        tt_option o = tt_config_row(t->options, t->option_size, row);
        const tt_json *v = object->items[members[row] - 1];
        const char *path = tt_config_join(t->job->arena, t->path, o.name);
        TT_TRY(tt_config_read(t->job, &o, path, v, &t->values[row], err));
        t->origins[row] = tt_config_origin(t->job->arena, v);
    }
    rename_members(t, object, members);
    return TT_OK;
}

static tt_status read_defaults(const table *t, tt_error *err)
{
    for (size_t row = 0; row < t->n; row++) {
        tt_option o = tt_config_row(t->options, t->option_size, row);
        if (!o.name)
            return TT_FAIL(err, TT_EINVAL, "option table of %s: row %zu has no name", t->path, row);
        const char *path = tt_config_join(t->job->arena, t->path, o.name);
        TT_TRY(tt_config_default(t->job, &o, path, &t->values[row], err));
        t->origins[row] = "default";
    }
    return TT_OK;
}

/* Parses a text that is not from the job: errors show its name instead of a position. */
static tt_status parse_bare(tt_job *job, const char *name, const char *text, tt_json **out,
                            tt_error *err)
{
    tt_json_origin *origin = tt_arena_alloc(job->arena, sizeof *origin);
    origin->name = tt_arena_str(job->arena, name);
    origin->layer = -1;
    return tt_config_parse(job->arena, origin, text, strlen(text), out, err);
}

/* Stores the values in *out and enters them in the job's book under `path`. */
static void store(const table *t, const char *path, void *out)
{
    for (size_t row = 0; row < t->n; row++) {
        if (!t->origins[row])
            continue;
        tt_option o = tt_config_row(t->options, t->option_size, row);
        if (out)
            tt_config_store(&o, &t->values[row], out);
        if (path)
            tt_config_set(t->job, tt_config_join(t->job->arena, path, o.name),
                          tt_config_json(t->job, &o, &t->values[row]), t->origins[row], false);
    }
}

static void enter_section(const table *t, const void *out)
{
    tt_config_book *book = t->job->book;
    tt_arena *a = t->job->arena;
    tt_config_section s = {t->path, out};
    tt_section_doc doc = {t->path, NULL, "", t->options, t->n, t->option_size, NULL};
    if (*t->path)
        tt_config_claim(t->job, t->path);
    for (size_t i = 0; t->ignore && t->ignore[i]; i++)
        tt_vec_push(a, &book->ignored, tt_config_join(a, t->path, t->ignore[i]));
    tt_vec_push(a, &book->sections, s);
    tt_job_know(t->job, &doc, 1);
}

tt_status tt_job_section_over(tt_job *job, const char *key, const char *base_name,
                              const char *base_json, const tt_option *options, size_t n_options,
                              size_t option_size, const char *const *ignore, void *out,
                              tt_error *err)
{
    table t = table_new(job, key, options, n_options, option_size, ignore);
    tt_json *object = tt_config_find(job, key), *base;
    TT_TRY(read_defaults(&t, err));
    if (base_json) {
        TT_TRY(parse_bare(job, base_name, base_json, &base, err));
        TT_TRY(read_object(&t, base, err));
    }
    if (object)
        TT_TRY(read_object(&t, object, err));
    enter_section(&t, out);
    store(&t, t.path, out);
    return TT_OK;
}

tt_status tt_job_section(tt_job *job, const char *key, const tt_option *options, size_t n_options,
                         size_t option_size, const char *const *ignore, void *out, tt_error *err)
{
    return tt_job_section_over(job, key, NULL, NULL, options, n_options, option_size, ignore, out,
                               err);
}

tt_status tt_job_overlay(tt_job *job, const char *where, const char *json, const tt_option *options,
                         size_t n_options, size_t option_size, void *inout, tt_error *err)
{
    const tt_config_book *book = job->book;
    const char *path = "", *entered = NULL;
    tt_json *object = NULL;
    for (size_t i = 0; i < book->texts.n && !object; i++)
        if (book->texts.items[i].text == json) {
            object = (tt_json *)book->texts.items[i].node; /* the tree is the job's own */
            path = book->texts.items[i].path;
        }
    for (size_t i = 0; i < book->sections.n; i++)
        if (inout && book->sections.items[i].out == inout)
            entered = book->sections.items[i].path;
    if (!object)
        TT_TRY(parse_bare(job, where, json, &object, err));
    table t = table_new(job, path, options, n_options, option_size, NULL);
    TT_TRY(read_object(&t, object, err));
    store(&t, entered, inout);
    return TT_OK;
}
