/* SPDX-License-Identifier: Apache-2.0 */
#include "config/dialects.h"
#include "config/internal.h"
#include <string.h>
#include <strings.h>

/* Spellings of other trainers that a job may use: keys with another name here, values with another
 * name here, and keys that ttrun does without. Each is taken with a notice. */

const char *tt_config_value_alias(const char *key, const char *ours, size_t i)
{
    const tt_dialect_value *values = tt_dialects_known.values;
    for (size_t k = 0; k < tt_dialects_known.n_values; k++)
        if (!values[k].instead && !strcmp(values[k].key, key) && !strcmp(values[k].here, ours) &&
            i-- == 0)
            return values[k].value;
    return NULL;
}

static void notice(const tt_job *job, const char *text)
{
    tt_config_book *book = job->book;
    for (size_t i = 0; i < book->notices.n; i++)
        if (!strcmp(book->notices.items[i], text))
            return;
    tt_vec_push(job->arena, &book->notices, text);
}

const char *const *tt_job_notices(const tt_job *job, size_t *n)
{
    *n = job->book->notices.n;
    return job->book->notices.items;
}

bool tt_job_spelt(const tt_job *job, const char *key)
{
    for (size_t i = 0; i < job->book->spelt.n; i++)
        if (!strcmp(job->book->spelt.items[i], key))
            return true;
    return false;
}

/* "job.json:3:5: KEY", "--KEY" */
static const char *place_of(const tt_job *job, const tt_json *v, const char *key)
{
    const char *at = tt_config_origin(job->arena, v);
    const bool named = v->origin && v->origin->command_line;
    return named ? at : tt_arena_printf(job->arena, "%s: %s", at, key);
}

/* Takes the object of a key off its section, and a section that is then empty off the job. */
static void take_off(tt_job *job, const char *key)
{
    const char *dot = strrchr(key, '.');
    const char *section = tt_arena_strn(job->arena, key, dot ? (size_t)(dot - key) : 0);
    tt_json *object = tt_config_find(job, section);
    tt_config_remove(object, dot ? dot + 1 : key);
    if (dot && !object->n)
        tt_config_remove(job->root, section);
}

static int layer_of(const tt_json *v)
{
    return v->origin ? v->origin->layer : -1;
}

static tt_status take_key(tt_job *job, const tt_reserved *r, tt_error *err)
{
    tt_json *v = tt_config_find(job, r->key), *own = tt_config_find(job, r->text);
    if (!v)
        return TT_OK;
    const int layer = layer_of(v), own_layer = own ? layer_of(own) : -1;
    if (own && layer == own_layer)
        return tt_config_fail(v, NULL, r->key, err, "the same option as %s; keep one of them",
                              r->text);
    notice(job, tt_arena_printf(job->arena, "%s: taken as %s", place_of(job, v, r->key), r->text));
    take_off(job, r->key);
    return own_layer > layer ? TT_OK : tt_config_set_path(job, r->text, v, err);
}

tt_json *tt_config_renamed(const tt_job *job, const tt_json *v, const char *text)
{
    tt_json *copy = tt_arena_dup(job->arena, v, sizeof *v);
    copy->string = text;
    if (v->origin && v->origin->raw) { /* tt_config_read takes the typed text of a string */
        tt_json_origin *o = tt_arena_dup(job->arena, v->origin, sizeof *o);
        o->raw = text;
        copy->origin = o;
    }
    return copy;
}

static bool is_alias(const tt_dialect_value *a, const char *text)
{
    if (a->any_case)
        return strcasecmp(text, a->here) == 0 && strcmp(text, a->here) != 0;
    return strcmp(text, a->value) == 0;
}

/* The value is one of another key here. */
static tt_status move_value(tt_job *job, const tt_dialect_value *a, const tt_json *v, tt_error *err)
{
    notice(job, tt_arena_printf(job->arena, "%s: taken as %s %s", place_of(job, v, a->key),
                                a->instead, a->here));
    take_off(job, a->key);
    return tt_config_find(job, a->instead)
               ? TT_OK
               : tt_config_set_path(job, a->instead, tt_config_renamed(job, v, a->here), err);
}

static tt_status take_value(tt_job *job, const tt_dialect_value *a, tt_error *err)
{
    tt_json *v = tt_config_find(job, a->key);
    if (!v || v->type != TT_JSON_STRING || !is_alias(a, v->string))
        return TT_OK;
    if (a->instead)
        return move_value(job, a, v, err);
    const char *written = v->string;
    const tt_json *other = a->also ? tt_config_find(job, a->also) : NULL;
    const bool sets = a->also && (!other || layer_of(other) < layer_of(v));
    if (sets)
        TT_TRY(tt_config_set_path(job, a->also, tt_arena_dup(job->arena, v, sizeof *v), err));
    v = tt_config_find(job, a->key);
    *v = *tt_config_renamed(job, v, a->here);
    notice(job, tt_arena_printf(job->arena, "%s: \"%s\" is taken as \"%s\"%s%s%s",
                                place_of(job, v, a->key), written, a->here, sets ? " with " : "",
                                sets ? a->also : "", sets ? " of that name" : ""));
    return TT_OK;
}

/* A section that only torchtitan has shows where a job comes from. Losses and speed change with a
 * default that is not the same there, and no key of the job says so. */
static void tell_precision(const tt_job *job)
{
    static const char *const theirs[] = {"job", "compile", "quantize"};
    bool titan = false;
    for (size_t i = 0; i < TT_COUNT(theirs); i++)
        titan = titan || tt_config_find(job, theirs[i]);
    if (titan && !tt_config_find(job, "training.mixed_precision_param"))
        notice(job, "training.mixed_precision_param: float32 unless it is set; torchtitan's "
                    "default is bfloat16");
}

tt_status tt_config_take_aliases(tt_job *job, tt_error *err)
{
    size_t n;
    tell_precision(job);
    const tt_reserved *r = tt_reserved_table(&n);
    for (size_t i = 0; i < n; i++)
        if (r[i].kind == TT_RESERVED_ALIAS)
            TT_TRY(take_key(job, &r[i], err));
    for (size_t i = 0; i < tt_dialects_known.n_values; i++)
        TT_TRY(take_value(job, &tt_dialects_known.values[i], err));
    bool groups = false;
    TT_TRY(tt_config_take_groups(job, &groups, err));
    if (groups)
        notice(job,
               "optimizer.param_groups: pattern, optimizer_name and optimizer_kwargs are taken as "
               "match, name and its options");
    return TT_OK;
}

static bool is_one_of(const tt_json *v, const char *list)
{
    tt_str text = {0};
    if (v->type == TT_JSON_STRING)
        tt_str_add(&text, v->string);
    else
        tt_json_write(v, &text);
    const bool found = tt_config_spelling(list, tt_str_get(&text));
    tt_str_free(&text);
    return found;
}

bool tt_config_idle(const tt_job *job, const tt_json *v, const char *path)
{
    const tt_reserved *r = tt_reserved_find(path);
    if (!r || r->kind != TT_RESERVED_IDLE || (r->values && !is_one_of(v, r->values)))
        return false;
    notice(job, tt_arena_printf(job->arena, "%s: changes nothing here: %s", place_of(job, v, path),
                                r->text));
    return true;
}
