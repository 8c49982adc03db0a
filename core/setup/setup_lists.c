/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <string.h>

/* The job's lists of plugins: hooks, metrics.sinks. */

tt_status tt_setup_count_entries(const tt_setup *s, const char *list, size_t *n, tt_error *err)
{
    TT_TRY(tt_job_list(s->job, list, n, err));
    if (*n > TT_MAX_PARTS)
        return tt_job_fail(s->job, list, err, "%zu entries, at most %d", *n, TT_MAX_PARTS);
    return TT_OK;
}

static const char *entry(const tt_setup *s, const char *list, size_t i)
{
    return tt_arena_printf(s->arena, "%s[%zu]", list, i);
}

tt_status tt_setup_hooks(tt_setup *s, tt_error *err)
{
    size_t n = 0;
    TT_TRY(tt_setup_count_entries(s, "hooks", &n, err));
    for (size_t i = 0; i < n; i++)
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_HOOK, entry(s, "hooks", i), NULL, NULL,
                                s->arena, &s->hooks[i], err));
    s->n_hooks = (int)n;
    return TT_OK;
}

/* ---- metrics ---- */

/* Splits a comma-separated list into an array of names. */
static const char **names_of(tt_arena *a, const char *list, size_t *n)
{
    const char **names = tt_arena_array(a, strlen(list) + 1, sizeof *names);
    *n = 0;
    while (*list) {
        const size_t length = strcspn(list, ",");
        if (length)
            names[(*n)++] = tt_arena_strn(a, list, length);
        list += length + (list[length] == ',');
    }
    return names;
}

/* Two sinks of one kind are allowed, but not with the same settings: both would write to the same
 * place. */
static tt_status check_same_sinks(const tt_setup *s, size_t n, tt_error *err)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = tt_job_text(s->job, entry(s, "metrics.sinks", i));
            const char *b = tt_job_text(s->job, entry(s, "metrics.sinks", k));
            if (a && b && !strcmp(a, b))
                return tt_job_fail(s->job, entry(s, "metrics.sinks", i), err,
                                   "the same as metrics.sinks[%zu]; keep one of them", k);
        }
    return TT_OK;
}

tt_status tt_setup_metrics(tt_setup *s, tt_error *err)
{
    const bool listed = tt_job_has(s->job, "metrics.sinks");
    size_t n = 0;
    const char *of_spec = s->spec->metrics ? s->spec->metrics : "jsonl,tensorboard";
    const char **names = names_of(s->arena, of_spec, &n);
    if (listed)
        TT_TRY(tt_setup_count_entries(s, "metrics.sinks", &n, err));
    if (listed)
        TT_TRY(check_same_sinks(s, n, err));
    for (size_t i = 0; i < n; i++) {
        tt_part p;
        if (!listed && !strcmp(names[i], "tensorboard") && !s->core.metrics.enable_tensorboard)
            continue;
        if (s->n_metrics == TT_MAX_PARTS)
            return TT_FAIL(err, TT_EINVAL, "too many metrics plugins");
        const char *key = entry(s, "metrics.sinks", listed ? i : (size_t)s->n_metrics);
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_METRICS, key, listed ? NULL : names[i],
                                NULL, s->arena, &p, err));
        if (strcmp(p.name, "tensorboard") || s->core.metrics.enable_tensorboard)
            s->metrics[s->n_metrics++] = p;
    }
    return TT_OK;
}
