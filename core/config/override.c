/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <limits.h>
#include <string.h>

/* `--section.key VALUE` is one more layer over the job's tree. The option's type is not known here,
 * so a value keeps its text and, if the text is JSON, the parsed value; tt_config_read chooses. */

const char *tt_config_section_name(const char *key)
{
    static const char *const names[][2] = {
  /* torchtitan's name today → the one of 2025, ours */
        {"validator", "validation"},
        {"profiler",  "profiling" }
    };
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (strcmp(key, names[i][0]) == 0)
            return names[i][1];
    return key;
}

static tt_json *typed_value(tt_job *job, const tt_json_origin *origin, const char *value)
{
    tt_json_origin *top = tt_arena_dup(job->arena, origin, sizeof *top);
    tt_json *v;
    top->raw = tt_arena_str(job->arena, value);
    if (tt_config_parse(job->arena, origin, value, strlen(value), &v, NULL) != TT_OK) {
        v = tt_config_node(job->arena, TT_JSON_STRING, top);
        v->string = top->raw;
    }
    v->origin = top; /* only the whole value keeps its text, not its parts */
    return v;
}

static tt_status malformed(const tt_json_origin *origin, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "%s: not a key (like --training.steps or --hooks[0].name)",
                   origin->name);
}

/* Sets v at `path` below `at` and makes the objects that are missing on the path. */
static tt_status set(tt_job *job, tt_json *at, const char *path, tt_json *v, tt_error *err)
{
    const char *key;
    size_t index = 0;
    const char *rest = tt_config_step(job->arena, path, &key, &index);
    if (!rest)
        return malformed(v->origin, err);
    tt_json *old = NULL, *next = v;
    if (key)
        old = (tt_json *)tt_json_get(at, key);
    else if (index < at->n)
        old = at->items[index];
    else if (index > at->n)
        return TT_FAIL(err, TT_EINVAL, "%s: the list has %zu elements", v->origin->name, at->n);
    if (*rest) {
        tt_json_type type = *rest == '[' ? TT_JSON_ARRAY : TT_JSON_OBJECT;
        next = old && old->type == type ? old : tt_config_node(job->arena, type, v->origin);
        TT_TRY(set(job, next, rest, v, err));
    } else {
        next = tt_config_merge(job->arena, old, v);
    }
    if (key) {
        if (next != old)
            tt_config_put(job->arena, at, key, (tt_json_pos){0, 0}, next);
        return TT_OK;
    }
    tt_json **items = tt_arena_array(job->arena, at->n + 1, sizeof *items);
    if (at->n)
        memcpy(items, at->items, at->n * sizeof *items);
    items[index] = next;
    at->items = items;
    at->n += index == at->n;
    return TT_OK;
}

tt_status tt_config_set_path(tt_job *job, const char *path, tt_json *v, tt_error *err)
{
    return set(job, job->root, path, v, err);
}

tt_status tt_config_override(tt_job *job, const tt_override *o, int layer, tt_error *err)
{
    tt_json_origin *origin = tt_arena_alloc(job->arena, sizeof *origin);
    const char *key = o->key ? o->key : "";
    size_t n = strcspn(key, ".[");
    origin->name = tt_arena_printf(job->arena, "--%s", key);
    origin->layer = layer;
    origin->command_line = true;
    if (!*key || *key == '[')
        return malformed(origin, err);
    const char *section = tt_config_section_name(tt_arena_strn(job->arena, key, n));
    if (strcmp(section, "extends") == 0)
        return TT_FAIL(err, TT_EINVAL, "--extends: only a job file can extend another");
    tt_json *v = typed_value(job, origin, o->value ? o->value : "true");
    return set(job, job->root, tt_arena_printf(job->arena, "%s%s", section, key + n), v, err);
}

tt_status tt_job_override(tt_job *job, const char *key, const char *value, tt_error *err)
{
    const tt_override o = {key, value};
    return tt_config_override(job, &o, INT_MAX, err);
}

tt_status tt_job_default(tt_job *job, const char *key, const char *json, const char *origin,
                         tt_error *err)
{
    tt_json_origin *from = tt_arena_alloc(job->arena, sizeof *from);
    tt_json *v;
    if (tt_config_find(job, key))
        return TT_OK;
    from->name = origin;
    from->layer = -1;
    from->command_line = true; /* errors show the name alone: there is no line */
    TT_TRY(tt_config_parse(job->arena, from, json, strlen(json), &v, err));
    return set(job, job->root, key, v, err);
}
