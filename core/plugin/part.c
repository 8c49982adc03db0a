/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>

const tt_option *tt_component_option(const tt_component *c, size_t i)
{
    return (const tt_option *)(const void *)((const char *)c->options + i * c->option_size);
}

const void *tt_part_value(const tt_component *c, const void *config, const char *option,
                          tt_option_type type)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const tt_option *o = tt_component_option(c, i);
        if (o->type == type && strcmp(o->name, option) == 0)
            return (const char *)config + o->offset;
    }
    return NULL;
}

/* Returns the list of "name" and the caller's keys, NULL-terminated. */
static const char *const *with_name(tt_arena *a, const char *const *ignore)
{
    size_t n = 0;
    while (ignore && ignore[n])
        n++;
    const char **list = tt_arena_array(a, n + 2, sizeof *list);
    list[0] = "name";
    for (size_t i = 0; i < n; i++)
        list[i + 1] = ignore[i];
    return list;
}

tt_status tt_registry_part_over(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                                const char *fallback, const char *base_name, const char *base_json,
                                const char *const *ignore, tt_arena *a, tt_part *out, tt_error *err)
{
    tt_error why = {0};
    const char *name = NULL;
    const tt_component *c = NULL;
    const char *key = tt_arena_printf(a, "%s.name", section);
    TT_TRY(tt_job_string(job, key, fallback, &name, err));
    const char *text = name ? NULL : tt_job_text(job, section);
    if (text && *text == '"')
        return tt_job_fail(job, section, err, "expected an object, as in {\"name\": %s}", text);
    if (!name)
        return tt_job_fail(job, section, err, "needs a \"name\": which %s", tt_kind_name(kind));
    if (tt_registry_find(r, kind, name, &c, &why) != TT_OK)
        return tt_job_has(job, key) ? tt_job_fail(job, key, err, "%s", why.text)
                                    : TT_FAIL(err, why.code, "%s", why.text);
    void *config = tt_arena_alloc(a, TT_MAXV(c->config_size, (size_t)1));
    TT_TRY(tt_job_section_over(job, section, base_name, base_json, c->options, c->n_options,
                               c->option_size, with_name(a, ignore), config, err));
    *out = (tt_part){c, config, c->name, tt_registry_file(r, c)};
    return TT_OK;
}

tt_status tt_registry_part(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                           const char *fallback, const char *const *ignore, tt_arena *a,
                           tt_part *out, tt_error *err)
{
    return tt_registry_part_over(r, job, kind, section, fallback, NULL, NULL, ignore, a, out, err);
}
